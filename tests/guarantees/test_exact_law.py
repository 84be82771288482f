"""The exact law of split conformal prediction, and a test of it that catches calibrators one rank off.

For continuous scores the coverage given the calibration set is Beta(k, l + 1 - k), and the hits among m
queries are beta-binomial. Thousands of seeded calibrations are compared with these laws by the inequality of
Dvoretzky, Kiefer and Wolfowitz with Massart's constant: P(sup |F_n - F| > e) <= 2 exp(-2 n e^2) for every n
and every F, discrete ones too. So the stated false-alarm rate of 1e-6 a check is a bound, not an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from unkgcp.conformal import SplitConformal, rank, training_conditional_rank

FALSE_ALARM = 1e-6
REPLICATIONS = 4000
QUERIES = 50

Calibrator = Callable[[NDArray[Any], Any], float]
"""Calibration scores (l,) and a level to the threshold; here a threshold is its own coverage."""


def ours(scores: NDArray[Any], level: Any) -> float:
    """The upper end around 0: the scores are the labels, uniform on [0, 1]."""
    cal = SplitConformal().calibrate(np.zeros(len(scores)), scores)
    return float(cal.interval([0.0], confidence=level)[0, 1])


def deviation(sample: NDArray[Any], law: Any) -> float:
    """sup |F_n - F| over the jumps of both; `law` is a frozen scipy distribution."""
    points, counts = np.unique(sample, return_counts=True)
    upto = np.cumsum(counts) / len(sample)
    before = upto - counts / len(sample)
    at = law.cdf(points)
    just_below = law.cdf(np.nextafter(points, -np.inf))
    return float(max(np.abs(upto - at).max(), np.abs(before - just_below).max()))


@cache
def law_holds(calibrator: Calibrator, size: int, level: Any, seed: int) -> bool:
    """Whether coverage and hits follow their exact laws; wrong with probability at most 2 FALSE_ALARM."""
    rng = np.random.default_rng(seed)
    coverage = np.array([calibrator(rng.random(size), level) for _ in range(REPLICATIONS)])
    hits = rng.binomial(QUERIES, coverage)
    k = rank(level, size)
    if k > size:
        return bool((coverage == 1).all())
    allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * REPLICATIONS))
    return (
        deviation(coverage, stats.beta(k, size + 1 - k)) <= allowed
        and deviation(hits, stats.betabinom(QUERIES, k, size + 1 - k)) <= allowed
    )


@pytest.mark.parametrize(
    ("size", "level"), [(9, 0.9), (19, 0.95), (99, 0.55), (50, 0.8), (200, 0.9), (8, 0.9)]
)
def test_coverage_follows_the_exact_law(size: int, level: float) -> None:
    assert law_holds(ours, size, level, seed=1)


def _at_rank(scores: NDArray[Any], k: int) -> float:
    return float(np.sort(scores)[k - 1]) if k <= len(scores) else 1.0


def one_rank_high(scores: NDArray[Any], level: Any) -> float:
    return _at_rank(scores, rank(level, len(scores)) + 1)


def one_rank_low(scores: NDArray[Any], level: Any) -> float:
    return _at_rank(scores, rank(level, len(scores)) - 1)


def plain_quantile(scores: NDArray[Any], level: Any) -> float:
    return float(np.quantile(scores, level))


def quantile_higher(scores: NDArray[Any], level: Any) -> float:
    """The published scripts' way, one rank too high: NumPy's "higher" at k / l."""
    share = rank(level, len(scores)) / len(scores)
    return float(np.quantile(scores, share, method="higher")) if share <= 1 else 1.0


def rank_in_floats(scores: NDArray[Any], level: Any) -> float:
    """0.55 (99 + 1) is 55.00000000000001 in floats."""
    return _at_rank(scores, math.ceil(level * (len(scores) + 1)))


def quantile_inverted(scores: NDArray[Any], level: Any) -> float:
    """NumPy's "inverted_cdf" at k / l, right but for float error: the 30th of 140 scores for the 29th."""
    return float(np.quantile(scores, rank(level, len(scores)) / len(scores), method="inverted_cdf"))


def index_in_floats(scores: NDArray[Any], level: Any) -> float:
    """Counting from the top, as crepes does: (1 - 0.8) (9 + 1) is 1.9999999999999996 in floats."""
    return _at_rank(scores, len(scores) + 1 - int((1 - level) * (len(scores) + 1)))


def ignoring_the_query(scores: NDArray[Any], level: Any) -> float:
    return _at_rank(scores, math.ceil(level * len(scores)))


@pytest.mark.parametrize(
    ("calibrator", "size", "level"),
    [
        (one_rank_high, 50, 0.8),
        (one_rank_high, 200, 0.9),
        (one_rank_low, 9, 0.9),
        (one_rank_low, 200, 0.9),
        (plain_quantile, 50, 0.8),
        (plain_quantile, 200, 0.9),
        (quantile_higher, 50, 0.8),
        (quantile_higher, 200, 0.9),
        (rank_in_floats, 99, 0.55),
        (quantile_inverted, 140, 0.2),
        (index_in_floats, 9, 0.8),
        (ignoring_the_query, 50, 0.8),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_same_test_catches_wrong_calibrators(calibrator: Calibrator, size: int, level: float) -> None:
    assert law_holds(ours, size, level, seed=1)
    assert not law_holds(calibrator, size, level, seed=1)


def test_finite_bound_where_only_the_whole_range_is_valid_is_caught() -> None:
    """MAPIE's issues 974 and 980: the largest score returned although k > l."""

    def largest(scores: NDArray[Any], level: Any) -> float:
        return float(scores.max())

    assert rank(0.9, 8) == 9
    assert law_holds(ours, 8, 0.9, seed=2)
    assert not law_holds(largest, 8, 0.9, seed=2)


@pytest.mark.parametrize(("size", "delta"), [(50, 0.1), (200, 0.05)])
def test_training_conditional_coverage_fails_as_rarely_as_promised(size: int, delta: float) -> None:
    """The share of calibration sets that cover less than 90 % is the tail of a beta law, at most delta."""
    rng = np.random.default_rng(3)
    cal = SplitConformal(training_conditional=delta)
    coverage = np.array(
        [cal.calibrate(np.zeros(size), rng.random(size)).interval([0.0])[0, 1] for _ in range(REPLICATIONS)]
    )
    k = training_conditional_rank(0.9, size, delta)
    expected = stats.beta(k, size + 1 - k).cdf(0.9)
    assert expected <= delta
    failures = int((coverage < 0.9).sum())
    assert stats.binomtest(failures, REPLICATIONS, expected).pvalue > FALSE_ALARM
    # one rank less would break the promise
    assert stats.beta(k - 1, size + 2 - k).cdf(0.9) > delta
    marginal = SplitConformal()
    often = np.mean(
        [marginal.calibrate(np.zeros(size), rng.random(size)).interval([0.0])[0, 1] < 0.9 for _ in range(500)]
    )
    assert often > 2 * delta


@pytest.mark.parametrize("size", [10, 37, 200])
def test_with_atoms_and_ties_coverage_is_at_least_the_level(size: int) -> None:
    """Labels and predictions on a few values, as in the data sets: heavy ties, coverage from the masses.

    The mean coverage over calibration sets is at least k / (l + 1); Hoeffding's inequality bounds the chance
    that the mean of the replications falls short by more than `slack` by the false-alarm rate, at each level.
    """
    levels = [0.5, 0.8, 0.9, 0.95]
    rng = np.random.default_rng(size)
    atoms = np.array([0.1, 0.4375, 0.7093, 0.8927, 1.0])
    mass = np.array([0.05, 0.15, 0.43, 0.17, 0.2])
    guesses = np.array([0.3, 0.7093, 0.9])
    pairs = np.array([(guess, atom) for guess in guesses for atom in atoms])
    share = np.repeat([0.2, 0.5, 0.3], 5) * np.tile(mass, 3)
    replications = 2000
    coverage = np.empty((replications, len(levels)))
    for index in range(replications):
        drawn = pairs[rng.choice(len(pairs), size, p=share)]
        cal = SplitConformal("entropy").calibrate(drawn[:, 0], drawn[:, 1])
        lower, upper = cal.interval(pairs[:, 0], confidence=levels).transpose(1, 0, 2)
        truth = pairs[:, 1:]
        coverage[index] = share @ ((lower <= truth) & (truth <= upper))
    slack = math.sqrt(math.log(1 / FALSE_ALARM) / (2 * replications))
    for level, mean in zip(levels, coverage.mean(axis=0), strict=True):
        assert mean >= min(rank(level, size) / (size + 1), 1) - slack


def test_ties_that_rounding_would_split_still_cover() -> None:
    """All points equal: the query ties with every calibration score and must be covered, every time."""
    rng = np.random.default_rng(5)
    for _ in range(2000):
        prediction, truth, scale = rng.random(), rng.random(), rng.random() + 0.01
        cal = SplitConformal().calibrate([prediction] * 9, [truth] * 9, scale=[scale] * 9)
        lower, upper = cal.interval([prediction], scale=[scale], confidence=0.1)[0]
        assert lower <= truth <= upper


def test_groups_cover_each_and_weights_cure_a_known_shift() -> None:
    """Mean coverage over many calibration sets, by Hoeffding within the false-alarm rate."""
    rng = np.random.default_rng(6)
    replications, size, level = 1500, 80, 0.8
    slack = math.sqrt(math.log(1 / FALSE_ALARM) / (2 * replications))
    by_group, shifted, unweighted = (
        np.empty((replications, 2)),
        np.empty(replications),
        np.empty(replications),
    )
    for index in range(replications):
        # group 1 has errors ten times those of group 0
        group = np.arange(size) % 2
        error = rng.random(size) * np.where(group, 1.0, 0.1)
        cal = SplitConformal().calibrate(np.zeros(size), error, group=group)
        ends = cal.interval([0.0, 0.0], group=[0, 1], confidence=level)[:, 1]
        by_group[index] = np.minimum(ends / [0.1, 1.0], 1)
        # the query is hard with probability 3/4, a calibration point with probability 1/4
        hard = rng.random(size) < 0.25
        error = rng.random(size) * np.where(hard, 1.0, 0.1)
        weight = np.where(hard, 3.0, 1 / 3)
        own = np.array([1 / 3, 3.0])
        cal = SplitConformal().calibrate(np.zeros(size), error, weight=weight)
        ends = cal.interval([0.0, 0.0], confidence=level, weight=own)[:, 1]
        shifted[index] = 0.25 * min(ends[0] / 0.1, 1) + 0.75 * ends[1]
        plain = SplitConformal().calibrate(np.zeros(size), error).interval([0.0], confidence=level)[0, 1]
        unweighted[index] = 0.25 * min(plain / 0.1, 1) + 0.75 * plain
    assert (by_group.mean(axis=0) >= level - slack).all()
    assert (by_group.mean(axis=0) <= level + 1 / (size // 2 + 1) + slack).all()
    assert shifted.mean() >= level - slack
    assert unweighted.mean() < level - 2 * slack
