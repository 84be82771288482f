"""The report of a reproduction: the paper's tables and figures, ours beside the published ones.

What it is: the page of a folder made by `unkgcp reproduce`, from its `summary.json` alone. What it is not: an
interpretation; checks and their sentences come with the summary.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unkgcp.evaluation.figures.paper_figures import SUMMARY, drawings, read_summary
from unkgcp.evaluation.figures.style import design, look, matplotlib
from unkgcp.evaluation.report.comparison import (
    beyond_tables,
    coverage_tables,
    error_table,
    runtime_table,
    statistics_table,
)
from unkgcp.evaluation.report.html import (
    Html,
    Section,
    beside,
    data_name,
    duration,
    figure,
    mark,
    page,
    paragraph,
    percent,
    table,
    tag,
    tiles,
)
from unkgcp.files import write_text

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
    title = str(summary.get("title") or "The paper, reproduced")
    main = _protocols(summary)[0] if summary["cells"] else "paper"
    sections = [
        *_checks(summary),
        Section(
            "table-1",
            "Coverage and width on test facts",
            coverage_tables(summary, "positive", "table1", main),
            "Table 1",
        ),
        Section("table-2", "Error of the models", error_table(summary, main), "Table 2"),
        Section(
            "table-3",
            "Coverage and width on negatives",
            coverage_tables(summary, "negative", "table3", main),
            "Table 3",
        ),
        *_figures(summary),
        *_section("beyond", "What the paper does not print", beyond_tables(summary), "Beyond"),
        *_section("runtime", "How long it took", runtime_table(summary), "Runtime"),
        *_section("data", "The data", statistics_table(summary), "Data"),
    ]
    about = paragraph(
        "Means over seeds, standard deviations in brackets. Published values are those of the paper\u2019s tables; "
        "differences are ours minus theirs."
    )
    return page(title, "Reproduction", _lead(summary, main), sections, about)


def _protocols(summary: dict[str, Any]) -> list[str]:
    """Protocols in the order of the page: the paper's own first."""
    found = list(dict.fromkeys(str(cell["protocol"]) for cell in summary["cells"]))
    return sorted(found, key=lambda name: name != "paper")


def _lead(summary: dict[str, Any], protocol: str) -> list[Html]:
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
    shares = [
        cell["predictors"][method]["positive"]["coverage"]["mean"][cell["levels"].index(0.9)]
        for cell in cells
        for method in ("cp", "unkgcp")
        if method in cell["predictors"] and 0.9 in cell["levels"]
    ]
    return sum(abs(share - 0.9) <= 0.01 for share in shares if share is not None), len(shares)


def _checks(summary: dict[str, Any]) -> list[Section]:
    checks = summary.get("checks") or []
    rows = [(c.get("title", c.get("name", "")), mark(c.get("holds")), c.get("result", "")) for c in checks]
    body = [
        paragraph("What the paper says of its results, tested on ours."),
        table(["statement", "here", "measured"], rows, words=(0, 1, 2), class_="prose"),
    ]
    return _section("checks", "The paper\u2019s statements as checks", body if rows else [], "Checks")


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


def _section(key: str, title: str, body: list[Html], short: str) -> list[Section]:
    """The section, or nothing if there is nothing to say."""
    return [Section(key, title, body, short)] if body else []


# From a folder to its report: finds out what the folder is, writes one page into it.

REPORT = "report.html"


def write_report(
    directory: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    data: str | None = None,
    confidence: float = 0.9,
    reading: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of a run or of a reproduction; gives its path (`report.html` in the folder).

    The test facts of a run are found as `unkgcp evaluate` finds them: where the run's data were, or those of
    `data`, read with the options `reading`. The same folder gives the same bytes.
    """
    matplotlib()  # without it, say so before the work
    directory = Path(directory)
    target = directory / REPORT if output is None else Path(output)
    if (directory / SUMMARY).is_file():
        pass

        write_text(target, reproduction_page(directory))
        return target
    from unkgcp.evaluation.report.diagnosis import diagnose
    from unkgcp.evaluation.report.run_page import run_page
    from unkgcp.run import Predictor, provenance

    predictor, options = Predictor.load(directory), dict(reading or {})
    record = predictor.provenance.get("data", {})
    if data is not None:
        dataset = provenance.load_named(data, record, predictor.model.seed, options)
    else:
        dataset = provenance.reload(record, str(directory), options.get("data_dir"))
    write_text(target, run_page(diagnose(predictor, dataset, confidence)))
    return target
