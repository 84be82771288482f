"""The same intervals as crepes and MAPIE where those are right, and our answer where they were not.

Both are development tools here; the package never imports them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unkgcp.conformal import SplitConformal, rank

crepes = pytest.importorskip("crepes", reason="crepes is not installed: pip install 'unkgcp[dev]'")
regression = pytest.importorskip(
    "mapie.regression", reason="mapie is not installed: pip install 'unkgcp[dev]'"
)
conformity_scores = pytest.importorskip(
    "mapie.conformity_scores", reason="mapie is not installed: pip install 'unkgcp[dev]'"
)
base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed: pip install 'unkgcp[dev]'")

ROUNDING = 16 * np.finfo(np.float64).eps
LEVELS = [0.8, 0.85, 0.9, 0.95]


class Column(base.RegressorMixin, base.BaseEstimator):  # type: ignore[misc, name-defined]
    """A model whose prediction is a column of its input."""

    def __init__(self, index: int = 0) -> None:
        self.index = index

    def fit(self, X: Any, y: Any = None) -> Column:
        self.fitted_ = True
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return X[:, self.index]

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _data(size: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(size)
    return rng.random(size), rng.random(size), rng.random(size) + 0.1, rng.random((200, 2)) + 0.01


def _crepes_is_right(size: int, level: float) -> bool:
    """crepes finds its rank from the top in floats; see whether that rank is the exact one."""
    return size + 1 - int((1 - level) * (size + 1)) == rank(level, size)


CASES = [
    (size, level)
    for size in (5, 9, 10, 11, 20, 30, 99, 100, 101, 1000)
    for level in LEVELS
    if _crepes_is_right(size, level)
]


@pytest.mark.parametrize(("size", "level"), CASES)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_same_intervals_as_crepes(size: int, level: float, scaled: bool) -> None:
    prediction, truth, scale, query = _data(size)
    for bounds in (None, (0, 1)):
        low, high = bounds or (-np.inf, np.inf)
        sigmas = {"sigmas": scale} if scaled else {}
        theirs = crepes.ConformalRegressor().fit(truth - prediction, **sigmas)
        asked = {"sigmas": query[:, 1]} if scaled else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = theirs.predict_int(query[:, 0], confidence=level, y_min=low, y_max=high, **asked)
        ours = SplitConformal(bounds=bounds).calibrate(prediction, truth, scale=scale if scaled else None)
        ends = ours.interval(query[:, 0], scale=query[:, 1] if scaled else None, confidence=level)
        np.testing.assert_allclose(ends, expected, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("size", [50, 99, 300])
def test_the_same_p_values_as_crepes(size: int) -> None:
    prediction, truth, scale, query = _data(size)
    theirs = crepes.ConformalRegressor().fit(truth - prediction, sigmas=scale)
    label = np.clip(query[:, 0] + 0.1, 0, 1)
    expected = theirs.predict_p(query[:, 0], label, sigmas=query[:, 1], smoothing=False)
    ours = SplitConformal().calibrate(prediction, truth, scale=scale)
    np.testing.assert_array_equal(ours.p_value(query[:, 0], label, scale=query[:, 1]), np.ravel(expected))


@pytest.mark.parametrize("size", [150, 200, 333])
def test_the_same_groups_as_crepes(size: int) -> None:
    prediction, truth, _, query = _data(size)
    group = np.arange(size) % 3
    sizes = np.bincount(group)
    theirs = crepes.ConformalRegressor().fit(truth - prediction, bins=group)
    ours = SplitConformal(bounds=None).calibrate(prediction, truth, group=group)
    asked = np.arange(200) % 3
    compared = 0
    for level in LEVELS:
        expected = theirs.predict_int(query[:, 0], bins=asked, confidence=level)
        right = np.array([_crepes_is_right(int(count), level) for count in sizes])[asked]
        ends = ours.interval(query[:, 0], group=asked, confidence=level)
        np.testing.assert_allclose(ends[right], expected[right], rtol=ROUNDING, atol=ROUNDING)
        compared += right.sum()
    assert compared >= 400, "crepes is right about at least half of them"


@pytest.mark.parametrize("size", [50, 99, 100, 101, 500])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_same_intervals_as_mapie(size: int, scaled: bool) -> None:
    prediction, truth, scale, query = _data(size)
    score = (
        conformity_scores.ResidualNormalisedScore(residual_estimator=Column(1).fit(None), prefit=True)
        if scaled
        else "absolute"
    )
    theirs = regression.SplitConformalRegressor(
        Column(0).fit(None), confidence_level=LEVELS, conformity_score=score, prefit=True
    )
    theirs.conformalize(np.stack([prediction, scale], axis=1), truth)
    expected = theirs.predict_interval(query)[1]
    ours = SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale if scaled else None)
    ends = ours.interval(query[:, 0], scale=query[:, 1] if scaled else None, confidence=LEVELS)
    np.testing.assert_allclose(ends, expected, rtol=ROUNDING, atol=ROUNDING)
