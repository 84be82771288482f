"""Calibration scores in order: thresholds by rank and p-values by bisection, for one or many groups at once.

A ranking holds one sorted segment a group and a last, empty one for queries whose group had no calibration point;
without groups the only segment has all scores. It knows ranks and orders, but nothing of predictions, labels or
intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.order import Order
from unkgcp.conformal.ranks import rank, training_conditional_rank
from unkgcp.conformal.weights import weighted_ranks

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.intp]


class Standing(NamedTuple):
    """Where scores stand among the calibration scores that answer them: counts, (n,) each."""

    below: NDArray[np.int64]
    equal: NDArray[np.int64]
    size: NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """Sorted scores of S segments; a query's code says which one answers it, -1 or no code is the last one."""

    order: Order
    """The scores (total,), upwards within each segment; a single segment is put in order as far as needed."""
    offsets: NDArray[np.int64]
    """(S + 1,) segment g is scores[offsets[g]:offsets[g + 1]]."""
    tails: NDArray[np.float64] | None = None
    """(total + S,) with weights: for each segment of size l the l + 1 sums of the weights from a rank up."""
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", np.diff(self.offsets))

    @property
    def scores(self) -> Floats:
        """The scores of all segments one after the other, upwards within each: (total,)."""
        return self.order.sorted()

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.order.dtype

    def pooled(self) -> Ranking:
        """The same scores in one segment; without weights, which cannot be told from their sums."""
        if len(self.sizes) == 1:
            return self
        return Ranking(Order(np.sort(self.scores), True), self.offsets[[0, -1]])

    def ranks(self, level: Fraction, delta: float | None) -> list[int]:
        """k of every segment, on average over calibration sets or for all but a share delta of them."""
        ranks = {
            size: rank(level, size) if delta is None else training_conditional_rank(level, size, delta)
            for size in np.unique(self.sizes).tolist()
        }
        return [ranks[size] for size in self.sizes.tolist()]

    def thresholds(self, levels: Sequence[Fraction], delta: float | None) -> Floats:
        """The k-th smallest score of every segment and level: (S, levels); -inf if k = 0, inf if k > l."""
        ranks = np.empty((len(self.sizes), len(levels)), np.int64)
        for index, level in enumerate(levels):
            ranks[:, index] = self.ranks(level, delta)
        if len(self.sizes) == 1:
            found = self.order.smallest(np.clip(ranks[0], 1, self.sizes[0]).tolist())[None, :]
            return self._beyond(found, ranks, self.sizes[0])
        return self.at_rank(np.arange(len(self.sizes))[:, None], ranks)

    def weighted_thresholds(
        self, level: Fraction, weight: NDArray[np.float64], codes: Codes | None
    ) -> Floats:
        """The threshold of each query when it carries the given weight itself: (n,)."""
        assert self.tails is not None
        segments = self._segments(codes)
        starts = self.offsets[segments] + segments
        sizes = np.broadcast_to(self.sizes[segments], weight.shape)
        ranks = weighted_ranks(self.tails, np.broadcast_to(starts, weight.shape), sizes, weight, level)
        return self.at_rank(segments, ranks)

    def at_rank(self, segments: NDArray[Any] | np.intp, ranks: NDArray[Any]) -> Floats:
        """The k-th smallest score of given segments, for arrays of segments and ranks that broadcast."""
        sizes, starts = self.sizes[segments], self.offsets[segments]
        found = self.scores[starts + np.clip(ranks, 1, sizes) - 1]
        return self._beyond(found, ranks, sizes)

    def _beyond(self, found: Floats, ranks: NDArray[Any], sizes: Any) -> Floats:
        infinity = self.dtype.type(np.inf)
        return np.where(ranks < 1, -infinity, np.where(ranks > sizes, infinity, found))

    def p_values(
        self, scores: Floats, codes: Codes | None, weight: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """(1 + #{s_i >= s}) / (l + 1), or (w + sum of w_i over s_i >= s) / (w + sum of w_i): (n,)."""
        segments = self._segments(codes)
        below = self._count_below(scores, segments)
        if self.tails is None:
            sizes = self.sizes[segments]
            return np.asarray((sizes + 1 - below) / (sizes + 1), np.float64)
        assert weight is not None
        starts = self.offsets[segments] + segments
        total = weight + self.tails[starts]
        share = np.ones(len(scores))  # where nothing has any weight
        np.divide(weight + self.tails[starts + below], total, out=share, where=total > 0)
        return share

    def standing(self, scores: Floats, codes: Codes | None) -> Standing:
        """How many scores of its segment lie below each score, how many equal it, and how many there are."""
        segments = self._segments(codes)
        below = self._count_below(scores, segments)
        equal = self._count_below(scores, segments, "right") - below
        return Standing(below, equal, np.broadcast_to(self.sizes[segments], below.shape))

    def _segments(self, codes: Codes | None) -> Codes | np.intp:
        last = len(self.sizes) - 1
        return np.intp(last) if codes is None else np.where(codes < 0, last, codes)

    def _count_below(
        self, scores: Floats, segments: Codes | np.intp, side: Literal["left", "right"] = "left"
    ) -> NDArray[np.int64]:
        """#{s_i < s} within each query's segment, or #{s_i <= s} on the right side: (n,)."""
        if isinstance(segments, np.intp):
            # in order, neighbouring queries walk the same branch of the bisection, which is then in the cache
            order = np.argsort(scores)
            below = np.empty(len(scores), np.int64)
            below[order] = np.searchsorted(self.scores[self.offsets[-2] :], scores[order], side)
            return below
        low = self.offsets[segments]
        high = low + self.sizes[segments]
        starts = low.copy()
        for _ in range(int(self.sizes.max()).bit_length()):
            middle = (low + high) // 2
            value = self.scores[np.minimum(middle, len(self.scores) - 1)]
            less = (value < scores if side == "left" else value <= scores) & (low < high)
            low = np.where(less, middle + 1, low)
            high = np.where(less, high, middle)
        return low - starts


def rank_scores(scores: Floats, weight: NDArray[np.float64] | None = None) -> Ranking:
    """A ranking of one segment, which takes over the array of scores."""
    offsets = np.array([0, len(scores)], np.int64)
    if weight is None:
        return Ranking(Order(scores), offsets)
    order = np.lexsort((weight, scores))  # by weight within ties: the same sums for every order of the input
    return Ranking(Order(scores[order], True), offsets, tail_sums(weight[order]))


def rank_groups(
    scores: Floats, codes: Codes, groups: int, weight: NDArray[np.float64] | None = None
) -> Ranking:
    """A segment for each of the codes 0 .. groups - 1, and the empty one."""
    order = np.lexsort((scores, codes) if weight is None else (weight, scores, codes))
    offsets = np.append(np.searchsorted(codes[order], np.arange(groups + 1)), len(scores)).astype(np.int64)
    tails = None
    if weight is not None:
        tails = np.concatenate([tail_sums(part) for part in np.split(weight[order], offsets[1:-1])])
    return Ranking(Order(scores[order], True), offsets, tails)


def tail_sums(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the weights from each position to the end, and 0 after the last: (l + 1,)."""
    return np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])
