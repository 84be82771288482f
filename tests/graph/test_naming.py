"""Ids and names, and vocabularies brought together; labels that look alike at the end must not be mixed up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of_ids
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.datasets import Names, named, over_one_vocabulary

# the same length and the same last sixteen characters: what a quick look cannot tell apart
ALIKE = [f"concept:{kind}:brandeis_university_of_{place}" for place in ("here", "area") for kind in "abcdefg"]
labels = st.lists(st.sampled_from([*ALIKE, "x", "y", "", "concept:a"]), min_size=1, max_size=14, unique=True)


@settings(max_examples=200, deadline=None)
@given(labels)
def test_the_position_of_a_label_is_its_id(entities):
    vocabulary = Vocabulary.of(entities, ["r"])
    assert vocabulary.entity_ids(entities).tolist() == list(range(len(entities)))
    assert vocabulary.entity_ids(entities[::-1]).tolist() == list(range(len(entities)))[::-1]
    others = [label for label in ALIKE if label not in entities]
    assert vocabulary.entity_ids(others).tolist() == [-1] * len(others)


def test_positions_hold_in_vocabularies_of_many_blocks():
    entities = [f"{i % 13}:kind:{i // 13:016d}" for i in range(30_000)]
    vocabulary = Vocabulary.of(entities, ["r"])
    assert np.array_equal(vocabulary.entity_ids(entities), np.arange(30_000))


def facts(entities: list[str], rows: list[tuple[int, int]]) -> Graph:
    return graph_of_ids([(head, 0, tail, 0.5) for head, tail in rows], Vocabulary.of(entities, ["r"]))


def pairs(graph: Graph) -> list[tuple[str, str]]:
    table = graph.table().to_pydict()
    return list(zip(table["head"], table["tail"], strict=True))


@settings(max_examples=100, deadline=None)
@given(labels, labels, st.integers(0, 1000))
def test_graphs_over_one_vocabulary_say_what_they_said(first, second, seed):
    generator = np.random.default_rng(seed)
    graphs = [
        facts(entities, generator.integers(len(entities), size=(5, 2)).tolist())
        for entities in (first, second)
    ]
    joined = over_one_vocabulary(graphs)
    assert joined[0].vocabulary is joined[1].vocabulary
    assert joined[0].vocabulary.entities.to_pylist()[: len(first)] == first
    assert [pairs(graph) for graph in joined] == [pairs(graph) for graph in graphs]


def test_ids_become_names_and_the_nameless_stay():
    graph = facts(["0", "1", "2"], [(0, 1), (2, 0)])
    assert pairs(named(graph, Names({"0": "zero", "2": "two"}, {}))) == [("zero", "1"), ("two", "zero")]
