"""Weighted conformal prediction: equal weights change nothing, others follow the definition exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.conformal import Residual, SplitConformal, exact
from unkgcp.conformal.ranking import tail_sums

LEVELS = [0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 1]


@pytest.mark.parametrize("size", [1, 2, 9, 10, 19, 100, 999])
@pytest.mark.parametrize("weight", [1.0, 0.5, 4.0, 2.0**-40])
def test_equal_weights_equal_none_exactly(size: int, weight: float) -> None:
    rng = np.random.default_rng(size)
    prediction, truth = np.round(rng.random(size), 2), np.round(rng.random(size), 2)
    plain = SplitConformal().calibrate(prediction, truth)
    weighted = SplitConformal().calibrate(prediction, truth, weight=np.full(size, weight))
    query, label = rng.random(50), rng.random(50)
    own = np.full(50, weight)
    ends = weighted.interval(query, confidence=LEVELS, weight=own)
    assert np.array_equal(ends, plain.interval(query, confidence=LEVELS))
    assert np.array_equal(weighted.p_value(query, label, weight=own), plain.p_value(query, label))
    inside = weighted.covers(query, label, confidence=LEVELS, weight=own)
    assert np.array_equal(inside, plain.covers(query, label, confidence=LEVELS))


POSITIVE = st.sampled_from([1.0, 0.1, 0.2, 0.3, 3.0, 1e-300, 1e300, 0.0, 5e-324]) | st.floats(0, 1e6)


@given(
    rows=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), POSITIVE), min_size=1, max_size=15),
    own=POSITIVE,
    level=st.sampled_from([0, 0.1, 0.5, 0.8, 0.9, 1]) | st.fractions(0, 1),
    label=st.floats(0, 1),
)
@settings(max_examples=300, deadline=None)
def test_the_set_by_its_definition(rows: list[Any], own: float, level: Any, label: float) -> None:
    prediction, truth, weight = np.array(rows).T
    if weight.max() < np.finfo(np.float64).tiny:  # shares of such numbers would be rounded
        with pytest.raises(ValueError, match=r"weight is zero|few digits"):
            SplitConformal().calibrate(prediction, truth, weight=weight)
        return
    cal = SplitConformal().calibrate(prediction, truth, weight=weight)
    # the definition with the sums as floats, in the order calibration uses; what contains a label is an interval
    scores = np.abs(prediction - truth)
    order = np.lexsort((weight, scores))
    tails = tail_sums(weight[order])
    lower, upper = Residual().bounds(np.full(len(scores), 0.25), scores, None, (0.0, 1.0))
    ends = cal.interval([0.25], confidence=level, weight=[own])[0]
    near = [y for y in (*ends, *np.nextafter(ends, 2), *np.nextafter(ends, -1)) if 0 <= y <= 1]
    for y in [label, *truth, *near]:
        below = int(np.sum((y < lower) | (upper < y)))
        share = (own + tails[below]) / (own + tails[0])
        inside = ends[0] <= y <= ends[1]
        assert cal.covers([0.25], [y], confidence=level, weight=[own])[0] == inside
        assert cal.p_value([0.25], [y], weight=[own])[0] == share
        miss = 1 - float(exact(level))
        assert inside == (share > miss) or share == pytest.approx(miss, rel=1e-11)


def test_a_heavier_query_has_a_larger_set() -> None:
    rng = np.random.default_rng(0)
    cal = SplitConformal().calibrate(rng.random(100), rng.random(100), weight=rng.random(100))
    ends = cal.interval(np.full(30, 0.5), weight=np.linspace(0, 10, 30))
    assert (np.diff(ends[:, 0]) <= 0).all()
    assert (np.diff(ends[:, 1]) >= 0).all()
    assert np.array_equal(ends[-1], [0, 1])


@pytest.mark.parametrize("own", [True, False])
def test_queries_heavier_than_every_calibration_point_are_covered(own: bool) -> None:
    """One calibration point in twenty is hard, nineteen queries in twenty are; of 30 points often none is hard.

    Coverage given a calibration is known exactly; its mean may lie five standard errors below the level, about three
    times in ten million by chance. The broken rule takes the heaviest calibration weight for that of the queries.
    """
    level, found = 0.9, []
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        hard = rng.random(30) < 0.05
        weight = np.where(hard, 19, 1 / 19)  # the ratio of 0.95 to 0.05, and of 0.05 to 0.95
        cal = SplitConformal().calibrate(np.zeros(30), rng.random(30) * np.where(hard, 1, 0.1), weight=weight)
        asked = np.array([1 / 19, 19]) if own else np.full(2, weight.max())
        ends = cal.interval([0.0, 0.0], confidence=level, weight=asked)[:, 1]
        found.append(0.05 * min(10 * ends[0], 1) + 0.95 * ends[1])
    print(
        f"\ncoverage {np.mean(found):.3f} with {'their own weights' if own else 'the heaviest calibration weight'}"
    )
    assert (np.mean(found) >= level - 5 * np.std(found) / 1500**0.5) == own


def test_there_is_no_single_threshold() -> None:
    cal = SplitConformal().calibrate([0.1, 0.2], [0.2, 0.4], weight=[1, 2])
    with pytest.raises(ValueError, match="depends on the query's weight"):
        cal.threshold(0.9)
    with pytest.raises(ValueError, match="weight is missing: there were weights at calibration"):
        cal.interval([0.1])
    with pytest.raises(ValueError, match=r"weight\[1\] is -1.0, expected no negative number"):
        cal.interval([0.1, 0.2], weight=[1, -1])


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
def test_a_group_without_any_weight_knows_nothing() -> None:
    group = np.repeat(["heavy", "light"], 20)
    weight = np.repeat([1.0, 0.0], 20)
    truth = np.linspace(0, 1, 40)
    cal = SplitConformal().calibrate(np.zeros(40), truth, group=group, weight=weight)
    asked = {"group": ["light", "light"], "weight": [0.0, 2.0]}
    assert cal.interval([0.5, 0.5], confidence=0.1, **asked).tolist() == [[0, 1], [0, 1]]
    assert cal.p_value([0.5, 0.5], [0.9, 0.9], **asked).tolist() == [1, 1]
    assert cal.covers([0.5, 0.5], [0.9, 0.9], confidence=0.1, **asked).all()
    assert not cal.covers([0.5, 0.5], [0.9, 0.9], confidence=0, **asked).any()
