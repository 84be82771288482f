"""Intervals drawn with matplotlib, for notebooks and reports: one line a query, several levels nested.

What it is: `Predictor.plot`. What it is not: the figures of the paper (`unkgcp.evaluation.figures`). matplotlib is
imported when something is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unkgcp.conformal.predictors import Intervals
from unkgcp.conformal.ranks import percent
from unkgcp.errors import InputError

MOST = 200
BLUE, RED = "#2c6fbb", "#c0392b"


def draw(answers: Intervals, ax: Any = None) -> Any:
    """Draw up to `MOST` answers from top to bottom; returns the axes."""
    if len(answers) > MOST:
        raise InputError(f"{len(answers):,} intervals are too many for one picture; draw at most {MOST}")
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("drawing needs matplotlib: pip install 'unkgcp[plot]'") from None
    n = len(answers)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7, 0.8 + 0.3 * n), layout="constrained")
    single = isinstance(answers.confidence, float)
    levels = [answers.confidence] if isinstance(answers.confidence, float) else list(answers.confidence)
    lower, upper = (ends.reshape(n, len(levels)) for ends in (answers.lower, answers.upper))
    rows = np.arange(n)
    # the widest first, so that the narrower ones lie on top of it
    for depth, place in enumerate(np.argsort(levels)[::-1].tolist()):
        shade = 1.0 if single else 0.3 + 0.7 * (depth + 1) / len(levels)
        ax.hlines(
            rows,
            lower[:, place],
            upper[:, place],
            colors=BLUE,
            alpha=shade,
            linewidth=4 + 2 * depth,
            label=f"{percent(levels[place])} %",
        )
        # a single value is a line without length, which nobody would see
        single_value = np.flatnonzero(lower[:, place] == upper[:, place])
        ax.plot(
            lower[single_value, place], single_value, "|", color=BLUE, alpha=shade, markersize=14, zorder=4
        )
    known = answers.code == 0
    ax.plot(answers.score[known], rows[known], "o", color=RED, markersize=5, label="score", zorder=5)
    ax.set(xlim=(-0.02, 1.02), ylim=(n - 0.5, -0.5), xlabel="confidence")
    ax.set_yticks(rows, [_title(answers, row) for row in range(n)])
    if n:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    return ax


def _title(answers: Intervals, row: int) -> str:
    """The labels of a query, with dollar signs that are no formula."""
    if answers.labels is None:
        return str(row)
    labels = (answers.labels.column(name)[row].as_py() for name in ("head", "relation", "tail"))
    title = "  ".join("?" if label is None else label for label in labels).replace("$", r"\$")
    return title if answers.code[row] == 0 else f"{title} ({answers.status[row]})"
