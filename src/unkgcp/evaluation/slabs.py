"""Worst-slab coverage: the lowest coverage over slabs {x : a <= v.x <= b} that hold a given share of rows.

What it is: a search for a region, described by any features of a query, where intervals cover less than
promised. The slab is found on one half of the rows and its coverage is taken on the other half, so the figure
is not biased by the search. What it is not: a guarantee; it sees only the directions it drew.

>>> import numpy as np
>>> x = np.linspace(0, 1, 1000)[:, None]
>>> inside = x[:, 0] > 0.2            # everything below 0.2 is missed
>>> bool(worst_slab_coverage(x, inside, share=0.1, rng=np.random.default_rng(0)) < 0.1)
True
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def worst_slab_coverage(
    features: Floats,
    inside: NDArray[np.bool_],
    *,
    rng: np.random.Generator,
    share: float = 0.1,
    directions: int = 100,
) -> float:
    """Coverage in the worst slab with at least `share` of the rows.

    features: (n, d), standardised here; inside: (n,) whether each label was covered. NaN when the half on
    which coverage is taken has no row in the slab.
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or inside.shape != (len(x),):
        raise ValueError(f"features must be (n, d) and inside (n,), got {x.shape} and {inside.shape}")
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    if len(x) < 2:
        return math.nan
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    order = rng.permutation(len(x))
    search, judge = order[: len(x) // 2], order[len(x) // 2 :]
    drawn = rng.standard_normal((directions, x.shape[1])) if x.shape[1] > 1 else np.ones((1, 1))
    best: tuple[float, float, float, Floats] = (math.inf, 0.0, 0.0, drawn[0])
    for direction in drawn:
        found = worst_window(x[search] @ direction, inside[search], share)
        if found[0] < best[0]:
            best = (*found, direction)
    position = x[judge] @ best[3]
    chosen = inside[judge][(best[1] <= position) & (position <= best[2])]
    return float(chosen.mean()) if len(chosen) else math.nan


def worst_window(position: Floats, inside: NDArray[np.bool_], share: float) -> tuple[float, float, float]:
    """(coverage, a, b) of the window [a, b] of `position` (n,) that covers least and holds at least `share`.

    Exact: Dinkelbach's iteration on the ratio hits / rows, whose step is one pass over prefix sums. Equal
    positions are never cut apart.
    """
    values, member = np.unique(position, return_inverse=True)
    rows = np.concatenate([[0], np.cumsum(np.bincount(member))])
    hits = np.concatenate([[0.0], np.cumsum(np.bincount(member, weights=inside))])
    least = max(1, math.ceil(share * len(position)))
    # for a window's end j, its start is at most the last i with rows[j] - rows[i] >= least
    last_start = np.searchsorted(rows, rows - least, side="right") - 1
    ends = np.flatnonzero(last_start >= 0)
    ratio, start, end = hits[-1] / rows[-1], 0, len(rows) - 1
    while True:
        gain = hits - ratio * rows
        top = np.maximum.accumulate(gain)
        j = int(ends[np.argmin(gain[ends] - top[last_start[ends]])])
        i = int(np.argmax(gain[: last_start[j] + 1]))
        found = (hits[j] - hits[i]) / (rows[j] - rows[i])
        if found >= ratio:
            return float(ratio), float(values[start]), float(values[end - 1])
        ratio, start, end = found, i, j
