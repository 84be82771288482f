"""Every bad input gives one sentence that names file, line and remedy, exit status 2, and writes nothing.

One of them runs as a user runs it, in a process of its own; the others by the same entry, in a folder of their own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Outcome

GOOD = "".join(f"a{i}\tlikes\tb{i}\t0.5\n" for i in range(100))


def with_line(number: int, line: bytes) -> bytes:
    """The good file with its `number`-th line replaced."""
    lines = GOOD.encode().splitlines(keepends=True)
    lines[number - 1] = line
    return b"".join(lines)


def parquet_without_columns() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"head": ["a"], "tail": ["b"], "confidence": [0.5]}), sink)
    return sink.getvalue().to_pybytes()


MANY = "".join(f"a{i}\tlikes\tb{i * 7919 % 10007}\t0.{i}\n" for i in range(20_000))
GZIP = gzip.compress(MANY.encode())
NOISE = np.random.default_rng(0).integers(256, size=5000, dtype=np.uint8).tobytes()
# what is given, facts.tsv if no file is named; options; what the sentence says
CASES = {
    "missing file": (None, [], ["no such file"]),
    "folder without train": (
        dict.fromkeys(["val.tsv", "test.tsv"], GOOD.encode()),
        [],
        ["holds no train", "train, val and test"],
    ),
    "empty file": (b"", [], ["empty"]),
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
    "binary file": (b"\x7fELF\x00\x00" + NOISE, [], ["binary"]),
    "truncated gzip": ({"facts.tsv.gz": GZIP[: len(GZIP) // 2]}, [], ["gzip"]),
    "Parquet without a needed column": (
        {"facts.parquet": parquet_without_columns()},
        [],
        ["relation", "--columns"],
    ),
    "one fact only": (b"a\tlikes\tb\t0.5\n", [], ["one fact only", "more facts"]),
    "fraction that leaves a part empty": (
        GOOD.encode(),
        ["--split", "0.07,0.001"],
        ["the test part", "larger fraction"],
    ),
    "fractions that leave nothing": (GOOD.encode(), ["--split", "0.5,0.5"], ["below 1"]),
    "negative fraction": (GOOD.encode(), ["--split", "-0.1,0.1"], ["the calibration fraction is -0.1"]),
}


def given(folder: Path, content: bytes | dict[str, bytes] | None) -> Path:
    """The path of what a case gives: a file, a folder of files, or nothing."""
    files = content if isinstance(content, dict) else {} if content is None else {"facts.tsv": content}
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder if len(files) > 1 else folder / next(iter(files), "nowhere.tsv")


def in_a_process(*arguments: object) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "unkgcp", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("case", "apart"), [("missing file", True), *((case, False) for case in CASES)])
def test_bad_input_is_one_sentence(case, apart, tmp_path, run_command, monkeypatch):
    content, options, expected = CASES[case]
    folder, home = tmp_path / "given", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    path = given(folder, content)
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
    done = run_command("data", "describe", given(tmp_path, GOOD.encode()))
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
