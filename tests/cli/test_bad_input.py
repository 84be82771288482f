"""Every bad input gives one sentence that names file, line and remedy, exit status 2, and writes nothing.

One of them runs as a user runs it, in a process of its own; the others by the same entry, in a folder of their own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Outcome

GOOD = "".join(f"a{i}\tlikes\tb{i}\t0.5\n" for i in range(100))


def with_line(number: int, line: bytes) -> Callable[[Path], Path]:
    """A file whose `number`-th line is replaced."""

    def make(folder: Path) -> Path:
        lines = GOOD.encode().splitlines(keepends=True)
        lines[number - 1] = line
        return written(folder / "facts.tsv", b"".join(lines))

    return make


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def missing(folder: Path) -> Path:
    return folder / "nowhere.tsv"


def folder_without_train(folder: Path) -> Path:
    for part in ("val", "test"):
        written(folder / f"{part}.tsv", GOOD.encode())
    return folder


def empty(folder: Path) -> Path:
    return written(folder / "facts.tsv", b"")


def binary(folder: Path) -> Path:
    noise = np.random.default_rng(0).integers(256, size=5000, dtype=np.uint8)
    return written(folder / "facts.tsv", b"\x7fELF\x00\x00" + noise.tobytes())


def truncated_gzip(folder: Path) -> Path:
    content = "".join(f"a{i}\tlikes\tb{i * 7919 % 10007}\t0.{i}\n" for i in range(20_000))
    whole = gzip.compress(content.encode())
    return written(folder / "facts.tsv.gz", whole[: len(whole) // 2])


def parquet_without_columns(folder: Path) -> Path:
    path = folder / "facts.parquet"
    pq.write_table(pa.table({"head": ["a"], "tail": ["b"], "confidence": [0.5]}), path)
    return path


def one_fact(folder: Path) -> Path:
    return written(folder / "facts.tsv", b"a\tlikes\tb\t0.5\n")


def good(folder: Path) -> Path:
    return written(folder / "facts.tsv", GOOD.encode())


CASES = {
    "missing file": (missing, [], ["no such file"]),
    "folder without train": (folder_without_train, [], ["holds no train", "train, val and test"]),
    "empty file": (empty, [], ["empty"]),
    "wrong number of columns": (with_line(7, b"a\tlikes\tb\n"), [], ["line 7", "column"]),
    "too many columns": (with_line(7, b"a\tlikes\tb\t0.5\tx\n"), [], ["line 7", "column"]),
    "confidence that is no number": (with_line(12, b"a\tlikes\tb\thigh\n"), [], ["line 12", "high"]),
    "NaN confidence": (with_line(12, b"a\tlikes\tb\tnan\n"), [], ["line 12", "nan"]),
    "confidence left empty": (with_line(12, b"a\tlikes\tb\t\n"), [], ["line 12"]),
    "confidence above 1": (
        with_line(100, b"a\tlikes\tb\t1.5\n"),
        [],
        ["line 100", "1.5", "--confidence-scale"],
    ),
    "confidence below 0": (
        with_line(3, b"a\tlikes\tb\t-0.5\n"),
        [],
        ["line 3", "-0.5", "--confidence-scale"],
    ),
    "undecodable bytes": (with_line(5, b"a\xff\xfe\tlikes\tb\t0.5\n"), [], ["line 5", "UTF-8"]),
    "binary file": (binary, [], ["binary"]),
    "truncated gzip": (truncated_gzip, [], ["gzip"]),
    "Parquet without a needed column": (parquet_without_columns, [], ["relation", "--columns"]),
    "one fact only": (one_fact, [], ["one fact only", "more facts"]),
    "fraction that leaves a part empty": (
        good,
        ["--split", "0.07,0.001"],
        ["the test part", "larger fraction"],
    ),
    "fractions that leave nothing": (good, ["--split", "0.5,0.5"], ["below 1"]),
    "negative fraction": (good, ["--split", "-0.1,0.1"], ["the calibration fraction is -0.1"]),
}


def in_a_process(*arguments: object) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "unkgcp", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("case", "apart"), [("missing file", True), *((case, False) for case in CASES)])
def test_bad_input_is_one_sentence(case, apart, tmp_path, run_command, monkeypatch):
    make, options, expected = CASES[case]
    folder, home = tmp_path / "given", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    path = make(folder)
    before = snapshot(tmp_path)
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    done = (in_a_process if apart else run_command)("data", "describe", path, *options)
    assert done.status == 2, done.err
    assert done.out == ""
    assert done.err.startswith("unkgcp: ")
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err
    assert path.name in done.err
    for part in expected:
        assert part.lower() in done.err.lower(), done.err
    assert snapshot(tmp_path) == before


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder and what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_the_same_file_without_the_fault_is_accepted(tmp_path, run_command):
    done = run_command("data", "describe", good(tmp_path))
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("predict s3://bucket/run queries.tsv", "download the folder"),
        ("serve https://example.org/run", "download the folder"),
        ("fit --from s3://bucket/run -o run --method cp", "download the folder"),
        ("fit demo -o s3://bucket/run", "give a folder here"),
        ("report run -o s3://bucket/report.html", "give a path here"),
    ],
)
def test_runs_and_reports_are_not_elsewhere(command, remedy, tmp_path, run_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_command(*command.split())
    assert (done.status, done.out) == (2, "")
    assert "is an address" in done.err
    assert remedy in done.err
    assert done.err.count("\n") == 1
    assert snapshot(tmp_path) == {}, "no folder called s3:"
