"""The charts of a report: width and coverage over the level, coverage of slices.

Each function takes plain arrays and gives a figure of matplotlib, to be called inside `figure_design.design`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.evaluation.figure_design import BAND, COLOURS, DASHED, INK, SOFT, sheet
from unkgcp.evaluation.tables import printable

WIDTH = 4.6  # inches: two figures stand side by side on a desk, one fits on a phone
LONGEST = 24
Bands = Sequence[tuple[float, float]]


def draw_levels(
    levels: Sequence[float], coverage: ArrayLike, width: ArrayLike, nothing: ArrayLike, bands: Bands | None
) -> Any:
    """Mean width above, with that of knowing nothing; coverage below, with what chance allows; all of shape (n,)."""
    figure = sheet(WIDTH, 4.5)
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.plot(levels, nothing, color=SOFT, linestyle=DASHED, label="knowing nothing")
    top.plot(levels, width, "o-", color=COLOURS["blue"], label="this run")
    if bands is not None:
        bottom.fill_between(levels, *np.array(bands).T, color=BAND, linewidth=0, label="chance allows")
    bottom.plot(levels, levels, color=INK, linewidth=0.8, linestyle=DASHED, label="level asked for")
    bottom.plot(levels, coverage, "o-", color=COLOURS["blue"])
    top.set_ylim(0, min(1.02, top.get_ylim()[1] * 1.04))
    bottom.set_ylim(max(-0.02, bottom.get_ylim()[0]), 1.015)
    bottom.set_xticks(levels, [f"{100 * level:g}" for level in levels])
    bottom.set_xlabel("level (%)")
    top.set_ylabel("mean width")
    bottom.set_ylabel("coverage")
    for axes in (top, bottom):
        axes.legend(loc="best")
    return figure


def draw_slices(
    names: Sequence[str],
    n: Sequence[int],
    coverage: Sequence[float],
    level: float,
    bands: Bands | None = None,
    *,
    title: str = "",
    least: float | None = None,
    longest: int = LONGEST,
) -> Any:
    """Coverage of slices of the data as a dot plot, the first slice on top; those below their band are crosses.

    n, coverage: (slices,). `bands`: (low, high) of each slice; None where nothing is promised. `least`: where the axis
    begins, `longest`: characters of the longest name, so that several charts have the same.
    """
    share, rows = np.asarray(coverage, dtype=np.float64), np.arange(len(names))
    figure = sheet(WIDTH, height := 0.95 + 0.215 * max(len(names), 3))
    figure.set_layout_engine("none")  # the same width for all, however long their names are
    left = 0.15 + 0.0625 * min(longest, LONGEST)  # inches for names of so many characters
    axes = figure.add_axes((left / WIDTH, 0.55 / height, 1 - (left + 0.5) / WIDTH, 1 - 0.85 / height))
    below = np.zeros(len(rows), dtype=bool)
    if bands:
        low, high = np.array(bands, dtype=np.float64).T
        axes.barh(rows, high - low, left=low, height=0.62, color=BAND, linewidth=0, zorder=1)
        below = share < low
    axes.axvline(level, color=INK, linewidth=0.8, linestyle=DASHED, zorder=1.5)
    for chosen, colour, marker in ((~below, COLOURS["blue"], "o"), (below, COLOURS["red"], "X")):
        axes.plot(share[chosen], rows[chosen], marker, color=colour, markersize=5.5, markeredgewidth=0)
    axes.set_yticks(rows, [printable(name, LONGEST) for name in names])
    start = axis_start([*coverage, level], bands) if least is None else least
    axes.set(xlim=(start, 1.016), ylim=(max(len(rows), 3) - 0.4, -0.6), xlabel="coverage")
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_title(title, loc="left")
    counts = axes.secondary_yaxis("right")
    counts.set_yticks(rows, [f"{count:,}" for count in n])
    counts.tick_params(length=0, labelcolor=SOFT, labelsize=7.5)
    counts.spines["right"].set_visible(False)
    return figure


def axis_start(coverages: Sequence[float], bands: Bands | None) -> float:
    """Where an axis of coverage begins that shows all of these: a multiple of 0.05."""
    smallest = min([*coverages, *(low for low, _ in bands or ())])
    return max(0.0, float(np.floor(smallest * 20 - 0.4) / 20))
