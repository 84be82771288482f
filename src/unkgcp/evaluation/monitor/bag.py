"""All scores seen so far, and where each new one ranks among those before it: smoothed conformal p-values.

What it is: the bag of a conformal transducer. The n-th score is compared with the calibration scores *and* with
the new scores that came before it; then, whatever their distribution, the p-values of exchangeable scores are
independent and uniform. (Against the calibration scores alone each p-value would be uniform too, but they would
share the luck of one calibration set, and a product of bets on them would be no martingale.) What it is not: a
p-value of a prediction; those compare with the calibration scores alone and count ties in full.

A score costs O(log^2 n): scores lie in sorted runs whose sizes at least double, and runs are merged as they
grow, so that every score is moved O(log n) times. Many scores at once are ranked among each other by merging.

>>> bag = Bag(np.array([0.1, 0.2, 0.2, 0.4]))
>>> bag.p_values(np.array([0.3, 0.2]), np.array([0.5, 0.5]))     # (1 + 0.5) / 5, (2 + 0.5 * (2 + 1)) / 6
array([0.3       , 0.58333333])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]

CHUNK = 1 << 16
"""Scores ranked among each other at once: their blocks are then numbered by 16 bits, which sort fastest."""


class Bag:
    """Starts with the calibration scores (l,), in any order, and takes in every score it is asked about."""

    def __init__(self, scores: Floats) -> None:
        self._runs = [np.sort(scores)] if len(scores) else []
        self.size = len(scores)

    def p_values(self, scores: Floats, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """(#{larger} + u (#{equal} + 1)) / (n + 1) of each score among the n before it: (m,), in (0, 1).

        uniform: (m,) numbers u in [0, 1) that break ties, the score's tie with itself included.
        """
        found = np.empty(len(scores))
        for start in range(0, len(scores), CHUNK):
            part = slice(start, start + CHUNK)
            found[part] = self._chunk(scores[part], uniform[part])
        return found

    def _chunk(self, scores: Floats, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        larger, equal = _earlier(scores)
        for run in self._runs:
            below = np.searchsorted(run, scores, side="left")
            not_above = np.searchsorted(run, scores, side="right")
            equal += not_above - below
            larger += len(run) - not_above
        before = self.size + np.arange(len(scores))
        self.take(scores)
        p_values: NDArray[np.float64] = (larger + uniform * (equal + 1)) / (before + 1)
        return p_values

    def take(self, scores: Floats) -> None:
        """Put scores into the bag without asking where they rank."""
        if not len(scores):
            return
        self.size += len(scores)
        self._runs.append(np.sort(scores))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, other = self._runs.pop(), self._runs.pop()
            # "stable" finds the two runs in order and merges them
            self._runs.append(np.sort(np.concatenate([other, last]), kind="stable"))


def _earlier(values: Floats) -> tuple[Counts, Counts]:
    """How many earlier values of the array are larger, and how many equal, for each: (m,) and (m,).

    Blocks of 1, 2, 4, ... values are put beside each other: the values of the right one are ranked among those
    of the left one. Every earlier value is met exactly once.
    """
    m = len(values)
    if m < 2:
        return np.zeros(m, np.int64), np.zeros(m, np.int64)
    time = np.arange(m)
    ordered = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], values[ordered][1:] != values[ordered][:-1]]))
    equal = np.empty(m, np.int64)
    equal[ordered] = time - np.repeat(starts, np.diff(np.append(starts, m)))
    not_larger = np.zeros(m, np.int64)
    for bit in range((m - 1).bit_length()):
        block = (ordered >> (bit + 1)).astype(np.uint16)
        rows = ordered[np.argsort(block, kind="stable")]
        right = (rows >> bit) & 1 == 1
        # all blocks before this one are full, and half of each is a left one
        lefts = np.cumsum(~right) - (rows >> (bit + 1) << bit)
        not_larger[rows[right]] += lefts[right]
    return time - not_larger, equal
