"""Large files of plain lines go through compiled code: the same graph, and the same sentences, as any other file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import same_graph
from unkgcp.errors import InputError
from unkgcp.graph import Vocabulary, read
from unkgcp.tabular import delimited, fact_columns

pytest.importorskip("numba", reason="numba is not installed: pip install 'unkgcp[train]'")

LABEL = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\u2028\u2029"),
    min_size=1,
    max_size=24,
)
NUMBER = st.one_of(
    st.sampled_from(
        ["0", "1", "1.0", "0.5", ".5", "1.", "1e-3", "5E-1", "0.9999999999999998", "+0.5", "-0", "007e-3"]
    ),
    st.floats(0, 1).map(repr),
    st.decimals(0, 1, places=15).map(lambda number: f"{number:f}"),
    st.decimals(0, 1, places=6).map(lambda number: f"{number:f}"),
)
ROW = st.tuples(LABEL, LABEL, LABEL, NUMBER)


def both(path, monkeypatch, taken=None, **options):
    """What is read with compiled code and without: each a graph or a sentence."""
    results = []
    seen = []
    read_block = fact_columns._read_plain

    def noticed(*arguments):
        facts = read_block(*arguments)
        seen.append(facts is not None)
        return facts

    monkeypatch.setattr(fact_columns, "_read_plain", noticed)
    for size in (0, 1 << 60):
        monkeypatch.setattr(fact_columns, "LARGE", size)
        try:
            results.append(read(path, **options))
        except InputError as error:
            results.append(str(error))
    monkeypatch.setattr(fact_columns, "_read_plain", read_block)
    if taken is not None:
        assert seen, "the compiled code was not asked"
        assert all(seen) is taken
    return results


def same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return same_graph(one, other)


def write(path, rows, ending="\n"):
    path.write_text("".join("\t".join(row) + ending for row in rows), newline="")
    return path


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=40), block=st.sampled_from([64, 1 << 20]), header=st.booleans()
)
def test_the_same_facts_whatever_they_are(tmp_path_factory, rows, block, header):
    path = tmp_path_factory.mktemp("plain") / "facts.tsv"
    first = [("head", "relation", "tail", "confidence")] if header else []
    write(path, first + rows)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(delimited, "BLOCK", block)
        assert same(*both(path, monkeypatch, header=header))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 31, 32, 33, 39, 40, 62, 63, 64, 65, 200])
def test_labels_of_every_length(tmp_path, monkeypatch, length):
    # the same but for the first byte, the middle and the last
    stem = "x" * length
    names = {
        stem,
        "y" + stem[1:],
        stem[:-1] + "z",
        stem[: length // 2] + "m" + stem[length // 2 + 1 :],
        stem + "x",
    }
    rows = [(one, "r", other, "0.5") for one in sorted(names) for other in sorted(names)]
    graph, expected = both(write(tmp_path / "facts.tsv", rows), monkeypatch, taken=length < 63)
    assert same(graph, expected)
    assert graph.n_entities == len(names)


def test_many_labels_make_the_index_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 1 << 14)
    rows = [(f"e{n}", f"r{n % 7}", f"e{n * n % 40_009}", f"{n % 1000 / 1000}") for n in range(40_000)]
    graph, expected = both(write(tmp_path / "facts.tsv", rows), monkeypatch, taken=True)
    assert same(graph, expected)
    assert graph.n_entities > 40_000


def test_decimals_are_the_nearest_floats(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    texts = [f"0.{random.integers(10**digits):0{digits}d}" for digits in range(1, 19) for _ in range(200)]
    rows = [("a", "r", "b", text) for text in texts]
    graph, _ = both(write(tmp_path / "facts.tsv", rows), monkeypatch, taken=True)
    assert graph.confidence.tolist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    "line",
    ["a\tr\tb", "a\tr\tb\t0.5\t1", "a\tr\tb\tnan", "a\tr\tb\t", "a\tr\tb\t1.5", "\tr\tb\t0.5", "a\tr\t\t0.5",
     "a\tr\tb\tx", "a\tr\tb\t1..5", "a\tr\tb\t-1", "a\0\tr\tb\t0.5", "a\t\udcff\tb\t0.5", "\udcff\tr\tb\t0.5"],
)  # fmt: skip
def test_the_same_sentence_about_a_bad_line(tmp_path, monkeypatch, line):
    path = tmp_path / "facts.tsv"
    path.write_bytes(
        ("a\tr\tb\t0.5\n" * 5 + line + "\n" + "a\tr\tb\t0.5\n" * 3).encode(errors="surrogateescape")
    )
    sentence, expected = both(path, monkeypatch)
    assert sentence == expected
    assert "line 6" in sentence or "binary" in sentence


@pytest.mark.parametrize(
    "text", ["a\tr\tb\t1\n\na\tr\tc\t0.5\n", "a\tr\tb\t1\r\na\tr\tc\t1\r\n", "a\tr\tb\t1\na\tr\tc\t1"]
)
def test_what_is_not_plain_is_left_to_the_other_reader(tmp_path, monkeypatch, text):
    path = tmp_path / "facts.tsv"
    path.write_text(text, newline="")
    graph, expected = both(path, monkeypatch, taken=False)
    assert same(graph, expected)
    assert len(graph) == 2


def test_known_labels_keep_their_ids(tmp_path, monkeypatch):
    vocabulary = Vocabulary(pa.array(["b", "z"]), pa.array(["s"]))
    path = write(tmp_path / "facts.tsv", [("a", "r", "b", "1"), ("z", "s", "a", "1")])
    graph, expected = both(path, monkeypatch, taken=True, vocabulary=vocabulary)
    assert same(graph, expected)
    assert graph.head.tolist() == [2, 1]
    assert graph.relation.tolist() == [1, 0]


def test_labels_with_nul_bytes_in_a_vocabulary_are_no_others(tmp_path, monkeypatch):
    vocabulary = Vocabulary(pa.array(["\0a", "b"]), pa.array(["\0r", "s"]))
    path = write(tmp_path / "facts.tsv", [("a", "r", "b", "1")])
    graph, expected = both(path, monkeypatch, taken=True, vocabulary=vocabulary)
    assert same(graph, expected)
    assert graph.head.tolist() == [2]
