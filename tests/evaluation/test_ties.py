"""Equal scores: what coverage would be with ties broken at random, and how much of it they make unavoidable."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.evaluation.test_assessment import VOCABULARY, Constant, dataset, graph, predictor
from tests.rounding import apart
from tests.worlds import random_graph
from unkgcp.conformal import rank
from unkgcp.conformal.ranking import rank_scores
from unkgcp.conformal.ranks import smoothed_exceeds
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.metrics import summed_band
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.run import Predictor, calibrate
from unkgcp.training import TrainConfig

LEVELS = [Fraction(place, 20) for place in range(21)]
Floats = NDArray[np.float64]


def smoothed(calibration: Floats, scores: Floats, level: float | Fraction) -> float:
    return float(smoothed_exceeds(*rank_scores(calibration.copy()).standing(scores, None), level).mean())


@pytest.mark.parametrize("size", range(1, 7))
def test_the_probability_by_counting_random_numbers(size: int) -> None:
    """u at the middles of so many steps that 1 - level falls on an edge: counting is exact then."""
    for below in range(size + 1):
        for equal in range(size - below + 1):
            steps = 20 * (equal + 1)
            larger = size - below - equal
            p_values = [
                (larger + Fraction(2 * step + 1, 2 * steps) * (equal + 1)) / (size + 1)
                for step in range(steps)
            ]
            for level in LEVELS:
                expected = sum(p > 1 - level for p in p_values) / steps
                (found,) = smoothed_exceeds(np.array([below]), np.array([equal]), np.array([size]), level)
                assert found == pytest.approx(
                    expected, abs=apart(5, 1.0, np.float64)
                )  # five steps on the way


@pytest.mark.parametrize(
    "scores", [[1, 1, 1, 1, 1], [1, 1, 2, 3, 3, 3], [0, 1, 2, 3], [5, 5, 1, 1, 1, 1, 1, 9]], ids=str
)
def test_the_mean_is_the_level_for_exchangeable_scores(scores: list[int]) -> None:
    """Any of the scores is equally likely the new one: over all of them the mean is the level, however they tie."""
    values = np.array(scores, np.float64)
    for level in LEVELS:
        found = [
            smoothed(np.delete(values, place), values[place : place + 1], level)
            for place in range(len(values))
        ]
        assert np.mean(found) == pytest.approx(float(level), abs=apart(5 + len(values), 1.0, np.float64))
    # whole ties cover more, with all scores equal always
    if len(set(scores)) == 1:
        standing = rank_scores(values[1:]).standing(values[:1], None)
        assert standing.below[0] < rank(0.1, len(values) - 1)


def test_by_hand_with_an_unknown_fact() -> None:
    (level,) = evaluate(predictor(), dataset(graph((4, 0, 0.0))), [0.8])["levels"]
    low, high = summed_band([(4, 3)], 0.8)
    assert level["positive"]["band"] == pytest.approx([(3 * low + 1) / 4, (3 * high + 1) / 4])


def test_a_method_without_ranks_has_neither() -> None:
    fisher = calibrate(predictor().model, dataset().splits.calibration, "fpi")
    (level,) = evaluate(fisher, dataset(graph((4, 0, 0.0))), [0.8])["levels"]
    assert (
        level["positive"]["least_possible"]
        is level["positive"]["band"]
        is level["positive"]["verdict"]
        is None
    )


ATOMS = np.array([0.5, 0.7, 0.9, 1.0])


def drawn(n: int, seed: int, shares: list[float]) -> Graph:
    """Confidences with four values, so that scores of a constant model tie as much as they can."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(0, 5, (2, n), dtype=np.int32)
    return Graph(head, np.zeros(n, np.int32), tail, rng.choice(ATOMS, n, p=shares), VOCABULARY)


USUAL = [0.6, 0.2, 0.15, 0.05]


def judged(test: Graph, levels: list[float], **options: Any) -> dict[str, Any]:
    model = Constant({}, VOCABULARY, TrainConfig(), 3, np.ones(6, bool), np.ones(1, bool))
    made: Predictor = calibrate(model, drawn(2000, 1, USUAL), "cp", **options)
    train = drawn(10, 0, USUAL)
    data = Dataset("made", Splits(train, drawn(2000, 1, USUAL), test, train[:0]), drawn(10, 3, USUAL))
    return evaluate(made, data, levels)


def test_the_least_possible_coverage() -> None:
    """Single values of 0.6, 0.2, 0.15 and 0.05 of the facts: no rule covers 0.7 of them without covering 0.8."""
    for level, least in ((0.5, 0.6), (0.7, 0.8), (0.8, 0.95)):
        figures = judged(drawn(5000, 2, USUAL), [level])["levels"][0]["positive"]
        assert figures["least_possible"] == pytest.approx(least, abs=0.02)
        assert figures["verdict"] == "above"


def test_continuous_scores_reach_the_level() -> None:
    facts = random_graph(4000, VOCABULARY, seed=5, entities=5)
    model = Constant({}, VOCABULARY, TrainConfig(), 3, np.ones(6, bool), np.ones(1, bool))
    calibration, test = facts[:1000], facts[1000:]
    data = Dataset("made", Splits(test[:5], calibration, test, test[:0]), test[:5])
    for level in evaluate(calibrate(model, calibration, "cp"), data)["levels"]:
        figures = level["positive"]
        assert figures["verdict"] == "kept"
        assert figures["least_possible"] == pytest.approx(level["confidence"], abs=1e-3)
