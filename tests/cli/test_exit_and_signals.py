"""How commands end: left by a reader, with nobody listening, told to stop, or asked for what they do not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import until_writing
from unkgcp.cli.output import Reporter, say

Run = Callable[..., Any]
UNKGCP = [sys.executable, "-m", "unkgcp"]


@pytest.fixture(scope="module")
def many(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120,000 queries."""
    path = tmp_path_factory.mktemp("many") / "queries.tsv"
    rows = [line.rsplit("\t", 1)[0] + "\n" for line in (small / "facts.tsv").read_text().splitlines()]
    path.write_text(rows[0] + "".join(rows[1:]) * 40)
    return path


def test_a_reader_that_leaves_early_is_no_error(fitted: Path, many: Path) -> None:
    running = subprocess.Popen(
        [*UNKGCP, "predict", fitted, many], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(60) == 0
    assert b"unkgcp:" not in running.stderr.read()
    running.stderr.close()


@pytest.mark.parametrize("arguments", [["--help"], ["data", "list"], ["predict", "--help"]])
def test_nobody_reads_at_all(arguments: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*UNKGCP, *arguments], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")


def test_progress_without_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        closed = False

        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            raise BrokenPipeError

    for stream in (Closed(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with Reporter("training", total=1) as progress:
            progress.update(1)
        say("done")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["predict", "run", "q.tsv", "--nothing"], "No such option"),
        (["predict", "run"], "Missing argument 'INPUT'"),
        (["predict", "run", "q.tsv", "--top-k", "0"], "0 is not in the range"),
        (["fit", "demo", "-o", "run", "--seed", "-1"], "-1 is not in the range"),
        (["fit", "demo", "-o", "run", "--seed", str(2**63)], "is not in the range"),
        (["monitor", "run", "facts.tsv", "--seed", "-1"], "-1 is not in the range"),
        (["rules", "demo", "my.rules", "-o", "sl.tsv", "--seed", "-1"], "-1 is not in the range"),
        (["rules", "a", "b", "-o", "c.tsv", "--min-confidence", "nan"], "nan is not a number"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], sentence: str, run_command: Run) -> None:
    outcome = run_command(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("unkgcp: ")
    assert outcome.err.count("\n") == 1
    assert sentence in outcome.err
    assert outcome.err.endswith(f"; see unkgcp {arguments[0]} --help\n")


def waiting(fitted: Path, target: Path, **how: Any) -> subprocess.Popen[bytes]:
    """A `predict` that has begun to write and waits for more queries."""
    running = subprocess.Popen(
        [*UNKGCP, "predict", fitted, "-", "-o", target],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **how,
    )
    assert running.stdin is not None
    running.stdin.write(b"a\tlikes\tb\n" * 100_000)
    running.stdin.flush()
    until_writing(running, target.parent)
    return running


def test_a_closed_terminal_leaves_nothing_behind(fitted: Path, tmp_path: Path) -> None:
    running = waiting(fitted, tmp_path / "answers.tsv")
    running.send_signal(signal.SIGHUP)
    assert running.wait(60) == 128 + signal.SIGHUP
    assert os.listdir(tmp_path) == []


def test_under_nohup_a_closed_terminal_does_not_matter(fitted: Path, tmp_path: Path) -> None:
    running = waiting(
        fitted,
        tmp_path / "answers.tsv",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        restore_signals=False,
    )
    running.send_signal(signal.SIGHUP)
    running.communicate()
    assert running.returncode == 0
    assert os.listdir(tmp_path) == ["answers.tsv"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("predict RUN - <&-", "standard input is closed"),
        ("predict RUN MANY >&-", "standard output is closed"),
        ("conformalize --calibration TABLE --input - <&-", "standard input is closed"),
        ("conformalize --calibration TABLE --input TABLE >&-", "standard output is closed"),
    ],
)
def test_closed_streams(call: str, sentence: str, fitted: Path, many: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("prediction,truth\n" + "0.5,0.4\n" * 30)
    for name, path in (("RUN", fitted), ("MANY", many), ("TABLE", table)):
        call = call.replace(name, str(path))
    done = subprocess.run(
        f"{' '.join(UNKGCP)} {call}", shell=True, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("unkgcp: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
