"""Labels to ids and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.graph import Vocabulary

LABELS = st.lists(st.text(min_size=1, max_size=30), unique=True, max_size=30)


@settings(deadline=None)
@given(entities=LABELS, relations=LABELS, queries=st.lists(st.text(max_size=30)))
def test_every_label_finds_its_place(entities, relations, queries):
    vocabulary = Vocabulary.of(entities, relations)
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


def test_ids_are_int32():
    assert str(Vocabulary.of(["a"], ["r"]).entity_ids(["a"]).dtype) == "int32"
