"""How many calibration facts are enough? The paper's Figures 3 and 14-18.

What it is: coverage above and mean width below against the number of calibration facts, on a logarithmic
axis, a line a curve with its standard deviation over random subsets. What it is not: a simulation; the
curves come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from unkgcp.evaluation.figures.style import INK, curve, legend, sheet


@dataclass(frozen=True, slots=True)
class SizeCurve:
    """Means and standard deviations over subsets of each size; every column has shape (sizes,)."""

    size: Sequence[int]
    coverage: ArrayLike
    coverage_sd: ArrayLike
    sharpness: ArrayLike
    sharpness_sd: ArrayLike


@dataclass(frozen=True, slots=True)
class SizePanel:
    """A column of the figure: its title and its curves, by method."""

    title: str
    curves: Mapping[str, SizeCurve]


def draw_sizes(panels: Sequence[SizePanel], level: float, *, width: float | None = None) -> Any:
    """The figure of these panels; to be called and saved inside `style.design`."""
    figure = sheet(width or (0.7 + 2.15 * len(panels)), 4.3)
    grid = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        asked = top.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=3)
        for place, (name, line) in enumerate(panel.curves.items()):
            handles[name] = curve(top, name, place, line.size, line.coverage, line.coverage_sd, 0.85)
            curve(bottom, name, place, line.size, line.sharpness, line.sharpness_sd, 0.85)
        top.set_title(panel.title)
        bottom.set_xscale("log")
        bottom.set_xlabel("calibration facts")
    _ticks(grid)
    grid[0, 0].set_ylabel("coverage")
    grid[1, 0].set_ylabel("mean width")
    legend(figure, handles, asked)
    return figure


def _ticks(grid: Any) -> None:
    bottom = grid[1, 0]
    low, high = bottom.get_xlim()
    powers = [10**power for power in range(8) if low <= 10**power <= high]
    bottom.set_xticks(powers, [f"{power:,}" for power in powers])
    bottom.set_xticks([], minor=True)
    bottom.set_ylim(0, min(1.02, bottom.get_ylim()[1] * 1.04))
    grid[0, 0].set_ylim(max(0.0, grid[0, 0].get_ylim()[0]), 1.01)
