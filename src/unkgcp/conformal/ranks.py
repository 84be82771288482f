"""Ranks in exact arithmetic: the only place where a level becomes a rank.

With l calibration scores in ascending order, the set at level `confidence` holds the labels whose score is at most the
k-th smallest one, k = ceil(confidence (l + 1)). k = 0 means the empty set and k > l the whole range. Quantile routines
compute with floats and are off by one rank for some l; the guarantee does not survive that.

>>> rank(0.9, 9), rank(0.9, 8), rank("9/10", 99)
(9, 9, 90)
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    level = exact(confidence)
    return -((-level.numerator * (size + 1)) // level.denominator)


def ranks(confidence: Iterable[Confidence], sizes: Iterable[int]) -> list[list[int]]:
    """The rank at each level for each number of calibration scores: one list a level."""
    sizes = list(sizes)
    return [[rank(level, size) for size in sizes] for level in map(exact, confidence)]


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
    ranks = [divmod(level * (int(each) + 1), 1) for each in sizes]
    whole = np.array([part for part, _ in ranks], np.int64)[which]
    rest = np.array([float(part) for _, part in ranks], np.float64)[which]
    return np.asarray(np.clip((whole - below + rest) / (np.asarray(equal) + 1), 0.0, 1.0), np.float64)
