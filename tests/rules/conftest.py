"""Small graphs written as lists of facts, and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import worlds
from unkgcp.graph import Graph, Vocabulary

VOCABULARY = Vocabulary.of(list("abcdefgh"), ["r", "s", "t"])


@pytest.fixture(scope="session")
def graph_of() -> Callable[[list[worlds.Fact]], Graph]:
    def make(facts: list[worlds.Fact]) -> Graph:
        return worlds.graph_of(facts, VOCABULARY)

    return make


@pytest.fixture(scope="session")
def facts_of() -> Callable[[Graph], dict[tuple[str, str, str], float]]:
    def read(graph: Graph) -> dict[tuple[str, str, str], float]:
        rows = [tuple(row.values()) for row in graph.table().to_pylist()]
        facts = {(head, relation, tail): confidence for head, relation, tail, confidence in rows}
        assert len(facts) == len(rows), "a triple came out twice"
        return facts

    return read
