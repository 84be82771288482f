"""Width and coverage against the level asked for: the paper's Figures 1 and 4-8.

What it is: one column a panel (a backbone, or a single run), mean width above, coverage below with the level
itself as a dashed line. What it is not: it computes nothing but where to put the axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.evaluation.figures.style import BAND, INK, curve, legend, sheet


@dataclass(frozen=True, slots=True)
class LevelCurve:
    """One method at several levels; every column has shape (levels,). A missing spread is not drawn."""

    level: Sequence[float]
    coverage: ArrayLike | None
    sharpness: ArrayLike
    coverage_sd: ArrayLike | None = None
    sharpness_sd: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class LevelPanel:
    """A column of the figure: its title and the curve of each method, by name.

    `band`: (2, levels), the coverage that chance alone allows, shaded.
    """

    title: str
    curves: Mapping[str, LevelCurve]
    band: ArrayLike | None = None


def draw_levels(panels: Sequence[LevelPanel], *, width: float | None = None) -> Any:
    """The figure of these panels; to be called and saved inside `style.design`."""
    figure = sheet(width or (0.7 + 2.15 * len(panels)), 4.5)
    grid = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        levels = np.unique(np.concatenate([curve.level for curve in panel.curves.values()]))
        if panel.band is not None:
            bottom.fill_between(levels, *np.asarray(panel.band, dtype=float), color=BAND, linewidth=0)
        for place, (name, line) in enumerate(panel.curves.items()):
            handles[name] = curve(top, name, place, line.level, line.sharpness, line.sharpness_sd)
            if line.coverage is not None:
                curve(bottom, name, place, line.level, line.coverage, line.coverage_sd)
        (asked,) = bottom.plot(levels, levels, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=3)
        top.set_title(panel.title)
        bottom.set_xticks(levels, [f"{100 * level:g}" for level in levels])
        bottom.set_xlabel("level (%)")
    grid[0, 0].set_ylabel("mean width")
    grid[1, 0].set_ylabel("coverage")
    _limits(grid)
    legend(figure, handles, asked)
    return figure


def _limits(grid: Any) -> None:
    """Widths from 0; coverage from what is there to 1, with the levels always in sight."""
    top, bottom = grid[0, 0], grid[1, 0]
    top.set_ylim(0, min(1.02, top.get_ylim()[1] * 1.04))
    low = bottom.get_ylim()[0]
    bottom.set_ylim(max(-0.02, low), 1.015)
