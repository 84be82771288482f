"""Ranks in exact arithmetic: the only place where a level becomes a rank, and a rank the score that stands there.

With l calibration scores in ascending order, the set at level `confidence` holds the labels whose score is at most the
k-th smallest one, k = ceil(confidence (l + 1)). k = 0 means the empty set and k > l the whole range. Quantile routines
compute with floats and are off by one rank for some l; the guarantee does not survive that.

>>> rank(0.9, 9), rank(0.9, 8), rank("9/10", 99)
(9, 9, 90)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.scores import Floats, loaded_kernels
from unkgcp.loops import ROWS, run_chunks

Confidence = float | str | Decimal | Fraction | np.floating[Any] | np.integer[Any]


def exact(confidence: Confidence) -> Fraction:
    """The rational number that a level stands for; a float stands for the shortest decimal that prints it.

    0.9 is nine tenths, not the binary fraction nearest to it; `np.float32(0.9)` and "0.9" are nine tenths too. For a
    third pass `Fraction(1, 3)`.
    """
    if isinstance(confidence, bool | np.bool_):
        raise ValueError(f"confidence must be a number from 0 to 1, not {confidence}")
    try:
        value = Fraction(str(confidence)) if not isinstance(confidence, Fraction) else confidence
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"confidence must be a number from 0 to 1, not {confidence!r}") from None
    if not 0 <= value <= 1:
        raise ValueError(f"confidence must be a number from 0 to 1, not {confidence}")
    return value


def percent(level: Confidence) -> str:
    """A level in percent, for the names of columns.

    >>> percent(0.995), percent(0.9999999)
    ('99.5', '99.99999')
    """
    return f"{round(100 * float(level), 10):.15g}"


class ExactLevels(NamedTuple):
    """Levels as rationals, and whether a single one was asked for. Callers that ask often convert their levels once."""

    levels: list[Fraction]
    single: bool


def exact_levels(confidence: Confidence | Iterable[Confidence] | ExactLevels) -> ExactLevels:
    """One or several levels as rationals."""
    if isinstance(confidence, ExactLevels):
        return confidence
    if isinstance(confidence, np.ndarray) and confidence.ndim == 0:
        confidence = confidence[()]
    if isinstance(confidence, str | Decimal | Fraction) or not isinstance(confidence, Iterable):
        return ExactLevels([exact(confidence)], True)
    levels = [exact(level) for level in confidence]
    if not levels:
        raise ValueError("confidence is empty, expected at least one level")
    return ExactLevels(levels, False)


def rank(confidence: Confidence, size: int) -> int:
    """k = ceil(confidence (size + 1)) for `size` scores, from 0 (the empty set) to size + 1 (the whole range)."""
    return _rank(exact(confidence), size)


def ranks(confidence: Iterable[Confidence], sizes: Iterable[int]) -> list[list[int]]:
    """The rank at each level for each number of calibration scores: one list a level."""
    sizes = list(sizes)
    return [[_rank(level, size) for size in sizes] for level in map(exact, confidence)]


def _rank(level: Fraction, size: int) -> int:
    return -((-level.numerator * (size + 1)) // level.denominator)


def highest_level(size: int) -> Fraction:
    """The highest level whose rank is at most `size`; above it, `size` calibration scores give the whole range.

    >>> highest_level(9), rank("9/10", 9), rank("10/11", 9)
    (Fraction(9, 10), 9, 10)
    """
    return Fraction(size, size + 1)


def training_conditional_rank(confidence: Confidence, size: int, delta: float) -> int:
    """Smallest k with P(Beta(k, size + 1 - k) >= confidence) >= 1 - delta; size + 1 if there is none.

    Given the calibration set, the coverage of the k-th smallest score is distributed as Beta(k, size + 1 - k) if scores
    are continuous, and is larger with ties. So for a share 1 - delta of calibration sets the coverage is at least
    `confidence`. k = 0 covers nothing, k = size + 1 everything.
    """
    from scipy.special import betainc

    level = float(exact(confidence))
    if level == 0:
        return 0
    low, high = 0, size + 1  # low is too small, high is large enough
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, size + 1 - middle, level) <= delta:
            high = middle
        else:
            low = middle
    return high


def p_exceeds(p_value: ArrayLike, size: int, confidence: Confidence) -> NDArray[np.bool_]:
    """Whether each p-value among `size` calibration scores exceeds 1 - confidence, decided exactly.

    In floats, `p > 1 - 0.9` compares with 0.09999999999999998 instead of 0.1. Here a p-value counts as the rational
    number j / (size + 1) from which it was rounded.
    """
    counts = np.rint(np.asarray(p_value, np.float64) * (size + 1)).astype(np.int64)
    return np.asarray(counts > size + 1 - rank(confidence, size))


def smoothed_exceeds(
    below: NDArray[np.integer[Any]],
    equal: NDArray[np.integer[Any]],
    size: NDArray[np.integer[Any]],
    confidence: Confidence,
) -> NDArray[np.float64]:
    """The probability, over u uniform on [0, 1], that each smoothed p-value exceeds 1 - confidence: (n,).

    `below`, `equal`, `size`: how many calibration scores lie below a score, how many equal it, and how many there are,
    (n,) each. The smoothed p-value is (#{s_i > s} + u (#{s_i = s} + 1)) / (size + 1). For exchangeable scores, with any
    ties, the expected value of this probability is exactly `confidence`.

    >>> smoothed_exceeds(np.array([0, 8, 9]), np.array([0, 1, 0]), np.array([9, 9, 9]), 0.9).tolist()
    [1.0, 0.5, 0.0]
    """
    level = exact(confidence)
    sizes, which = np.unique(size, return_inverse=True)
    # integer and fractional part are kept apart, so that the subtraction of `below` is exact
    wanted = [divmod(level * (int(each) + 1), 1) for each in sizes]
    whole = np.array([part for part, _ in wanted], np.int64)[which]
    rest = np.array([float(part) for _, part in wanted], np.float64)[which]
    return np.asarray(np.clip((whole - below + rest) / (np.asarray(equal) + 1), 0.0, 1.0), np.float64)


def smoothed_coverages(
    standing: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.integer[Any]]],
    levels: Iterable[Confidence],
    unknown: int = 0,
) -> list[float]:
    """The mean of `smoothed_exceeds` at each level, where `unknown` further labels count as covered."""
    shares = [smoothed_exceeds(*standing, level) for level in levels]
    return [(float(share.sum()) + unknown) / (len(share) + unknown) for share in shares]


# Ranks where calibration points and queries carry weights, because queries come from another distribution with a known
# density ratio (Tibshirani, Barber, Candes and Ramdas, 2019).

# the cutoff in `weighted_ranks` is up to three roundings away from its exact value; eight is on the safe side
_ROUNDING = 8 * np.finfo(np.float64).eps


def weighted_ranks(
    tails: NDArray[np.float64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weight: NDArray[np.float64],
    level: Fraction,
) -> NDArray[np.int64]:
    """The rank k of each query: the number of j in 0 .. l with w + tail_j > (1 - level) (w + tail_0), exactly: (n,).

    tail_j, at tails[start + j], is the summed weight of the calibration scores from position j upwards, and w the
    query's own weight. A label whose score exceeds j calibration scores is in the set exactly when j < k. Equal weights
    give k = ceil(level (l + 1)). Rows that floats cannot decide are decided with rational numbers.
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
        weights = np.ascontiguousarray(unique[:, 2]).view(np.float64)
        asked = zip(unique[:, 0].tolist(), unique[:, 1].tolist(), weights.tolist(), strict=True)
        exact = [_exact_rank(tails, *query, level) for query in asked]
        low[rows] = np.array(exact, np.int64)[inverse.reshape(-1)]
    # without any weight nothing is known: every level above 0 gives the whole range
    return np.where((total == 0) & (level > 0), sizes + 1, low)


def _exact_rank(tails: NDArray[np.float64], start: int, size: int, weight: float, level: Fraction) -> int:
    """`weighted_ranks` of one query in rational numbers, by bisection."""
    cutoff = (1 - level) * (Fraction(float(tails[start])) + Fraction(weight)) - Fraction(weight)
    low, high = 0, size + 1
    while low < high:
        middle = (low + high) // 2
        if Fraction(float(tails[start + middle])) > cutoff:
            low = middle + 1
        else:
            high = middle
    return low


def bisected(
    sizes: NDArray[np.int64], within: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """For each row the number of places below `sizes` for which `within` is true: (n,), by bisection.

    In each row `within` must be true up to some place and false from there on. It is asked about one place of every row
    at a time; what it answers for places beyond the size does not matter.
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


# The values at given ranks. Large arrays are sorted only when more than a few ranks are asked for.

WORTH_SELECTING = 1_000_000
"""Smaller arrays are sorted at once."""
FEW = 8
"""How many ranks are selected before sorting is cheaper."""
_SAMPLE = 1 << 16


class Order:
    """The k-th smallest values of an array (l,), which it takes over and may sort; `in_order` if it is sorted already.

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
        """All values in ascending order: (l,). The array never changes afterwards."""
        with self._lock:
            self._sort()
        return self._values

    def _sort(self) -> None:
        if not self._sorted:
            self._values.sort()
            self._sorted = True

    def _select(self, ranks: set[int]) -> bool:
        """Find the values at these ranks without sorting; False if that is impossible or does not pay."""
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
    """The exact values at these ranks (ascending), without changing the array; None if sorting is better.

    A sorted sample gives two values that almost surely enclose the answers. One pass counts the values below the lower
    one and equal to it, and keeps the values between the two, which contain the answers. None if too many values would
    be kept, or if the sample was misleading.
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
