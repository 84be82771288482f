"""The label index agrees with a Python dictionary, whatever the labels and however they are spread."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.tabular import label_index
from unkgcp.tabular import label_index as module
from unkgcp.tabular.arrow_arrays import binary
from unkgcp.tabular.label_index import EXACT, LONG, LabelIndex

# few letters and many lengths: labels that share their ends, their beginnings and their words
LABELS = st.one_of(
    st.binary(max_size=40),
    st.text("ab", max_size=30).map(str.encode),
    st.tuples(
        st.sampled_from([b"x", b"y" * 20, b"y" * EXACT, b"z" * (LONG + 99)]),
        st.sampled_from([b"1", b"2" * 16, b"3" * 17]),
    ).map(b"".join),
)


@pytest.fixture(autouse=True, scope="module", params=["arrays", "compiled"])
def way(request):
    """Columns are searched with NumPy, or by compiled code as if they were long."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "compiled":
            pytest.importorskip("numba", reason="compiled look-ups need numba: pip install 'unkgcp[train]'")
            patch.setattr(module, "MANY", 1)
        yield request.param


def column(labels: list[bytes]) -> pa.Array:
    return pa.array(labels, pa.binary())


def reference(batches: list[list[bytes]]) -> tuple[list[list[int]], dict[bytes, int]]:
    known: dict[bytes, int] = {}
    return [[known.setdefault(label, len(known)) for label in batch] for batch in batches], known


@settings(deadline=None)
@given(labels=st.lists(st.tuples(LABELS, st.integers(1, 9)), max_size=30))
def test_labels_in_runs(labels):
    repeated = [label for label, times in labels for _ in range(times)]
    index = LabelIndex()
    assert index.encode(column(repeated)).tolist() == reference([repeated])[0][0]
    assert index.find(column(repeated)).tolist() == reference([repeated])[0][0]


@settings(deadline=None)
@given(batches=st.lists(st.lists(LABELS, max_size=60), max_size=4), queries=st.lists(LABELS, max_size=20))
def test_ids_follow_first_appearance(batches, queries):
    index = LabelIndex()
    expected, known = reference(batches)
    assert [index.encode(column(batch)).tolist() for batch in batches] == expected
    assert index.labels().to_pylist() == list(known)
    assert index.find(column(queries)).tolist() == [known.get(query, -1) for query in queries]


def crowded(found: label_index.Words, bits: int) -> np.ndarray:
    """Three slots at the end of the table for all labels."""
    return ((1 << bits) - 1 - found[:, -1] % 3).astype(np.intp)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(LABELS, max_size=60), max_size=4), chunk=st.integers(1, 40))
def test_shared_slots_and_hashes_cost_time_not_correctness(batches, chunk):
    """Every label wants the same slot, and all long beginnings have the same hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MANY", 1 << 62)  # compiled code has slots of its own
        patch.setattr(module, "CHUNK", chunk)
        patch.setattr(module, "slots", crowded)
        patch.setattr(label_index, "_hash", lambda labels: np.ones(len(labels), np.uint64))
        index = LabelIndex()
        expected, known = reference(batches)
        assert [index.encode(column(batch)).tolist() for batch in batches] == expected
        assert index.find(column([*known, b"nowhere"])).tolist() == [*range(len(known)), -1]


def test_many_labels_of_every_length():
    rng = np.random.default_rng(0)
    labels = [
        bytes(rng.integers(1, 256, size=length, dtype=np.uint8))
        for length in range(1, 400)
        for _ in range(20)
    ]
    labels = list(dict.fromkeys(labels))
    order = rng.integers(len(labels), size=50_000)
    index = LabelIndex()
    expected, known = reference([[labels[place] for place in order]])
    assert index.encode(column([labels[place] for place in order])).tolist() == expected[0]
    assert index.find(column(list(known))).tolist() == list(range(len(known)))


def test_labels_that_differ_in_one_byte_have_ids_of_their_own():
    base = b"concept:person:barack_obama_the_president"
    variants = [base[:place] + b"#" + base[place + 1 :] for place in range(len(base))]
    assert LabelIndex().encode(column(variants)).tolist() == list(range(len(variants)))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 72, 600])
def test_padding_is_not_part_of_a_label(length):
    label = b"x" * length
    family = [
        label,
        b"x" + label,
        b"\0" + label,
        label + b"\0",
        b"\0\0" + label,
        b"y" * 8 + label,
        b"\1" + label,
    ]
    for known in family:
        index = LabelIndex(column([known]))
        assert index.find(column(family)).tolist() == [0 if other == known else -1 for other in family]
        assert [index.find(column([other]))[0] for other in family] == index.find(column(family)).tolist()
    assert LabelIndex().encode(column(family)).tolist() == list(range(len(family)))


def test_a_slice_is_not_its_parent():
    whole = column([b"one", b"two", b"three", b"two"])
    index = LabelIndex(whole.slice(1, 2))
    assert index.find(whole).tolist() == [-1, 0, 1, 0]


def test_long_columns_are_searched_by_compiled_code(way, monkeypatch):
    kernels = pytest.importorskip("unkgcp.tabular.label_kernels", reason="compiled look-ups need numba")
    rows = []
    look_up = kernels.look_up

    def noticed(data, spans, *arguments):
        rows.append(len(spans))
        return look_up(data, spans, *arguments)

    monkeypatch.setattr(kernels, "look_up", noticed)
    labels = [f"label {number}".encode() for number in range(30_000)]
    index = LabelIndex(column(labels))
    rows.clear()
    queries = [*labels[::-1], b"nobody", *labels]
    found = index.find(column(queries).slice(1))
    assert found.tolist() == [*range(29_998, -1, -1), -1, *range(30_000)]
    assert sum(rows) > (59_000 if way == "compiled" else -1)
    assert bool(rows) == (way == "compiled")


def test_a_frozen_copy_stays_as_it_was():
    index = LabelIndex(column([b"a", b"b"]))
    frozen = index.frozen()
    more = column([f"label {number}".encode() for number in range(10_000)])
    index.encode(more)
    assert frozen.find(column([b"b", b"label 5"])).tolist() == [1, -1]
    assert index.find(column([b"b", b"label 5"])).tolist() == [1, 7]
    assert len(frozen) == 2


def test_no_label_twice():
    with pytest.raises(ValueError, match="twice"):
        LabelIndex(column([b"a", b"b", b"a"]))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
)
def test_columns_of_any_text_type(kind):
    assert binary(pa.array(["a", "é"]).cast(kind)).to_pylist() == [b"a", "é".encode()]
    chunked = pa.chunked_array([["a"], ["é", "c"]], pa.string()).cast(kind)
    assert binary(chunked).to_pylist() == [b"a", "é".encode(), b"c"]
    assert binary(chunked[:0]).to_pylist() == []


def test_nothing_to_do():
    index = LabelIndex(column([]))
    assert index.find(column([])).tolist() == []
    assert index.encode(column([])).tolist() == []
    assert len(index) == 0
