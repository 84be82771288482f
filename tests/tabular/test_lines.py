"""Lines of text from columns: what Python's csv module reads back is what was there."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.tabular.writer import holds_any, lines, quoted

FIELDS = st.text(alphabet='ab",\t\r\nü\\]^-', max_size=5)


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
