"""Thresholds for overlapping groups: against imputing every score, and against ranks where groups do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from unkgcp.conformal import exact_groups, rank
from unkgcp.conformal.exact_groups import exact_group_thresholds

LEVELS = [0.3, 0.5, 0.8, 0.9, 0.95]


def largest_eta(scores: NDArray[Any], groups: NDArray[Any], level: float) -> float:
    """The eta of the last point in the quantile regression of all points: the largest of the optimal ones."""
    limits = (-(1 - level), level)
    best = linprog(-scores, A_eq=groups.T, b_eq=np.zeros(groups.shape[1]), bounds=limits)
    cost = np.append(np.zeros(len(scores) - 1), -1)
    optimal = linprog(
        cost,
        A_eq=groups.T,
        b_eq=np.zeros(groups.shape[1]),
        A_ub=[-scores],
        b_ub=[best.fun + 1e-9],
        bounds=limits,
    )
    return float(optimal.x[-1])


@pytest.mark.parametrize("near", [1, 1000])
@pytest.mark.parametrize("seed", range(12))
def test_a_score_is_within_the_threshold_as_imputing_it_says(
    seed: int, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_groups, "NEAR", near)
    rng = np.random.default_rng(seed)
    level = LEVELS[seed % 5]
    groups = rng.integers(0, 2, (25, 3))
    groups[:, 0] = 1
    scores = rng.random(25)
    for query in ([1, 0, 0], [1, 1, 0], [1, 1, 1]):
        threshold = exact_group_thresholds(scores, groups, [query], level)[0]
        together = np.vstack([groups, query])
        for score in (-5.0, *np.linspace(0, 1.5, 16), threshold - 1e-3, threshold + 1e-3, 50.0):
            if np.isfinite(score):
                eta = largest_eta(np.append(scores, score), together, level)
                assert (eta >= level - 1e-5) == (score > threshold)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("digits", [1, 15])
def test_without_overlap_it_is_the_rank_in_each_group(level: float, digits: int) -> None:
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(5), [3, 9, 10, 40, 101])
    scores = np.round(rng.random(len(code)), digits)
    found = exact_group_thresholds(scores, np.eye(6)[code], np.vstack([np.eye(6), np.zeros(6)]), level)
    for group in range(5):
        own = np.sort(scores[code == group])
        k = rank(level, len(own))
        expected = own[k - 1] if k <= len(own) else np.inf
        # a little above, so that a label that ties with the threshold is inside
        assert found[group] == np.inf if expected == np.inf else 0 <= found[group] - expected < 1e-8
    assert (found[5:] == np.inf).all()


def test_every_group_is_covered_near_the_level_where_the_largest_threshold_covers_more() -> None:
    """Three overlapping groups of different difficulty; means may lie five standard errors below the level."""
    level, seeds, covered, largest = 0.9, 150, [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        groups = np.column_stack([np.ones(700), rng.random((700, 2)) < [0.5, 0.3]]).astype(int)
        scores = rng.random(700) * (groups @ [0.2, 0.3, 1.0])
        known, asked = slice(0, 200), slice(200, 700)
        inside = scores[asked] <= exact_group_thresholds(scores[known], groups[known], groups[asked], level)
        own = [np.sort(scores[known][groups[known][:, g] == 1]) for g in range(3)]
        each = np.array([column[rank(level, len(column)) - 1] for column in own])
        wide = scores[asked] <= (groups[asked] * each).max(axis=1)
        members = groups[asked].astype(float)
        covered.append(inside @ members / members.sum(axis=0))
        largest.append(wide @ members / members.sum(axis=0))
    mean, error = np.mean(covered, axis=0), np.std(covered, axis=0) / seeds**0.5
    print(f"\nexact {mean.round(3)}, largest threshold {np.mean(largest, axis=0).round(3)}")
    assert (mean >= level - 5 * error).all()
    assert (mean <= level + 0.03).all()
    assert np.mean(largest, axis=0)[0] > level + 0.01 + 5 * error[0]


def test_levels_at_the_ends_and_shapes_that_do_not_fit() -> None:
    assert exact_group_thresholds([1.0, 2.0], [[1], [1]], [[1]], 0).tolist() == [-np.inf]
    assert exact_group_thresholds([1.0, 2.0], [[1], [1]], [[1]], 1).tolist() == [np.inf]
    with pytest.raises(ValueError, match=r"membership has shape \(2, 1\) and query_membership \(1, 2\)"):
        exact_group_thresholds([1.0, 2.0], [[1], [1]], [[1, 0]], 0.9)
