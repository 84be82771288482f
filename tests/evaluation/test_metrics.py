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


def test_coverage_counts_both_ends() -> None:
    # row 0 sits on its lower end, row 2 on its upper end; rows 1 and 3 are missed
    assert metrics.covered(TRUTH, LOWER, UPPER).tolist() == [True, False, True, False]
    assert metrics.coverage(TRUTH, LOWER, UPPER) == 0.5


def test_a_label_a_hair_outside_is_not_covered() -> None:
    outside = np.nextafter(0.5, 1.0)
    assert metrics.coverage([outside], [0.0], [0.5]) == 0.0


def test_sharpness_is_the_mean_width() -> None:
    assert metrics.sharpness(LOWER, UPPER) == (0.5 + 0.25 + 0.25 + 0.5) / 4


def test_interval_score() -> None:
    # misses: 0.25 below in row 1, 0.25 above in row 3; at 0.75 a miss costs 8 times its distance
    expected = (0.5 + (0.25 + 8 * 0.25) + 0.25 + (0.5 + 8 * 0.25)) / 4
    assert metrics.interval_score(TRUTH, LOWER, UPPER, 0.75) == pytest.approx(
        expected, abs=apart(12, expected, np.float64)
    )


def test_interval_score_at_full_confidence() -> None:
    assert metrics.interval_score(TRUTH, LOWER, UPPER, 1.0) == math.inf
    assert metrics.interval_score([0.5], [0.0], [1.0], 1.0) == 1.0


def test_point_errors() -> None:
    assert metrics.mse(PREDICTION, TRUTH) == (0.0625 + 0.0625 + 0.0 + 0.25) / 4
    assert metrics.mae(PREDICTION, TRUTH) == (0.25 + 0.25 + 0.0 + 0.5) / 4


def test_coverage_by_group() -> None:
    slices = metrics.coverage_by_group(TRUTH, LOWER, UPPER, np.array([7, 3, 7, 7]))
    assert slices.key.tolist() == [3, 7]
    assert slices.n.tolist() == [1, 3]
    assert slices.coverage.tolist() == [0.0, 2 / 3]
    assert slices.sharpness == pytest.approx([0.25, 1.25 / 3])


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


def test_equal_bins_keeps_ties_together() -> None:
    slices = metrics.coverage_by_group(TRUTH, LOWER, UPPER, metrics.equal_bins(UPPER - LOWER, 2))
    assert slices.key.tolist() == [0.25, 0.5]
    assert slices.n.tolist() == [2, 2]
    assert slices.coverage.tolist() == [0.5, 0.5]
    assert metrics.equal_bins(np.full(4, 0.125), 4).tolist() == [0.125] * 4


def test_equal_bins_are_equal_without_ties() -> None:
    prediction = np.linspace(0, 1, 100)[::-1]
    truth = np.zeros(100)
    slices = metrics.coverage_by_group(truth, truth, prediction, metrics.equal_bins(prediction, 10))
    assert slices.n.tolist() == [10] * 10
    assert slices.key == pytest.approx(np.arange(10) * 10 / 99)
    assert slices.coverage.tolist() == [1.0] * 10


def test_rank_correlation_of_width_with_error() -> None:
    truth = np.zeros(4)
    error = np.array([0.1, 0.2, 0.3, 0.4])
    width = np.array([0.1, 0.3, 0.2, 0.4])
    # Spearman without ties: 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
    assert metrics.width_error_correlation(error, truth, truth, width) == pytest.approx(1 - 12 / 60)
    assert metrics.width_error_correlation(error, truth, truth, -width) == pytest.approx(-1 + 12 / 60)
    assert math.isnan(metrics.width_error_correlation(error, truth, truth, truth + 0.5))


def test_rank_correlation_shares_tied_ranks() -> None:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    prediction, truth, width = (rng.integers(0, 5, 200) / 4 for _ in range(3))
    ours = metrics.width_error_correlation(prediction, truth, np.zeros(200), width)
    assert ours == pytest.approx(float(spearmanr(width, np.abs(prediction - truth)).statistic))


def test_the_interval_of_a_correlation_covers_it() -> None:
    """100 samples of a bivariate normal: the 95 % interval misses the true value seldom (chance below 1e-4)."""
    rng = np.random.default_rng(0)
    truth = 6 / math.pi * math.asin(0.5 / 2)
    missed = 0
    for _ in range(100):
        x = rng.standard_normal(400)
        y = 0.5 * x + math.sqrt(0.75) * rng.standard_normal(400)
        rho = float(np.corrcoef(x.argsort().argsort(), y.argsort().argsort())[0, 1])
        low, high = metrics.spearman_interval(rho, 400)
        missed += not low <= truth <= high
    assert missed <= 15


def test_the_interval_of_a_correlation_at_its_limits() -> None:
    assert np.isnan(metrics.spearman_interval(0.5, 3)).all()
    assert np.isnan(metrics.spearman_interval(math.nan, 100)).all()
    assert metrics.spearman_interval(1.0, 10) == (1.0, 1.0)
    # tanh(0.5493 -+ 1.96 sqrt(1.125 / 97)) = tanh(0.3382), tanh(0.7604)
    assert metrics.spearman_interval(0.5, 100) == pytest.approx((0.3259, 0.6413), abs=1e-4)


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
    assert metrics.coverage_by_group(truth, lower, upper, [1, 1, 2]).coverage.tolist() == [0.5, 0.0]
    bins = metrics.equal_bins(np.array([0.1, 0.2, 0.9]), 3)
    assert metrics.coverage_by_group(truth, lower, upper, bins).coverage.tolist() == [1, 0, 0]


def test_nothing_can_be_said_about_no_rows() -> None:
    empty = np.empty(0)
    assert math.isnan(metrics.coverage(empty, empty, empty))
    assert math.isnan(metrics.sharpness(empty, empty))
    assert math.isnan(metrics.mse(empty, empty))
    assert len(metrics.coverage_by_group(empty, empty, empty, metrics.equal_bins(empty, 10)).n) == 0


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\), \(1,\), \(1,\)"):
        metrics.coverage([0.1, 0.2], [0.1], [0.1])
    with pytest.raises(ValueError, match="group has shape"):
        metrics.coverage_by_group(TRUTH, LOWER, UPPER, [1, 2])


def test_bins_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(0)
    error, width = generator.random(400) ** 3, generator.random(400)
    inside = generator.random(400) < 0.5
    inside[error > 0.5] = False
    found_edges, member = metrics.error_bins(error)
    mean, covered = metrics.width_by_bin(member, width, inside)
    edges = np.linspace(error.min(), error.max(), 31)
    for place in range(30):
        last = place == 29
        rows = (error >= edges[place]) & ((error <= edges[-1]) if last else (error < edges[place + 1]))
        assert (member == place).tolist() == rows.tolist()
        chosen = width[rows & inside]
        assert covered[place] == len(chosen)
        assert np.isnan(mean[place]) if not len(chosen) else mean[place] == pytest.approx(chosen.mean())
    assert found_edges.tolist() == edges.tolist()
    assert np.isnan(mean).any(), "a bin without covered facts must be a gap"
