"""Coverage with groups, small ones among them: overall, in the large group, and in the small ones.

Half of the mass is one easy group, the other half many hard groups with a handful of calibration points each. The
answer in use compares a query with its own group alone, and gives the whole range where that is too small for the
level. The mutant does what seems natural: a small group borrows the threshold of all points together. The large group
then covers exactly what was asked and small groups far less, so that the average is too low.

Coverage given a calibration set is known here without drawing a query. Its mean over the replications is compared
with the level by five standard errors: a mean that is right lies further below about three times in ten million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unkgcp.conformal import SplitConformal, p_exceeds

LEVEL, SIZE, REPLICATIONS = 0.9, 1000, 400
HARD = 60
"""Hard groups; each has 1/120 of the mass, some eight calibration points and hardly ever nineteen."""
SMALL = 19
"""Groups with fewer points borrowed the pooled threshold."""

Floats = NDArray[np.float64]
Rule = Callable[[Floats, NDArray[np.int64]], Floats]
"""From calibration scores and their groups, (l,) each, to the threshold of every group: (1 + HARD,)."""


def own_group_alone(scores: Floats, group: NDArray[np.int64]) -> Floats:
    """The upper end of an interval around 0, whose labels are the scores."""
    cal = SplitConformal().calibrate(np.zeros(SIZE), scores, group=group)
    every = np.arange(1 + HARD)
    return np.asarray(cal.interval(np.zeros(1 + HARD), group=every, confidence=LEVEL)[:, 1])


def borrowed(scores: Floats, group: NDArray[np.int64]) -> Floats:
    pooled = SplitConformal().calibrate(np.zeros(SIZE), scores).threshold(LEVEL)
    size = np.bincount(group, minlength=1 + HARD)
    return np.where(size < SMALL, pooled, own_group_alone(scores, group))


def coverage(thresholds: Floats) -> tuple[float, float, float]:
    """Overall, in the easy group, where scores are uniform on [0, 0.1], and in the hard ones, on [0, 1]."""
    easy, hard = float(min(10 * thresholds[0], 1)), float(np.clip(thresholds[1:], 0, 1).mean())
    return (easy + hard) / 2, easy, hard


def measured(rule: Rule) -> tuple[Floats, Floats]:
    """Mean and standard error of the three coverages over seeded calibration sets: (3,) each."""
    found = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        group = np.where(rng.random(SIZE) < 0.5, 0, rng.integers(1, 1 + HARD, SIZE))
        scores = rng.random(SIZE) * np.where(group == 0, 0.1, 1)
        found.append(coverage(rule(scores, group)))
    return np.mean(found, axis=0), np.std(found, axis=0) / REPLICATIONS**0.5


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize(("rule", "holds"), [(own_group_alone, True), (borrowed, False)])
def test_every_group_is_covered_and_so_are_all_together(rule: Rule, holds: bool) -> None:
    mean, error = measured(rule)
    print(f"\n{rule.__name__}: overall {mean[0]:.3f}, large group {mean[1]:.3f}, small groups {mean[2]:.3f}")
    below = mean < LEVEL - 5 * error
    assert below.tolist() == ([False] * 3 if holds else [True, False, True])


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize("score", ["residual", "entropy"])
def test_a_label_is_inside_exactly_when_its_p_value_exceeds(score: str) -> None:
    """In groups of every size from none to many, with ties, at levels that some of them can carry."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), np.arange(40))  # group g has g points, group 0 has none
    prediction, truth = np.round(rng.random((2, len(group))), 1)
    cal = SplitConformal(score).calibrate(prediction, truth, group=group)
    asked: dict[str, Any] = {"prediction": np.round(rng.random(4000), 1), "group": rng.integers(0, 41, 4000)}
    label = np.round(rng.random(4000), 1)
    p_value, size = cal.p_value(truth=label, **asked), cal.group_size(asked["group"])
    assert (p_value[size == 0] == 1).all()
    for level in (0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.97, 1):
        ends = cal.interval(confidence=level, **asked)
        inside = (ends[:, 0] <= label) & (label <= ends[:, 1])
        assert np.array_equal(inside, cal.covers(truth=label, confidence=level, **asked))
        for each in np.unique(size).tolist():
            rows = size == each
            assert np.array_equal(inside[rows], p_exceeds(p_value[rows], each, level))
