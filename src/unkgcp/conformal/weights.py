"""Weighted conformal prediction for a known shift (Tibshirani, Barber, Candes and Ramdas, 2019).

Calibration point i carries weight w_i and the query weight w, both proportional to the ratio of the query's
distribution to the calibration distribution. A label with score s has the p-value
(w + sum of w_i over s_i >= s) / (w + sum of all w_i). Equal weights are ordinary conformal prediction, rank
for rank. The weights must be known or learned without calibration labels; nothing is estimated here.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# the cutoff below is three roundings away from its exact value; eight is on the safe side
_ROUNDING = 8 * np.finfo(np.float64).eps


def weighted_ranks(
    tails: NDArray[np.float64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weight: NDArray[np.float64],
    level: Fraction,
) -> NDArray[np.int64]:
    """k of each query: the number of j in 0 .. l with w + tail_j > (1 - level) (w + tail_0), exactly: (n,).

    tail_j, at tails[start + j], is the weight of the scores from position j upwards. A label with j smaller
    calibration scores is in the set exactly when j < k. Equal weights give k = ceil(level (l + 1)).
    """
    total = tails[starts] + weight
    cutoff = float(1 - level) * total - weight
    low, high = np.zeros_like(sizes), sizes + 1
    for _ in range(int(sizes.max(initial=0) + 1).bit_length()):
        middle = (low + high) // 2
        more = (tails[starts + np.minimum(middle, sizes)] > cutoff) & (low < high)
        low = np.where(more, middle + 1, low)
        high = np.where(more, high, middle)
    margin = _ROUNDING * total
    near = np.abs(tails[starts + np.maximum(low - 1, 0)] - cutoff) <= margin
    near |= np.abs(tails[starts + np.minimum(low, sizes)] - cutoff) <= margin
    rows = np.flatnonzero(near)
    if len(rows):
        queries = np.stack([starts[rows], sizes[rows], weight[rows].view(np.int64)], axis=1)
        unique, inverse = np.unique(queries, axis=0, return_inverse=True)
        exact = [_exact_rank(tails, start, size, weight, level) for start, size, weight in _decode(unique)]
        low[rows] = np.array(exact, np.int64)[inverse.reshape(-1)]
    # nothing has any weight: nothing is known, and only the empty set at level 0 leaves anything out
    return np.where((total == 0) & (level > 0), sizes + 1, low)


def _decode(unique: NDArray[np.int64]) -> list[tuple[int, int, float]]:
    weights = np.ascontiguousarray(unique[:, 2]).view(np.float64)
    return list(zip(unique[:, 0].tolist(), unique[:, 1].tolist(), weights.tolist(), strict=True))


def _exact_rank(tails: NDArray[np.float64], start: int, size: int, weight: float, level: Fraction) -> int:
    cutoff = (1 - level) * (Fraction(float(tails[start])) + Fraction(weight)) - Fraction(weight)
    low, high = 0, size + 1
    while low < high:
        middle = (low + high) // 2
        if Fraction(float(tails[start + middle])) > cutoff:
            low = middle + 1
        else:
            high = middle
    return low
