"""The learned score `shortest`: exact sets, exact coverage, and a leak that the test of coverage finds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import Shortest, SmallCalibrationWarning, SmallGroupWarning, SplitConformal, p_exceeds
from unkgcp.conformal.shortest import grow

LEVELS = [0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 1.0]
ODD = [0.0, 1.0, 0.5, 0.7093, 0.1, 5e-324, float(np.nextafter(0.5, 1)), float(np.nextafter(1, 0)), 0.4375]


def world(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels with two atoms whose shares depend on the prediction, and a skewed rest."""
    prediction = rng.random(n)
    rest = np.clip(prediction**2 + 0.2 * rng.standard_normal(n), 0, 1)
    kind = rng.random(n)
    truth = np.where(kind < 0.5 * prediction, 1.0, np.where(kind > 0.7, 0.4375, rest))
    return prediction, truth


@dataclass(frozen=True)
class Eager(Shortest):
    """Gives every kind with enough points nodes of its own, even if that does not help."""

    def _narrower(self, *_: Any) -> bool:
        return True


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(4, 60),
    digits=st.integers(1, 17),
    grouped=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_inside_exactly_when_the_p_value_exceeds(seed: int, size: int, digits: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    prediction, truth = (np.round(column, digits) for column in world(size, rng))
    truth[rng.random(size) < 0.4] = rng.choice(np.array(ODD))
    prediction[rng.random(size) < 0.3] = rng.choice(np.array(ODD))
    group = {"group": rng.integers(0, 3, size), "kind": rng.integers(0, 3, size)} if grouped else {}
    cal = SplitConformal(Eager(smallest=2, cells=10, nodes=4, seed=seed, own=3))
    cal.calibrate(prediction, truth, **group)
    n = 200
    asked = rng.choice(np.concatenate([prediction, np.array(ODD)]), n)
    label = rng.choice(np.concatenate([truth, np.array(ODD), rng.random(20)]), n)
    near = rng.random(n) < 0.3
    label[near] = np.nextafter(label[near], rng.choice([0.0, 1.0], near.sum()))
    label = np.clip(label, 0, 1)
    group = {"group": rng.integers(0, 4, n), "kind": rng.integers(0, 4, n)} if grouped else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        ends = cal.interval(asked, confidence=LEVELS, **group)
        covered = cal.covers(asked, label, confidence=LEVELS, **group)
        p_value = cal.p_value(asked, label, **group)
    inside = (ends[:, 0] <= label[:, None]) & (label[:, None] <= ends[:, 1])
    np.testing.assert_array_equal(inside, covered)
    sizes = cal.group_size(group["group"]) if grouped else np.full(n, cal.size)
    for place, level in enumerate(LEVELS):
        for each in np.unique(sizes).tolist():
            rows = sizes == each
            np.testing.assert_array_equal(inside[rows, place], p_exceeds(p_value[rows], each, level))
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()
    assert (ends[:, 0, 1:] <= ends[:, 1, 1:]).all()  # never empty above level 0
    assert (ends[:, :, -1] == [0, 1]).all()


# a score that follows single points: if the points it learned from are ranked, coverage is far too low
GREEDY = Shortest(smallest=2, cells=20, nodes=15, smoothing=0.1, neighbours=4)


def mean_coverage(fit: Callable[..., SplitConformal], level: float) -> tuple[float, float]:
    """Coverage of fresh points over 300 calibrations of 60 points, and its standard error."""
    coverage = []
    for seed in range(300):
        rng = np.random.default_rng([7, seed])
        prediction, truth = world(60, rng)
        coverage.append(fit(prediction, truth).covers(*world(1000, rng), confidence=level).mean())
    return float(np.mean(coverage)), float(np.std(coverage) / np.sqrt(len(coverage)))


def honest(prediction: NDArray[Any], truth: NDArray[Any]) -> SplitConformal:
    return SplitConformal(GREEDY).calibrate(prediction, truth)


def leaking(prediction: NDArray[Any], truth: NDArray[Any]) -> SplitConformal:
    """Learns the score from the same points that it ranks, which is wrong."""
    return SplitConformal(GREEDY.learn(prediction, truth)).calibrate(prediction, truth)


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_coverage_is_at_least_the_level(level: float) -> None:
    """False alarm below 3e-7: five standard errors of a mean."""
    mean, error = mean_coverage(honest, level)
    assert mean >= level - 5 * error
    leak, error = mean_coverage(leaking, level)
    assert leak < level - 5 * error


def test_atoms_have_no_width_and_the_whole_is_much_narrower() -> None:
    rng = np.random.default_rng(0)
    prediction, truth = world(6000, rng)
    asked, label = world(6000, rng)
    ends = SplitConformal("shortest").calibrate(prediction, truth).interval(asked, confidence=[0.5, 0.9])
    plain = SplitConformal().calibrate(prediction, truth).interval(asked)
    assert (ends[:, 1, 0] == ends[:, 0, 0]).any()
    assert (ends[:, 1, 1] - ends[:, 0, 1]).mean() < 0.85 * (plain[:, 1] - plain[:, 0]).mean()
    assert ((ends[:, 0, 1] <= label) & (label <= ends[:, 1, 1])).mean() > 0.88


def by_kind(n: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Three kinds with different labels, and predictions that are random."""
    kind = rng.integers(0, 3, n)
    truth = np.array([0.2, 0.5, 0.8])[kind] + rng.uniform(-0.05, 0.05, n)
    return {"prediction": rng.random(n), "truth": truth, "kind": kind}


@pytest.mark.parametrize("named", [False, True])
def test_kinds_are_told_apart_where_that_helps(tmp_path: Any, named: bool) -> None:
    rng = np.random.default_rng(6)
    known, asked = by_kind(3000, rng), by_kind(3000, rng)
    if named:
        for columns in (known, asked):
            columns["kind"] = np.array(["a", "b", "cc"])[columns["kind"]]
    cal = SplitConformal("shortest").calibrate(**known)
    truth = asked.pop("truth")
    ends = cal.interval(**asked, confidence=[0.8, 0.9])
    assert (ends[:, 1] - ends[:, 0]).mean() < 0.11
    inside = (ends[:, 0] <= truth[:, None]) & (truth[:, None] <= ends[:, 1])
    np.testing.assert_array_equal(inside, cal.covers(**asked, truth=truth, confidence=[0.8, 0.9]))
    assert (inside.mean(axis=0) >= [0.78, 0.88]).all()
    cal.save(tmp_path / "c.safetensors")
    again = SplitConformal.load(tmp_path / "c.safetensors")
    np.testing.assert_array_equal(ends, again.interval(**asked, confidence=[0.8, 0.9]))
    strange = asked["kind"].copy()
    strange[:5] = "zz" if named else 77
    assert np.isfinite(cal.interval(asked["prediction"], kind=strange)).all()
    with pytest.raises(ValueError, match="kind is missing"):
        cal.interval(asked["prediction"])
    arrays = cal.arrays()
    del arrays["learned/kinds"]
    with pytest.raises(ValueError, match="the kinds of the learned shapes are missing"):
        SplitConformal.from_arrays(arrays)


def test_kinds_that_say_nothing_are_not_told_apart() -> None:
    rng = np.random.default_rng(7)
    prediction, truth = world(3000, rng)
    kind = rng.integers(0, 60, 3000)
    cal = SplitConformal("shortest").calibrate(prediction, truth, kind=kind)
    plain = SplitConformal("shortest").calibrate(prediction, truth)
    np.testing.assert_array_equal(cal.interval(prediction, kind=kind), plain.interval(prediction))
    with pytest.raises(ValueError, match="the residual score takes no kind"):
        SplitConformal().calibrate(prediction, truth, kind=kind)
    with pytest.raises(ValueError, match="kind has 2 rows, but prediction has 3000"):
        SplitConformal("shortest").calibrate(prediction, truth, kind=["a", "b"])


def test_few_points_are_the_residual_and_it_is_said() -> None:
    prediction, truth = world(Shortest.smallest - 1, np.random.default_rng(1))
    with pytest.warns(SmallCalibrationWarning, match="799 calibration points are too few to learn"):
        cal = SplitConformal("shortest").calibrate(prediction, truth)
    assert not cal.learned
    assert cal.size == 799
    again = SplitConformal.from_arrays(cal.arrays())
    assert (again.score, again.learned) == (cal.score, False)
    plain = SplitConformal().calibrate(prediction, truth)
    np.testing.assert_array_equal(cal.interval(prediction), plain.interval(prediction))


def test_the_part_that_teaches_is_chosen_by_position_alone() -> None:
    recipe = Shortest(share=0.3, seed=5)
    rows = recipe.learning_rows(1000)
    assert rows is not None
    assert rows.sum() == 300
    np.testing.assert_array_equal(rows, recipe.learning_rows(1000))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("value", lambda array: array[:, 1:]),
        ("value", lambda array: array * np.nan),
        ("boundary", lambda array: array.astype(np.float32)),
        ("offset", lambda array: array + 1),
        ("offset", lambda array: array * 0),
    ],
)
def test_damaged_shapes_are_refused(name: str, change: Callable[[Any], Any]) -> None:
    arrays = SplitConformal("shortest").calibrate(*world(1000, np.random.default_rng(3))).arrays()
    arrays[f"learned/{name}"] = change(arrays[f"learned/{name}"])
    with pytest.raises(ValueError, match=rf"the learned shapes|of the learned shapes|'{name}'"):
        SplitConformal.from_arrays(arrays)
    del arrays[f"learned/{name}"]
    with pytest.raises(ValueError, match=f"'{name}' is missing"):
        SplitConformal.from_arrays(arrays)


def test_growth_by_hand() -> None:
    """From the densest value; then to the value on the right, 0.2 away, before the broad cell on the left."""
    lower, upper = np.array([0.1, 0.5, 0.7]), np.array([0.4, 0.5, 0.7])
    mass = np.array([[0.3, 0.4, 0.3], [0.7, 0.1, 0.2]])
    value = grow(mass, lower, upper)
    np.testing.assert_allclose(value[0], [0.85, 0.0, 0.55])
    # 0.2 without width is denser than 0.7 over 0.3; from there one step to each, the nearer 0.1 being too little
    np.testing.assert_allclose(value[1], [0.6, 0.6, 0.0])
