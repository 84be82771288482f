"""Coverage of slices of the data as a dot plot: by relation, by decile of the prediction or of the width.

What it is: a row a slice, a dot for its coverage, and a grey bar for what chance would allow a slice of that
size if all facts were covered alike. What it is not: a choice of slices; all given ones are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.evaluation.figures.style import BAND, COLOURS, INK, SOFT, sheet

LONGEST = 30


def draw_slices(
    names: Sequence[str],
    n: ArrayLike,
    coverage: ArrayLike,
    level: float,
    bands: Sequence[tuple[float, float]] | None = None,
    *,
    title: str = "",
    axis: str = "",
    width: float = 4.6,
) -> Any:
    """The figure of these slices, the first on top; to be called and saved inside `style.design`.

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
    if axis:
        axes.set_ylabel(axis)
    counts = axes.secondary_yaxis("right")
    counts.set_yticks(rows, [f"{count:,}" for count in size.tolist()])
    counts.tick_params(length=0, labelcolor=SOFT, labelsize=7.5)
    counts.spines["right"].set_visible(False)
    return figure


def _short(name: str) -> str:
    clean = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
