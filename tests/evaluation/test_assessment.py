"""The evaluation of a predictor: who counts where, and with which threshold."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.errors import InputError
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.assessment import WORK, JudgedRows
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.graph.known_facts import KnownFacts
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
    expected = {
        "n": 2,
        "coverage": 0.0,
        "sharpness": 0.8,
        "interval_score": 0.8 + 10 * 0.1,
        "mse": 0.25,
        "mae": 0.5,
    }
    for name, value in expected.items():
        assert level["negative"][name] == pytest.approx(value)
    assert level["mixed"]["n"] == 6
    assert level["mixed"]["coverage"] == 0.5
    assert level["mixed"]["mae"] == pytest.approx((0.4 + 0.5 + 0.4 + 0.5 + 0.5) / 5)
    assert result["unknown"] == {"positive": 1, "negative": 0}
    assert (result["data"], result["model"], result["method"], result["seed"]) == ("by hand", "ukge", "cp", 3)
    assert (result["negatives"], result["negative_threshold"]) == ("data set", "facts")


def test_kinds_have_the_same_figures() -> None:
    """Known pair: 0-2. New pair: 0-3. New entities: 4, and 5, which the model does not know: the whole range."""
    (level,) = evaluate(predictor(), dataset(graph((4, 0, 0.0))), [0.8])["levels"]
    whole, kinds = level["positive"], level["positive"]["kinds"]
    assert {kind: (of["n"], of["share"]) for kind, of in kinds.items()} == {
        "known pair": (1, 0.25),
        "new pair": (1, 0.25),
        "new entity": (2, 0.5),
    }
    for of in kinds.values():
        assert set(of) - {"share"} == set(whole) - {
            "kinds",
            "ert",
            "least_possible",
            "overlap_free",
        }
    assert [kinds[kind]["coverage"] for kind in kinds] == [1.0, 1.0, 0.5]
    assert kinds["new entity"]["sharpness"] == pytest.approx((0.8 + 1) / 2)
    assert kinds["new entity"]["mse"] == pytest.approx(0.25), "of the fact with a prediction"
    mean = sum(of["share"] * of["interval_score"] for of in kinds.values())
    assert mean == pytest.approx(whole["interval_score"])


def test_the_prediction_lies_inside_the_interval() -> None:
    answers = Intervals(
        np.float32([0.1, 0.5, np.nan]),
        np.full((3, 1), 0.25),
        np.full((3, 1), 0.75),
        np.zeros(3, np.int8),
        [0.9],
    )
    rows = JudgedRows.of(answers, np.array([0.5, 0.5, 0.5]), 0)
    np.testing.assert_array_equal(rows.prediction, [0.25, 0.5, np.nan])
    figures = rows.figures(0.9)
    assert figures["mse"] == 0.25**2 / 2
    assert figures["mse_of_score"] == pytest.approx(0.4**2 / 2)


def test_progress_is_told_all_the_way() -> None:
    told: list[float] = []
    progress: Any = SimpleNamespace(update=lambda done, text: told.append(done))
    asked = predictor(), dataset(graph((4, 0, 0.0)))
    assert evaluate(*asked, progress=progress) == evaluate(*asked)
    assert told == sorted(told)
    assert told[-1] == WORK


def test_negatives_with_a_threshold_of_their_own() -> None:
    own = graph((4, 2, 0.0), (4, 3, 0.0), (3, 1, 0.0), (3, 0, 0.0))
    result = evaluate(predictor(negatives=own), dataset(graph((4, 0, 0.0), (4, 1, 0.0))), [0.8])
    assert result["negative_threshold"] == "negatives"
    assert result["levels"][0]["negative"]["coverage"] == 1.0
    assert result["levels"][0]["positive"]["coverage"] == 0.75


def test_the_object_is_valid_json_even_where_nothing_can_be_said() -> None:
    only_seen = Dataset("x", Splits(TRAIN, CALIBRATION, TRAIN, TRAIN[:0]))
    result = evaluate(predictor(), only_seen, [0.8])
    assert result["negatives"] == "sampled"
    assert result == evaluate(predictor(), only_seen, [0.8])
    nothing = result["levels"][0]["positive"]["overlap_free"]
    assert nothing.pop("n") == 0
    assert set(nothing.values()) == {None}
    json.dumps(result, allow_nan=False)


def test_no_test_facts() -> None:
    empty = Dataset("x", Splits(TRAIN, CALIBRATION, TEST[:0], TRAIN[:0]))
    with pytest.raises(InputError, match="x has no test facts"):
        evaluate(predictor(), empty)


def test_a_graph_of_test_facts_is_enough() -> None:
    """Facts that the run has learned from or calibrated with are known to it, and so are their labels."""
    asked, whole = predictor(), dataset()
    model = replace(asked.model, facts=KnownFacts.of(TRAIN))
    asked = calibrate(model, CALIBRATION, "cp")
    (level,), (expected,) = (evaluate(asked, data, [0.8])["levels"] for data in (TEST, whole))
    assert level["positive"] == expected["positive"]
    assert level["positive"]["overlap_free"]["n"] == 3
    assert asked.evaluate(TEST, [0.8])["levels"][0]["positive"] == level["positive"]
    rows = [("e0", "r0", "e3", 0.9), ("stranger", "r0", "e0", 0.5)]
    assert evaluate(asked, rows, [0.8])["unknown"]["positive"] == 1
