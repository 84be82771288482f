"""Answers appear whole or not at all, as a folder or as one file."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unkgcp.errors import InputError
from unkgcp.predict.parts import ANSWERS, check_target, deliver, is_folder, part_name, staged


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
