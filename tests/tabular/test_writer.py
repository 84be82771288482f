"""What is written can be read back by ordinary tools, and files appear whole."""

from __future__ import annotations

import csv
import gzip
import io
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.tabular.writer import holds_any, lines, open_output, quoted

FIELDS = st.text(alphabet='ab",\t\r\nü\\]^-', max_size=5)
HEADS = ["a", 'says "hi"', "x,y", "Zoë", "line\nend", "tab\there", ""]


def batch(heads: list[str] = HEADS) -> pa.RecordBatch:
    n = len(heads)
    score = [None if i % 3 == 2 else 0.1 * i for i in range(n)]
    return pa.record_batch(
        {
            "head": pa.array(heads, pa.string()),
            "score": pa.array(score, pa.float32()),
            "lower": pa.array([i / 7 for i in range(n)], pa.float64()),
            "status": pa.array(["ok"] * n, pa.string()),
        }
    )


def rows(text: str, delimiter: str) -> list[list[str]]:
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting))


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_csv_quotes_what_needs_it(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    with open_output(str(path)) as write:
        write(batch(HEADS[:3]))
        write(batch(HEADS[3:]))
    content = gzip.decompress(path.read_bytes()) if ending.endswith("gz") else path.read_bytes()
    found = rows(content.decode(), ",")
    assert found[0] == ["head", "score", "lower", "status"]
    assert [row[0] for row in found[1:]] == HEADS
    assert [float(row[2]) for row in found[1:4]] == [0, 1 / 7, 2 / 7]
    assert [row[1] for row in found[1:4]] == ["0", "0.1", ""]


def test_tsv_never_quotes(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    with open_output(str(path)) as write:
        write(batch(HEADS[:4]))
    assert [row[0] for row in rows(path.read_text(), "\t")[1:]] == HEADS[:4]


@pytest.mark.parametrize("label", ["tab\there", "line\nend", "carriage\rreturn"])
def test_tsv_refuses_labels_it_cannot_hold(tmp_path: Path, label: str) -> None:
    with (
        pytest.raises(InputError, match=r"cannot be written as TSV; write .csv or .parquet"),
        open_output(str(tmp_path / "out.tsv")) as write,
    ):
        write(batch(["fine", label]))
    assert list(tmp_path.iterdir()) == []


def test_parquet(tmp_path: Path) -> None:
    with open_output(str(tmp_path / "out.parquet")) as write:
        write(batch())
        write(batch(["b"]))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["head"].to_pylist() == [*HEADS, "b"]
    assert table["score"].null_count == 2


def test_numbers_survive(tmp_path: Path) -> None:
    values = [0.1, 1 / 3, 1e-300, 5e-324, 1.0, math.pi / 4, 0.7092929999999999]
    with open_output(str(tmp_path / "out.tsv")) as write:
        write(pa.record_batch({"x": pa.array(values), "status": pa.array(["ok"] * len(values))}))
    found = [float(row[0]) for row in rows((tmp_path / "out.tsv").read_text(), "\t")[1:]]
    assert found == values


def test_no_rows_leave_a_header(tmp_path: Path) -> None:
    for ending in ("tsv", "csv", "parquet"):
        with open_output(str(tmp_path / f"out.{ending}")) as write:
            write(batch().slice(0, 0))
    assert (tmp_path / "out.tsv").read_text() == "head\tscore\tlower\tstatus\n"
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with open_output("-") as write:
        write(batch(["a"]))
    assert capfdbinary.readouterr().out == b"head\tscore\tlower\tstatus\na\t0\t0\tok\n"


def test_same_bytes_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with open_output(str(tmp_path / f"{name}.csv.gz")) as write:
            write(batch())
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_bad_targets(tmp_path: Path) -> None:
    for name in ("answers.xlsx", "answers", "answers.gz"):
        with pytest.raises(InputError, match=r"does not end in .tsv"), open_output(name):
            pass
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(InputError, match="is a folder"), open_output(str(tmp_path / "folder.tsv")):
        pass


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    path.write_text("old")
    with pytest.raises(InputError), open_output(str(path)) as write:
        write(batch(["a", "tab\t"]))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# Lines of text from columns: Python's csv module reads back what was there.


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@settings(deadline=None)
@given(rows=st.lists(st.tuples(FIELDS, st.none() | FIELDS, st.none() | FIELDS), max_size=8))
def test_quoted_lines_are_read_back(
    delimiter: str, kind: pa.DataType, rows: list[tuple[str, str | None, str | None]]
) -> None:
    columns = [pa.array([row[place] for row in rows], kind) for place in range(3)]
    text = bytes(lines([quoted(column, delimiter) for column in columns], delimiter)).decode()
    found = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    assert found == [[field or "" for field in row] for row in rows]


def test_only_what_needs_it_is_quoted() -> None:
    column = pa.array(["plain", 'say "so"', "a,b", "tab\there", None])
    assert quoted(column, ",").to_pylist() == ["plain", '"say ""so"""', '"a,b"', "tab\there", None]
    assert quoted(column, "\t").to_pylist() == ["plain", '"say ""so"""', "a,b", '"tab\there"', None]


def test_slices_and_numbers() -> None:
    columns = [pa.array(["x", "a,", "b", "y,"])[1:3], pa.array([0.0, 0.1, 1e-7, 2.0])[1:3]]
    assert bytes(lines(columns, "\t")) == b"a,\t0.1\nb\t1e-7\n"
    assert bytes(lines([pa.array([], pa.string())], ",")) == b""
    assert not holds_any(columns[0][1:], b",")
    assert holds_any(columns[0], b",")
