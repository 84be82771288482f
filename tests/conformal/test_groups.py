"""Groups: each is answered by its own points; where they are too few, with the whole range and a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unkgcp.conformal import SmallGroupWarning, SplitConformal, p_exceeds


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


@pytest.mark.parametrize("weighted", [False, True])
def test_small_and_unknown_groups_get_the_whole_range_and_say_so(weighted: bool) -> None:
    """crepes answered a group it had not seen with [0, 0]."""
    prediction, truth, group = _data()
    weight = {"weight": np.ones(415)} if weighted else {}
    cal = SplitConformal().calibrate(prediction, truth, group=group, **weight)
    asked = np.array(["rare", "never seen", "easy", "rare"])
    query = {"prediction": np.array([0.4, 0.5, 0.6, 0.7]), "group": asked, **_scale_for(weight, slice(4))}
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


def test_a_query_without_its_group_is_refused() -> None:
    prediction, truth, group = _data()
    cal = SplitConformal().calibrate(prediction, truth, group=group)
    for ask in (
        lambda: cal.interval([0.5]),
        lambda: cal.covers([0.5], [0.5]),
        lambda: cal.p_value([0.5], [0.5]),
        lambda: cal.standing([0.5], [0.5]),
    ):
        with pytest.raises(ValueError, match="group is missing"):
            ask()
    with pytest.raises(ValueError, match="depends on the query's group"):
        cal.threshold(0.9)


def test_without_its_groups_it_is_one_calibration() -> None:
    prediction, truth, group = _data()
    cal, one = (SplitConformal().calibrate(prediction, truth, group=each) for each in (group, None))
    assert np.array_equal(cal.pooled().interval(prediction), one.interval(prediction))
    assert np.array_equal(cal.calibration_scores, one.calibration_scores)
    assert cal.size == cal.pooled().size == 415
    assert one.pooled() is one
    weighted = SplitConformal().calibrate(prediction, truth, group=group, weight=np.ones(415))
    with pytest.raises(ValueError, match="calibrate without groups"):
        weighted.pooled()


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
        warnings.simplefilter("ignore", SmallGroupWarning)
        p_values = cal.p_value(truth=truth, **asked)
        for level in (0.1, 0.5, 0.8, 0.9, 0.95):
            ends = cal.interval(**asked, confidence=level)
            inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
            assert np.array_equal(inside, cal.covers(truth=truth, **asked, confidence=level))
            if not weighted:
                for name, size in (("easy", 200), ("hard", 150), ("middle", 60), ("rare", 5)):
                    rows = group == name
                    assert np.array_equal(inside[rows], p_exceeds(p_values[rows], size, level))


def test_integer_groups_and_objects_and_all_groups_too_small() -> None:
    prediction, truth, group = _data()
    codes = np.unique(group, return_inverse=True)[1]
    by_name = SplitConformal().calibrate(prediction, truth, group=group.astype(object))
    by_code = SplitConformal().calibrate(prediction, truth, group=codes)
    ends = by_name.interval(prediction, group=group.tolist(), confidence=0.8)
    assert np.array_equal(ends, by_code.interval(prediction, group=codes, confidence=0.8))
    with pytest.raises(ValueError, match="group has dtype int64, but the calibration groups were <U"):
        by_name.interval(prediction, group=codes)
    lonely = SplitConformal().calibrate(prediction, truth, group=np.arange(415))
    with pytest.warns(SmallGroupWarning, match="415 of 415"):
        assert (lonely.interval(prediction, group=codes) == [0, 1]).all()
    with pytest.raises(ValueError, match="there was no group at calibration"):
        SplitConformal().calibrate(prediction, truth).group_size(codes)


def test_training_conditional_ranks_use_the_size_of_the_group() -> None:
    prediction, truth, group = _data()
    cal = SplitConformal(training_conditional=0.05).calibrate(prediction, truth, group=group)
    rows = group == "hard"
    alone = SplitConformal(training_conditional=0.05).calibrate(prediction[rows], truth[rows])
    ends = cal.interval(prediction[rows], group=group[rows])
    assert np.array_equal(ends, alone.interval(prediction[rows]))
