"""Files whose confidences are intervals: recognised, read, written, and refused with a line."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from unkgcp.errors import InputError
from unkgcp.graph import Graph, Vocabulary, read, write
from unkgcp.graph.datasets import load_dataset
from unkgcp.graph.facts import concatenate
from unkgcp.tabular.columns import Scale

HEADER = "head\trelation\ttail\tlower\tupper\n"
ROWS = [("a", "r", "b", 0.1, 0.25), ("b", "r", "c", 0.5, 0.5), ("c", "s", "a", 0.0, 1.0)]


def lines(rows: list[tuple[object, ...]], delimiter: str = "\t") -> str:
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def graph() -> Graph:
    ids = np.arange(3, dtype=np.int32)
    blank = Graph(ids, ids % 2, ids[::-1].copy(), np.zeros(3), Vocabulary.of(["a", "b", "c"], ["r", "s"]))
    return blank.with_ends(np.array([[0.1, 0.2], [0.333333333, 0.666666667], [0.0, 1.0]]))


@pytest.mark.parametrize("ending", ["tsv", "csv", "parquet", "tsv.gz", "csv.gz"])
def test_written_and_read_again(graph: Graph, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"facts.{ending}"
    write(graph, path)
    again = read(path)
    np.testing.assert_array_equal(again.ends, graph.ends)
    np.testing.assert_array_equal(again.confidence, graph.confidence)
    assert again.table().to_pylist() == graph.table().to_pylist()


def test_a_header_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "facts.tsv"
    path.write_text("upper\thead\tnote\ttail\tlower\trelation\n" + "0.5\ta\tx\tb\t0.25\tr\n")
    found = read(path)
    assert found.table().to_pylist() == [
        {"head": "a", "relation": "r", "tail": "b", "lower": 0.25, "upper": 0.5}
    ]
    assert found.confidence.tolist() == [0.375]


@pytest.mark.parametrize("columns", [(0, 1, 2, 3, 4), ("h", "r", "t", "low", "high")])
def test_columns_by_position_and_by_name(tmp_path: Path, columns: tuple[int | str, ...]) -> None:
    path = tmp_path / "facts.csv"
    head = "" if columns[0] == 0 else "h,r,t,low,high\n"
    path.write_text(head + lines(ROWS, ","))  # type: ignore[arg-type]
    ends = read(path, columns=columns).ends
    assert ends is not None
    assert ends.tolist() == [[0.1, 0.25], [0.5, 0.5], [0.0, 1.0]]


def test_a_confidence_beside_the_ends_is_the_confidence(tmp_path: Path) -> None:
    path = tmp_path / "answers.tsv"
    path.write_text("head\trelation\ttail\tscore\tlower\tupper\tstatus\na\tr\tb\t0.5\t0.25\t1\tok\n")
    assert read(path).ends is None
    assert read(path).confidence.tolist() == [0.5]
    ends = read(path, columns=("head", "relation", "tail", "lower", "upper")).ends
    assert ends is not None
    assert ends.tolist() == [[0.25, 1.0]]


def test_rows_and_parts_keep_their_ends(graph: Graph) -> None:
    assert graph.ends is not None
    np.testing.assert_array_equal(graph[1:].ends, graph.ends[1:])
    joined = concatenate([graph, graph.with_confidence(np.full(3, 0.5))])
    assert joined.ends is not None
    assert joined.ends[3:].tolist() == [[0.5, 0.5]] * 3
    assert graph.with_confidence(np.zeros(3)).ends is None
    np.testing.assert_array_equal(graph.truth, graph.ends)
    with pytest.raises(ValueError, match="ends have shape"):
        Graph(graph.head, graph.relation, graph.tail, graph.confidence, graph.vocabulary, np.zeros((2, 2)))


def test_a_folder_of_parts(tmp_path: Path) -> None:
    for part, rows in {"train": ROWS, "val": ROWS[:1], "test": ROWS[1:]}.items():
        (tmp_path / f"{part}.tsv").write_text(HEADER + lines(rows))  # type: ignore[arg-type]
    splits = load_dataset(tmp_path).splits
    assert splits.test.ends is not None
    assert splits.test.ends.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert splits.train.vocabulary is splits.test.vocabulary
    (tmp_path / "test.tsv").write_text("a\tr\tb\t0.5\n")
    with pytest.raises(InputError, match=r"test\.tsv has one confidence a fact where other parts"):
        load_dataset(tmp_path)


def test_a_scale_for_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "facts.tsv"
    path.write_text(HEADER + "a\tr\tb\t10\t60\n")
    ends = read(path, scale=Scale("minmax", floor=0.0, cap=100.0)).ends
    assert ends is not None
    assert ends.tolist() == [[0.1, 0.6]]
    ends = read(path, scale=Scale("minmax")).ends
    assert ends is not None
    assert ends.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("f.tsv", HEADER + "a\tr\tb\t0.1\t0.2\n\na\tr\tb\t0.5\t0.2\n", "line 4 has the lower end 0.5 above"),
        (
            "f.csv",
            'head,relation,tail,lower,upper\na,r,"b\nc",0,1\na,r,b,1,0.2\n',
            "line 4 has the lower end 1",
        ),
        ("f.tsv", HEADER + "a\tr\tb\t0.1\t1.2\n", "line 2 has the confidence 1.2, outside"),
        ("f.tsv", HEADER + "a\tr\tb\tlow\t1\n", "line 2 has the confidence 'low', which is no number"),
        ("f.tsv", HEADER + "a\tr\tb\t0.1\t\n", "line 2 has no confidence"),
        ("f.tsv", HEADER + "a\tr\tb\t0.1\n", "line 2 has 4 columns, expected 5"),
        ("f.tsv", "lower\tx\ty\tz\tupper\n0\ta\tr\tb\t1\n", "has no column called head"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_of_parquet(graph: Graph, tmp_path: Path) -> None:
    write(graph.with_ends(np.array([[0.1, 0.2], [0.7, 0.6], [0.0, 1.0]])), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=r"f\.parquet, row 2 has the lower end 0\.7 above"):
        read(tmp_path / "f.parquet")


def test_from_a_stream_and_without_empty_ends() -> None:
    text = HEADER + "a\tr\tb\t0.1\t0.2\na\tr\tc\t\t0.2\n"
    graph = read(io.BytesIO(text.encode()), skip_missing=True)
    assert graph.ends is not None
    assert graph.ends.tolist() == [[0.1, 0.2]]
    assert graph.confidence.tolist() == [0.15]
    frame = {"head": ["a"], "relation": ["r"], "tail": ["b"], "lower": [10], "upper": [60]}
    assert read(frame, scale=Scale(unit=100)).truth.tolist() == [[0.1, 0.6]]
