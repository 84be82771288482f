"""Labels become ids as a Python dictionary would make them, in columns of any kind, at once or while files are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.tabular.label_index import FEW, GrowingLabels, LabelIds

LABELS = st.text("ab\0é", min_size=1, max_size=6)
COLUMNS = st.lists(st.lists(LABELS, max_size=20), max_size=5)


def column(labels: list[str], coded: bool) -> pa.Array:
    """The labels as text, or as a dictionary with a label that no row has."""
    if not coded:
        return pa.array(labels, pa.string())
    names = ["nobody", *dict.fromkeys(labels)]
    places = pa.array([names.index(label) for label in labels], pa.int32())
    return pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string()))


@settings(deadline=None)
@given(
    known=st.lists(LABELS, unique=True, max_size=5), files=st.lists(COLUMNS, max_size=3), coded=st.booleans()
)
def test_new_labels_are_numbered_by_their_first_appearance(known, files, coded):
    labels, expected = (
        GrowingLabels(pa.array(known, pa.string())),
        {label: place for place, label in enumerate(known)},
    )
    for columns in files:
        first = len(labels.labels)
        halves = len(columns) // 2
        ids = [*labels.encode([column(some, coded) for some in columns[:halves]])]
        ids += labels.encode([column(some, coded) for some in columns[halves:]])
        new = labels.renumber(first, ids)
        for some, found in zip(columns, ids, strict=True):
            assert new[found].tolist() == [expected.setdefault(label, len(expected)) for label in some]
    assert labels.labels.to_pylist() == list(expected)


@settings(deadline=None)
@given(known=st.integers(1, 3 * FEW), asked=st.lists(st.none() | st.integers(0, 99).map(str), max_size=9))
def test_unknown_labels_and_none_have_no_id(known, asked):
    """Few labels are looked up in a dictionary, many by Arrow."""
    vocabulary = LabelIds(pa.array(map(str, range(known)), pa.string()), pa.array(["r"]))
    expected = [int(label) if label is not None and int(label) < known else -1 for label in asked]
    labels = pa.array(asked, pa.string())
    for given_ in (labels, labels.dictionary_encode(), pa.chunked_array([labels, labels[:0]])):
        assert vocabulary.entity_ids(given_).tolist() == expected


def test_a_label_that_is_no_text():
    vocabulary = LabelIds(pa.array(["a"]), pa.array(["r"]))
    with pytest.raises(InputError, match="half of a surrogate pair"):
        vocabulary.entity_ids(["a", "\ud800"])


def test_a_label_that_stands_twice():
    with pytest.raises(ValueError, match="stands twice"):
        LabelIds(pa.array(["a"] * (FEW + 1)), pa.array(["r"])).entity_ids(["a"])
    assert np.array_equal(LabelIds(pa.array(["a", "b"]), pa.array(["r"])).relation_ids(["r"]), [0])
