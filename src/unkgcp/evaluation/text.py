"""Figures for people in a terminal: aligned tables and intervals drawn as bars.

What it is: plain text, the same on a terminal and in a file. What it is not: for scripts; they take the
object.

>>> print(table(["level", "coverage"], [["0.9", "0.903"]]))
level  coverage
0.9       0.903
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unkgcp.evaluation.metrics import MASS
from unkgcp.evaluation.tables import Table, draw_interval, number

__all__ = ["draw_interval", "evaluation_text", "number", "table"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their titles, the first one aligned left, all others right."""
    return Table(header, rows).terminal()


def evaluation_text(result: dict[str, Any]) -> str:
    """The object of `unkgcp.evaluation.assessment` as a table with a heading."""
    first = result["levels"][0]
    unknown = result["unknown"]["positive"]
    lines = [
        f"{result['data']}: {result['model']} + {result['method']}, seed {result['seed']}; "
        f"{first['positive']['n']:,} test facts, {first['negative']['n']:,} negatives "
        f"({result['negatives']}) judged with the threshold of {result['negative_threshold']}"
    ]
    if unknown:
        lines.append(f"{unknown:,} test facts have an unknown entity or relation: whole range, no error")
    parts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "facts": lambda level: level["positive"],
        "overlap-free": lambda level: level["positive"]["overlap_free"],
        "negatives": lambda level: level["negative"],
        "mixed": lambda level: level["mixed"],
    }
    levels = result["levels"]
    header = [
        "",
        "n",
        "MSE",
        "MAE",
        *(c for level in levels for c in (f"cover {level['confidence']:g}", "width")),
    ]
    rows = []
    for name, part in parts.items():
        figures = part(first)
        row = [name, f"{figures['n']:,}", number(figures["mse"], 4), number(figures["mae"], 4)]
        for level in levels:
            row += [number(part(level)["coverage"], 4), number(part(level)["sharpness"], 3)]
        rows.append(row)
    said = []
    if ties := result.get("ties"):
        row = ["facts, ties at random", f"{first['positive']['n']:,}", "", ""]
        rows.insert(1, row + [cell for tie in ties for cell in (number(tie["coverage_smoothed"], 4), "")])
        pairs = zip(levels, ties, strict=True)
        said = [_tie_sentence(level["positive"]["coverage"], tie) for level, tie in pairs]
    said += [_empty_sentence(empty) for empty in result.get("empty") or ()]
    return "\n".join([*lines, "", table(header, rows), *([""] if any(said) else []), *filter(None, said)])


def _empty_sentence(empty: dict[str, Any]) -> str:
    """What to say of a level at which the intervals of some facts are empty."""
    if not empty["share"]:
        return ""
    others = number(empty["coverage_of_others"], 4)
    return (
        f"{empty['confidence']:g}: {empty['share']:.1%} of the facts have an empty interval; "
        f"coverage of the others {others}"
    )


def _tie_sentence(coverage: float, tie: dict[str, Any]) -> str:
    """What to say where coverage of facts, or that with ties broken at random, lies outside the band."""
    if tie["band"] is None:
        return ""
    (low, high), smoothed = tie["band"], tie["coverage_smoothed"]
    slack = 1e-9  # shares of the same count computed in two ways
    said = f"{tie['confidence']:g}: coverage of facts lies"
    if not low - slack <= smoothed <= high + slack:
        return (
            f"{said} outside the band from {low:.4f} to {high:.4f} with ties broken at random ({smoothed:.4f}): "
            f"that seldom happens ({100 - 100 * MASS:.2g} %) if these facts are like the calibration facts"
        )
    if coverage > high + slack:
        return (
            f"{said} above the band, which ties explain: {low:.4f} to {high:.4f} holds {100 * MASS:g} % of coverages "
            f"without ties, and with ties broken at random it is {smoothed:.4f}"
        )
    return ""
