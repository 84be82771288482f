"""Ranks are exact: against rational arithmetic, for every size up to 5,000, and where float routines fail."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from unkgcp.conformal import exact, p_exceeds, rank, training_conditional_rank
from unkgcp.conformal.ranks import exact_levels, percent

LEVELS = [Fraction(tenth, 10) for tenth in range(11)]
LEVELS += [Fraction(twentieth, 20) for twentieth in range(1, 20, 2)]
LEVELS += [Fraction(1, 3), Fraction(2, 3), Fraction(99, 100), Fraction(999, 1000), Fraction(1, 10**9)]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_rank_is_the_smallest_integer_not_below_the_product(level: Fraction) -> None:
    for size in range(1, 5001):
        k = rank(level, size)
        assert (k - 1) * level.denominator < level.numerator * (size + 1) <= k * level.denominator


@pytest.mark.parametrize("tenths", range(1, 20))
def test_a_float_means_the_decimal_that_prints_it(tenths: int) -> None:
    level = Fraction(tenths, 20)
    for size in range(1, 5001):
        assert rank(float(level), size) == rank(level, size)


def test_float_arithmetic_would_be_off_by_one() -> None:
    """The obvious formula in floats gives another rank at these sizes."""
    wrong = [
        (level, size)
        for level in (0.1, 0.3, 0.55, 0.7, 0.9, 0.95)
        for size in range(1, 5001)
        if math.ceil(level * (size + 1)) != rank(level, size)
    ]
    assert (0.55, 99) in wrong
    assert len(wrong) > 50


@pytest.mark.parametrize(
    "confidence",
    [0.9, "0.9", "9/10", Decimal("0.9"), Fraction(9, 10), np.float64(0.9), np.float32(0.9), np.float16(0.9)],
    ids=repr,
)
def test_nine_tenths_by_any_name(confidence: float) -> None:
    assert exact(confidence) == Fraction(9, 10)
    assert rank(confidence, 9) == 9


def test_the_ends_of_the_range_are_legal() -> None:
    assert rank(0, 7) == rank(0.0, 7) == 0
    assert rank(1, 7) == rank(1.0, 7) == 8
    assert rank(np.int64(1), 7) == 8


@pytest.mark.parametrize(
    "confidence", [-0.1, 1.0001, float("nan"), float("inf"), "ninety", "1/0", True, None]
)
def test_other_levels_are_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must be a number from 0 to 1"):
        exact(confidence)


def test_one_or_several_levels() -> None:
    assert exact_levels(0.9) == ([Fraction(9, 10)], True)
    assert exact_levels(np.array(0.9)) == ([Fraction(9, 10)], True)
    assert exact_levels("0.9") == ([Fraction(9, 10)], True)
    assert exact_levels([0.8, "0.9"]) == ([Fraction(4, 5), Fraction(9, 10)], False)
    assert exact_levels(np.array([0.8, 0.9], np.float32)) == ([Fraction(4, 5), Fraction(9, 10)], False)
    with pytest.raises(ValueError, match="confidence is empty"):
        exact_levels([])


def test_p_exceeds_decides_exactly_where_floats_do_not() -> None:
    # with 9 scores and a label stranger than all of them p = 1/10, which does not exceed 1 - 0.9
    assert 1 / 10 > 1 - 0.9
    assert not p_exceeds(1 / 10, 9, 0.9)
    for size in (1, 2, 9, 10, 99, 1000, 4999):
        counts = np.arange(1, size + 2)
        for level in LEVELS:
            expected = [Fraction(int(count), size + 1) > 1 - level for count in counts]
            assert p_exceeds(counts / (size + 1), size, level).tolist() == expected


def _beta_tail(k: int, size: int, level: Fraction) -> Fraction:
    """P(Beta(k, size + 1 - k) >= level) as the probability of at most k - 1 successes in `size` trials."""
    return sum(
        (math.comb(size, j) * level**j * (1 - level) ** (size - j) for j in range(k)),
        start=Fraction(0),
    )


@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 20), Fraction(1, 100)])
@pytest.mark.parametrize("level", [Fraction(1, 2), Fraction(4, 5), Fraction(9, 10), Fraction(19, 20)])
def test_training_conditional_rank_against_exact_arithmetic(level: Fraction, delta: Fraction) -> None:
    for size in range(1, 121, 7):
        k = training_conditional_rank(level, size, float(delta))
        assert k == size + 1 or _beta_tail(k, size, level) >= 1 - delta
        assert k == 1 or _beta_tail(k - 1, size, level) < 1 - delta
        assert k >= rank(level, size)


def test_training_conditional_rank_at_the_ends() -> None:
    assert training_conditional_rank(0, 50, 0.1) == 0
    assert training_conditional_rank(1, 50, 0.1) == 51
    assert training_conditional_rank(0.9, 1, 0.1) == 2
    # 0.9^22 < 0.1 <= 0.9^21: the largest of 22 scores is enough, of 21 it is not
    assert training_conditional_rank(0.9, 22, 0.1) == 22
    assert training_conditional_rank(0.9, 21, 0.1) == 22


def test_levels_that_differ_have_columns_that_differ():
    levels = [0.5, 0.5000001, 0.95, 0.9500001, 0.999999, 0.9999999, 1, 0.07, 0.995]
    names = [percent(level) for level in levels]
    assert names == ["50", "50.00001", "95", "95.00001", "99.9999", "99.99999", "100", "7", "99.5"]
