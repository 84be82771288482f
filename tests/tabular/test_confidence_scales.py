"""Scales: what they accept, where they send their ends, and that the default changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rounding import EXP_ULPS
from unkgcp.errors import InputError
from unkgcp.tabular.columns import Scale

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
PAPER = Scale("log", cap=3.0, floor=0.1, low=0.1)


@given(values=st.lists(st.floats(0, 1)))
def test_the_default_returns_confidences_as_they_are(values):
    given_ = np.array(values)
    assert np.array_equal(Scale()(given_), given_)
    assert Scale().accepts(given_)


@pytest.mark.parametrize(
    ("scale", "numbers", "expected"),
    [
        (Scale(), [0.9999999999999998], [0.9999999999999998]),
        (Scale(), [1.0000000000000002, -1e-17, 1 + 0.9e-9, 0.5], [1.0, 0.0, 1.0, 0.5]),
        (Scale(unit=1000.0), [0.0, 155, 329, 1000], [0.0, 0.155, 0.329, 1.0]),
        (PAPER, [0.1, 3.0, 1e9], [0.1, 1.0, 1.0]),
    ],
)
def test_what_is_accepted(scale, numbers, expected):
    """What lies beyond a bound by a rounding error is the bound."""
    values = np.array(numbers)
    assert scale.accepts(values)
    assert all(scale.objection(value) is None for value in numbers)
    assert scale(values).tolist() == expected


@pytest.mark.parametrize(
    ("scale", "value", "words"),
    [
        *((Scale(), value, f"{value:g}") for value in (1.5, -0.5, 1 + 2e-9, math.nan, math.inf, -math.inf)),
        (Scale(), 1.5, "--confidence-scale"),
        (Scale(), math.nan, "remove the line"),
        (Scale(unit=1000.0), 1001, "[0, 1000]"),
        (PAPER, 0.0, "logarithm"),
        (PAPER, -2.0, "minmax"),
    ],
)
def test_what_is_no_confidence_is_refused_with_a_remedy(scale, value, words):
    assert not scale.accepts(np.array([0.5, value, 0.5]))
    assert words in str(scale.objection(value))


@given(values=st.lists(NUMBERS, min_size=2).filter(lambda v: max(v) - min(v) > 1e-6), low=st.floats(0, 0.4))
def test_minmax_reaches_both_ends_and_keeps_the_order(values, low):
    scaled = Scale("minmax", low=low, high=0.9)(np.array(values))
    assert scaled.min() == pytest.approx(low, abs=1e-9)
    assert scaled.max() == pytest.approx(0.9)
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(scaled[order]) >= 0)
    assert scaled.min() >= low
    assert scaled.max() <= 0.9


def test_the_papers_map_of_conceptnet():
    weights = np.array([0.1, 0.5, 1.0, 2.0, 3.0, 22.9])
    formula = 0.1 + 0.9 * np.log(10 * np.minimum(weights, 3)) / np.log(30)
    # two logarithms, a quotient, a product and a sum: numbers below 1, each logarithm good to four last digits
    rounding = 2 * (2 * EXP_ULPS + 3) * np.finfo(np.float64).eps
    assert PAPER(weights) == pytest.approx(formula, abs=rounding)
    # as printed in the files of CN15k
    assert PAPER(np.array([1.0, 2.0, 0.5])) == pytest.approx(
        [0.709293243275961, 0.8927087856574166, 0.5258777008945054], abs=rounding
    )
    assert PAPER(weights[2:3]) == PAPER(weights)[2], "with cap and floor, no other number matters"


def test_several_files_share_smallest_and_largest():
    first, second = Scale("minmax").together([np.array([0.0, 5.0]), np.array([10.0])])
    assert first.tolist() == [0.0, 0.5]
    assert second.tolist() == [1.0]
    assert [part.tolist() for part in Scale("minmax").together([np.array([]), np.array([1.0, 2.0])])] == [
        [],
        [0, 1],
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "square"},
        {"kind": "none", "cap": 3.0},
        {"kind": "minmax", "low": 0.5, "high": 0.5},
        {"kind": "minmax", "high": 1.5},
        {"kind": "minmax", "low": -0.1},
        {"kind": "minmax", "cap": 1.0, "floor": 2.0},
        {"kind": "minmax", "cap": math.nan},
        {"kind": "log", "floor": 0.0},
        {"kind": "minmax"},  # equal numbers cannot be spread
        {"kind": "log", "cap": 2.0},
    ],
)
def test_senseless_scales_are_refused(options):
    with pytest.raises(InputError):
        Scale(**options)(np.array([3.0, 3.0]))
