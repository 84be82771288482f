"""Training facts kept with a model: the same facts, found from every side, in few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts

ENTITIES, RELATIONS = 12, 3
VOCABULARY = vocabulary(ENTITIES, RELATIONS)


def graph(rows: list[tuple[int, int, int, float]]) -> Graph:
    return graph_of_ids(rows, VOCABULARY)


entity, relation = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
fact = st.tuples(entity, relation, entity, st.floats(0, 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(fact, max_size=40), entity, relation, entity)
def test_what_is_found_is_what_is_there(
    rows: list[tuple[int, int, int, float]], h: int, r: int, t: int
) -> None:
    arrays = KnownFacts.of(graph(rows)).arrays()
    known = KnownFacts.stored(arrays, ENTITIES, RELATIONS)
    assert len(known) == len(rows)
    whole = known.graph(VOCABULARY)
    found = list(zip(whole.head, whole.relation, whole.tail, whole.confidence, strict=True))
    assert sorted(found) == sorted(rows)
    assert [row[:3] for row in found] == sorted(row[:3] for row in rows)

    assert known.tails(h, r).tolist() == sorted(row[2] for row in rows if row[:2] == (h, r))
    assert known.heads(r, t).tolist() == sorted(row[0] for row in rows if row[1:3] == (r, t))


def test_few_bytes_a_fact() -> None:
    rng = np.random.default_rng(0)
    n, entities = 20_000, 3000
    head, tail = rng.integers(0, entities, (2, n), dtype=np.int32)
    known = KnownFacts.of(
        Graph(head, np.zeros(n, np.int32), tail, rng.choice([0.5, 0.7093, 1.0], n), vocabulary(entities))
    )
    size = sum(column.nbytes for column in known.arrays().values())
    assert size <= 4 * n + 2 * (entities + 1) + 24


def test_facts_of_another_vocabulary_are_refused() -> None:
    arrays = KnownFacts.of(graph([(0, 2, 11, 0.5)])).arrays()
    KnownFacts.stored(arrays, ENTITIES, RELATIONS)
    for entities, relations in ((11, 3), (13, 3), (12, 2)):
        with pytest.raises(ValueError, match=r"holds|length|shape|entities"):
            KnownFacts.stored(arrays, entities, relations)
