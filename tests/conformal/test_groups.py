"""Groups, in one partition or several: each is answered by its own points; the largest threshold decides."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import SmallGroupWarning, SplitConformal, p_exceeds

LEVELS = [0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0]
Columns = dict[str, NDArray[Any]]


def world(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Three groups with errors of very different size, and one with 5 points only."""
    rng = np.random.default_rng(seed)
    group = np.array(["easy"] * 200 + ["hard"] * 150 + ["middle"] * 60 + ["rare"] * 5)
    spread = np.array([0.01] * 200 + [0.4] * 150 + [0.1] * 60 + [0.2] * 5)
    prediction = rng.random(415)
    truth = np.clip(prediction + spread * rng.standard_normal(415), 0, 1)
    order = rng.permutation(415)
    return prediction[order], truth[order], group[order]


def of_rows(columns: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: column[rows] for name, column in columns.items()}


@pytest.mark.parametrize("delta", [None, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_group_is_answered_as_if_it_were_alone(weighted: bool, delta: float | None) -> None:
    prediction, truth, group = world()
    rng = np.random.default_rng(1)
    columns = {"scale": rng.random(415) + 0.1}
    if weighted:
        columns["weight"], delta = rng.random(415), None
    cal = SplitConformal(training_conditional=delta).calibrate(prediction, truth, group=group, **columns)
    for name in ("easy", "hard", "middle"):
        rows = group == name
        some = of_rows(columns, rows)
        alone = SplitConformal(training_conditional=delta).calibrate(prediction[rows], truth[rows], **some)
        asked = {"prediction": prediction[rows], **some}
        levels = [0, 0.3, 0.8, 0.9, 1]
        ends = cal.interval(**asked, group=group[rows], confidence=levels)
        assert np.array_equal(ends, alone.interval(**asked, confidence=levels))
        p_values = cal.p_value(**asked, truth=truth[rows], group=group[rows])
        assert np.array_equal(p_values, alone.p_value(**asked, truth=truth[rows]))


@pytest.mark.parametrize("weighted", [False, True])
def test_small_and_unknown_groups_get_the_whole_range_and_say_so(weighted: bool) -> None:
    """crepes answered a group it had not seen with [0, 0]."""
    prediction, truth, group = world()
    weight = {"weight": np.ones(415)} if weighted else {}
    cal = SplitConformal().calibrate(prediction, truth, group=group, **weight)
    asked = np.array(["rare", "never seen", "easy", "rare"])
    query = {"prediction": np.array([0.4, 0.5, 0.6, 0.7]), "group": asked, **of_rows(weight, slice(4))}
    # five points are enough for levels up to 5/6, and no points for level 0 only
    for level, few in ((0.5, 1), (0.8, 1), (0.9, 3), (0.99, 3)):
        what = "too little weight at calibration" if weighted else "too few calibration points"
        said = f"{few} of 4 queries are in groups with {what} for confidence {level}: their set is the whole range"
        with pytest.warns(SmallGroupWarning, match=said):
            ends = cal.interval(**query, confidence=[0, level, 1])[:, :, 1]
        whole = (ends == [0, 1]).all(axis=1)
        assert whole.tolist() == [few == 3, True, False, few == 3]
    for level in (0, 1):  # where a small group is answered like any other
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ends = cal.interval(**query, confidence=level)
        assert (ends == ([0, 1] if level else [np.inf, -np.inf])).all()
    assert cal.group_size(asked).tolist() == [5, 0, 200, 5]
    with pytest.warns(SmallGroupWarning, match="1 of 4 queries are in groups without calibration points"):
        p_values = cal.p_value(truth=np.zeros(4), **query)
    assert p_values[1] == 1
    assert (p_values[[0, 2, 3]] < 1).all()


def points(n: int, seed: int) -> tuple[dict[str, Any], NDArray[np.float64], Columns]:
    """Predictions and labels of one decimal, so that scores tie, and two columns of groups of all sizes."""
    rng = np.random.default_rng(seed)
    prediction, truth = np.round(rng.random((2, n)), 1)
    groups: Columns = {
        "kind": rng.choice(["a", "b", "c"], n, p=[0.6, 0.35, 0.05]),
        "size": rng.integers(0, 5, n),
    }
    return {"prediction": prediction}, truth, groups


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    delta=st.sampled_from([None, 0.2]),
)
def test_several_partitions_are_as_many_calibrations_of_which_the_largest_set_is_taken(
    n: int, seed: int, weighted: bool, delta: float | None
) -> None:
    known, truth, groups = points(n, seed)
    asked, label, own = points(40, seed + 1)
    if weighted:
        rng, delta = np.random.default_rng(seed), None
        known["weight"], asked["weight"] = (rng.integers(1, 4, size) for size in (n, 40))
    cals = {
        name: SplitConformal(training_conditional=delta).calibrate(truth=truth, group=group, **known)
        for name, group in {**groups, "both": groups}.items()
    }
    together = cals.pop("both")
    ends = together.interval(group=own, confidence=LEVELS, **asked)
    parts = [cal.interval(group=own[name], confidence=LEVELS, **asked) for name, cal in cals.items()]
    # the set at a threshold grows with it, so the largest threshold has the outermost ends
    np.testing.assert_array_equal(ends[:, 0], np.minimum(parts[0][:, 0], parts[1][:, 0]))
    np.testing.assert_array_equal(ends[:, 1], np.maximum(parts[0][:, 1], parts[1][:, 1]))
    p_values = [cal.p_value(truth=label, group=own[name], **asked) for name, cal in cals.items()]
    p_value = together.p_value(truth=label, group=own, **asked)
    np.testing.assert_array_equal(p_value, np.maximum(*p_values))
    sizes = [cal.group_size(own[name]) for name, cal in cals.items()]
    np.testing.assert_array_equal(together.group_size(own), np.minimum(*sizes))
    covered = together.covers(truth=label, group=own, confidence=LEVELS, **asked)
    np.testing.assert_array_equal(covered, (ends[:, 0] <= label[:, None]) & (label[:, None] <= ends[:, 1]))
    if not weighted and delta is None:
        for place, level in enumerate(LEVELS):
            each = [
                [p_exceeds(p, int(size), level)[()] for p, size in zip(*pair, strict=True)]
                for pair in zip(p_values, sizes, strict=True)
            ]
            np.testing.assert_array_equal(covered[:, place], np.any(each, axis=0))


def test_labels_of_groups_and_columns_that_do_not_match() -> None:
    prediction, truth, group = world()
    codes = np.unique(group, return_inverse=True)[1]
    by_name = SplitConformal().calibrate(prediction, truth, group=group.astype(object))
    by_code = SplitConformal().calibrate(prediction, truth, group=codes)
    ends = by_name.interval(prediction, group=group.tolist(), confidence=0.8)
    assert np.array_equal(ends, by_code.interval(prediction, group=codes, confidence=0.8))
    with pytest.raises(ValueError, match="group has dtype int64, but the calibration groups were <U"):
        by_name.interval(prediction, group=codes)
    with pytest.raises(ValueError, match="there was no group at calibration"):
        SplitConformal().calibrate(prediction, truth).group_size(codes)
    one = SplitConformal().calibrate([0.5] * 4, [0.5] * 4, group=["a", "b", "a", "b"])
    assert one.group_sizes == {"a": 2, "b": 2}
    columns = {"x": ["a", "b", "a", "b"], "y": [1, 1, 2, 2]}
    two = SplitConformal().calibrate([0.5] * 4, [0.5] * 4, group=columns)
    assert two.group_sizes == {"x": {"a": 2, "b": 2}, "y": {1: 2, 2: 2}}
    questions: list[Any] = [
        two.interval,
        lambda p, group: two.group_size(group),
    ]
    for ask in questions:
        for query in ({"x": ["a"]}, ["a"], {"x": ["a"], "z": [1]}):
            with pytest.raises(ValueError, match="but at calibration it had x, y"):
                ask([0.5], group=query)
    with pytest.raises(ValueError, match="group has x, but at calibration it had one column"):
        one.interval([0.5], group={"x": ["a"]})
    with pytest.raises(ValueError, match="depends on the query's group"):
        two.threshold()
    for missing in (one.interval, lambda p: one.p_value(p, p)):
        with pytest.raises(ValueError, match="group is missing"):
            missing([0.5])
