"""Bands and p-values of coverage against the laws of another library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import betabinom

from unkgcp.conformal import rank
from unkgcp.evaluation.metrics import (
    beta_binomial_p_value,
    coverage_band,
    hypergeometric_p_value,
    summed_band,
)


@pytest.mark.parametrize(("calibration", "test"), [(9, 1), (50, 20), (1000, 3000)])
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("mass", [0.9, 0.999])
def test_band_holds_the_mass_and_no_smaller_one_does(
    calibration: int, test: int, confidence: float, mass: float
) -> None:
    low, high = coverage_band(calibration, test, confidence, mass)
    k = rank(confidence, calibration)
    law = betabinom(test, k, calibration + 1 - k)
    tail = (1 - mass) / 2
    assert law.cdf(math.ceil(low * test - 1e-9) - 1) <= tail < law.cdf(round(low * test))
    assert law.sf(round(high * test)) <= tail < law.sf(round(high * test) - 1)


def test_too_few_calibration_facts_cover_everything() -> None:
    assert coverage_band(8, 100, 0.9) == (1.0, 1.0)
    assert coverage_band(8, 100, 0.0) == (0.0, 0.0)


def test_narrows_with_more_facts() -> None:
    widths = [np.diff(coverage_band(n, n, 0.9))[0] for n in (100, 1000, 10_000)]
    assert widths[0] > widths[1] > widths[2]


def test_the_band_of_groups_is_that_of_their_sum() -> None:
    cases = [(40, 30), (9, 0), (25, 50), (5, 7)]  # the last has too few for the level, and covers everything
    low, high = summed_band(cases, 0.9, 0.99)
    rng = np.random.default_rng(0)
    hits = sum(
        rng.binomial(test, rng.beta(rank(0.9, size), size + 1 - rank(0.9, size), 100_000))
        for size, test in cases[:3]
    )
    total = sum(test for _, test in cases)
    share = (hits + 7) / total
    # bounds of the normal law at a false-alarm rate of 1e-6 for shares of 100,000 draws that are at most 0.005
    assert np.mean(share < low - 1e-9) <= 0.005 + 4.75 * np.sqrt(0.005 / 100_000)
    assert np.mean(share > high + 1e-9) <= 0.005 + 4.75 * np.sqrt(0.005 / 100_000)
    assert np.mean(share < low + 1 / total - 1e-9) > 0.005 - 4.75 * np.sqrt(0.005 / 100_000)
    assert high == 1 or np.mean(share > high - 1 / total + 1e-9) > 0.005 - 4.75 * np.sqrt(0.005 / 100_000)


# Exact p-values.


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
