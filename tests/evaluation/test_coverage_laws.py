"""Bands of coverage against the laws of another library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import betabinom

from unkgcp.conformal import rank
from unkgcp.evaluation.metrics import summed_band


@pytest.mark.parametrize(("calibration", "test"), [(9, 1), (50, 20), (1000, 3000)])
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("mass", [0.9, 0.999])
def test_band_holds_the_mass_and_no_smaller_one_does(
    calibration: int, test: int, confidence: float, mass: float
) -> None:
    low, high = summed_band([(calibration, test)], confidence, mass)
    k = rank(confidence, calibration)
    law = betabinom(test, k, calibration + 1 - k)
    tail = (1 - mass) / 2
    assert law.cdf(math.ceil(low * test - 1e-9) - 1) <= tail < law.cdf(round(low * test))
    assert law.sf(round(high * test)) <= tail < law.sf(round(high * test) - 1)


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
