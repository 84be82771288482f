"""The charts: curves over the level or the number of calibration facts, width against error, coverage of slices.

Each function takes plain arrays and gives a figure with its numbers, to be called and saved inside `style.design`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.evaluation.figure_design import BAND, COLOURS, INK, RULE, SOFT, Drawn, curve, legend, sheet


@dataclass(frozen=True, slots=True)
class Curve:
    """One method at several levels or sizes `x`; every column has shape (n,). What is None is not drawn."""

    x: Sequence[float]
    coverage: ArrayLike | None
    sharpness: ArrayLike
    coverage_sd: ArrayLike | None = None
    sharpness_sd: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """A column of a figure: its title and the curve of each method, by name.

    `band`: (2, n), the coverage that chance alone allows, shaded.
    """

    title: str
    curves: Mapping[str, Curve]
    band: ArrayLike | None = None


def _curve_numbers(panels: Sequence[Panel], across: str) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of what curves show over `across`."""
    columns = ["panel", "method", across, "mean_width", "mean_width_sd", "coverage", "coverage_sd"]
    rows: list[list[object]] = []
    for panel in panels:
        for name, line in panel.curves.items():
            shown = (line.sharpness, line.sharpness_sd, line.coverage, line.coverage_sd)
            figures = [_filled(column, len(line.x)) for column in shown]
            rows += [[panel.title, name, *row] for row in zip(line.x, *figures, strict=True)]
        if panel.band is not None:
            levels = np.unique(np.concatenate([line.x for line in panel.curves.values()])).tolist()
            for name, ends in zip(("chance from", "chance to"), np.asarray(panel.band).tolist(), strict=True):
                rows += [
                    [panel.title, name, x, None, None, end, None] for x, end in zip(levels, ends, strict=True)
                ]
    return columns, rows


def _filled(column: ArrayLike | None, length: int) -> list[float]:
    """A column as a list, NaN throughout where there is none."""
    values = np.asarray(np.nan if column is None else column, dtype=np.float64)
    return np.broadcast_to(values, length).tolist()  # type: ignore[no-any-return]


def draw_levels(panels: Sequence[Panel], *, width: float | None = None) -> Drawn:
    """Mean width above, coverage below, against the level: the paper's Figures 1 and 4-8."""
    figure = sheet(width or (0.7 + 2.15 * len(panels)), 4.5)
    grid = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        levels = np.unique(np.concatenate([curve.x for curve in panel.curves.values()]))
        if panel.band is not None:
            bottom.fill_between(levels, *np.asarray(panel.band, dtype=float), color=BAND, linewidth=0)
        for place, (name, line) in enumerate(panel.curves.items()):
            handles[name] = curve(top, name, place, line.x, line.sharpness, line.sharpness_sd)
            if line.coverage is not None:
                curve(bottom, name, place, line.x, line.coverage, line.coverage_sd)
        (asked,) = bottom.plot(levels, levels, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=3)
        top.set_title(panel.title)
        bottom.set_xticks(levels, [f"{100 * level:g}" for level in levels])
        bottom.set_xlabel("level (%)")
    grid[0, 0].set_ylabel("mean width")
    grid[1, 0].set_ylabel("coverage")
    _limits(grid)
    legend(figure, handles, asked)
    return Drawn(figure, *_curve_numbers(panels, "level"))


def _limits(grid: Any) -> None:
    """Widths from 0; coverage from what is there to 1, with the levels always in sight."""
    top, bottom = grid[0, 0], grid[1, 0]
    top.set_ylim(0, min(1.02, top.get_ylim()[1] * 1.04))
    low = bottom.get_ylim()[0]
    bottom.set_ylim(max(-0.02, low), 1.015)


def draw_sizes(panels: Sequence[Panel], level: float) -> Drawn:
    """Coverage above, mean width below, against the number of calibration facts: the paper's Figures 3 and 14-18."""
    figure = sheet(0.7 + 2.15 * len(panels), 4.3)
    grid = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        asked = top.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=3)
        for place, (name, line) in enumerate(panel.curves.items()):
            if line.coverage is not None:
                handles[name] = curve(top, name, place, line.x, line.coverage, line.coverage_sd, 0.85)
            curve(bottom, name, place, line.x, line.sharpness, line.sharpness_sd, 0.85)
        top.set_title(panel.title)
        bottom.set_xscale("log")
        bottom.set_xlabel("calibration facts")
    _ticks(grid)
    grid[0, 0].set_ylabel("coverage")
    grid[1, 0].set_ylabel("mean width")
    legend(figure, handles, asked)
    return Drawn(figure, *_curve_numbers(panels, "calibration_facts"))


def _ticks(grid: Any) -> None:
    bottom = grid[1, 0]
    low, high = bottom.get_xlim()
    powers = [10**power for power in range(8) if low <= 10**power <= high]
    bottom.set_xticks(powers, [f"{power:,}" for power in powers])
    bottom.set_xticks([], minor=True)
    bottom.set_ylim(0, min(1.02, bottom.get_ylim()[1] * 1.04))
    grid[0, 0].set_ylim(max(0.0, grid[0, 0].get_ylim()[0]), 1.01)


@dataclass(frozen=True, slots=True)
class ErrorPanel:
    """A column of the figure.

    edges: (bins + 1,) of absolute error. count: (bins,) facts. width: by method, mean width of the covered
    facts of each bin, (bins,), NaN where there are none.
    """

    title: str
    edges: ArrayLike
    count: ArrayLike
    width: Mapping[str, ArrayLike]


def draw_conditionality(panels: Sequence[ErrorPanel], *, width: float | None = None) -> Drawn:
    """Mean width of covering intervals above, number of facts below, against the error: Figures 2 and 9-13."""
    figure = sheet(width or (0.7 + 2.3 * len(panels)), 3.9)
    grid = figure.subplots(
        2, len(panels), sharex="col", sharey="row", squeeze=False, gridspec_kw={"height_ratios": [2.6, 1]}
    )
    handles: dict[str, Any] = {}
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        edges = np.asarray(panel.edges, dtype=float)
        middle = (edges[1:] + edges[:-1]) / 2
        for place, (name, mean) in enumerate(panel.width.items()):
            handles[name] = curve(top, name, place, middle, mean, scale=0.62)
        count = np.asarray(panel.count, dtype=float)
        bottom.bar(middle, count, width=np.diff(edges) * 0.86, color=SOFT, alpha=0.75, linewidth=0)
        bottom.set_yscale("symlog", linthresh=1)
        bottom.minorticks_off()
        top.set_title(panel.title)
        bottom.set_xlabel("absolute error of the prediction")
        bottom.set_xlim(min(0.0, edges[0]), edges[-1])
    grid[0, 0].set_ylabel("mean width, covered facts")
    grid[1, 0].set_ylabel("facts")
    _scale(grid)
    legend(figure, handles)
    columns = ["panel", "method", "error_from", "error_to", "facts", "mean_width"]
    rows: list[list[object]] = []
    for panel in panels:
        edges = np.asarray(panel.edges, dtype=float).tolist()
        bins = [edges[:-1], edges[1:], np.asarray(panel.count).tolist()]
        for name, mean in panel.width.items():
            rows += [
                [panel.title, name, *row] for row in zip(*bins, _filled(mean, len(bins[0])), strict=True)
            ]
    return Drawn(figure, columns, rows)


def _scale(grid: Any) -> None:
    top, bottom = grid[0, 0], grid[1, 0]
    top.set_ylim(0, min(1.02, top.get_ylim()[1] * 1.04))
    largest = max(1.0, bottom.get_ylim()[1])
    powers = [10**power for power in range(1, 8) if 10**power <= largest * 1.2]
    bottom.set_ylim(0, largest * 1.4)
    ticks = [0, *powers[:: max(1, (len(powers) + 1) // 2)]] if powers else [0, 1]
    bottom.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    bottom.tick_params(axis="y", colors=RULE, labelcolor=INK)


LONGEST = 30


def draw_slices(
    names: Sequence[str],
    n: ArrayLike,
    coverage: ArrayLike,
    level: float,
    bands: Sequence[tuple[float, float]] | None = None,
    *,
    title: str = "",
    width: float = 4.6,
) -> Drawn:
    """Coverage of slices of the data as a dot plot, the first slice on top.

    n, coverage: (slices,). `bands`: (low, high) of each slice; None where nothing is promised.
    """
    share, size = np.asarray(coverage, dtype=np.float64), np.asarray(n)
    rows = np.arange(len(names))
    figure = sheet(width, 0.95 + 0.215 * max(len(names), 3))
    axes = figure.subplots()
    low = np.zeros(0)
    below = np.zeros(len(rows), dtype=bool)
    if bands:
        low, high = np.array(bands, dtype=np.float64).T
        axes.barh(rows, high - low, left=low, height=0.62, color=BAND, linewidth=0, zorder=1)
        below = share < low
    axes.axvline(level, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1.5)
    for chosen, colour, marker in ((~below, COLOURS["blue"], "o"), (below, COLOURS["red"], "X")):
        axes.plot(share[chosen], rows[chosen], marker, color=colour, markersize=5.5, markeredgewidth=0)
    axes.set_yticks(rows, [_short(name) for name in names])
    axes.set_ylim(max(len(rows), 3) - 0.4, -0.6)
    smallest = min([*share.tolist(), *low.tolist(), level])
    axes.set_xlim(max(0.0, np.floor(smallest * 20 - 0.4) / 20), 1.016)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("coverage")
    axes.set_title(title, loc="left")
    counts = axes.secondary_yaxis("right")
    counts.set_yticks(rows, [f"{count:,}" for count in size.tolist()])
    counts.tick_params(length=0, labelcolor=SOFT, labelsize=7.5)
    counts.spines["right"].set_visible(False)
    ends = bands or [(np.nan, np.nan)] * len(rows)
    told = [
        [*row, *band]
        for row, band in zip(zip(names, size.tolist(), share.tolist(), strict=True), ends, strict=True)
    ]
    return Drawn(figure, ["slice", "facts", "coverage", "chance_from", "chance_to"], told)


def _short(name: str) -> str:
    clean = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
