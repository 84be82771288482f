"""Outputs that cannot be written are refused in one sentence, before the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, check_file, check_place, write_text

Run = Callable[..., Any]


@pytest.fixture
def here(small: Path, fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with facts.tsv, a run, rules, a table and a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.tsv").write_bytes((small / "facts.tsv").read_bytes())
    (tmp_path / "run").symlink_to(fitted)
    (tmp_path / "folder").mkdir()
    (tmp_path / "my.rules").write_text("0.9: r1(A, B) -> r2(A, B)\n")
    (tmp_path / "table.csv").write_text("prediction,truth\n" + "0.5,0.4\n" * 30)
    return tmp_path


NOT_THERE = "cannot be written (Not a directory)"
CALLS = [
    (["fit", "facts.tsv", "-o", "facts.tsv/x"], NOT_THERE),
    (["fit", "facts.tsv", "-o", "/proc/zz"], "/proc/zz"),
    (["fit", "facts.tsv", "-o", "facts.tsv/x", "--method", "cv+"], NOT_THERE),
    (["fit", "--from", "run", "-o", "facts.tsv/x"], NOT_THERE),
    (["demo", "-o", "facts.tsv/x"], NOT_THERE),
    (["report", "run", "-o", "folder"], "folder is a folder"),
    (["report", "run", "-o", "facts.tsv/x.html"], NOT_THERE),
    (["rules", "facts.tsv", "my.rules", "-o", "sl.json"], "sl.json does not end in"),
    (["rules", "facts.tsv", "my.rules", "-o", "facts.tsv/sl.tsv"], NOT_THERE),
    (["predict", "run", "facts.tsv", "-o", "facts.tsv/x.tsv"], NOT_THERE),
    (["conformalize", "--calibration", "table.csv", "--input", "table.csv", "-o", "table.csv/x.csv"], NOT_THERE),
    (["monitor", "run", "facts.tsv", "--state", "facts.tsv/x.json"], NOT_THERE),
    (["predict", "run", "facts.tsv", "-o", "s3://u:key@b/o.xyz?s=key"], "unkgcp: s3://b/o.xyz does not end in"),
    (["predict", "run", "facts.tsv", "-o", "s3://u:key@b/o?s=key", "--engine", "ray"],
     "unkgcp: s3://b/o does not end in"),
    (["conformalize", "--calibration", "table.csv", "--input", "table.csv", "-o", "s3://u:key@b/o?s=key"],
     "unkgcp: s3://b/o does not end in"),
    (["data", "fetch", "https://u:key@host/cn15k?s=key"], "under the name 'https://host/cn15k';"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), CALLS)
def test_a_target_that_cannot_be_written(
    arguments: list[str], sentence: str, here: Path, run_command: Run
) -> None:
    before = sorted(os.listdir())
    outcome = run_command(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert sentence in outcome.err
    assert outcome.err.startswith("unkgcp: ")
    assert outcome.err.count("\n") == 1, "no progress: nothing has been done yet"
    assert sorted(os.listdir()) == before


def test_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for check in (check_file, check_place):
        check(tmp_path / "new" / "deep" / "x.tsv")
        with pytest.raises(InputError, match="cannot be written"):
            check(tmp_path / "file" / "x.tsv")
    check_place(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(InputError, match="cannot be written"), atomic_path(tmp_path / "file" / "x.tsv"):
        pass
    with pytest.raises(InputError, match="is a folder"):
        write_text(tmp_path, "")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a plain file"):
        write_text(tmp_path / "pipe", "")
