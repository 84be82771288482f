"""`SplitConformal` against the definition, its invariances, and the sentences about arrays that it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import EntropyResidual, NotCalibratedError, SplitConformal, make_score, p_exceeds, rank
from unkgcp.loops import ROWS

LEVELS = [0, 0.1, 0.5, 0.8, 0.85, 0.9, 0.95, 0.99, 1]


def inside(ends: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


def draw(seed: int, size: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return rng.random(size), rng.random(size), rng.random(size) + 0.05


# --- the definition ---


@pytest.mark.parametrize("size", [1, 2, 8, 9, 10, 19, 99, 100, 1001])
@pytest.mark.parametrize("level", [0, 0.5, 0.8, 0.9, 0.95, 1, Fraction(1, 3)], ids=str)
def test_the_interval_has_the_kth_smallest_score_as_radius(size: int, level: float) -> None:
    """With too few points it is the whole range: MAPIE returned the largest score (its issues 974 and 980)."""
    prediction, truth, scale = draw(size, size)
    k = rank(level, size)
    for scales in (None, scale):
        scores = np.sort(np.abs(prediction - truth) / (1 if scales is None else scale))
        threshold = -np.inf if k == 0 else scores[k - 1] if k <= size else np.inf
        for bounds in ((0, 1), None, (-1, 2)):
            cal = SplitConformal(bounds=bounds).calibrate(prediction, truth, scale=scales)
            assert (cal.threshold(level), cal.size) == (threshold, size)
            radius = threshold * (1 if scales is None else scale)
            low, high = bounds or (-np.inf, np.inf)
            ends = cal.interval(prediction, scale=scales, confidence=level)
            np.testing.assert_allclose(
                ends[:, 0], np.maximum(prediction - radius, low), rtol=3e-15, atol=3e-15
            )
            np.testing.assert_allclose(
                ends[:, 1], np.minimum(prediction + radius, high), rtol=3e-15, atol=3e-15
            )


def test_entropy_interval_follows_the_paper() -> None:
    prediction, truth, _ = draw(1, 500)
    entropy = -prediction * np.log(prediction) - (1 - prediction) * np.log(1 - prediction)
    scores = np.sort(np.abs(prediction - truth) / entropy)
    cal = SplitConformal("entropy").calibrate(prediction, truth)
    assert cal.threshold(0.9) == pytest.approx(scores[rank(0.9, 500) - 1], rel=1e-12)
    ends = cal.interval(prediction)
    np.testing.assert_allclose(ends[:, 1], np.minimum(prediction + cal.threshold() * entropy, 1), rtol=1e-12)
    mapped = SplitConformal(EntropyResidual(slope=0.5, offset=0.5)).calibrate(prediction, truth)
    assert not np.allclose(mapped.interval(prediction), ends)


def test_p_value_by_its_definition_with_ties() -> None:
    """On multiples of 1/16, where nothing is rounded."""
    prediction, truth, query, label = np.random.default_rng(2).integers(0, 17, (4, 200)) / 16
    cal = SplitConformal().calibrate(prediction, truth)
    scores = np.abs(prediction - truth)
    expected = [(1 + np.sum(scores >= score)) / 201 for score in np.abs(query - label)]
    assert cal.p_value(query, label).tolist() == expected


def test_several_levels_at_once_equal_one_at_a_time() -> None:
    prediction, truth, scale = draw(3, 300)
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    together = cal.interval(prediction, scale=scale, confidence=LEVELS)
    assert together.shape == (300, 2, len(LEVELS))
    for index, level in enumerate(LEVELS):
        assert np.array_equal(together[:, :, index], cal.interval(prediction, scale=scale, confidence=level))
    assert (together[:, 0, 0] > together[:, 1, 0]).all()
    assert (together[:, :, -1] == [0, 1]).all()
    assert cal.interval(prediction, scale=scale, confidence=[0.9]).shape == (300, 2, 1)
    assert cal.covers(prediction, truth, scale=scale, confidence=LEVELS).shape == (300, len(LEVELS))


def test_long_arrays_in_chunks_and_threads_equal_single_queries() -> None:
    prediction, truth, scale = draw(4, 40 * ROWS + 17)
    cal = SplitConformal().calibrate(prediction, truth, scale=scale)
    assert cal.threshold(0.9) == np.sort(np.abs(prediction - truth) / scale)[rank(0.9, len(truth)) - 1]
    ends, p_values = cal.interval(prediction, scale=scale), cal.p_value(prediction, truth, scale=scale)
    for row in (0, 1, ROWS - 1, ROWS, 16 * ROWS, 16 * ROWS - 1, len(truth) - 1):
        one = slice(row, row + 1)
        assert np.array_equal(cal.interval(prediction[one], scale=scale[one]), ends[one])
        assert np.array_equal(cal.p_value(prediction[one], truth[one], scale=scale[one]), p_values[one])
    assert np.array_equal(inside(ends, truth), p_exceeds(p_values, cal.size, 0.9))


def test_the_smallest_calibrations_and_no_queries() -> None:
    cal = SplitConformal().calibrate([0.5], [0.6])
    assert cal.p_value([0.5, 0.5], [0.5, 0.7]).tolist() == [1, 0.5]
    np.testing.assert_allclose(cal.interval([0.3], confidence=0.5), [[0.2, 0.4]])
    assert cal.interval([0.3], confidence=0.6).tolist() == [[0, 1]]
    assert cal.interval([]).shape == (0, 2)
    assert cal.interval([], confidence=[0.8, 0.9]).shape == (0, 2, 2)
    assert cal.p_value([], []).shape == (0,)
    # crepes returned an infinite interval for nine points: (1 - 0.9) (9 + 1) is below 1 in floats
    prediction, truth, _ = draw(6, 9)
    assert np.isfinite(SplitConformal(bounds=None).calibrate(prediction, truth).interval([0.5])).all()


def test_a_prediction_far_outside_the_bounds_has_an_empty_set() -> None:
    cal = SplitConformal().calibrate(np.full(20, 0.5), np.full(20, 0.6))
    lower, upper = cal.interval([2.0])[0]
    assert lower > upper
    assert not cal.covers([2.0], [1.0])[0]


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


def labels_near(ends: NDArray[Any], label: st.SearchStrategy[float], data: st.DataObject) -> NDArray[Any]:
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
    cal = SplitConformal(kind, bounds=bounds)
    cal.calibrate(prediction, truth, scale=scale if kind == "scaled" else None)
    level = data.draw(LEVEL)
    query = data.draw(st.sampled_from(rows) | st.tuples(ANY, number, SCALE))
    ends = cal.interval([query[0]], scale=[query[2]] if kind == "scaled" else None, confidence=level)
    labels = labels_near(ends[0], number, data)
    if bounds:
        labels = labels[(labels >= 0) & (labels <= 1)]
    repeated = np.full(len(labels), query[0])
    scales = np.full(len(labels), query[2]) if kind == "scaled" else None
    p_values = cal.p_value(repeated, labels, scale=scales)
    within = inside(np.repeat(ends, len(labels), axis=0), labels)
    assert within.tolist() == p_exceeds(p_values, len(rows), level).tolist()
    assert within.tolist() == cal.covers(repeated, labels, scale=scales, confidence=level).tolist()
    # the promise rests on this: each label lies in the interval at its own score, whatever is rounded
    score = make_score(kind)
    with np.errstate(all="ignore"):
        unit = score.prepare(prediction, scale if kind == "scaled" else None)
        own = score.bounds(prediction, score.score(prediction, truth, unit), unit, cal.bounds)
    assert inside(np.stack(own, axis=1), truth).all()


# --- invariances ---


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_calibration_points_does_not_matter(seed: int) -> None:
    prediction, truth, scale = draw(seed, 200)
    rng = np.random.default_rng(seed)
    order = rng.permutation(200)
    group, weight = rng.integers(0, 3, 200), rng.random(200)
    query = rng.random(50)
    for options in ({}, {"group": group}, {"weight": weight}, {"group": group, "weight": weight}):
        one = SplitConformal().calibrate(prediction, truth, scale=scale, **options)
        shuffled = {name: column[order] for name, column in options.items()}
        two = SplitConformal().calibrate(prediction[order], truth[order], scale=scale[order], **shuffled)
        asked = {name: column[:50] for name, column in options.items()}
        ends = [cal.interval(query, scale=scale[:50], confidence=LEVELS, **asked) for cal in (one, two)]
        assert np.array_equal(*ends)


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize("options", ["plain", "scale", "group", "weight", "delta"])
def test_intervals_grow_with_the_level(options: str) -> None:
    prediction, truth, scale = draw(9, 150)
    rng = np.random.default_rng(9)
    group = rng.choice(["a", "b", "rare"], 150, p=[0.6, 0.35, 0.05])
    levels = sorted([*rng.random(30), *LEVELS, 2 / 3])
    columns = {"scale": scale, "group": group, "weight": rng.random(150)}
    extra: dict[str, Any] = {name: column for name, column in columns.items() if name == options}
    cal = SplitConformal(training_conditional=0.1 if options == "delta" else None)
    ends = cal.calibrate(prediction, truth, **extra).interval(prediction, confidence=levels, **extra)
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()


def test_a_monotone_transform_of_the_scores_changes_no_set() -> None:
    """Such transforms are a constant factor on every residual, and a power of two as the unit of the labels."""
    prediction, truth, scale = draw(10, 300)
    plain = SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale)
    finer = SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale * 8)
    larger = SplitConformal(bounds=None).calibrate(prediction * 4, truth * 4, scale=scale)
    for level in LEVELS[1:]:
        ends = plain.interval(prediction, scale=scale, confidence=level)
        assert np.array_equal(ends, finer.interval(prediction, scale=scale * 8, confidence=level))
        assert np.array_equal(ends * 4, larger.interval(prediction * 4, scale=scale, confidence=level))


# --- what callers may give ---


def test_lists_integers_single_precision_and_strided_arrays_are_fine_and_left_alone() -> None:
    cal = SplitConformal("entropy", bounds=(0, 5)).calibrate([0, 1, 2, 3] * 5, [1, 1, 2, 2] * 5)
    ends = cal.interval([1, 2])
    wide = np.array([[1.0, 9.0], [2.0, 9.0]], np.float32)
    assert np.array_equal(cal.interval(wide[:, 0]), ends)
    columns = draw(12, 100)
    copies = [column.copy() for column in columns]
    cal = SplitConformal().calibrate(*columns[:2], scale=columns[2])
    cal.interval(columns[0], scale=columns[2])
    cal.p_value(*columns[:2], scale=columns[2])
    assert all(np.array_equal(column, copy) for column, copy in zip(columns, copies, strict=True))


def test_what_follows_the_arrays_has_a_name() -> None:
    """0.9 was once taken for the scale."""
    cal = SplitConformal().calibrate([0.5], [0.6])
    with pytest.raises(TypeError, match="positional argument"):
        cal.interval([0.5], 0.9)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional argument"):
        cal.calibrate([0.5], [0.6], [1.0])  # type: ignore[misc]


def test_what_it_says_of_itself() -> None:
    cal = SplitConformal("entropy", training_conditional=0.1)
    assert repr(cal) == (
        "SplitConformal(score='entropy', bounds=(0.0, 1.0), training_conditional=0.1), not calibrated"
    )
    for ask in (lambda: cal.interval([0.5]), lambda: cal.p_value([0.5], [0.5]), lambda: cal.size):
        with pytest.raises(NotCalibratedError, match="call calibrate"):
            ask()
    grouped = SplitConformal().calibrate([0.5] * 4, [0.6] * 4, group={"a": [1, 1, 2, 2], "b": [1, 2, 3, 4]})
    assert repr(grouped) == (
        "SplitConformal(score='residual', bounds=(0.0, 1.0)), calibrated on 4 points in 2 groups and 4 groups"
    )


GOOD = np.linspace(0, 1, 30)


def spoilt(value: float) -> NDArray[Any]:
    column = GOOD.copy()
    column[17] = value
    return column


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prediction": [], "truth": []}, "prediction is empty, calibration needs at least one point"),
        ({"prediction": spoilt(np.nan)}, r"prediction\[17\] is nan, expected a finite number"),
        ({"prediction": spoilt(np.inf)}, r"prediction\[17\] is inf, expected a finite number"),
        ({"truth": spoilt(np.nan)}, r"truth\[17\] is nan, expected a finite number"),
        ({"truth": spoilt(1.5)}, r"truth\[17\] is 1.5, outside the bounds \(0, 1\)"),
        ({"truth": GOOD[:-1]}, "truth has 29 rows, but prediction has 30"),
        ({"truth": np.eye(30)}, r"truth has shape \(30, 30\), expected \(n,\)"),
        ({"prediction": 0.5}, r"prediction has shape \(\), expected \(n,\)"),
        ({"prediction": np.array(["a"] * 30)}, "prediction has dtype <U1, expected real numbers"),
        ({"prediction": np.array([None] + [0.5] * 29)}, r"prediction\[0\] is nan"),
        (
            {"prediction": np.array(["x"] + [0.5] * 29, object)},
            "prediction holds values that are not numbers",
        ),
        ({"prediction": GOOD + 1j}, "prediction has dtype complex128"),
        ({"scale": spoilt(0) + GOOD}, r"scale\[0\] is 0.0, expected a positive number"),
        ({"scale": spoilt(-1) + 1}, r"scale\[17\] is 0.0, expected a positive number"),
        ({"scale": spoilt(np.inf) + 1}, r"scale\[17\] is inf, expected a finite number"),
        ({"scale": GOOD[:3] + 1}, "scale has 3 rows, but prediction has 30"),
        ({"weight": spoilt(-0.5)}, r"weight\[17\] is -0.5, expected no negative number"),
        ({"weight": spoilt(np.nan)}, r"weight\[17\] is nan, expected a finite number"),
        ({"weight": np.zeros(30)}, "weight is zero everywhere"),
        ({"weight": np.full(30, 1.7e308)}, "weight may add up to infinity"),
        ({"weight": GOOD[:2]}, "weight has 2 rows, but prediction has 30"),
        ({"group": ["a"] * 29}, "group has 29 rows, but prediction has 30"),
        (
            {"group": [["a"]] * 30},
            r"group has shape \(30, 1\), expected \(n,\), or several columns as a dict",
        ),
        ({"group": np.array(["a", None] * 15, object)}, r"group\[1\] is None, expected strings"),
        ({"group": GOOD}, "group has dtype float64, expected strings or integers"),
        ({"group": {}}, "group is an empty dict"),
        ({"group": {"x": ["a"] * 30, "y": [1, 2, 3]}}, r"group\['y'\] has 3 rows, but prediction has 30"),
        ({"kind": ["a"] * 30}, "the residual score takes no kind"),
    ],
)
def test_bad_calibration_arrays(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SplitConformal().calibrate(**{"prediction": GOOD, "truth": GOOD, **arguments})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prediction": spoilt(np.nan)}, r"prediction\[17\] is nan"),
        ({"prediction": [GOOD]}, r"prediction has shape \(1, 30\)"),
        ({"scale": GOOD + 1}, "the residual score takes no scale"),
        ({"group": ["a"] * 30}, "group is given, but there was no group at calibration"),
        ({"weight": GOOD}, "weight is given, but there was no weight at calibration"),
        ({"confidence": 1.5}, "confidence must be a number from 0 to 1"),
        ({"confidence": [0.9, np.nan]}, "confidence must be a number from 0 to 1"),
        ({"truth": spoilt(np.nan)}, r"truth\[17\] is nan"),
        ({"truth": spoilt(2)}, r"truth\[17\] is 2.0, outside"),
        ({"truth": GOOD[:3]}, "truth has 3 rows"),
    ],
)
def test_bad_query_arrays(arguments: dict[str, Any], sentence: str) -> None:
    cal = SplitConformal().calibrate(GOOD, GOOD)
    with pytest.raises(ValueError, match=sentence):
        cal.covers(**{"prediction": GOOD, "truth": GOOD, **arguments})
    if "confidence" not in arguments:
        with pytest.raises(ValueError, match=sentence):
            cal.p_value(**{"prediction": GOOD, "truth": GOOD, **arguments})


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (
            lambda: SplitConformal("entrpy"),
            "no nonconformity score is named 'entrpy'; there are entropy, .*residual, scaled",  # and whatever was added
        ),
        (lambda: SplitConformal(bounds=(1, 0)), "bounds must be a smaller and a larger number"),
        (lambda: SplitConformal(training_conditional=0), "training_conditional must be above 0 and below 1"),
        (
            lambda: SplitConformal().calibrate(GOOD, GOOD, scale=GOOD + 1).interval(GOOD),
            "the scaled score needs a scale for every query",
        ),
        (
            lambda: SplitConformal(training_conditional=0.1).calibrate(GOOD, GOOD, weight=GOOD),
            "training_conditional has no meaning with weights",
        ),
    ],
)
def test_bad_settings(ask: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ask()


def test_importing_the_core_is_light() -> None:
    heavy = "torch lightgbm matplotlib numba pandas sklearn scipy"
    code = f"import sys, unkgcp.conformal; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
