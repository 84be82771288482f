"""What is written is read back as the same facts, to the last bit; what cannot be is refused before writing."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of, same_graph
from unkgcp.errors import InputError
from unkgcp.graph import fact_files, read, write

TEXT_ENDINGS = [".csv", ".csv.gz", ".tsv", ".tsv.gz"]
ENDINGS = [*TEXT_ENDINGS, ".parquet"]

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
LABELS = st.text(CHARACTERS, min_size=1, max_size=8)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\0\t\r\n"), min_size=1, max_size=8)


def facts(labels: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str, str, float]]]:
    return st.lists(st.tuples(labels, labels, labels, st.floats(0, 1)), min_size=1, max_size=12)


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if "tsv" not in ending])
@settings(max_examples=60, deadline=None)
@given(rows=facts(LABELS))
def test_any_label_survives_csv_and_parquet(ending, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / f"facts{ending}"
    write(graph_of(rows), path)
    assert same_graph(read(path), graph_of(rows))


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
@settings(max_examples=60, deadline=None)
@given(rows=facts(PLAIN))
def test_any_label_on_one_line_survives_tsv(ending, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / f"facts{ending}"
    write(graph_of(rows), path)
    assert same_graph(read(path), graph_of(rows))


@pytest.mark.parametrize("ending", ENDINGS)
def test_many_rows_in_several_batches(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(fact_files, "ROWS", 100)
    rng = np.random.default_rng(0)
    rows = [
        (f"e{h}", f"r{r}", f"e{t}", c)
        for (h, r, t), c in zip(rng.integers(50, size=(950, 3)), rng.random(950), strict=True)
    ]
    graph = graph_of(rows)
    write(graph, tmp_path / f"facts{ending}")
    assert same_graph(read(tmp_path / f"facts{ending}"), graph)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (5e-324, 0.0),
        (1e-7, 1e-7),
        (0.1 + 0.2, 0.3),
        (1 / 3, 0.333333333),
        (0.9999999999999998, 1.0),
        (0.0, 0.0),
    ],
)
@pytest.mark.parametrize("ending", TEXT_ENDINGS)
def test_confidences_have_nine_decimals(value, kept, ending, tmp_path):
    path = tmp_path / f"facts{ending}"
    write(replace(graph_of([("a", "r", "b", 0.5)]), confidence=np.array([value])), path)
    assert read(path).confidence[0] == kept


def test_the_files_are_what_they_seem(tmp_path):
    graph = graph_of([("a", "likes", "b", 0.5), ("b", "likes", 'say "x"', 1.0)])
    for ending in ENDINGS:
        write(graph, tmp_path / f"facts{ending}")
    assert (
        tmp_path / "facts.tsv"
    ).read_text() == 'head\trelation\ttail\tconfidence\na\tlikes\tb\t0.5\nb\tlikes\tsay "x"\t1\n'
    assert gzip.decompress((tmp_path / "facts.tsv.gz").read_bytes()) == (tmp_path / "facts.tsv").read_bytes()
    assert (tmp_path / "facts.csv").read_text().splitlines()[::2] == [
        "head,relation,tail,confidence",
        'b,likes,"say ""x""",1',
    ]
    assert pq.read_table(tmp_path / "facts.parquet").column_names == [
        "head",
        "relation",
        "tail",
        "confidence",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"facts{ending}" for ending in ENDINGS)


@pytest.mark.parametrize("label", ["", "a\0b"])
@pytest.mark.parametrize("ending", [".tsv", ".csv", ".parquet"])
def test_labels_no_reader_accepts_are_not_written(label, ending, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write(graph_of([(label, "r", "b", 0.5)]), tmp_path / f"facts{ending}")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_graph_is_a_header(tmp_path):
    write(graph_of([("a", "r", "b", 0.5)])[:0], tmp_path / "facts.tsv")
    assert (tmp_path / "facts.tsv").read_text() == "head\trelation\ttail\tconfidence\n"


def test_what_is_written_has_no_noise(tmp_path):
    graph = replace(graph_of([("a", "r", "b", 0.5)]), confidence=np.array([0.8334999999999999]))
    write(graph, tmp_path / "facts.tsv")
    assert (tmp_path / "facts.tsv").read_text().endswith("\t0.8335\n")
    write(graph.with_ends(np.array([[0.1 + 0.2, 0.8334999999999999]])), tmp_path / "facts.tsv")
    assert (tmp_path / "facts.tsv").read_text().endswith("\t0.3\t0.8335\n")
