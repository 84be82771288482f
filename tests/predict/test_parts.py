"""Parts: every row is in exactly one, in order, whatever the row groups; their answers appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.predict.parts import ANSWERS, _cuts, check_target, deliver, is_folder, part_name, plan, staged
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


def fill(stage: Path, parts: int = 12) -> None:
    for number in range(parts):
        table = pa.table({"head": [f"h{number}"], "lower": [float(number)]})
        pq.write_table(table, stage / ANSWERS / part_name(number))
    (stage / ANSWERS / ".partial-left-by-a-dead-worker.parquet").write_bytes(b"PAR1")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "new.parquet/", "empty"):
        target = f"{tmp_path}/{name}"
        check_target(target)
        with staged(target) as stage:
            fill(stage)
            deliver(stage, 12, target)
        assert sorted(os.listdir(target)) == [part_name(number) for number in range(12)]
        assert pq.read_table(target)["lower"].to_pylist() == list(range(12))
    assert sorted(os.listdir(tmp_path)) == ["empty", "new", "new.parquet"]


@pytest.mark.parametrize("ending", ["parquet", "tsv", "csv.gz"])
def test_a_file(ending: str, tmp_path: Path) -> None:
    target = tmp_path / f"answers.{ending}"
    with staged(str(target)) as stage:
        fill(stage)
        deliver(stage, 12, str(target))
    assert os.listdir(tmp_path) == [target.name]
    if ending == "parquet":
        assert pq.read_table(target)["head"].to_pylist() == [f"h{number}" for number in range(12)]
    if ending == "tsv":
        assert target.read_text().splitlines()[:3] == ["head\tlower", "h0\t0", "h1\t1"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_nothing_is_left_after_an_error(error: type[BaseException], tmp_path: Path) -> None:
    def work() -> None:
        with staged(str(tmp_path / "answers")) as stage:
            fill(stage)
            raise error

    with pytest.raises(error):
        work()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["answers", "answers.parquet"])
def test_a_missing_part_is_no_output(name: str, tmp_path: Path) -> None:
    def work() -> None:
        with staged(str(tmp_path / name)) as stage:
            fill(stage)
            deliver(stage, 13, str(tmp_path / name))

    with pytest.raises(FileNotFoundError, match=r"part-0000012.parquet is missing"):
        work()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("")
    (tmp_path / "file").write_text("")
    for name, sentence in (
        ("full", "something in it"),
        ("file", "is a file"),
        ("answers.xlsx", "does not end in .tsv"),
    ):
        with pytest.raises(InputError, match=sentence):
            check_target(str(tmp_path / name))
    assert not is_folder(None)
    assert not is_folder("-")
    assert not is_folder("answers.parquet")
