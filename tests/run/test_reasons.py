"""Why an evidence run answers as it does: its distribution, and its answers without single facts, exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")

from tests.worlds import mirrored_graph, random_model
from unkgcp.errors import InputError
from unkgcp.evidence import learn
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answers import evidence_of, masses, without


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    facts = mirrored_graph(400, 3)
    train, calibration = facts[:300], facts[300:]
    evidence = learn(train, rounds=20)
    model = replace(random_model(facts.vocabulary), facts=KnownFacts.of(train))
    return calibrate(model, calibration, "evidence", evidence=evidence)


def label(predictor: Predictor, row: int) -> tuple[str, str, str]:
    facts, vocabulary = evidence_of(predictor).evidence.train, predictor.model.vocabulary
    head, tail = (vocabulary.entities[int(column[row])].as_py() for column in (facts.head, facts.tail))
    return head, vocabulary.relations[int(facts.relation[row])].as_py(), tail


def test_masses_are_the_distribution_that_answers(predictor: Predictor) -> None:
    for row in range(0, 300, 30):
        query = label(predictor, row)
        low, high, mass = masses(predictor, query)
        assert mass.sum() == pytest.approx(1)
        assert (mass > 0).all()
        assert (np.diff(low) >= 0).all()
        assert (low <= high).all()
        answers = predictor.interval([query])
        assert ((low + high) / 2 * mass).sum() == pytest.approx(float(answers.score[0]), abs=1e-6)


def test_a_fact_that_is_left_out_is_one_that_was_never_there(predictor: Predictor) -> None:
    """The same trees over a graph that never had the fact say the same."""
    evidence, train = predictor.method.evidence, evidence_of(predictor).evidence.train
    assert evidence is not None
    rows = list(range(0, 300, 30))
    never = [
        evidence.over(train[np.arange(len(train)) != row]).score(
            train.head[[row]], train.relation[[row]], train.tail[[row]]
        )
        for row in rows
    ]
    exactly = np.concatenate(never)
    found = [next(without(predictor, label(predictor, row), [row], 0.9)).score[0] for row in rows]
    np.testing.assert_allclose(found, exactly, atol=1e-6)
    # a neighbour left out instead would not do
    others = [next(without(predictor, label(predictor, row), [row + 1], 0.9)).score[0] for row in rows]
    assert not np.allclose(others, exactly, atol=1e-6)


def test_other_runs_have_no_such_reasons(predictor: Predictor) -> None:
    plain = calibrate(predictor.model, predictor.method.calibration_facts(), "cp")
    with pytest.raises(InputError, match="--method evidence"):
        masses(plain, label(predictor, 0))
