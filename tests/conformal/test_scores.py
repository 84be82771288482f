"""The contract of every registered nonconformity score, and what it takes to add one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from unkgcp.conformal import EntropyResidual, SplitConformal, make_score, register, scores
from unkgcp.conformal.inverse import outermost
from unkgcp.conformal.scores import score_names, score_parameters


@pytest.mark.parametrize("name", score_names())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_score_is_a_number_that_grows_away_from_the_prediction(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    score = make_score(name)
    prediction = rng.random(500).astype(dtype)
    scale = score.prepare(prediction, (rng.random(500) + 0.1).astype(dtype))
    far = np.linspace(0, 1, 21, dtype=dtype)
    up = np.array([score.score(prediction, prediction + step, scale) for step in far])
    down = np.array([score.score(prediction, prediction - step, scale) for step in far])
    for way in (up, down):
        assert way.dtype == dtype
        assert np.isfinite(way).all()
        assert (way[0] == 0).all()
        assert (np.diff(way, axis=0) >= 0).all()


@pytest.mark.parametrize("name", score_names())
def test_every_score_is_found_again_by_name_and_parameters(name: str) -> None:
    score = make_score(name)
    assert make_score(score.name, **score_parameters(score)) == score
    assert SplitConformal(name).score == score


def test_parameters_are_kept() -> None:
    score = EntropyResidual(slope=0.5, offset=0.5)
    assert make_score("entropy", **score_parameters(score)) == score


@dataclass(frozen=True)
class Quantiles:
    """max(low - y, y - high) for two predicted quantiles, as someone else would add it."""

    name: ClassVar[str] = "quantiles"
    takes_scale: ClassVar[bool] = False
    prediction_ndim: ClassVar[int] = 2
    centred: ClassVar[bool] = False

    def prepare(self, prediction: Any, scale: Any) -> None:
        return None

    def score(self, prediction: Any, truth: Any, scale: Any) -> Any:
        return np.maximum(prediction[:, 0] - truth, truth - prediction[:, 1])

    def bounds(self, prediction: Any, threshold: Any, scale: Any, limits: tuple[float, float]) -> Any:
        low, high = prediction[:, 0], prediction[:, 1]
        return (
            outermost(lambda y, rows: low[rows] - y, threshold, low - threshold, -1, limits[0]),
            outermost(lambda y, rows: y - high[rows], threshold, high + threshold, 1, limits[1]),
        )


@pytest.fixture
def registered() -> Iterator[None]:
    register(Quantiles)
    yield
    del scores._SCORES["quantiles"]


def test_a_score_of_ones_own(registered: None, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    middle = rng.random(300)
    prediction = np.stack([middle - 0.1, middle + 0.1], axis=1)
    truth = np.clip(middle + 0.2 * rng.standard_normal(300), 0, 1)
    cal = SplitConformal("quantiles").calibrate(prediction, truth)
    cal.save(tmp_path / "c.npz")
    for level in (0.3, 0.8, 0.9):
        ends = SplitConformal.load(tmp_path / "c.npz").interval(prediction, confidence=level)
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        assert np.array_equal(inside, cal.covers(prediction, truth, confidence=level))
        assert inside.sum() >= level * 301
    with pytest.raises(ValueError, match=r"prediction has shape \(300,\), expected \(n, d\)"):
        cal.interval(middle)
    with pytest.raises(ValueError, match=r"prediction\[1, 0\] is nan"):
        cal.interval([[0.1, 0.2], [np.nan, 0.3]])


def test_a_name_is_taken_once_and_an_unregistered_score_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="there is already a score named 'entropy'"):
        register(EntropyResidual)
    cal = SplitConformal(Quantiles()).calibrate([[0.1, 0.2]], [0.3])
    with pytest.raises(ValueError, match="the score 'quantiles' is not registered"):
        cal.save(tmp_path / "c.npz")
