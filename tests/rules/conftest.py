"""Small graphs written as lists of facts, and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unkgcp.graph import Graph, Vocabulary

Facts = list[tuple[str, str, str, float]]
VOCABULARY = Vocabulary.of(list("abcdefgh"), ["r", "s", "t"])


@pytest.fixture(scope="session")
def graph_of() -> Callable[[Facts], Graph]:
    def make(facts: Facts) -> Graph:
        return Graph(
            VOCABULARY.entity_ids([fact[0] for fact in facts]),
            VOCABULARY.relation_ids([fact[1] for fact in facts]),
            VOCABULARY.entity_ids([fact[2] for fact in facts]),
            np.array([fact[3] for fact in facts], np.float64),
            VOCABULARY,
        )

    return make


@pytest.fixture(scope="session")
def facts_of() -> Callable[[Graph], dict[tuple[str, str, str], float]]:
    def read(graph: Graph) -> dict[tuple[str, str, str], float]:
        rows = [tuple(row.values()) for row in graph.table().to_pylist()]
        facts = {(head, relation, tail): confidence for head, relation, tail, confidence in rows}
        assert len(facts) == len(rows), "a triple came out twice"
        return facts

    return read
