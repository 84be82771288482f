"""Does an interval widen where the model errs? The paper's Figures 2 and 9-13.

What it is: mean width of the intervals that cover, over bins of absolute error, and below it how many facts
have such an error. A bin without a covered fact is a gap, never a zero. What it is not: a test; the rank
correlation printed beside is computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.evaluation.figures.style import INK, RULE, SOFT, curve, legend, sheet

BINS = 30


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


def error_bins(
    error: NDArray[np.float64],
    width: Mapping[str, NDArray[np.float64]],
    inside: Mapping[str, NDArray[np.bool_]],
    title: str = "",
    bins: int = BINS,
) -> ErrorPanel:
    """Bins of equal width between the smallest and the largest error, as in the paper.

    error: (n,); width, inside: by method, (n,) each: the interval's width and whether it covers.
    """
    low, high = (float(error.min()), float(error.max())) if len(error) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1e-9, bins + 1)
    member = np.clip(np.searchsorted(edges, error, side="right") - 1, 0, bins - 1)
    means = {}
    for name, covered in inside.items():
        n = np.bincount(member[covered], minlength=bins)
        total = np.bincount(member[covered], weights=width[name][covered], minlength=bins)
        means[name] = np.where(n > 0, total / np.maximum(n, 1), np.nan)
    return ErrorPanel(title, edges, np.bincount(member, minlength=bins), means)


def draw_conditionality(panels: Sequence[ErrorPanel], *, width: float | None = None) -> Any:
    """The figure of these panels; to be called and saved inside `style.design`."""
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
    return figure


def _scale(grid: Any) -> None:
    top, bottom = grid[0, 0], grid[1, 0]
    top.set_ylim(0, min(1.02, top.get_ylim()[1] * 1.04))
    largest = max(1.0, bottom.get_ylim()[1])
    powers = [10**power for power in range(1, 8) if 10**power <= largest * 1.2]
    bottom.set_ylim(0, largest * 1.4)
    ticks = [0, *powers[:: max(1, (len(powers) + 1) // 2)]] if powers else [0, 1]
    bottom.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    bottom.tick_params(axis="y", colors=RULE, labelcolor=INK)
