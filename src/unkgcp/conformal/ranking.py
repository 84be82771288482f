"""Calibration scores in order: thresholds by rank and p-values by bisection, for one or many groups at once.

A ranking holds one sorted segment a group and a last, empty one for queries whose group had no calibration point;
without groups the only segment has all scores. It knows ranks and orders, but nothing of predictions, labels or
intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import rank, training_conditional_rank
from unkgcp.conformal.scores import loaded_kernels
from unkgcp.loops import ROWS, run_chunks

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
        starts, sizes = self.offsets[segments], self.sizes[segments]
        last = len(self.scores) - 1

        def less(place: NDArray[Any]) -> NDArray[np.bool_]:
            value = self.scores[np.minimum(starts + place, last)]
            return np.asarray(value < scores if side == "left" else value <= scores)

        return bisected(sizes, less)


def group_codes(known: NDArray[Any], group: NDArray[Any]) -> NDArray[np.intp]:
    """Position of each label in `known` (sorted), -1 where it is not there: (n,)."""
    if (known.dtype.kind == "U") != (group.dtype.kind == "U"):
        raise ValueError(f"group has dtype {group.dtype}, but the calibration groups were {known.dtype}")
    if not len(known):
        return np.full(len(group), -1, np.intp)
    position = np.minimum(np.searchsorted(known, group), len(known) - 1)
    return np.where(known[position] == group, position, -1)


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


def bisected(
    sizes: NDArray[np.int64], within: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """How many of the first `sizes` places of each row are within, which are the first ones, by bisection: (n,).

    `within` gets one place a row; what it says of places beyond the size does not matter.
    """
    low, high = np.zeros_like(sizes), sizes
    for _ in range(int(sizes.max(initial=0)).bit_length()):
        middle = (low + high) // 2
        more = within(middle) & (low < high)
        low, high = np.where(more, middle + 1, low), np.where(more, high, middle)
    return low


def tail_sums(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the weights from each position to the end, and 0 after the last: (l + 1,)."""
    return np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])


# Numbers that are put in order once, and only when anybody needs more than a few ranks.

WORTH_SELECTING = 1_000_000
"""Smaller arrays are sorted at once."""
FEW = 8
"""How many ranks are selected before sorting is cheaper."""
_SAMPLE = 1 << 16


class Order:
    """Takes over an array (l,) and answers with its k-th smallest values; `in_order` if it is sorted already.

    >>> Order(np.array([0.3, 0.1, 0.2])).smallest([1, 3]).tolist()
    [0.1, 0.3]
    """

    def __init__(self, values: Floats, in_order: bool = False) -> None:
        self._values = values
        self._lock = Lock()
        self._known: dict[int, Any] = {}
        self._sorted = in_order
        if len(values) < WORTH_SELECTING:
            self.sorted()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    def smallest(self, ranks: Sequence[int]) -> Floats:
        """The k-th smallest value for each rank k from 1 to l: (ranks,)."""
        with self._lock:
            if not self._sorted and self._select(set(ranks)):
                return np.array([self._known[k] for k in ranks], self.dtype)
            self._sort()
            return self._values[np.array(ranks, np.intp) - 1]

    def sorted(self) -> Floats:
        """All values upwards: (l,). It never changes afterwards."""
        with self._lock:
            self._sort()
        return self._values

    def _sort(self) -> None:
        if not self._sorted:
            self._values.sort()
            self._sorted = True

    def _select(self, ranks: set[int]) -> bool:
        """Make the values at these ranks known without sorting; False if it cannot be done or does not pay."""
        kernels = loaded_kernels()
        if kernels is None or self.dtype != np.float64 or len(self._known.keys() | ranks) > FEW:
            return False
        new = sorted(ranks - self._known.keys())
        found = select(self._values, new, kernels) if new else []
        if found is None:
            return False
        self._known.update(zip(new, found, strict=True))
        return True


def select(values: Floats, ranks: Sequence[int], kernels: Any) -> list[Any] | None:
    """The values at these ranks (upwards), exactly and without moving anything; None if sorting is better.

    A sorted sample gives two values that almost surely enclose the answers. One pass counts what is below the
    lower one and equal to it, and keeps the values between the two, among which the answers are. None if there
    are many of these, or if the sample was misleading.
    """
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
    margin = 5 * int(np.sqrt(len(sample)))
    first, last = (rank * len(sample) // len(values) for rank in (ranks[0], ranks[-1]))
    if last - first > len(sample) // 4:
        return None
    low = sample[first - margin] if first >= margin else np.float64(-np.inf)
    high = sample[last + margin] if last + margin < len(sample) else np.float64(np.inf)
    found: list[tuple[int, int, Floats]] = []

    def work(start: int, stop: int) -> None:
        kept = np.empty(stop - start)
        below, equal, size = kernels.enclosed(values[start:stop], low, high, kept)
        found.append((below, equal, kept[:size].copy()))

    run_chunks(len(values), work, 8 * ROWS)
    below, equal = (sum(part[index] for part in found) for index in (0, 1))
    between = np.concatenate([kept for _, _, kept in found])
    between.sort()
    if ranks[0] <= below or ranks[-1] > below + equal + len(between):
        return None
    return [low if rank <= below + equal else between[rank - below - equal - 1] for rank in ranks]


# Weighted conformal prediction for a known shift (Tibshirani, Barber, Candes and Ramdas, 2019).

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
    low = bisected(sizes + 1, lambda place: tails[starts + np.minimum(place, sizes)] > cutoff)
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
