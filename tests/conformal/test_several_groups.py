"""Several columns of groups: the largest threshold and the largest p-value decide, and they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import SmallGroupWarning, SplitConformal
from unkgcp.conformal.ranks import rank
from unkgcp.errors import InputError

LEVELS = [0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0]

pytestmark = pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")

Columns = dict[str, NDArray[Any]]


def points(n: int, seed: int) -> tuple[dict[str, Any], NDArray[np.float64], Columns]:
    """Predictions and labels of one decimal, so that scores tie, and two columns of groups of all sizes."""
    rng = np.random.default_rng(seed)
    prediction, truth = np.round(rng.random((2, n)), 1)
    groups: Columns = {
        "kind": rng.choice(["a", "b", "c"], n, p=[0.6, 0.35, 0.05]),
        "size": rng.integers(0, 5, n),
    }
    return {"prediction": prediction}, truth, groups


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    delta=st.sampled_from([None, 0.2]),
)
def test_as_many_calibrations_of_which_the_largest_set_is_taken(
    n: int, seed: int, weighted: bool, delta: float | None
) -> None:
    given_, truth, groups = points(n, seed)
    asked, label, own = points(40, seed + 1)
    weights = [{}, {}]
    if weighted:
        rng = np.random.default_rng(seed)
        weights, delta = [{"weight": rng.integers(1, 4, size)} for size in (n, 40)], None
    made = SplitConformal(training_conditional=delta)
    together = made.calibrate(truth=truth, group=groups, **given_, **weights[0])
    apart = {
        name: SplitConformal(training_conditional=delta).calibrate(
            truth=truth, group=column, **given_, **weights[0]
        )
        for name, column in groups.items()
    }
    more = {**asked, **weights[1]}
    ends = together.interval(group=own, confidence=LEVELS, **more)
    parts = [apart[name].interval(group=own[name], confidence=LEVELS, **more) for name in own]
    # the set at a threshold grows with it, so the largest threshold has the outermost ends
    np.testing.assert_array_equal(ends[:, 0], np.minimum(parts[0][:, 0], parts[1][:, 0]))
    np.testing.assert_array_equal(ends[:, 1], np.maximum(parts[0][:, 1], parts[1][:, 1]))
    p_values = [apart[name].p_value(truth=label, group=own[name], **more) for name in own]
    np.testing.assert_array_equal(together.p_value(truth=label, group=own, **more), np.maximum(*p_values))
    covered = together.covers(truth=label, group=own, confidence=LEVELS, **more)
    np.testing.assert_array_equal(covered, (ends[:, 0] <= label[:, None]) & (label[:, None] <= ends[:, 1]))
    np.testing.assert_array_equal(
        together.group_size(own), np.minimum(*(apart[name].group_size(own[name]) for name in own))
    )
    # nested in the level
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()
    if not weighted and delta is None:
        standing = together.standing(truth=label, group=own, **asked)
        for place, level in enumerate(LEVELS):
            below = [rank(level, int(size)) for size in standing.size]
            np.testing.assert_array_equal(covered[:, place], standing.below < below)


def test_unknown_and_small_groups_of_any_column_get_the_whole_range() -> None:
    prediction = np.random.default_rng(0).random(100)
    truth = np.clip(prediction + 0.1, 0, 1)
    groups = {"one": np.repeat(["a", "b"], 50), "two": np.repeat([0, 1], [97, 3])}
    cal = SplitConformal().calibrate(prediction, truth, group=groups)
    asked = {"one": ["a", "never", "b", "b"], "two": [0, 0, 1, 7]}
    with pytest.warns(
        SmallGroupWarning, match="3 of 4 queries are in groups with too few calibration points"
    ):
        ends = cal.interval(np.full(4, 0.5), group=asked)
    assert (ends == [0, 1]).all(axis=1).tolist() == [False, True, True, True]
    assert cal.group_size(asked).tolist() == [50, 0, 3, 0]
    with pytest.warns(SmallGroupWarning, match="2 of 4 queries are in groups without calibration points"):
        p_values = cal.p_value(np.full(4, 0.5), np.zeros(4), group=asked)
    assert (p_values[[1, 3]] == 1).all()
    assert p_values[0] < 1


def test_columns_are_a_dict_and_a_list_is_one_column() -> None:
    prediction, truth = np.random.default_rng(0).random((2, 4))
    one = SplitConformal().calibrate(prediction, truth, group=["a", "b", "a", "b"])
    assert one.group_sizes == {"a": 2, "b": 2}
    pair = {"x": ["a", "b", "a", "b"], "y": [1, 1, 2, 2]}
    two = SplitConformal().calibrate(prediction, truth, group=pair)
    assert two.group_sizes == {"x": {"a": 2, "b": 2}, "y": {1: 2, 2: 2}}
    for wrong, said in (
        (
            [["a", "b"], ["a", "b"]],
            r"group has shape \(2, 2\), expected \(n,\), or several columns as a dict",
        ),
        (np.zeros((4, 2), int), r"group has shape \(4, 2\)"),
        ({}, "group is an empty dict"),
        ({"x": [1, 2, 3, 4], "y": [1, 2, 3]}, r"group\['y'\] has 3 rows, but prediction has 4"),
        ({"x": [0.5, 1, 2, 3]}, r"group\['x'\] has dtype float64"),
    ):
        with pytest.raises(ValueError, match=said):
            SplitConformal().calibrate(prediction, truth, group=wrong)
    for query in ({"x": ["a"]}, ["a"], {"x": ["a"], "z": [1]}):
        with pytest.raises(ValueError, match="but at calibration it had x, y"):
            two.interval([0.5], group=query)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="but at calibration it had x, y"):
            two.group_size(query)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group has x, but at calibration it had one column"):
        one.interval([0.5], group={"x": ["a"]})
    with pytest.raises(ValueError, match="depends on the query's group"):
        two.threshold()


def test_pooled_again() -> None:
    given_, truth, groups = points(200, 1)
    cal = SplitConformal().calibrate(truth=truth, group=groups, **given_)
    one = SplitConformal().calibrate(truth=truth, **given_)
    np.testing.assert_array_equal(cal.pooled().interval(**given_), one.interval(**given_))
    np.testing.assert_array_equal(cal.calibration_scores, one.calibration_scores)
    assert cal.size == one.size == 200


@pytest.mark.parametrize("weighted", [False, True])
def test_a_learned_score_and_a_file(weighted: bool, tmp_path: Path) -> None:
    given_, truth, groups = points(1200, 2)
    weight = {"weight": np.ones(1200)} if weighted else {}
    cal = SplitConformal("shortest").calibrate(truth=truth, group=groups, **given_, **weight)
    assert cal.learned
    cal.save(tmp_path / "c.npz")
    again = SplitConformal.load(tmp_path / "c.npz")
    asked = {**given_, **weight, "group": groups, "confidence": LEVELS}
    np.testing.assert_array_equal(cal.interval(**asked), again.interval(**asked))
    assert again.group_sizes == cal.group_sizes


@pytest.mark.parametrize(
    "damage",
    [
        {"1/scores": None},
        {"1/groups": None},
        {"1/scores": np.linspace(0, 1, 50)},  # other scores than those of the first column
        {"0/groups": np.array(["b", "a", "c"])},
    ],
)
def test_damaged_columns_are_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    given_, truth, groups = points(50, 3)
    arrays = SplitConformal().calibrate(truth=truth, group=groups, **given_).arrays()
    assert "0/scores" in arrays
    arrays = {name: array for name, array in {**arrays, **damage}.items() if array is not None}
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        SplitConformal.from_arrays(arrays)
    np.savez(tmp_path / "c.npz", **arrays)
    with pytest.raises(InputError, match="calibrate again"):
        SplitConformal.load(tmp_path / "c.npz")
