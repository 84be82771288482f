"""Every figure against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.rounding import apart
from unkgcp.evaluation import metrics

TRUTH = np.array([0.0, 0.25, 0.5, 1.0])
LOWER = np.array([0.0, 0.5, 0.25, 0.25])
UPPER = np.array([0.5, 0.75, 0.5, 0.75])
PREDICTION = np.array([0.25, 0.5, 0.5, 0.5])


def test_figures_by_hand() -> None:
    # row 0 sits on its lower end, row 2 on its upper end; rows 1 and 3 are missed by 0.25
    assert metrics.contains(TRUTH, LOWER, UPPER).tolist() == [True, False, True, False]
    assert metrics.coverage(TRUTH, LOWER, UPPER) == 0.5
    assert metrics.coverage([np.nextafter(0.5, 1.0)], [0.0], [0.5]) == 0.0, "a hair outside"
    assert metrics.sharpness(LOWER, UPPER) == (0.5 + 0.25 + 0.25 + 0.5) / 4
    expected = (
        0.5 + (0.25 + 8 * 0.25) + 0.25 + (0.5 + 8 * 0.25)
    ) / 4  # at 0.75 a miss costs 8 times its distance
    assert metrics.interval_score(TRUTH, LOWER, UPPER, 0.75) == pytest.approx(
        expected, abs=apart(12, expected, np.float64)
    )
    assert metrics.mse(PREDICTION, TRUTH) == (0.0625 + 0.0625 + 0.0 + 0.25) / 4
    assert metrics.mae(PREDICTION, TRUTH) == (0.25 + 0.25 + 0.0 + 0.5) / 4
    assert math.isnan(metrics.coverage(np.empty(0), np.empty(0), np.empty(0)))


def test_interval_scores_one_by_one() -> None:
    # 2 / (1 - 0.75) = 8 for each unit by which a label is missed
    assert metrics.interval_scores([0.5, 0.2, 0.95], [0.25] * 3, [0.75] * 3, 0.75) == pytest.approx(
        [0.5, 0.5 + 8 * 0.05, 0.5 + 8 * 0.2]
    )
    assert metrics.interval_scores([0.5, 0.2], [0.25] * 2, [0.75] * 2, 1.0).tolist() == [0.5, math.inf]


def test_an_empty_interval_has_the_worst_interval_score() -> None:
    empty = metrics.interval_score([0.3], [math.nan], [math.nan], 0.9)
    assert empty == pytest.approx(20.0)
    ends = np.linspace(0, 1, 11)
    for lower in ends:
        for upper in ends[ends >= lower]:
            assert metrics.interval_score([0.3], [lower], [upper], 0.9) < empty


def test_the_interval_score_is_proper() -> None:
    """Of all intervals the true quantiles have the least mean score; narrower and wider ones have more."""
    labels = (np.arange(10_000) + 0.5) / 10_000  # uniform: the central 80 % are [0.1, 0.9]
    grid = np.linspace(0, 1, 21)
    scores = {
        (low, high): metrics.interval_score(labels, np.full(10_000, low), np.full(10_000, high), 0.8)
        for low in grid
        for high in grid[grid >= low]
    }
    assert min(scores, key=scores.__getitem__) == pytest.approx((0.1, 0.9))
    # in closed form: width + 10 (low² / 2 + (1 - high)² / 2)
    for (low, high), score in scores.items():
        assert score == pytest.approx(high - low + 5 * (low**2 + (1 - high) ** 2), abs=1e-7)


def test_knowing_nothing() -> None:
    known = np.arange(101) / 100
    found = metrics.knowing_nothing(known, np.array([0.5, 0.0]), 0.9)
    assert found == pytest.approx(
        {
            "lower": 0.05,
            "upper": 0.95,
            "coverage": 0.5,
            "sharpness": 0.9,
            "interval_score": 0.9 + 20 * 0.05 / 2,
        }
    )
    ends = np.stack([known, known], axis=1)
    assert metrics.knowing_nothing(ends, np.array([[0.5, 0.5], [0.0, 0.0]]), 0.9) == found
    assert set(metrics.knowing_nothing(known[:0], known, 0.9).values()) == {None}


def test_labels_that_are_intervals() -> None:
    # inside with both ends, out at the lower end by 0.25, out at both by 0.25 and 0.125
    truth = np.array([[0.0, 0.5], [0.25, 0.75], [0.0, 0.625]])
    lower, upper = LOWER[:3], UPPER[:3]
    assert metrics.contains(truth, lower, upper).tolist() == [True, False, False]
    assert metrics.coverage(truth, lower, upper) == 1 / 3
    expected = (0.5 + (0.25 + 8 * 0.25) + (0.25 + 8 * 0.375)) / 3
    assert metrics.interval_score(truth, lower, upper, 0.75) == pytest.approx(
        expected, abs=apart(12, expected, np.float64)
    )


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\), \(2,\), \(1,\), \(1,\)"):
        metrics.coverage([0.1, 0.2], [0.1], [0.1])
