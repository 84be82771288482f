"""Graphs: slicing keeps the vocabulary, columns are read-only, repeats and self-loops are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of_ids
from unkgcp.graph import Graph, Vocabulary, concatenate, triple_keys
from unkgcp.graph.facts import in_vocabulary

VOCABULARY = Vocabulary.of(["a", "b", "c"], ["likes", "knows"])
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.floats(0, 1)), max_size=30
)


def graph(rows: list[tuple[int, int, int, float]]) -> Graph:
    return graph_of_ids(rows, VOCABULARY)


@given(rows=ROWS)
def test_self_loops(rows):
    assert graph(rows).self_loops == sum(head == tail for head, _, tail, _ in rows)


@settings(deadline=None)
@given(rows=ROWS, data=st.data())
def test_selecting_rows(rows, data):
    whole = graph(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10)) if rows else []
    part = whole[np.array(chosen, np.int64)]
    assert part.table().to_pylist() == [whole.table().to_pylist()[place] for place in chosen]
    assert part.vocabulary is whole.vocabulary
    assert whole[1:3].table().to_pylist() == whole.table().to_pylist()[1:3]
    mask = np.array([row[3] > 0.5 for row in rows], np.bool_)
    assert len(whole[mask]) == mask.sum()
    assert (
        concatenate([whole, part]).table().to_pylist() == whole.table().to_pylist() + part.table().to_pylist()
    )


@given(rows=ROWS, entities=st.permutations(["c", "d", "a"]), relations=st.permutations(["knows", "eats"]))
def test_facts_over_another_vocabulary(rows, entities, relations):
    """Labels keep their meaning, whatever their ids; a label that the other vocabulary lacks has the id -1."""
    other = Vocabulary.of(entities, relations)
    whole = graph(rows)
    ends = np.stack([whole.confidence / 2, whole.confidence], axis=1)
    moved = whole.with_ends(ends).over(other)
    assert moved.vocabulary is other
    np.testing.assert_array_equal(moved.ends, ends)
    known = in_vocabulary(moved)
    labels = [(row["head"], row["relation"], row["tail"]) for row in whole.table().to_pylist()]
    assert known.tolist() == [h in entities and r in relations and t in entities for h, r, t in labels]
    again = [(row["head"], row["relation"], row["tail"]) for row in moved[known].table().to_pylist()]
    assert again == [label for label, is_known in zip(labels, known, strict=True) if is_known]
    # one part of a triple may be known alone
    assert [entity >= 0 for entity in moved.head.tolist()] == [head in entities for head, _, _ in labels]
    same = whole.over(Vocabulary.of(["a", "b", "c"], ["likes", "knows"]))
    assert same.table() == whole.table()


def test_columns_cannot_be_changed():
    found = graph([(0, 0, 1, 0.5)])
    for column in (found.head, found.relation, found.tail, found.confidence):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="tail"):
        Graph(np.zeros(2, np.int32), np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(2), VOCABULARY)


def test_graphs_over_different_vocabularies_cannot_be_joined():
    one = graph([(0, 0, 1, 0.5)])
    other = Graph(one.head, one.relation, one.tail, one.confidence, Vocabulary.of(["x", "y"], ["likes"]))
    with pytest.raises(ValueError, match="vocabularies"):
        concatenate([one, other])


def test_keys_are_equal_exactly_for_equal_triples():
    rows = [(head, relation, tail, 0.5) for head in range(3) for relation in range(2) for tail in range(3)]
    assert len(set(graph(rows).keys.tolist())) == len(rows)
    with pytest.raises(ValueError, match="64-bit"):
        triple_keys(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), 2**31, 4)
