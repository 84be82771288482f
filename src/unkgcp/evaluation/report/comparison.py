"""Tables of a reproduction, ours beside the published values.

What it is: rows and columns from the plain summary. A coverage of at least the level, rounded as the paper
prints it, is marked ✓; the sharpest of those is bold. What it is not: a judgement of a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unkgcp.evaluation.figures.style import look
from unkgcp.evaluation.report.html import (
    Html,
    beside,
    data_name,
    difference,
    duration,
    join,
    mean_sd,
    number,
    paragraph,
    percent,
    table,
    tag,
)
from unkgcp.evaluation.reproduction.checks import printed_row

LEVEL = 0.9
METHODS = ("fpi", "qr", "cp", "unkgcp", "evidence")
CONFORMAL = ("cp", "unkgcp")
ENTROPIES = ("unkgcp", "unkgcp-plain")

Cell = dict[str, Any]


def coverage_tables(summary: dict[str, Any], part: str, published: str, protocol: str) -> list[Html]:
    """A table a data set: coverage and mean width of every model and method (Tables 1 and 3)."""
    paper = (summary.get("paper") or {}).get(published) or {}
    cells = [cell for cell in summary["cells"] if cell["protocol"] == protocol]
    tables = [
        _coverage_table(data, [cell for cell in cells if cell["data"] == data], part, paper)
        for data in dict.fromkeys(cell["data"] for cell in cells)
    ]
    note = (
        f"Level {percent(LEVEL)}. ✓: coverage reaches the level; bold: the sharpest of those, for each model. "
        "diff.: our width minus the paper\u2019s. The paper prints one UKGE, which stands beside both of its variants."
    )
    return [paragraph(note, class_="note"), beside(*tables, broad=True)]


def _coverage_table(data: str, cells: list[Cell], part: str, paper: dict[str, Any]) -> Html:
    rows: list[Sequence[object]] = []
    for cell in cells:
        found = _at_level(cell, part, METHODS)
        valid = {method: width for method, (share, width) in found.items() if _valid(share["mean"])}
        best = min(valid, key=lambda method: valid[method]["mean"], default=None)
        for method, (share, width) in found.items():
            theirs = printed_row(paper, cell).get(method)
            rows.append(
                [
                    look(cell["model"]).name,
                    look(method).name,
                    join([mean_sd(share), " ✓" if _valid(share["mean"]) else " \u2007"]),
                    published(theirs, "coverage"),
                    tag("span", mean_sd(width), class_="best" if method == best else None),
                    published(theirs, "sharpness"),
                    difference(width["mean"], theirs and theirs["sharpness"][0]),
                ]
            )
    header = [
        "model",
        "method",
        "coverage",
        "paper",
        "width",
        "paper",
        tag("abbr", "diff.", title="ours minus the paper\u2019s"),
    ]
    return table(header, _once(rows), words=(0, 1), caption=tag("strong", data_name(data)), class_="tight")


def published(entry: Any, what: str) -> Html:
    """A published mean, small; its standard deviation is left to the paper."""
    return tag("span", number(entry[what][0], 2) if entry else "\u2013", class_="small")


def error_table(summary: dict[str, Any], protocol: str) -> list[Html]:
    """Mean squared and mean absolute error on test facts (Table 2)."""
    paper = (summary.get("paper") or {}).get("table2") or {}
    rows: list[Sequence[object]] = []
    for cell in summary["cells"]:
        if cell["protocol"] != protocol:
            continue
        theirs = printed_row(paper, cell)
        row: list[object] = [data_name(cell["data"]), look(cell["model"]).name]
        for what in ("mse", "mae"):
            ours = cell["errors"]["positive"][what]
            row += [
                mean_sd(ours, 4),
                tag("span", number(theirs.get(what), 2), class_="small"),
                difference(ours["mean"], theirs.get(what)),
            ]
        rows.append(
            [
                *row,
                number(cell["errors"]["mixed"]["mse"]["mean"]),
                number(cell["errors"]["mixed"]["mae"]["mean"]),
            ]
        )
    header = ["data", "model", "MSE", "paper", "difference", "MAE", "paper", "difference", "MSE", "MAE"]
    groups: list[tuple[object, int]] = [("", 2), ("test facts", 6), ("with negatives", 2)]
    return [table(header, _once(rows), words=(0, 1), groups=groups)]


def beyond_tables(summary: dict[str, Any]) -> list[Html]:
    """One threshold for all queries, facts without overlap, the strict protocol, the entropy as in the text."""
    cells = summary["cells"]
    found: list[Html] = []
    combined = list(_part_rows(cells, ("combined_positive", "combined_negative")))
    if combined:
        found += [
            tag("h3", "One threshold for facts and negatives"),
            paragraph(
                "The tables above presume that one knows whether a query is a fact. One threshold calibrated on both "
                "together needs no such knowledge; it is the one that can be deployed."
            ),
            _part_table(combined, ("facts", "negatives")),
        ]
    free = list(_part_rows(cells, ("positive", "overlap_free")))
    if free:
        found += [
            tag("h3", "Test facts without overlap"),
            paragraph("Some test facts repeat a training or calibration triple; without them:"),
            _part_table(free, ("all test facts", "overlap-free")),
        ]
    protocols = list(_protocol_rows(cells))
    if protocols:
        header = ["data", "model", "method", "coverage", "width", "coverage", "width"]
        groups: list[tuple[object, int]] = [("", 3), ("paper\u2019s protocol", 2), ("strict protocol", 2)]
        found += [
            tag("h3", "The strict protocol"),
            paragraph(
                "The published experiments stop training on the calibration facts. Here early stopping looks at facts "
                "held out of the training set instead, as the guarantee asks for."
            ),
            table(header, _once(protocols, 2), words=(0, 1, 2), groups=groups),
        ]
    plain = [
        [data_name(cell["data"]), look(cell["model"]).name, *_flat(pairs.values())]
        for cell in cells
        if len(pairs := _at_level(cell, "positive", ENTROPIES)) == len(ENTROPIES)
    ]
    if plain:
        header = ["data", "model", "coverage", "width", "coverage", "width"]
        groups = [("", 2), ("entropy at 0.5 M + 0.5", 2), ("entropy at M", 2)]
        found += [
            tag("h3", "The entropy on CN15k"),
            paragraph(
                "The published numbers need the entropy at 0.5 M + 0.5 there, which the text does not say."
            ),
            table(header, _once(plain), words=(0, 1), groups=groups),
        ]
    return found


def _protocol_rows(cells: list[Cell]) -> Iterable[Sequence[object]]:
    """Conformal methods under both protocols, where both were run."""
    strict = {(cell["data"], cell["model"]): cell for cell in cells if cell["protocol"] == "strict"}
    for cell in (cell for cell in cells if cell["protocol"] == "paper"):
        other = strict.get((cell["data"], cell["model"]))
        if other is None:
            continue
        ours, theirs = (_at_level(one, "positive", CONFORMAL) for one in (cell, other))
        for method in CONFORMAL:
            if method in ours and method in theirs:
                figures = _flat([ours[method], theirs[method]])
                yield [data_name(cell["data"]), look(cell["model"]).name, look(method).name, *figures]


def _part_rows(cells: Iterable[Cell], parts: tuple[str, str]) -> Iterable[Sequence[object]]:
    for cell in cells:
        for method in CONFORMAL:
            found = [_at_level(cell, part, (method,)) for part in parts]
            if all(found):
                yield [
                    str(cell["protocol"]),
                    data_name(cell["data"]),
                    look(cell["model"]).name,
                    look(method).name,
                    *_flat(one[method] for one in found),
                ]


def _part_table(rows: Iterable[Sequence[object]], titles: tuple[str, str]) -> Html:
    header = ["protocol", "data", "model", "method", "coverage", "width", "coverage", "width"]
    groups: list[tuple[object, int]] = [("", 4), (titles[0], 2), (titles[1], 2)]
    return table(header, _once(rows, 3), words=(0, 1, 2, 3), groups=groups)


def runtime_table(summary: dict[str, Any]) -> list[Html]:
    """Seconds of every stage, all seeds together."""
    stages = list(dict.fromkeys(stage for cell in summary["cells"] for stage in cell.get("seconds", {})))
    rows: list[Sequence[object]] = []
    totals = dict.fromkeys(stages, 0.0)
    for cell in summary["cells"]:
        times = cell.get("seconds", {})
        for stage in stages:
            totals[stage] += times.get(stage) or 0.0
        names = (
            str(cell["protocol"]),
            data_name(cell["data"]),
            look(cell["model"]).name,
            f"{len(cell['seeds'])}",
        )
        total = sum(value or 0.0 for value in times.values())
        rows.append(
            [
                *names,
                *(duration(times.get(stage)) for stage in stages),
                duration(total),
                str(cell.get("machine", "")),
            ]
        )
    if not rows:
        return []
    everything = sum(totals.values())
    rows = _once(rows, 3)
    rows.append(["all", "", "", "", *(duration(totals[stage]) for stage in stages), duration(everything), ""])
    header = ["protocol", "data", "model", "seeds", *stages, "together", "machine"]
    return [table(header, rows, words=(0, 1, 2, len(header) - 1))]


def statistics_table(summary: dict[str, Any]) -> list[Html]:
    """What the data sets hold, and what the paper says they hold."""
    paper = (summary.get("paper") or {}).get("statistics") or {}
    columns = ("entities", "relations", "train", "calibration", "test")
    rows = [
        [
            data_name(data),
            *(_count(found.get(column), paper.get(data, {}).get(column)) for column in columns),
        ]
        for data, found in (summary.get("statistics") or {}).items()
    ]
    if not rows:
        return []
    note = paragraph("In brackets what the paper states, where it is another number.", class_="note")
    return [table(["data", *columns], rows), note]


def _count(ours: Any, theirs: Any) -> Html:
    shown = "\u2013" if ours is None else f"{ours:,}"
    return join([shown, tag("span", f" ({theirs:,})", class_="small") if theirs not in (None, ours) else ""])


def _at_level(
    cell: Cell, part: str, methods: Sequence[str]
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By method that was measured: coverage and width at 90 %, each {"mean", "sd"}; {} without that level."""
    if LEVEL not in cell["levels"]:
        return {}
    place = cell["levels"].index(LEVEL)

    def pick(columns: dict[str, Any]) -> dict[str, Any]:
        return {key: None if columns.get(key) is None else columns[key][place] for key in ("mean", "sd")}

    return {
        method: (pick(found["coverage"]), pick(found["sharpness"]))
        for method in methods
        if (found := cell["predictors"].get(method, {}).get(part))
    }


def _flat(pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    return [mean_sd(value) for pair in pairs for value in pair]


def _valid(mean: float | None) -> bool:
    return mean is not None and round(mean, 2) >= LEVEL


def _once(rows: Iterable[Sequence[object]], columns: int = 1) -> list[Sequence[object]]:
    """The same rows with names that repeat those of the row above left out."""
    shown: list[Sequence[object]] = []
    last: Sequence[object] = ()
    for row in rows:
        same = 0
        while same < columns and last and row[same] == last[same]:
            same += 1
        shown.append([*[""] * same, *row[same:]])
        last = row
    return shown
