"""Answer sets are what their definition says, for every kind of backbone, and say what a user should know."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods.method import status_codes
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answer_sets import SetRequest
from unkgcp.run.questions import FLOOR
from unkgcp.training import Model

LEVEL = 0.8


def with_facts(predictor: Predictor, facts: Graph | None) -> Predictor:
    """The same run with other calibration facts."""
    method = copy(predictor.method)
    method.ranked = facts
    return replace(predictor, method=method)


def triples(facts: Graph) -> list[tuple[int, int, int]]:
    return list(zip(facts.head.tolist(), facts.relation.tolist(), facts.tail.tolist(), strict=True))


def strangeness(predictor: Predictor, given: int, relation: int, at_head: bool) -> dict[int, float]:
    """s of every candidate of a question, one by one, in plain Python."""
    model = predictor.model
    assert model.facts is not None
    taken = set(triples(model.facts.graph(model.vocabulary)))
    every = np.flatnonzero(model.seen_entities)
    same, by = np.full(len(every), given), np.full(len(every), relation)
    scores = model.score(every, by, same) if at_head else model.score(same, by, every)
    weight = {}
    for entity, score in zip(every.tolist(), scores.tolist(), strict=True):
        if ((entity, relation, given) if at_head else (given, relation, entity)) not in taken:
            weight[entity] = (score + FLOOR) ** 2
    total, most = sum(weight.values()), max(weight.values())
    # matrix products are off by a few roundings
    return {
        entity: 0.0 if own > most * (1 - 1e-6) else math.log(total / own) for entity, own in weight.items()
    }


@pytest.mark.parametrize("at_head", [False, True])
def test_a_set_is_what_its_definition_says(predictor: Predictor, at_head: bool) -> None:
    model, facts = predictor.model, predictor.method.calibration_facts()
    assert model.facts is not None
    taken = set(triples(model.facts.graph(model.vocabulary)))
    facts, scores = facts[status_codes(model, facts) == 0][:60], []
    predictor = with_facts(predictor, facts)
    for triple in triples(facts):
        if triple not in taken:
            given, answer = (triple[2], triple[0]) if at_head else (triple[0], triple[2])
            scores.append(strangeness(predictor, given, triple[1], at_head)[answer])
    scores.sort()
    threshold = scores[math.ceil(LEVEL * (len(scores) + 1)) - 1]
    question = {"tail": "entity 5"} if at_head else {"head": "entity 5"}
    found = predictor.answers(relation="r1", **question, confidence=LEVEL, per="none")
    beside = strangeness(predictor, 5, 1, at_head)
    # a threshold has a slack of 0.001, and within it rounding decides
    surely = {entity for entity, score in beside.items() if score <= threshold + 0.0009}
    perhaps = {entity for entity, score in beside.items() if score <= threshold + 0.0011}
    ids = predictor.model.vocabulary.entity_ids(found.entities.to_pylist()).tolist()
    assert surely <= set(ids) <= perhaps
    assert (
        ids == sorted(ids, key=lambda entity: (-round(math.exp(-beside[entity]), 6), entity))
        or (np.diff(found.share) <= 0).all()
    )
    assert (found.size, found.candidates) == (len(ids), len(beside))
    assert found.known == int(predictor.model.seen_entities.sum()) - len(beside)
    assert (found.calibration, found.promise, found.notes) == (len(scores), None, [])


def test_candidates_that_tie_are_in_together(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph]
) -> None:
    model = make_model(model="ukge-rect")
    tables = model.tables | {"w": model.tables["w"] * 1e6}  # every score is cut to 0 or to 1
    model = replace(model, tables=tables, facts=KnownFacts.of(make_facts(400)))
    predictor = calibrate(model, make_facts(200, seed=1))
    found = [predictor.answers("entity 3", "r1", confidence=level) for level in (0.01, 0.95)]
    ones = int(np.count_nonzero(np.isclose(found[1].share, found[1].share[0])))
    assert found[0].size in (ones, found[1].candidates)
    assert found[1].size == found[1].candidates


def test_doubtful_facts_training_facts_and_those_of_unknown_labels_do_not_calibrate(
    predictor: Predictor,
) -> None:
    facts, model = predictor.method.calibration_facts(), predictor.model
    assert model.facts is not None
    new = ~np.isin(facts.keys, model.facts.graph(model.vocabulary).keys) & (status_codes(model, facts) == 0)
    assert new.sum() < len(facts)
    for least in (0.0, 0.6):
        found = predictor.answers("entity 3", "r1", confidence=LEVEL, min_confidence=least, per="none")
        assert found.calibration == np.count_nonzero(new & (facts.confidence >= least))


def test_groups_say_whose_facts_they_stand_on(predictor: Predictor, make_facts: Callable[..., Graph]) -> None:
    facts = make_facts(2000, seed=2)
    without = with_facts(predictor, facts[facts.relation != 2])
    assert without.answers("entity 3", "r1").promise == "relation"
    nothing = without.answers("entity 3", "r2", confidence=0.5)
    assert (nothing.promise, nothing.calibration, nothing.size) == ("none", 0, nothing.candidates)
    assert "1 of 3 relations have too few calibration facts" in nothing.notes[0]
    assert without.answers("entity 3", "r2", confidence=0.5, per="none").calibration > 0


def test_too_few_facts_for_a_level_give_everything_and_say_so(predictor: Predictor) -> None:
    few = with_facts(predictor, predictor.method.calibration_facts()[:10])
    found = few.answers("entity 3", "r1", confidence=0.95, per="none")
    assert found.size == found.candidates
    assert "too few for confidence 0.95: every set holds every candidate" in found.notes[0]


def test_a_batch_is_its_questions_one_by_one(predictor: Predictor) -> None:
    rows = [
        ("entity 3", "r1", "?"),
        ("nobody", "r1", ""),
        (None, "r0", "entity 7"),
        ("entity 2", "nothing", None),
    ]
    batch = pa.record_batch(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], ["head", "relation", "tail"]
    )
    told = predictor.answer_sets().answer(batch, SetRequest.of(LEVEL, k=3), first=10).to_pylist()
    tails = predictor.answers("entity 3", "r1", confidence=LEVEL, k=3)
    heads = predictor.answers(None, "r0", "entity 7", confidence=LEVEL, k=3)
    assert [row["tail"] for row in told if row["query"] == 10] == tails.entities.to_pylist()
    assert [row["head"] for row in told if row["query"] == 12] == heads.entities.to_pylist()
    assert {row["size"] for row in told if row["query"] == 12} == {heads.size}
    empty = [row for row in told if row["query"] in (11, 13)]
    assert [row["status"] for row in empty] == ["unknown-entity", "unknown-relation"]
    assert {row["size"] for row in empty} == {None}
    unknown = predictor.answers("nobody", "r1")
    assert (unknown.status, len(unknown), unknown.size) == ("unknown-entity", 0, 0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *(
            ({"confidence": level}, "must lie between 0 and 1, both excluded")
            for level in (0, 1, 1.5, "much")
        ),
        ({"k": 0}, "at least 1"),
        ({"per": "degree"}, "relation or none"),
        ({"min_confidence": -0.1}, "must lie between 0 and 1"),
        ({"tail": "entity 4"}, "leaves neither head nor tail open"),
    ],
)
def test_what_cannot_be_asked(predictor: Predictor, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        predictor.answers("entity 3", "r1", **options)


def test_runs_that_do_not_hold_what_is_needed(predictor: Predictor, make_facts: Callable[..., Graph]) -> None:
    bare = replace(predictor, model=replace(predictor.model, facts=None))
    for run, sentence in (
        (with_facts(predictor, None), "does not hold its calibration facts"),
        (bare, "does not hold its training facts"),
        (with_facts(predictor, make_facts(400)[:50]), "a triple that is no training fact"),
    ):
        with pytest.raises(InputError, match=sentence):
            run.answers("entity 3", "r1")
