"""The plan of parts: every row in exactly one part, in order, whatever the row groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.predict.parts import _cuts, part_name, plan
from unkgcp.tabular.query_files import parquet_files


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 40))
def test_cuts_hold_every_row_once_in_order(groups: list[int], limit: int) -> None:
    cuts = _cuts(groups, limit)
    position = 0
    for first, rows in cuts:
        assert first == position
        assert 0 < rows <= limit
        position += rows
    assert position == sum(groups)


def test_whole_row_groups_stay_whole() -> None:
    assert _cuts([30, 30, 30, 10], 60) == [(0, 60), (60, 40)]
    assert _cuts([10, 100, 10], 60) == [(0, 10), (10, 50), (60, 50), (110, 10)]


def test_files_are_taken_by_name(tmp_path: Path) -> None:
    for name, rows in (("b.parquet", 5), ("a.parquet", 7), (".hidden", 0), ("_SUCCESS", 0)):
        if name.endswith("parquet"):
            pq.write_table(pa.table({"head": ["x"] * rows}), tmp_path / name, row_group_size=4)
        else:
            (tmp_path / name).write_text("")
    parts = plan(parquet_files(tmp_path), 4)
    assert [(Path(part.path).name, part.first, part.rows, part.before) for part in parts] == [
        ("a.parquet", 0, 4, 0),
        ("a.parquet", 4, 3, 4),
        ("b.parquet", 0, 4, 7),
        ("b.parquet", 4, 1, 11),
    ]
    assert [part.number for part in parts] == [0, 1, 2, 3]


def test_names_sort_as_numbers() -> None:
    numbers = [0, 1, 9, 10, 11, 99, 100, 12345, 999_999, 1_000_000]
    names = [part_name(number) for number in numbers]
    assert sorted(names) == names


def test_what_is_not_a_folder_of_parquet_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \*.parquet file"):
        parquet_files(tmp_path)
    (tmp_path / "queries.tsv").write_text("a\tb\tc\n")
    with pytest.raises(InputError, match=r"queries.tsv is no Parquet file"):
        parquet_files(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"broken.parquet is a damaged Parquet file"):
        plan([str(tmp_path / "broken.parquet")])
    with pytest.raises(InputError, match=r"nowhere.parquet does not exist"):
        plan([str(tmp_path / "nowhere.parquet")])
