"""The contract of every registered nonconformity score, and adding a score of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from unkgcp.conformal import EntropyResidual, SplitConformal, make_score, register, scores
from unkgcp.conformal.scores import outermost, score_names, score_parameters


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
class Doubled:
    """max(2 (p - y), y - p): a label that is too low is twice as strange as one that is too high."""

    name: ClassVar[str] = "doubled"
    takes_scale: ClassVar[bool] = False
    centred: ClassVar[bool] = False

    def prepare(self, prediction: Any, scale: Any) -> None:
        return None

    def score(self, prediction: Any, truth: Any, scale: Any) -> Any:
        return np.maximum(2 * (prediction - truth), truth - prediction)

    def bounds(self, prediction: Any, threshold: Any, scale: Any, limits: tuple[float, float]) -> Any:
        return (
            outermost(
                lambda y, rows: 2 * (prediction[rows] - y),
                threshold,
                prediction - threshold / 2,
                -1,
                limits[0],
            ),
            outermost(lambda y, rows: y - prediction[rows], threshold, prediction + threshold, 1, limits[1]),
        )


@pytest.fixture
def registered() -> Iterator[None]:
    register(Doubled)
    yield
    del scores._SCORES["doubled"]


def test_a_score_of_ones_own(registered: None, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    prediction = rng.random(300)
    truth = np.clip(prediction + 0.2 * rng.standard_normal(300), 0, 1)
    cal = SplitConformal("doubled").calibrate(prediction, truth)
    cal.save(tmp_path / "c.npz")
    for level in (0.3, 0.8, 0.9):
        ends = SplitConformal.load(tmp_path / "c.npz").interval(prediction, confidence=level)
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        assert np.array_equal(inside, cal.covers(prediction, truth, confidence=level))
        assert inside.sum() >= level * 301
    with pytest.raises(ValueError, match=r"prediction has shape \(150, 2\), expected \(n,\)"):
        cal.interval(prediction.reshape(150, 2))


def test_a_name_is_taken_once_and_an_unregistered_score_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="there is already a score named 'entropy'"):
        register(EntropyResidual)
    cal = SplitConformal(Doubled()).calibrate([0.1], [0.3])
    with pytest.raises(ValueError, match="the score 'doubled' is not registered"):
        cal.save(tmp_path / "c.npz")
