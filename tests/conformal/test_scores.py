"""The contract of every registered nonconformity score, and adding a score of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rounding import EXP_ULPS, apart
from unkgcp.conformal import (
    EntropyResidual,
    ScaledResidual,
    Score,
    SplitConformal,
    make_score,
    register_score,
    scores,
)
from unkgcp.conformal.scores import score_names


@pytest.mark.parametrize("name", score_names())
def test_every_score_grows_away_from_the_prediction_and_keeps_its_two_promises(name: str) -> None:
    """The interval at the score of a label contains the label, and intervals grow with the threshold."""
    rng = np.random.default_rng(0)
    score = make_score(name)
    prediction, truth = rng.random((2, 20_000))
    prediction[:100] = np.round(prediction[:100], 1)
    scale = score.prepare(prediction, rng.random(20_000) + 0.01)
    far = np.linspace(0, 1, 21)
    for sign in (1, -1):
        value = np.array([score.score(prediction, prediction + sign * step, scale) for step in far])
        assert np.isfinite(value).all()
        assert (value[0] == 0).all()
        assert (np.diff(value, axis=0) >= 0).all()
    own = score.score(prediction, truth, scale)
    lower, upper = score.bounds(prediction, own, scale, (0.0, 1.0))
    assert ((lower <= truth) & (truth <= upper)).all()
    before = np.full(20_000, np.inf), np.full(20_000, -np.inf)
    for threshold in (-np.inf, 0, 0.01, 0.3, 1.7, np.inf):
        ends = score.bounds(prediction, np.float64(threshold), scale, (0.0, 1.0))
        assert (ends[0] <= before[0]).all()
        assert (ends[1] >= before[1]).all()
        before = ends
    assert (before[0] == 0).all()
    assert (before[1] == 1).all()


def test_the_textbook_formula_loses_its_own_calibration_points() -> None:
    """The reason for the wider interval: prediction +- q scale leaves out labels whose score is exactly q."""
    rng = np.random.default_rng(3)
    prediction, truth, scale = rng.random(10_000), rng.random(10_000), rng.random(10_000) + 0.1
    threshold = ScaledResidual().score(prediction, truth, scale)
    lost = (truth < prediction - threshold * scale) | (truth > prediction + threshold * scale)
    assert lost.mean() > 0.01
    lower, upper = ScaledResidual().bounds(prediction, threshold, scale, (-np.inf, np.inf))
    assert ((upper - lower) <= 2 * threshold * scale * (1 + 1e-14) + 1e-15).all()


@given(mass=st.floats(0, 1), slope=st.sampled_from([1.0, 0.5]))
def test_entropy_is_that_of_a_coin_and_at_least_the_floor(mass: float, slope: float) -> None:
    entropy = float(EntropyResidual(slope=slope, offset=1 - slope).prepare(np.array([mass]))[0])
    m = min(max(slope * mass + 1 - slope, 1e-6), 1 - 1e-6)
    expected = -m * np.log(m) - (1 - m) * np.log1p(-m)
    # the slope of the entropy is at most 14 here, and m is off by two roundings
    assert abs(entropy - expected) <= apart(4 + 2 * EXP_ULPS, expected, np.float64) + apart(
        2, 14.0, np.float64
    )
    assert entropy >= 1.4e-5


@dataclass(frozen=True)
class Above(Score):
    """As on the page about own models; its ends round so often that an estimate's interval may miss the label."""

    name: ClassVar[str] = "above"

    def ends(self, prediction: Any, threshold: Any, scale: Any = None) -> Any:
        return prediction - 0.1 * threshold, prediction + threshold * 3 / 7 * 7 / 3

    def estimate(self, prediction: Any, truth: Any, scale: Any = None) -> Any:
        return np.where(truth > prediction, truth - prediction, 10 * (prediction - truth))


@pytest.fixture
def registered() -> Iterator[None]:
    register_score(Above)
    yield
    del scores._SCORES["above"]


def test_a_score_of_ones_own(registered: None, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    prediction = rng.random(300)
    truth = np.clip(prediction + 0.2 * rng.standard_normal(300), 0, 1)
    cal = SplitConformal("above").calibrate(prediction, truth)
    cal.save(tmp_path / "c.safetensors")
    own = Above().bounds(prediction, Above().estimate(prediction, truth), None, (0.0, 1.0))
    assert ((truth < own[0]) | (own[1] < truth)).any()
    for level in (0.3, 0.8, 0.9):
        ends = SplitConformal.load(tmp_path / "c.safetensors").interval(prediction, confidence=level)
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        assert np.array_equal(inside, cal.covers(prediction, truth, confidence=level))
        assert inside.sum() >= level * 301


def test_a_name_is_taken_once_and_an_unregistered_score_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="there is already a score named 'entropy'"):
        register_score(EntropyResidual)
    cal = SplitConformal(Above()).calibrate([0.1], [0.3])
    with pytest.raises(ValueError, match="the score 'above' is not registered"):
        cal.save(tmp_path / "c.safetensors")
    assert not list(tmp_path.iterdir())
