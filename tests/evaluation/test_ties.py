"""Coverage with ties broken at random: exact, cheap, and able to tell ties from facts of another kind."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.evaluation.test_assessment import VOCABULARY, Constant, dataset, graph, predictor
from tests.rounding import apart
from tests.worlds import random_graph
from unkgcp.conformal import SplitConformal, rank
from unkgcp.conformal.ranking import rank_groups, rank_scores
from unkgcp.conformal.ranks import smoothed_coverages, smoothed_exceeds
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.evaluation_texts import evaluation_text
from unkgcp.evaluation.metrics import coverage_band
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.run import Predictor, calibrate
from unkgcp.training import TrainConfig

LEVELS = [Fraction(place, 20) for place in range(21)]
Floats = NDArray[np.float64]


def smoothed(calibration: Floats, scores: Floats, level: float | Fraction) -> float:
    return smoothed_coverages(rank_scores(calibration.copy()).standing(scores, None), [level])[0]


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


def test_against_drawn_numbers() -> None:
    rng = np.random.default_rng(0)
    calibration, scores = rng.integers(0, 6, 60) / 6, rng.integers(0, 6, 40) / 6
    larger = (calibration > scores[:, None]).sum(axis=1)
    equal = (calibration == scores[:, None]).sum(axis=1)
    p_values = (larger + rng.random((50_000, 40)) * (equal + 1)) / 61
    for level in (0.5, 0.8, 0.9):
        drawn = (p_values > 1 - level).mean(axis=1)
        error = drawn.std() / np.sqrt(len(drawn))
        assert abs(drawn.mean() - smoothed(calibration, scores, level)) < 5 * error + 1e-12


@pytest.mark.parametrize("size", [99, 100, 150])
def test_without_ties_it_is_coverage_up_to_one_rank(size: int) -> None:
    rng = np.random.default_rng(size)
    calibration, scores = np.sort(rng.random(size)), rng.random(2000)
    for level in (0.8, 0.85, 0.9, 0.95):
        k = rank(level, size)
        plain = (scores <= calibration[k - 1]).mean()
        within = (scores > calibration[k - 2]) & (scores <= calibration[k - 1])
        short = float(k - Fraction(str(level)) * (size + 1))
        assert smoothed(calibration, scores, level) == pytest.approx(
            plain - short * within.mean(), abs=apart(5 + len(scores), 1.0, np.float64)
        )
        # over all n + 1 places of a new score, which is what 1 / (n + 1) speaks of
        both = np.append(calibration, 2.0)
        means = [smoothed(np.delete(both, i), both[i : i + 1], level) for i in range(size + 1)]
        assert 0 <= k / (size + 1) - np.mean(means) + 1e-12 < 1 / (size + 1)


def test_groups_stand_among_their_own() -> None:
    rng = np.random.default_rng(3)
    scores, codes = rng.integers(0, 9, 200) / 9.0, rng.integers(0, 3, 200)
    asked, group = rng.integers(0, 9, 50) / 9.0, rng.integers(-1, 3, 50)
    standing = rank_groups(scores, codes, 3).standing(asked, group)
    for row in range(50):
        own = scores[codes == group[row]]  # those of code -1, a group that nobody has seen, are none
        expected = ((own < asked[row]).sum(), (own == asked[row]).sum(), len(own))
        assert tuple(int(column[row]) for column in standing) == expected


def test_weights_have_no_place() -> None:
    guess, label = np.array([0.5, 0.5]), np.array([0.25, 1.0])
    weighted = SplitConformal().calibrate(guess, label, weight=np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="ask for the p-value"):
        weighted.standing(guess, label)


def test_by_hand_with_an_unknown_fact() -> None:
    """Scores 0.4 and 0.4 equal the largest of four: half each; 0.5 is larger than all; the unknown one is covered."""
    (tie,) = evaluate(predictor(), dataset(graph((4, 0, 0.0))), [0.8])["ties"]
    low, high = coverage_band(4, 3, 0.8)
    assert tie == {
        "confidence": 0.8,
        "coverage_smoothed": pytest.approx((0.5 + 0.5 + 0 + 1) / 4),
        "band": pytest.approx([(3 * low + 1) / 4, (3 * high + 1) / 4]),
    }


def test_levels_that_are_no_matter_of_rank_have_no_band() -> None:
    none, few = evaluate(predictor(), dataset(graph((4, 0, 0.0))), [0.0, 0.9])["ties"]
    assert none["band"] is few["band"] is None
    assert none["coverage_smoothed"] == 0.25  # the unknown fact


def test_a_method_without_ranks_has_neither() -> None:
    plain = predictor()
    fisher = calibrate(plain.model, dataset().splits.calibration, "fpi")
    result = evaluate(fisher, dataset(graph((4, 0, 0.0))), [0.8])
    assert result["ties"] is None
    assert "ties at random" not in evaluation_text(result)


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


def test_ties_are_told_from_facts_of_another_kind() -> None:
    """Coverage at 0.7 is 0.8 either way: the usual facts tie, the others are strange as often but in other ways."""
    usual = judged(drawn(5000, 2, USUAL), [0.7, 0.8])
    tied = usual["ties"][0]
    low, high = tied["band"]
    assert usual["levels"][0]["positive"]["coverage"] > high
    assert low <= tied["coverage_smoothed"] <= high
    text = evaluation_text(usual)
    assert "0.7: coverage of facts lies above the band, which ties explain: " in text
    assert f"ties broken at random it is {tied['coverage_smoothed']:.4f}" in text
    shifted = judged(drawn(5000, 2, [0.3, 0.5, 0.15, 0.05]), [0.7])
    (moved,) = shifted["ties"]
    assert shifted["levels"][0]["positive"]["coverage"] > moved["band"][1]
    assert moved["coverage_smoothed"] < moved["band"][0]
    text = evaluation_text(shifted)
    assert "ties explain" not in text
    assert "seldom happens (0.1 %) if these facts are like the calibration facts" in text


def test_a_promise_per_relation_has_no_single_band() -> None:
    result = judged(drawn(2000, 2, USUAL), [0.7], per="relation")
    (tie,) = result["ties"]
    assert tie["band"] is None
    assert tie["coverage_smoothed"] == pytest.approx(0.7, abs=0.04)


def test_continuous_scores_need_no_sentence() -> None:
    facts = random_graph(4000, VOCABULARY, seed=5, entities=5)
    model = Constant({}, VOCABULARY, TrainConfig(), 3, np.ones(6, bool), np.ones(1, bool))
    calibration, test = facts[:1000], facts[1000:]
    data = Dataset("made", Splits(test[:5], calibration, test, test[:0]), test[:5])
    result = evaluate(calibrate(model, calibration, "cp"), data)
    assert "band" not in evaluation_text(result)
    for level, tie in zip(result["levels"], result["ties"], strict=True):
        assert tie["coverage_smoothed"] == pytest.approx(level["positive"]["coverage"], abs=5 / 1001)
