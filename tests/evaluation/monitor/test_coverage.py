"""Exact p-values beside the laws of another library."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unkgcp.conformal import rank
from unkgcp.evaluation.metrics import beta_binomial_p_value, hypergeometric_p_value


@given(st.integers(1, 400), st.integers(1, 300), st.sampled_from([0.5, 0.8, 0.9, 0.95]), st.data())
@settings(max_examples=60, deadline=None)
def test_beta_binomial(calibration: int, facts: int, level: float, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, facts))
    k = rank(level, calibration)
    expected = 1.0 if k > calibration else stats.betabinom(facts, k, calibration + 1 - k).cdf(hits)
    assert beta_binomial_p_value(hits, facts, calibration, level) == pytest.approx(
        expected, rel=1e-8, abs=1e-12
    )


@given(st.integers(1, 400), st.integers(1, 300), st.data())
@settings(max_examples=60, deadline=None)
def test_hypergeometric(calibration: int, facts: int, data: st.DataObject) -> None:
    hits, before = data.draw(st.integers(0, facts)), data.draw(st.integers(0, calibration))
    expected = stats.hypergeom(calibration + facts, hits + before, facts).cdf(hits)
    assert hypergeometric_p_value(hits, facts, before, calibration) == pytest.approx(
        expected, rel=1e-8, abs=1e-12
    )
