"""Figures of answer sets against sets that are asked for one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from unkgcp.errors import InputError
from unkgcp.evaluation.completion_quality import judge_answers
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model

LEVELS = (0.5, 0.8)


@pytest.fixture
def predictor(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> Predictor:
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    return calibrate(model, make_facts(300, seed=1))


def test_the_figures_are_those_of_the_sets(predictor: Predictor, make_facts: Callable[..., Graph]) -> None:
    test, names = make_facts(120, seed=2), predictor.model.vocabulary
    found = judge_answers(predictor, test, LEVELS, least=0.3)
    assert predictor.facts is not None
    seen, by = predictor.model.seen_entities, predictor.model.seen_relations
    usable = seen[test.head] & seen[test.tail] & by[test.relation] & (test.confidence >= 0.3)
    test = test[usable & ~np.isin(test.keys, predictor.facts.graph(names).keys)]
    assert (found["facts"], found["new"], found["asked"]) == (120, len(test), len(test))
    for place, level in enumerate(LEVELS):
        for side, at_head in (("tails", False), ("heads", True)):
            sizes, inside = [], []
            for h, r, t in zip(test.head.tolist(), test.relation.tolist(), test.tail.tolist(), strict=True):
                head, tail = (names.entities[e].as_py() for e in (h, t))
                given = {"tail": tail} if at_head else {"head": head}
                sets = predictor.answers(
                    relation=names.relations[r].as_py(), **given, confidence=level, min_confidence=0.3
                )
                sizes.append(sets.size)
                inside.append((head if at_head else tail) in sets.entities.to_pylist())
            figures = found["levels"][place][side]
            assert figures["coverage"] == pytest.approx(np.mean(inside))
            assert figures["mean_size"] == pytest.approx(np.mean(sizes))
            assert figures["median_size"] == np.median(sizes)
            shares = [np.mean(np.array(inside)[test.relation == r]) for r in np.unique(test.relation)]
            assert figures["gap"] == pytest.approx(np.abs(np.array(shares) - level).mean())
            low, high = figures["band"]
            assert low < level < high
        sides = [found["levels"][place][side] for side in ("tails", "heads")]
        both = found["levels"][place]["both"]
        assert both["coverage"] == pytest.approx(np.mean([each["coverage"] for each in sides]))
        assert both["band"] is None


def test_what_cannot_be_judged(predictor: Predictor, make_facts: Callable[..., Graph]) -> None:
    with pytest.raises(InputError, match="no test fact is new"):
        judge_answers(predictor, make_facts(300)[:20], [0.8])
    with pytest.raises(InputError, match="both excluded"):
        judge_answers(predictor, make_facts(20, seed=2), [1.0])
