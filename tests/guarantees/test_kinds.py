"""Each kind of question is covered as promised; thresholds of all kinds together are the mutant."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.worlds import vocabulary
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.graph.kinds import KNOWN_PAIR, NEW_ENTITY, NEW_PAIR, NEW_RELATION, Kinds
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import create

ENTITIES = 120
SEEN = 100  # entities with training facts
SPREAD = np.array([0.02, 0.2, 0.4, 0.4])
"""How far confidences lie from 0.5, by kind."""


class Half:
    """A model that says the same of everything it knows."""

    def __init__(self, train: Graph, says: float = 0.5) -> None:
        self.says = says
        self.vocabulary, self.facts = train.vocabulary, KnownFacts.of(train)
        self.seen_entities = np.arange(ENTITIES) < SEEN
        self.seen_relations = np.array([True, False])

    def score(self, head, relation, tail):  # type: ignore[no-untyped-def]
        return np.full(len(head), self.says, np.float32)


class Everything(Half):
    """The same model, which takes every entity for a known one."""

    def __init__(self, train: Graph) -> None:
        super().__init__(train)
        self.seen_entities = np.ones(ENTITIES, np.bool_)


def world(seed: int, known: int, others: int) -> tuple[Graph, Graph, Graph]:
    """Training facts, and calibration and test facts of three kinds, as many known pairs as is said."""
    rng = np.random.default_rng(seed)
    every = vocabulary(ENTITIES, 2)
    head, tail = rng.integers(0, SEEN, (2, 3000), dtype=np.int32)
    head[:SEEN] = np.arange(SEEN)
    train = Graph(head, np.zeros(3000, np.int32), tail, 0.5 + SPREAD[0] * rng.uniform(-1, 1, 3000), every)
    parts = []
    for _ in range(2):
        row = rng.integers(0, 3000, known)
        pair = rng.integers(0, SEEN, (2, 4 * others), dtype=np.int32)
        new = rng.integers(SEEN, ENTITIES, others, dtype=np.int32)
        h = np.concatenate([head[row], pair[0], new])
        t = np.concatenate([tail[row], pair[1], rng.integers(0, SEEN, others, dtype=np.int32)])
        kind = Kinds.of(train, ENTITIES, 2).codes(Triples(h, np.zeros(len(h), np.int32), t))
        confidence = np.clip(0.5 + SPREAD[kind] * rng.uniform(-1, 1, len(h)), 0, 1)
        parts.append(Graph(h, np.zeros(len(h), np.int32), t, confidence.round(9), every))
    return train, *parts


@pytest.mark.parametrize("method", ["cp", "unkgcp", "joint", "mean-length"])
def test_every_kind_is_covered_as_promised(method: str) -> None:
    """Bands of the beta-binomial law; false alarms: one in ten thousand. Pooled kinds fail where facts are hard."""
    train, calibration, test = world(0, known=16_000, others=300)
    model = Half(train)
    valued = {"length": Half(train, 0.0)} if method in ("joint", "mean-length") else {}
    ours = create(method, **valued).calibrate(model, calibration)
    result = ours.interval(test, 0.9)
    assert result.kind is not None
    inside = (result.lower <= test.confidence) & (test.confidence <= result.upper)
    mutant = create(method, **valued, by_kind=False).calibrate(Everything(train), calibration)
    pooled = mutant.interval(test, 0.9)  # one threshold for all kinds
    held = (pooled.lower <= test.confidence) & (test.confidence <= pooled.upper)
    for kind in (KNOWN_PAIR, NEW_PAIR, NEW_ENTITY):
        rows, size = result.kind == kind, int(ours.kind_counts[kind])
        assert rows.sum() > 100
        assert size > 15
        k = -(-9 * (size + 1) // 10)
        law = stats.betabinom(int(rows.sum()), k, size + 1 - k)
        assert law.cdf(inside[rows].sum()) > 1e-4
        if kind != KNOWN_PAIR:
            assert held[rows].mean() < 0.75
    assert (result.status[result.kind == NEW_ENTITY] == "unknown-entity").all()
    assert (result.width[result.kind == NEW_ENTITY] < 1).all(), "new entities are answered"


def test_a_kind_without_calibration_facts_gets_the_whole_range_and_no_number() -> None:
    train, calibration, _ = world(1, known=500, others=40)
    ours = create("cp").calibrate(Half(train), calibration)
    asked = Triples(
        np.array([0, ENTITIES - 1], np.int32), np.array([1, 0], np.int32), np.array([1, 2], np.int32)
    )
    result = ours.interval(asked, 0.9)
    assert result.kind is not None
    assert result.kind.tolist() == [NEW_RELATION, NEW_ENTITY]
    assert (result.lower[0], result.upper[0]) == (0, 1)
    assert np.isnan(result.score[0])
    assert result.score[1] == pytest.approx(train.confidence.mean(), abs=1e-6)


def test_facts_that_came_together_count_once() -> None:
    """Rows of a pair that no training fact joins are one unit; rows of known pairs are units by themselves."""
    train, _, _ = world(2, known=10, others=10)
    every = train.vocabulary
    new = np.array([[SEEN, SEEN, SEEN + 1], [0, 1, 2]], np.int32)
    rows = np.concatenate([new[0], train.head[:3]]), np.concatenate([new[1], train.tail[:3]])
    facts = Graph(rows[0], np.zeros(6, np.int32), rows[1], np.linspace(0.4, 0.6, 6), every)
    ours = create("cp").calibrate(Half(train), facts)
    assert ours.kind_counts.tolist() == [3, 0, 2, 0]
    assert ours.waiting is not None
    assert len(ours.waiting) == 1, "one of the two facts about the same new entity sets no threshold"
