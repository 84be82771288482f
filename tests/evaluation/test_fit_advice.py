"""What evidence would gain: measured on facts that nobody learned from, whatever calibration and test facts say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.worlds import random_ids, vocabulary
from unkgcp.evaluation import fit_advice
from unkgcp.evaluation.fit_advice import (
    Gain,
    Learned,
    advice,
    gain_sentence,
    held_out,
    learned,
    learned_sentence,
)
from unkgcp.evidence import evidence_model
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.run.fitting import fit
from unkgcp.run.predictor import Predictor
from unkgcp.training import TrainConfig, train
from unkgcp.training.trainer import hold_out_known

CONFIG = TrainConfig(
    dimension=4, epochs=2, validate_every=1, batch_size=256, negatives=1, validation_fraction=0.3
)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Confidences that the relation and the tail tell nearly exactly; a model of two epochs does not know it."""
    rng = np.random.default_rng(0)
    head, relation, tail = random_ids(3000, 60, 3, rng)
    confidence = np.round(0.1 + 0.25 * relation + 0.3 * (tail % 2) + 0.01 * rng.random(3000), 2)
    graph = Graph(head, relation, tail, confidence, vocabulary(60, 3))
    return Dataset("told", Splits(graph[:2000], graph[2000:2500], graph[2500:], graph[:0]))


@pytest.fixture(scope="module")
def predictor(dataset: Dataset) -> Predictor:
    return fit(dataset, CONFIG, device="cpu")


def gain(predictor: Predictor, dataset: Dataset) -> Gain | None:
    return advice(predictor, dataset, "run")[0]


@pytest.fixture(scope="module")
def found(predictor: Predictor, dataset: Dataset) -> Gain:
    measured = gain(predictor, dataset)
    assert measured is not None
    return measured


def test_the_slice_is_the_one_that_the_model_did_not_learn_from(
    predictor: Predictor, dataset: Dataset
) -> None:
    rest, held = hold_out_known(dataset.splits.train, CONFIG.validation_fraction)
    again = train(rest, config=CONFIG, validation=held, device="cpu")
    for name, table in predictor.model.tables.items():
        np.testing.assert_array_equal(table, again.tables[name])


def test_evidence_gains_where_the_graph_tells_all(found: Gain) -> None:
    assert found.evidence < 0.5 * found.own
    said = gain_sentence(found, "run")
    assert said is not None
    assert said.startswith(
        f"evidence intervals: interval score {found.evidence:.2g} instead of {found.own:.2g} "
    )
    assert "unkgcp fit --from run --method evidence" in said


def test_neither_calibration_nor_test_facts_have_a_say(
    predictor: Predictor, dataset: Dataset, found: Gain
) -> None:
    splits = dataset.splits
    other = {
        name: getattr(splits, name).with_confidence(1 - getattr(splits, name).confidence)
        for name in ("calibration", "test")
    }
    assert gain(predictor, replace(dataset, splits=replace(splits, **other))) == found


def test_nothing_is_said_where_it_cannot_be_measured(
    predictor: Predictor, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gain(replace(predictor, provenance={"protocol": "paper"}), dataset) is None
    few = replace(dataset.splits, train=dataset.splits.train[:1000])
    assert gain(predictor, replace(dataset, splits=few)) is None
    monkeypatch.setattr(fit_advice, "MOST", 1000)
    assert gain(predictor, dataset) is None
    monkeypatch.setattr(fit_advice.importlib.util, "find_spec", lambda name: None)
    assert gain(predictor, dataset) is None


def test_nothing_is_said_where_there_is_nothing_to_gain() -> None:
    assert gain_sentence(None, "run") is None
    assert gain_sentence(Gain(0.5, 0.49), "run") is None
    assert gain_sentence(Gain(0.5, 0.4), "run") is not None


def test_a_model_that_knows_no_more_than_the_mean_is_told(predictor: Predictor, dataset: Dataset) -> None:
    rest, held = hold_out_known(dataset.splits.train, CONFIG.validation_fraction)
    parts = held_out(predictor, dataset)
    assert parts is not None
    found = learned(predictor, parts)
    assert found is not None
    assert found.mean == pytest.approx(np.mean((held.confidence - rest.confidence.mean()) ** 2))
    score = predictor.model.score(held.head, held.relation, held.tail)
    assert found.model == pytest.approx(np.mean((held.confidence - score) ** 2))
    assert "--method evidence --quick" in (learned_sentence(Learned(0.14, 0.05)) or "")
    assert learned_sentence(Learned(0.04, 0.05)) is None
    assert learned_sentence(None) is None
    assert advice(replace(predictor, provenance={"protocol": "paper"}), dataset, "run") == (None, None)


def test_no_ranking_of_completions_is_learned_for_it(
    predictor: Predictor, dataset: Dataset, found: Gain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals do not use that ranking, and learning it would take a third of the time."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("completions are not asked for")

    monkeypatch.setattr(evidence_model, "learn_completer", refuse)
    assert gain(predictor, dataset) == found
