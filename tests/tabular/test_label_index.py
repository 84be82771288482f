"""Labels become ids as a Python dictionary would make them, in columns of any kind, at once or while files are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.tabular import label_index
from unkgcp.tabular.label_index import LabelIds, LabelPlaces
from unkgcp.tabular.label_kernels import FACTOR, HALF, LabelTable

LABELS = st.text("ab\0é", min_size=1, max_size=6)


def column(labels: list[str], coded: bool) -> pa.Array:
    """The labels as text, or as a dictionary with a label that no row has."""
    if not coded:
        return pa.array(labels, pa.string())
    names = ["nobody", *dict.fromkeys(labels)]
    places = pa.array([names.index(label) for label in labels], pa.int32())
    return pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string()))


@settings(deadline=None)
@given(
    known=st.lists(LABELS, unique=True, max_size=5),
    files=st.lists(st.lists(st.tuples(LABELS, LABELS), max_size=20), max_size=4),
    coded=st.booleans(),
    kept_after=st.sampled_from([0, 30, label_index.KEPT_AFTER]),
)
def test_new_labels_are_numbered_by_their_first_appearance(known, files, coded, kept_after):
    """Whether Arrow looks labels up, or a table that is kept, or first the one and then the other."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(label_index, "KEPT_AFTER", kept_after)
        labels = LabelPlaces(pa.array(known, pa.string()))
        expected = {label: place for place, label in enumerate(known)}
        for rows in files:
            columns = list(zip(*rows, strict=True)) or [(), ()]
            found = labels.enter([column(list(some), coded) for some in columns])
            wanted = [[expected.setdefault(label, len(expected)) for label in row] for row in rows]
            assert found.T.tolist() == wanted
        assert labels.labels.to_pylist() == list(expected)


def test_a_table_that_grows_finds_what_a_dictionary_finds():
    """Labels of all lengths up to a few words of eight bytes, some of them beginnings of others."""
    random = np.random.default_rng(0)
    labels = list(
        dict.fromkeys("ab" * int(n // 2) + str(k % 1000) for k, n in enumerate(random.integers(0, 40, 9000)))
    )
    table, asked = LabelTable(pa.array(labels[:10])), pa.array([*labels, *(label + "b" for label in labels)])
    for size in (10, 11, 700, 1500, len(labels)):
        table.hold(pa.array(labels)[:size])
        place = {label: k for k, label in enumerate(labels[:size])}
        for some in (asked, asked[5:], asked[:0], asked[-1:]):
            assert table.places(some).tolist() == [place.get(label, -1) for label in some.to_pylist()]


def test_labels_whose_hashes_agree_are_told_apart():
    """The hash of eight bytes is undone, so that labels can be made which agree in all bits that a slot keeps of it."""
    inverse, start = np.uint64(pow(int(FACTOR), -1, 1 << 64)), np.uint64(8 * int(FACTOR) % (1 << 64))
    with np.errstate(over="ignore"):
        word = (start ^ np.frombuffer(b"protein7", np.uint64)) * FACTOR
        end = (word ^ (word >> HALF)) * FACTOR
        ends = end ^ (np.arange(1, 1 << 20, dtype=np.uint64) << np.uint64(5))
        word = ends * inverse
        words = ((word ^ (word >> HALF)) * inverse) ^ start
    texts = words.view(np.uint8).reshape(-1, 8)
    printed = texts[((texts > 32) & (texts < 127)).all(axis=1)]
    others = pa.array([bytes(text).decode() for text in printed])
    assert len(others) > 100
    assert (LabelTable(pa.array(["protein7"])).places(others) == -1).all()
    assert np.array_equal(LabelTable(others).places(others), np.arange(len(others)))


@settings(deadline=None)
@given(
    known=st.integers(1, 50),
    asked=st.lists(st.none() | st.integers(0, 99).map(str), max_size=9),
    kept=st.booleans(),
)
def test_unknown_labels_and_none_have_no_id(known, asked, kept):
    with pytest.MonkeyPatch.context() as patched:
        if kept:
            patched.setattr(label_index, "KEPT_AFTER", 0)
        vocabulary = LabelIds(pa.array(map(str, range(known)), pa.string()), pa.array(["r"]))
        expected = [int(label) if label is not None and int(label) < known else -1 for label in asked]
        labels = pa.array(asked, pa.string())
        for given_ in (labels, labels.dictionary_encode(), pa.chunked_array([labels, labels[:0]])):
            assert vocabulary.entity_ids(given_).tolist() == expected


def test_a_label_that_is_no_text():
    vocabulary = LabelIds(pa.array(["a"]), pa.array(["r"]))
    with pytest.raises(InputError, match="half of a surrogate pair"):
        vocabulary.entity_ids(["a", "\ud800"])
