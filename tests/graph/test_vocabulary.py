"""Labels to ids and back, names for ids, and graphs over one vocabulary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of_ids
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.datasets import Names, named, over_one_vocabulary

LABELS = st.lists(st.text(min_size=1, max_size=30), unique=True, max_size=30)
SOME = st.lists(st.text("abc", max_size=3), min_size=1, max_size=14, unique=True)


@settings(deadline=None)
@given(entities=LABELS, relations=LABELS, queries=st.lists(st.text(max_size=30)))
def test_every_label_finds_its_place(entities, relations, queries):
    vocabulary = Vocabulary.of(entities, relations)
    assert vocabulary.entity_ids(entities).dtype == np.int32
    assert vocabulary.entity_ids(entities).tolist() == list(range(len(entities)))
    assert vocabulary.relation_ids(relations).tolist() == list(range(len(relations)))
    places = {label: place for place, label in enumerate(entities)}
    assert vocabulary.entity_ids(queries).tolist() == [places.get(query, -1) for query in queries]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_arrow_columns_are_taken_as_they_come(kind):
    vocabulary = Vocabulary.of(["a", "b"], ["r"])
    column = pa.array(["b", None, "x", "a"]).cast(kind)
    assert vocabulary.entity_ids(column).tolist() == [1, -1, -1, 0]
    assert vocabulary.entity_ids(pa.chunked_array([column, column])).tolist() == [1, -1, -1, 0] * 2


def test_equality_is_that_of_the_labels():
    assert Vocabulary.of(["a"], ["r"]) == Vocabulary.of(["a"], ["r"])
    assert hash(Vocabulary.of(["a"], ["r"])) == hash(Vocabulary.of(["a"], ["r"]))
    assert Vocabulary.of(["a"], ["r"]) != Vocabulary.of(["b"], ["r"])
    assert Vocabulary.of(["a"], ["r"]) != "a"


def facts(entities: list[str], rows: list[tuple[int, int]]) -> Graph:
    return graph_of_ids([(head, 0, tail, 0.5) for head, tail in rows], Vocabulary.of(entities, ["r"]))


def pairs(graph: Graph) -> list[tuple[str, str]]:
    table = graph.table().to_pydict()
    return list(zip(table["head"], table["tail"], strict=True))


@settings(max_examples=100, deadline=None)
@given(SOME, SOME, st.integers(0, 1000))
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
