"""The report of a reproduction: its tables and figures, ours beside the published ones, from `summary.json` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unkgcp.evaluation.figures.paper_figures import drawings, read_summary
from unkgcp.evaluation.figures.style import design, look
from unkgcp.evaluation.report.html import (
    Section,
    beside,
    duration,
    figure,
    page,
    paragraph,
    percent,
    tiles,
)
from unkgcp.evaluation.reproduction.checks import at_level
from unkgcp.evaluation.reproduction.paper_tables import data_name, make_tables
from unkgcp.evaluation.tables import Html, Table, tag

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


def reproduction_page(directory: Path) -> str:
    """The whole page of a reproduction."""
    summary = read_summary(directory)
    tables = {table.name: table for table in make_tables(summary)}

    def section(key: str, title: str, short: str, *names: str) -> list[Section]:
        """The tables of these names under one heading; no section where none of them is there."""
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
    """A section a kind of figure, the paper's protocol first; facts and negatives side by side."""
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
