"""The evaluation of a predictor: who counts where, and with which threshold."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.errors import InputError
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.assessment import ASKED, LEVELS, WORK
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.methods.intervals import Intervals
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model, TrainConfig

ENTITIES = 6


class Constant(Model):
    """Scores every triple 0.5, so that every figure can be worked out by hand."""

    def score(self, head, relation, tail):  # type: ignore[no-untyped-def]
        return np.full(len(head), 0.5, dtype=np.float32)


VOCABULARY = vocabulary(ENTITIES)


def graph(*rows: tuple[int, int, float]) -> Graph:
    """Rows of head, tail and confidence; there is one relation."""
    return graph_of_ids([(head, 0, tail, confidence) for head, tail, confidence in rows], VOCABULARY)


# residuals 0.1, 0.2, 0.3, 0.4: at 0.8 the rank is 4, so the threshold is 0.4
CALIBRATION = graph((0, 1, 0.6), (1, 2, 0.7), (2, 3, 0.8), (3, 4, 0.9))
TRAIN = graph((0, 2, 0.5), (1, 3, 0.5))
# covered; missed; covered and in train; unknown (entity 5 was never seen)
TEST = graph((0, 3, 0.9), (0, 4, 1.0), (0, 2, 0.1), (0, 5, 0.5))


def predictor(negatives: Graph | None = None) -> Predictor:
    model = Constant({}, VOCABULARY, TrainConfig(), 3, np.arange(ENTITIES) < 5, np.ones(1, dtype=bool))
    return calibrate(model, CALIBRATION, "cp", negatives=negatives)


def dataset(negatives: Graph | None = None) -> Dataset:
    return Dataset("by hand", Splits(TRAIN, CALIBRATION, TEST, TRAIN[:0]), negatives)


def test_figures_by_hand() -> None:
    result = evaluate(predictor(), dataset(graph((4, 0, 0.0), (4, 1, 0.0))), [0.8])
    (level,) = result["levels"]
    # widths 0.8, 0.8, 0.8 and 1 for the unknown fact, which is covered and has no error
    assert level["positive"]["n"] == 4
    assert level["positive"]["coverage"] == 0.75
    assert level["positive"]["sharpness"] == pytest.approx((3 * 0.8 + 1) / 4)
    assert level["positive"]["mse"] == pytest.approx((0.16 + 0.25 + 0.16) / 3)
    assert level["positive"]["mae"] == pytest.approx((0.4 + 0.5 + 0.4) / 3)
    # one label is missed by 0.1, which costs 2 / (1 - 0.8) each
    assert level["positive"]["interval_score"] == pytest.approx((3 * 0.8 + 1 + 10 * 0.1) / 4)
    free = level["positive"]["overlap_free"]
    assert (free["n"], free["coverage"]) == (3, pytest.approx(2 / 3))
    assert level["negative"] == {
        "n": 2,
        "coverage": 0.0,
        "sharpness": pytest.approx(0.8),
        "interval_score": pytest.approx(0.8 + 10 * 0.1),
        "mse": 0.25,
        "mae": 0.5,
    }
    assert level["mixed"]["n"] == 6
    assert level["mixed"]["coverage"] == 0.5
    assert level["mixed"]["mae"] == pytest.approx((0.4 + 0.5 + 0.4 + 0.5 + 0.5) / 5)
    assert result["unknown"] == {"positive": 1, "negative": 0}
    assert (result["data"], result["model"], result["method"], result["seed"]) == ("by hand", "ukge", "cp", 3)
    assert (result["negatives"], result["negative_threshold"]) == ("data set", "facts")


class Told:
    """Keeps what progress was told."""

    def __init__(self) -> None:
        self.done: list[float] = []

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        self.done.append(done)


@pytest.mark.parametrize("own", [None, graph((4, 2, 0.0), (4, 3, 0.0), (3, 1, 0.0))])
def test_progress_is_told_all_the_way(monkeypatch: pytest.MonkeyPatch, own: Graph | None) -> None:
    """Asked in pieces, so that one sees how far it is, answers are the same; an empty last piece is none."""
    asked = predictor(negatives=own), dataset(graph((4, 0, 0.0), (4, 1, 0.0)))
    expected = evaluate(*asked)
    monkeypatch.setattr("unkgcp.evaluation.assessment.PIECE", 2)
    told = Told()
    assert evaluate(*asked, progress=told) == expected
    assert told.done == sorted(told.done)
    steps = [done for done in told.done if done <= ASKED]
    assert steps == [ASKED / 3, 2 * ASKED / 3, ASKED]
    assert told.done[-1] == WORK


def test_answers_that_were_cut_are_joined_again() -> None:
    shape = {"basis": np.int8, "no_fact": np.bool_, "value": np.float64, "other_belief": np.float32}
    columns = {name: np.arange(5).astype(kind) for name, kind in shape.items()}
    ends = np.arange(20.0).reshape(5, 4)
    whole = Intervals(np.arange(5, dtype=np.float32), ends, ends + 1, np.zeros(5, np.int8), LEVELS, **columns)
    for again in (Intervals.joined(whole.cut(2)), Intervals.joined([whole])):
        for field in fields(Intervals):
            before, after = getattr(whole, field.name), getattr(again, field.name)
            np.testing.assert_array_equal(after, before, strict=isinstance(before, np.ndarray))


def test_negatives_with_a_threshold_of_their_own() -> None:
    own = graph((4, 2, 0.0), (4, 3, 0.0), (3, 1, 0.0), (3, 0, 0.0))
    result = evaluate(predictor(negatives=own), dataset(graph((4, 0, 0.0), (4, 1, 0.0))), [0.8])
    assert result["negative_threshold"] == "negatives"
    assert result["levels"][0]["negative"]["coverage"] == 1.0
    assert result["levels"][0]["positive"]["coverage"] == 0.75


def test_negatives_are_sampled_where_there_are_none() -> None:
    first, second = (evaluate(predictor(), dataset(), [0.8]) for _ in range(2))
    assert first["negatives"] == "sampled"
    assert first["levels"][0]["negative"]["n"] == 4
    assert first == second


def test_the_object_is_valid_json_even_where_nothing_can_be_said() -> None:
    only_seen = Dataset("x", Splits(TRAIN, CALIBRATION, TRAIN, TRAIN[:0]))
    result = evaluate(predictor(), only_seen, [0.8])
    assert result["levels"][0]["positive"]["overlap_free"] == {
        "n": 0,
        "coverage": None,
        "sharpness": None,
        "interval_score": None,
        "mse": None,
        "mae": None,
    }
    json.dumps(result, allow_nan=False)


def test_no_test_facts() -> None:
    empty = Dataset("x", Splits(TRAIN, CALIBRATION, TEST[:0], TRAIN[:0]))
    with pytest.raises(InputError, match="x has no test facts"):
        evaluate(predictor(), empty)
