"""Groups: each with its own promise, small and unknown ones with the pooled threshold, and told so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unkgcp.conformal import FallbackWarning, SplitConformal, p_exceeds


def _data(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Three groups with errors of very different size, and one with 5 points only."""
    rng = np.random.default_rng(seed)
    group = np.array(["easy"] * 200 + ["hard"] * 150 + ["middle"] * 60 + ["rare"] * 5)
    spread = np.array([0.01] * 200 + [0.4] * 150 + [0.1] * 60 + [0.2] * 5)
    prediction = rng.random(415)
    truth = np.clip(prediction + spread * rng.standard_normal(415), 0, 1)
    order = rng.permutation(415)
    return prediction[order], truth[order], group[order]


def _scale_for(options: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: column[rows] for name, column in options.items()}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_group_is_answered_as_if_it_were_alone(scaled: bool, weighted: bool) -> None:
    prediction, truth, group = _data()
    rng = np.random.default_rng(1)
    options = {"scale": rng.random(415) + 0.1} if scaled else {}
    weight = {"weight": rng.random(415)} if weighted else {}
    cal = SplitConformal().calibrate(prediction, truth, group=group, **options, **weight)
    for name in ("easy", "hard", "middle"):
        rows = group == name
        alone = SplitConformal().calibrate(
            prediction[rows], truth[rows], **_scale_for(options, rows), **_scale_for(weight, rows)
        )
        asked = {"prediction": prediction[rows], **_scale_for(options, rows), **_scale_for(weight, rows)}
        levels = [0, 0.3, 0.8, 0.9, 0.95, 1]
        assert np.array_equal(
            cal.interval(**asked, group=group[rows], confidence=levels),
            alone.interval(**asked, confidence=levels),
        )
        p_values = cal.p_value(**asked, truth=truth[rows], group=group[rows])
        assert np.array_equal(p_values, alone.p_value(**asked, truth=truth[rows]))


def test_small_and_unknown_groups_get_the_pooled_threshold_and_say_so() -> None:
    """crepes answered a group it had not seen with [0, 0]."""
    prediction, truth, group = _data()
    cal = SplitConformal().calibrate(prediction, truth, group=group)
    pooled = SplitConformal().calibrate(prediction, truth)
    asked = np.array(["rare", "never seen", "easy", "rare"])
    query = np.array([0.4, 0.5, 0.6, 0.7])
    for level in (0.5, 0.8, 0.9, 0.99):
        with pytest.warns(
            FallbackWarning, match="3 of 4 queries are in groups without enough calibration points"
        ):
            ends = cal.interval(query, group=asked, confidence=level)
        assert np.array_equal(ends[[0, 1, 3]], pooled.interval(query[[0, 1, 3]], confidence=level))
    assert cal.fallback(asked).tolist() == [True, True, False, True]
    with pytest.warns(FallbackWarning):
        p_values = cal.p_value(query, query, group=asked)
    assert np.array_equal(p_values[:2], pooled.p_value(query[:2], query[:2]))
    with pytest.warns(FallbackWarning, match="4 of 4"):
        assert np.array_equal(cal.interval(query), pooled.interval(query))


def test_no_warning_where_every_group_has_its_own_threshold() -> None:
    prediction, truth, group = _data()
    cal = SplitConformal(min_group=5).calibrate(prediction, truth, group=group)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = cal.interval(prediction, group=group)
    # five points cannot carry 90 %: the group's own answer is the whole range
    assert (ends[group == "rare"] == [0, 1]).all()


def test_the_smallest_group_with_its_own_threshold_is_settled_at_calibration() -> None:
    prediction, truth, group = _data()
    for smallest, expected in ((5, False), (6, True), (60, True)):
        cal = SplitConformal(min_group=smallest).calibrate(prediction, truth, group=group)
        assert cal.fallback(["rare"])[0] == expected
        assert not cal.fallback(["middle"])[0]
    assert SplitConformal(min_group=61).calibrate(prediction, truth, group=group).fallback(["middle"])[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_inside_exactly_when_the_p_value_exceeds_in_every_group(weighted: bool) -> None:
    prediction, truth, group = _data()
    truth = np.round(truth, 1)
    prediction = np.round(prediction, 1)
    rng = np.random.default_rng(2)
    weight = {"weight": rng.integers(1, 4, 415)} if weighted else {}
    cal = SplitConformal().calibrate(prediction, truth, group=group, **weight)
    asked = {"prediction": prediction, "group": group, **weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        p_values = cal.p_value(truth=truth, **asked)
        for level in (0.1, 0.5, 0.8, 0.9, 0.95):
            ends = cal.interval(**asked, confidence=level)
            inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
            assert np.array_equal(inside, cal.covers(truth=truth, **asked, confidence=level))
            if not weighted:
                for name, size in (("easy", 200), ("hard", 150), ("middle", 60), ("rare", 415)):
                    rows = group == name
                    assert np.array_equal(inside[rows], p_exceeds(p_values[rows], size, level))


def test_integer_groups_and_objects_and_all_groups_too_small() -> None:
    prediction, truth, group = _data()
    codes = np.unique(group, return_inverse=True)[1]
    by_name = SplitConformal().calibrate(prediction, truth, group=group.astype(object))
    by_code = SplitConformal().calibrate(prediction, truth, group=codes)
    for level in (0.8, 0.95):
        with pytest.warns(FallbackWarning):
            ends = by_name.interval(prediction, group=group.tolist(), confidence=level)
        with pytest.warns(FallbackWarning):
            assert np.array_equal(ends, by_code.interval(prediction, group=codes, confidence=level))
    with pytest.raises(ValueError, match="group has dtype int64, but the calibration groups were <U"):
        by_name.interval(prediction, group=codes)
    lonely = SplitConformal().calibrate(prediction, truth, group=np.arange(415))
    assert lonely.fallback(codes).all()
    with pytest.warns(FallbackWarning, match="415 of 415"):
        ends = lonely.interval(prediction, group=codes)
    assert np.array_equal(ends, SplitConformal().calibrate(prediction, truth).interval(prediction))
    with pytest.raises(ValueError, match="there was no group at calibration"):
        SplitConformal().calibrate(prediction, truth).fallback(codes)


def test_training_conditional_ranks_use_the_size_of_the_group() -> None:
    prediction, truth, group = _data()
    cal = SplitConformal(training_conditional=0.05).calibrate(prediction, truth, group=group)
    rows = group == "hard"
    alone = SplitConformal(training_conditional=0.05).calibrate(prediction[rows], truth[rows])
    ends = cal.interval(prediction[rows], group=group[rows])
    assert np.array_equal(ends, alone.interval(prediction[rows]))
