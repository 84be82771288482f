"""The figures of the paper and the report page of a reproduction, both made from its `summary.json` alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.evaluation.charts import (
    Curve,
    ErrorPanel,
    Panel,
    draw_conditionality,
    draw_levels,
    draw_sizes,
)
from unkgcp.evaluation.figure_design import Drawn, design, look, save
from unkgcp.evaluation.report.page_parts import (
    Section,
    beside,
    duration,
    figure,
    page,
    paragraph,
    percent,
    tiles,
)
from unkgcp.evaluation.reproduction.paper_claims import at_level
from unkgcp.evaluation.reproduction.paper_tables import data_name, make_tables
from unkgcp.evaluation.tables import Html, Table, tag

SUMMARY, FOLDER = "summary.json", "figures"
METHODS = ("fpi", "qr", "cp", "unkgcp", "evidence")
KINDS = {
    "levels": (
        "Width and coverage against the level",
        "Mean width (above) and coverage (below) against the level asked for, the dashed line; "
        "shaded: standard deviation over seeds. The paper\u2019s Figures 1 and 4\u20138.",
    ),
    "conditionality": (
        "Does width tell what is hard?",
        "Mean width of the intervals that cover, over 30 bins of the prediction\u2019s absolute error, and below it "
        "how many test triples have such an error. The paper\u2019s Figures 2 and 9\u201313.",
    ),
    "calibration": (
        "How many calibration facts are enough?",
        "Coverage (above) and mean width (below) against the number of calibration facts; shaded: standard deviation "
        "over random subsets. The paper\u2019s Figures 3 and 14\u201318.",
    ),
}
CLASSES = {"positive": "test facts", "negative": "test negatives"}

Cell = dict[str, Any]


def draw_reproduction(directory: str | os.PathLike[str], names: Collection[str] | None = None) -> list[Path]:
    """Draw every figure that the summary has data for, or some; gives the paths of the files written."""
    directory = Path(directory)
    written: list[Path] = []
    with design():
        for name, draw in drawings(read_summary(directory)):
            if names is None or name in names:
                written += save(draw(), directory / FOLDER / name)
    return written


def figure_names(directory: Path) -> list[str]:
    """The figures that the summary has data for."""
    return [name for name, _ in drawings(read_summary(directory))]


def read_summary(directory: Path) -> dict[str, Any]:
    """The summary of a reproduction, or one sentence about what is wrong with it."""
    path = directory / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{directory} has no {SUMMARY}; make it with unkgcp reproduce -o {directory}"
        ) from None
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"{path} cannot be read ({why}); run unkgcp reproduce -o {directory} again"
        ) from None
    if not isinstance(summary, dict) or not all(summary.get(part) for part in ("cells", "paper", "checks")):
        raise InputError(f"{path} is no summary of a reproduction; run unkgcp reproduce -o {directory} again")
    return summary


def drawings(summary: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Drawn]]]:
    """(name, how to draw it) of every figure, a protocol and a data set at a time."""
    cells = summary["cells"]
    for protocol, data in dict.fromkeys((cell["protocol"], cell["data"]) for cell in cells):
        chosen = [cell for cell in cells if (cell["protocol"], cell["data"]) == (protocol, data)]
        for part in CLASSES:
            for kind, make in (("levels", _levels), ("conditionality", _errors), ("calibration", _sizes)):
                draw = make(chosen, part)
                if draw is not None:
                    yield f"{kind}-{protocol}-{data}-{part}", draw


def _levels(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels = []
    for cell in cells:
        found = [(method, parts[part]) for method, parts in _chosen(cell["predictors"]) if part in parts]
        columns = [("coverage", "mean"), ("sharpness", "mean"), ("coverage", "sd"), ("sharpness", "sd")]
        curves = {
            method: Curve(cell["levels"], *(numbers(figures[kind][what]) for kind, what in columns))
            for method, figures in found
        }
        if curves:
            panels.append(Panel(look(cell["model"]).name, curves))
    return (lambda: draw_levels(panels)) if panels else None


def _errors(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels = [
        ErrorPanel(
            look(cell["model"]).name,
            found["edges"],
            found["count"],
            {method: numbers(bins["width"]) for method, bins in _chosen(found["predictors"])},
        )
        for cell in cells
        if (found := (cell.get("conditionality") or {}).get(part)) and _chosen(found["predictors"])
    ]
    return (lambda: draw_conditionality(panels)) if panels else None


def _sizes(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels, levels = [], []
    for cell in cells:
        about = cell.get("calibration_size") or {}
        if not (found := about.get(part)) or not _chosen(found["predictors"]):
            continue
        levels.append(about["level"])
        curves = {
            method: Curve(
                found["sizes"],
                *(numbers(curve[name]) for name in ("coverage", "sharpness", "coverage_sd", "sharpness_sd")),
            )
            for method, curve in _chosen(found["predictors"])
        }
        panels.append(Panel(look(cell["model"]).name, curves))
    return (lambda: draw_sizes(panels, levels[0])) if panels else None


def _chosen(predictors: dict[str, Any]) -> list[tuple[str, Any]]:
    """The methods that are drawn, in one order everywhere."""
    return [(method, predictors[method]) for method in METHODS if method in predictors]


def numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A list in which null stands for nothing, as floats with NaN; null itself is one NaN."""
    if values is None:
        return np.array(np.nan)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


# The report page.


def reproduction_page(directory: Path) -> str:
    """The whole page of a reproduction."""
    summary = read_summary(directory)
    tables = {table.name: table for table in make_tables(summary)}

    def section(key: str, title: str, short: str, *names: str) -> list[Section]:
        """The tables of these names under one heading; no section where there are none of them."""
        body = [part for name in names if name in tables for part in _shown(tables[name], len(names) > 1)]
        return [Section(key, title, body, short)] if body else []

    beyond = ("combined", "combined-strict", "overlap-free", "overlap-free-strict", "protocols", "entropy")
    sections = [
        *section("checks", "The paper\u2019s statements as checks", "Checks", "checks"),
        *section("table-1", "Coverage and width on test facts", "Table 1", "table1"),
        *section("table-2", "Error of the models", "Table 2", "table2"),
        *section("table-3", "Coverage and width on negatives", "Table 3", "table3"),
        *_figures(summary),
        *section("beyond", "What the paper does not print", "Beyond", *beyond),
        *section("runtime", "How long it took", "Runtime", "runtime", "runtime-strict"),
        *section("data", "The data", "Data", "statistics"),
    ]
    about = paragraph(
        "Means over seeds, standard deviations in brackets; sharpness is the mean width. Published values are those of "
        "the paper\u2019s tables; differences are ours minus theirs. The paper prints one UKGE, which stands beside "
        "both of its variants."
    )
    title = str(summary.get("title") or "The paper, reproduced")
    return page(title, "Reproduction", _lead(summary), sections, about)


def _shown(table: Table, titled: bool) -> list[Html]:
    """A table with its note above and, where several stand in one section, its title."""
    heading = [tag("h3", table.title)] if titled else []
    names = len(table.text_columns)
    shown = table.html(class_="prose") if table.name == "checks" else table.html(once=max(0, names - 1))
    return [*heading, paragraph(table.note, class_="note"), shown]


def _protocols(summary: dict[str, Any]) -> list[str]:
    """Protocols in the order of the page: the paper's own first."""
    return sorted({str(cell["protocol"]) for cell in summary["cells"]})


def _lead(summary: dict[str, Any]) -> list[Html]:
    protocol = _protocols(summary)[0]
    cells = [cell for cell in summary["cells"] if cell["protocol"] == protocol]
    seeds = max((len(cell["seeds"]) for cell in cells), default=0)
    kept, of = _kept(cells)
    checks = [check for check in summary.get("checks", []) if check.get("holds") is not None]
    held = sum(bool(check["holds"]) for check in checks)
    seconds = sum(value or 0 for cell in summary["cells"] for value in cell.get("seconds", {}).values())
    entries: list[tuple[object, object, object]] = [
        ("Configurations", f"{len(cells)}", f"{seeds} seeds each, {protocol} protocol"),
        ("Coverage kept", f"{kept} of {of}", "CP and UnKGCP within 0.01 of 90\u202f%"),
        ("Checks", f"{held} of {len(checks)}", "of the paper\u2019s statements hold here"),
        ("Time", duration(seconds), "all stages, all protocols"),
    ]
    models = ", ".join(dict.fromkeys(look(cell["model"]).name for cell in cells))
    data = ", ".join(dict.fromkeys(data_name(cell["data"]) for cell in cells))
    said = (
        f"{models} on {data}: intervals of CP and UnKGCP cover {percent(0.9)} of the test facts to within one point "
        f"in {kept} of {of} configurations and methods. Below, every table and figure of the paper stands beside ours."
    )
    return [paragraph(said, class_="lead"), tiles(entries)]


def _kept(cells: list[dict[str, Any]]) -> tuple[int, int]:
    """In how many of the conformal entries mean coverage at 90 % is within 0.01, and of how many."""
    found = [at_level(cell, m, "positive", "coverage")["mean"] for cell in cells for m in ("cp", "unkgcp")]
    shares = [share for share in found if share is not None]
    return sum(abs(share - 0.9) <= 0.01 for share in shares), len(shares)


def _figures(summary: dict[str, Any]) -> list[Section]:
    """One section for each kind of figure, the paper's protocol first; facts and negatives side by side."""
    order = _protocols(summary)
    pairs: dict[str, dict[str, list[Html]]] = {kind: {} for kind in KINDS}
    with design():
        for name, draw in sorted(drawings(summary), key=lambda item: order.index(item[0].split("-")[1])):
            kind, protocol, rest = name.split("-", 2)
            data, part = rest.rsplit("-", 1)
            title = data_name(data) if protocol == "paper" else f"{data_name(data)}, {protocol} protocol"
            said = f"{KINDS[kind][0]}: {title}, {CLASSES[part]}"
            caption = tag("strong", f"{title}, {CLASSES[part]}")
            key = f"{kind}-{len(pairs[kind])}-{part}"
            pairs[kind].setdefault(title, []).append(figure(draw(), key, caption, said))
    return [
        Section(
            kind,
            KINDS[kind][0],
            [paragraph(KINDS[kind][1]), *(beside(*pictures, broad=True) for pictures in found.values())],
            kind.capitalize(),
        )
        for kind, found in pairs.items()
        if found
    ]
