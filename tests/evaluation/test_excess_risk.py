"""ERT: closed forms, the reference implementation, and no claim where coverage is even."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unkgcp.evaluation.slices import excess_risk, risk_of

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
N = 20_000


def found(probability: np.ndarray, seed: int, x: np.ndarray, n: int = N) -> dict[str, float]:
    inside = np.random.default_rng(seed).random(n) < probability[:n]
    risk = excess_risk(x[:n], inside, 0.9, seed=seed)
    assert risk is not None
    assert excess_risk(x[:n], inside, 0.9, seed=seed) == risk, "a seed gives the same figure"
    return risk


def features(seed: int) -> np.ndarray:
    return np.random.default_rng([7, seed]).random((N, 3))


def test_two_kinds_of_queries() -> None:
    """A half is covered with 1, a half with 0.8: |p - 0.9| is 0.1 on average, half of it below.

    Given the right sign for every row, the mean of (covered - 0.9) over the half has standard error 0.4 / sqrt(N / 2);
    five of them are a false-alarm rate below 1e-6.
    """
    x = features(0)
    risk = found(np.where(x[:, 1] < 0.5, 0.8, 1.0), 1, x)
    allowed = 5 * 0.4 / math.sqrt(N / 2) / 2
    assert abs(risk["both"] - 0.1) < allowed + 0.002
    assert abs(risk["below"] - 0.05) < allowed + 0.002


@pytest.mark.parametrize("n", [2000, N])
def test_even_coverage_shows_nothing(n: int) -> None:
    """Any sign that does not look at the rows judged has mean 0 and standard error at most 0.3 / sqrt(n).

    A classifier judged on the rows it has learned from would claim much more, above all of few rows.
    """
    risk = found(np.full(N, 0.9), 3, features(3), n)
    assert abs(risk["both"]) < 5 * 0.3 / math.sqrt(n)
    assert abs(risk["below"]) < 5 * 0.3 / math.sqrt(n)


def test_it_never_exceeds_what_there_is() -> None:
    """In expectation: by classifiers of any quality, over several kinds of uneven coverage."""
    for seed in range(3):
        x, rng = features(seed), np.random.default_rng(seed)
        probability = np.clip(0.9 + rng.normal() * 0.2 * (x[:, 0] - 0.5) * x[:, 1], 0, 1)
        assert found(probability, seed, x)["both"] < np.abs(probability - 0.9).mean() + 5 * 0.3 / math.sqrt(N)


def test_by_hand() -> None:
    # signs +, -, 0, -; what is covered less the level: 0.25, 0.25, -0.75, -0.75
    risk = risk_of(np.array([0.8, 0.5, 0.75, 0.1]), np.array([True, True, False, False]), 0.75)
    assert risk == {"both": (0.25 - 0.25 + 0.75) / 4, "below": (-0.25 + 0.75) / 4}
    everything = excess_risk(features(0)[:100], np.ones(100, bool), 0.9, seed=0)
    assert everything == {"both": pytest.approx(0.1), "below": 0.0}
    assert excess_risk(np.zeros((9, 1)), np.ones(9, bool), 0.9, seed=0) is None, "too few rows"


def test_figures_of_the_reference() -> None:
    """What covmetrics 0.1.2 of the authors gives for rows that anybody can write down.

    p = np.tile([0.95, 0.5, 0.9, 0.2], 25); z = np.arange(100) % 3 > 0
    evaluate_with_predictions(p, z.astype(float), 0.1, loss=L1_miscoverage)  # and L1_miscoverage_under
    """
    probability, inside = np.tile([0.95, 0.5, 0.9, 0.2], 25), np.arange(100) % 3 > 0
    assert risk_of(probability, inside, 0.9) == pytest.approx({"both": 0.055, "below": 0.12})
