"""`SplitConformal` against the definition, and its invariances."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import EntropyResidual, SplitConformal, p_exceeds, rank
from unkgcp.loops import ROWS

LEVELS = [0, 0.1, 0.5, 0.8, 0.85, 0.9, 0.95, 0.99, 1]


def _inside(ends: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


def _data(seed: int, size: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return rng.random(size), rng.random(size), rng.random(size) + 0.05


# --- the definition ---


@pytest.mark.parametrize("size", [1, 2, 8, 9, 10, 19, 99, 100, 1001])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, Fraction(1, 3)], ids=str)
def test_threshold_is_the_kth_smallest_score(size: int, level: float) -> None:
    prediction, truth, scale = _data(size, size)
    scores = np.sort(np.abs(prediction - truth) / scale)
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    k = rank(level, size)
    assert cal.threshold(level) == (scores[k - 1] if k <= size else np.inf)
    assert cal.size == size


def test_interval_is_prediction_plus_minus_threshold_cut_to_the_bounds() -> None:
    prediction, truth, scale = _data(0, 500)
    for given_scale in (None, scale):
        for bounds in ((0, 1), None, (-1, 2)):
            cal = SplitConformal(bounds=bounds).calibrate(prediction, truth, scale=given_scale)
            ends = cal.interval(prediction, scale=given_scale, confidence=0.8)
            radius = cal.threshold(0.8) * (1 if given_scale is None else scale)
            low, high = bounds or (-np.inf, np.inf)
            assert ends.shape == (500, 2)
            rounding = 4 * np.finfo(np.float64).eps  # two roundings of numbers below 2
            textbook = np.stack([prediction - radius, prediction + radius], axis=1)
            np.testing.assert_allclose(ends, np.clip(textbook, low, high), rtol=0, atol=rounding)


def test_entropy_interval_follows_the_paper() -> None:
    prediction, truth, _ = _data(1, 500)
    entropy = -prediction * np.log(prediction) - (1 - prediction) * np.log(1 - prediction)
    scores = np.sort(np.abs(prediction - truth) / entropy)
    cal = SplitConformal("entropy").calibrate(prediction, truth)
    assert cal.threshold(0.9) == pytest.approx(scores[rank(0.9, 500) - 1], rel=1e-12)
    ends = cal.interval(prediction)
    np.testing.assert_allclose(ends[:, 1], np.minimum(prediction + cal.threshold() * entropy, 1), rtol=1e-12)
    mapped = SplitConformal(EntropyResidual(slope=0.5, offset=0.5)).calibrate(prediction, truth)
    assert not np.allclose(mapped.interval(prediction), ends)


def test_p_value_by_its_definition_with_ties() -> None:
    rng = np.random.default_rng(2)
    prediction, truth = np.round(rng.random(200), 1), np.round(rng.random(200), 1)
    cal = SplitConformal().calibrate(prediction, truth)
    scores = np.abs(prediction - truth)
    query, label = np.round(rng.random(300), 1), np.round(rng.random(300), 1)
    expected = [(1 + np.sum(scores >= score)) / 201 for score in np.abs(query - label)]
    assert cal.p_value(query, label).tolist() == expected


def test_several_levels_at_once_equal_one_at_a_time() -> None:
    prediction, truth, scale = _data(3, 300)
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    together = cal.interval(prediction, scale=scale, confidence=LEVELS)
    assert together.shape == (300, 2, len(LEVELS))
    for index, level in enumerate(LEVELS):
        assert np.array_equal(together[:, :, index], cal.interval(prediction, scale=scale, confidence=level))
    assert cal.interval(prediction, scale=scale, confidence=[0.9]).shape == (300, 2, 1)
    assert cal.covers(prediction, truth, scale=scale, confidence=LEVELS).shape == (300, len(LEVELS))


def test_long_arrays_in_chunks_and_threads_equal_single_queries() -> None:
    prediction, truth, scale = _data(4, 40 * ROWS + 17)
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    assert cal.threshold(0.9) == np.sort(np.abs(prediction - truth) / scale)[rank(0.9, len(truth)) - 1]
    ends, p_values = cal.interval(prediction, scale=scale), cal.p_value(prediction, truth, scale=scale)
    for row in (0, 1, ROWS - 1, ROWS, 16 * ROWS, 16 * ROWS - 1, len(truth) - 1):
        one = slice(row, row + 1)
        assert np.array_equal(cal.interval(prediction[one], scale=scale[one]), ends[one])
        assert np.array_equal(cal.p_value(prediction[one], truth[one], scale=scale[one]), p_values[one])
    assert np.array_equal(_inside(ends, truth), p_exceeds(p_values, cal.size, 0.9))


# --- the ends of the range ---


def test_too_few_points_give_the_whole_range_never_a_finite_guess() -> None:
    """MAPIE returned the largest score here (its issues 974 and 980)."""
    prediction, truth, _ = _data(5, 8)
    assert rank(0.9, 8) == 9
    assert SplitConformal().calibrate(prediction, truth).interval([0.5]).tolist() == [[0, 1]]
    assert SplitConformal(bounds=None).calibrate(prediction, truth).interval([0.5]).tolist() == [
        [-np.inf, np.inf]
    ]


def test_nine_points_are_enough_for_ninety_percent() -> None:
    """crepes returned an infinite interval here: (1 - 0.9) (9 + 1) is below 1 in floats."""
    prediction, truth, _ = _data(6, 9)
    cal = SplitConformal(bounds=None).calibrate(prediction, truth)
    assert cal.threshold(0.9) == np.abs(prediction - truth).max()
    assert np.isfinite(cal.interval([0.5])).all()


def test_one_calibration_point() -> None:
    cal = SplitConformal().calibrate([0.5], [0.6])
    assert cal.p_value([0.5, 0.5], [0.5, 0.7]).tolist() == [1, 0.5]
    np.testing.assert_allclose(cal.interval([0.3], confidence=0.5), [[0.2, 0.4]])
    assert cal.interval([0.3], confidence=0.6).tolist() == [[0, 1]]


def test_confidence_zero_is_empty_and_one_is_everything() -> None:
    prediction, truth, _ = _data(7, 50)
    cal = SplitConformal().calibrate(prediction, truth)
    nothing = cal.interval(prediction, confidence=0)
    assert (nothing[:, 0] > nothing[:, 1]).all()
    assert cal.threshold(0) == -np.inf
    assert not cal.covers(prediction, truth, confidence=0).any()
    assert np.array_equal(cal.interval(prediction, confidence=1), np.tile([0.0, 1.0], (50, 1)))
    assert cal.covers(prediction, truth, confidence=1).all()


def test_a_prediction_far_outside_the_bounds_has_an_empty_set() -> None:
    cal = SplitConformal().calibrate(np.full(20, 0.5), np.full(20, 0.6))
    lower, upper = cal.interval([2.0])[0]
    assert lower > upper
    assert not cal.covers([2.0], [1.0])[0]


def test_no_queries() -> None:
    cal = SplitConformal().calibrate([0.5], [0.6])
    assert cal.interval([]).shape == (0, 2)
    assert cal.interval([], confidence=[0.8, 0.9]).shape == (0, 2, 2)
    assert cal.p_value([], []).shape == (0,)


# --- y is inside exactly when p > 1 - confidence ---

UNIT = st.sampled_from([0.0, 1.0, 0.5, 0.1, 0.3, 1 / 3, 0.7, 5e-324, 1e-300, 1 - 2**-53, 1e-6]) | st.floats(
    0, 1
)
ANY = (
    UNIT
    | st.sampled_from([-0.0, -1.0, 1e308, -1e308, 1.7e308])
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALE = st.sampled_from([1.0, 5e-324, 1e-308, 1e-6, 0.1, 3.0, 1e300, 1.7e308]) | st.floats(5e-324, 1.7e308)
LEVEL = st.sampled_from([0, 0.1, 0.5, 0.8, 0.9, 0.95, 1, Fraction(1, 3)]) | st.fractions(0, 1)


def _labels_near(ends: NDArray[Any], label: st.SearchStrategy[float], data: st.DataObject) -> NDArray[Any]:
    """Drawn labels, the ends themselves and the floats on both sides of them."""
    with np.errstate(over="ignore"):
        around = [*ends, *np.nextafter(ends, -np.inf), *np.nextafter(ends, np.inf)]
    drawn = data.draw(st.lists(label, min_size=1, max_size=5))
    return np.array([y for y in [*around, *drawn] if np.isfinite(y)])


@pytest.mark.parametrize("bounds", [(0, 1), None])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_inside_exactly_when_the_p_value_exceeds(
    bounds: tuple[float, float] | None, data: st.DataObject
) -> None:
    number = UNIT if bounds else ANY
    rows = data.draw(st.lists(st.tuples(ANY, number, SCALE), min_size=1, max_size=12))
    prediction, truth, scale = np.array(rows).T
    kind = data.draw(st.sampled_from(["residual", "scaled", "entropy"]))
    given_scale = scale if kind == "scaled" else None
    cal = SplitConformal(kind, bounds=bounds).calibrate(prediction, truth, scale=given_scale)
    level = data.draw(LEVEL)
    query = data.draw(st.sampled_from(rows) | st.tuples(ANY, number, SCALE))
    query_scale = [query[2]] if kind == "scaled" else None
    ends = cal.interval([query[0]], scale=query_scale, confidence=level)
    labels = _labels_near(ends[0], number, data)
    if bounds:
        labels = labels[(labels >= 0) & (labels <= 1)]
    repeated = np.full(len(labels), query[0])
    repeated_scale = None if query_scale is None else np.full(len(labels), query[2])
    p_values = cal.p_value(repeated, labels, scale=repeated_scale)
    inside = _inside(np.repeat(ends, len(labels), axis=0), labels)
    assert inside.tolist() == p_exceeds(p_values, len(rows), level).tolist()
    assert inside.tolist() == cal.covers(repeated, labels, scale=repeated_scale, confidence=level).tolist()


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_the_same_in_single_precision_for_labels_of_either(data: st.DataObject) -> None:
    unit = st.sampled_from([0.0, 1.0, 0.5]) | st.floats(0, 1, width=32)
    rows = data.draw(st.lists(st.tuples(unit, unit), min_size=1, max_size=10))
    prediction, truth = np.array(rows, np.float32).T
    cal = SplitConformal().calibrate(prediction, truth)
    level = data.draw(LEVEL)
    query = np.array([data.draw(unit)], np.float32)
    ends = cal.interval(query, confidence=level)
    assert ends.dtype == np.float32
    labels = _labels_near(ends[0].astype(np.float64), st.floats(0, 1), data)
    labels = labels[(labels >= 0) & (labels <= 1)]
    for typed in (labels, labels.astype(np.float32)):
        inside = _inside(np.repeat(ends, len(typed), axis=0), typed)
        p_values = cal.p_value(np.repeat(query, len(typed)), typed)
        assert inside.tolist() == p_exceeds(p_values, len(rows), level).tolist()


def test_precision_follows_the_data() -> None:
    prediction, truth, scale = (column.astype(np.float32) for column in _data(8, 100))
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    assert cal.interval(prediction, scale=scale).dtype == np.float32
    assert cal.interval(prediction.astype(np.float64), scale=scale).dtype == np.float64
    # labels finer than float32: only ends as fine can agree with them
    fine = SplitConformal().calibrate(prediction, truth.astype(np.float64), scale=scale)
    assert fine.interval(prediction, scale=scale).dtype == np.float64
    # bounds that float32 cannot hold
    assert (
        SplitConformal(bounds=(0, 1.1)).calibrate(prediction, truth).interval(prediction).dtype == np.float64
    )


# --- invariances ---


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_calibration_points_does_not_matter(seed: int) -> None:
    prediction, truth, scale = _data(seed, 200)
    rng = np.random.default_rng(seed)
    order = rng.permutation(200)
    group, weight = rng.integers(0, 3, 200), rng.random(200)
    query = rng.random(50)
    for options in ({}, {"group": group}, {"weight": weight}, {"group": group, "weight": weight}):
        one = SplitConformal().calibrate(prediction, truth, scale=scale, **options)
        shuffled = {name: column[order] for name, column in options.items()}
        two = SplitConformal().calibrate(prediction[order], truth[order], scale=scale[order], **shuffled)
        asked = {name: column[:50] for name, column in options.items()}
        for level in LEVELS:
            ends = [cal.interval(query, scale=scale[:50], confidence=level, **asked) for cal in (one, two)]
            assert np.array_equal(*ends)


@pytest.mark.parametrize("options", ["plain", "scale", "group", "weight", "delta"])
def test_intervals_grow_with_the_level(options: str) -> None:
    prediction, truth, scale = _data(9, 150)
    rng = np.random.default_rng(9)
    group = rng.choice(["a", "b", "rare"], 150, p=[0.6, 0.35, 0.05])
    levels = sorted([*rng.random(30), *LEVELS, 2 / 3])
    extra: dict[str, Any] = {
        "scale": {"scale": scale},
        "group": {"group": group},
        "weight": {"weight": rng.random(150)},
    }.get(options, {})
    cal = SplitConformal(training_conditional=0.1 if options == "delta" else None)
    with pytest.warns() if options == "group" else pytest.MonkeyPatch.context():
        ends = cal.calibrate(prediction, truth, **extra).interval(prediction, confidence=levels, **extra)
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()


def test_a_monotone_transform_of_the_scores_changes_no_set() -> None:
    """Such transforms are a constant factor on every residual, and a power of two as the unit of the labels."""
    prediction, truth, scale = _data(10, 300)
    plain = SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale)
    finer = SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale * 8)
    larger = SplitConformal(bounds=None).calibrate(prediction * 4, truth * 4, scale=scale)
    for level in LEVELS[1:]:
        ends = plain.interval(prediction, scale=scale, confidence=level)
        assert np.array_equal(ends, finer.interval(prediction, scale=scale * 8, confidence=level))
        assert np.array_equal(ends * 4, larger.interval(prediction * 4, scale=scale, confidence=level))


def test_cutting_to_the_bounds_changes_no_coverage() -> None:
    rng = np.random.default_rng(11)
    prediction, truth = rng.normal(0.5, 0.6, 2000), rng.choice([0, 0.25, 1, 0.7093], 2000)
    cut = SplitConformal().calibrate(prediction, truth)
    free = SplitConformal(bounds=None).calibrate(prediction, truth)
    for level in LEVELS:
        short, long = cut.interval(prediction, confidence=level), free.interval(prediction, confidence=level)
        assert np.array_equal(_inside(short, truth), _inside(long, truth))
        shown = short[short[:, 0] <= short[:, 1]]
        assert ((shown >= 0) & (shown <= 1)).all()


# --- promises of the package ---


def test_lists_integers_and_strided_arrays_are_fine() -> None:
    cal = SplitConformal("entropy", bounds=(0, 5)).calibrate([0, 1, 2, 3] * 5, [1, 1, 2, 2] * 5)
    ends = cal.interval([1, 2])
    assert ends.dtype == np.float64
    wide = np.repeat([[1.0, 9.0], [2.0, 9.0]], 1, axis=0)
    assert np.array_equal(cal.interval(wide[:, 0]), ends)


def test_input_is_left_alone() -> None:
    prediction, truth, scale = _data(12, 100)
    copies = [column.copy() for column in (prediction, truth, scale)]
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    cal.interval(prediction, scale=scale)
    cal.p_value(prediction, truth, scale=scale)
    for column, copy in zip((prediction, truth, scale), copies, strict=True):
        assert np.array_equal(column, copy)


def test_importing_the_core_is_light() -> None:
    heavy = "torch lightgbm matplotlib numba pandas sklearn"
    code = f"import sys, unkgcp.conformal; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
