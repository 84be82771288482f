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


def test_one_that_prints_as_less_than_one_stays():
    assert Scale()(np.array([0.9999999999999998]))[0] == 0.9999999999999998


def test_rounding_errors_beyond_a_bound_are_the_bound():
    values = np.array([1.0000000000000002, -1e-17, 1 + 0.9e-9, 0.5])
    assert Scale().accepts(values)
    assert Scale()(values).tolist() == [1.0, 0.0, 1.0, 0.5]
    assert not Scale().accepts(np.array([1 + 2e-9]))


@pytest.mark.parametrize("value", [1.5, -0.5, math.nan, math.inf, -math.inf])
def test_what_is_no_confidence_is_refused_with_a_remedy(value):
    assert not Scale().accepts(np.array([0.5, value, 0.5]))
    objection = Scale().objection(value)
    assert objection is not None
    assert f"{value:g}" in objection
    assert ("--confidence-scale" in objection) == math.isfinite(value)


def test_a_unit_divides():
    scale = Scale(unit=1000.0)
    assert scale(np.array([0.0, 155, 329, 1000])).tolist() == [0.0, 0.155, 0.329, 1.0]
    assert scale.objection(1001) is not None
    assert "[0, 1000]" in str(scale.objection(1001))
    assert scale.objection(1000) is None


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
    assert PAPER(np.array([0.1, 3.0])).tolist() == [0.1, 1.0]


def test_cap_and_floor_make_the_map_independent_of_the_data():
    alone = PAPER(np.array([1.0]))
    among_others = PAPER(np.array([1.0, 0.2, 9.0]))
    assert alone[0] == among_others[0]


def test_logarithms_need_positive_numbers():
    assert PAPER.objection(0.0) is not None
    assert "logarithm" in str(PAPER.objection(0.0))
    assert "minmax" in str(PAPER.objection(-2.0))
    assert PAPER.objection(1e9) is None


def test_several_files_share_smallest_and_largest():
    first, second = Scale("minmax").together([np.array([0.0, 5.0]), np.array([10.0])])
    assert first.tolist() == [0.0, 0.5]
    assert second.tolist() == [1.0]
    assert [part.tolist() for part in Scale("minmax").together([np.array([]), np.array([1.0, 2.0])])] == [
        [],
        [0, 1],
    ]


def test_equal_numbers_cannot_be_spread():
    with pytest.raises(InputError, match="cannot spread"):
        Scale("minmax")(np.array([3.0, 3.0]))
    with pytest.raises(InputError, match="cannot spread"):
        Scale("log", cap=2.0)(np.array([3.0, 4.0]))


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
    ],
)
def test_senseless_scales_are_refused(options):
    with pytest.raises(InputError):
        Scale(**options)
