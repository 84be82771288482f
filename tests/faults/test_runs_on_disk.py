"""Runs that are replaced, altered or made up while others use them; minutes of it. `tests/run` has a little of each.

What is promised, and what was found, stands in docs/service.md under "Runs on disk".
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.archives import BAD_ARRAYS, array
from tests.processes import killed_at
from tests.worlds import mirrored_graph, random_graph, random_model, vocabulary
from unkgcp.conformal import SplitConformal
from unkgcp.errors import InputError
from unkgcp.files import read_npz, write_npz
from unkgcp.graph import Graph
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model

pytestmark = pytest.mark.faults

READERS, WRITERS, SECONDS, KILLS = 3, 4, 15.0, 60


@pytest.fixture(scope="module")
def pair(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> list[Predictor]:
    return [calibrate(make_model(seed), make_facts(50 + 50 * seed), "cp") for seed in (0, 1)]


def which(run: Path, pair: list[Predictor]) -> int:
    """Which of the two it is; model and calibration must say the same."""
    found = Predictor.load(run)
    by_model = [(found.model.tables["entity"] == one.model.tables["entity"]).all() for one in pair]
    assert by_model == [found.method.size == one.method.size for one in pair]
    return by_model.index(True)


def forked(work: Callable[[], Counter[str]], report: Path) -> int:
    """Do some work in a copy of this process, which writes down what it counted; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        report.write_text(json.dumps(work()))
        os._exit(0)
    except BaseException as error:
        report.write_text(json.dumps({f"{type(error).__name__}: {error}": 1}))
        os._exit(1)


def counted(children: dict[int, Path]) -> Counter[str]:
    total: Counter[str] = Counter()
    for child, report in children.items():
        os.waitpid(child, 0)
        total.update(json.loads(report.read_text()))
    return total


def test_readers_while_a_run_is_replaced_again_and_again(pair: list[Predictor], tmp_path: Path) -> None:
    run = tmp_path / "run"
    pair[0].save(run)
    end = time.monotonic() + SECONDS

    def read() -> Counter[str]:
        found: Counter[str] = Counter()
        while time.monotonic() < end:
            found[f"run {which(run, pair)}"] += 1
        return found

    readers = {forked(read, tmp_path / f"{i}.json"): tmp_path / f"{i}.json" for i in range(READERS)}
    replaced = 0
    while time.monotonic() < end:
        replaced += 1
        pair[replaced % 2].save(run)
    found = counted(readers)
    print(f"\n{found.total():,} loads during {replaced:,} replacements: {dict(found)}")
    assert set(found) == {"run 0", "run 1"}


def test_writers_killed_at_random(pair: list[Predictor], tmp_path: Path) -> None:
    run, rng, found = tmp_path / "run", np.random.default_rng(0), Counter[int]()
    pair[0].save(run)
    start = time.monotonic()
    pair[0].save(run)
    usual = time.monotonic() - start
    for kill in range(KILLS):
        child = os.fork()
        if not child:
            while True:
                pair[kill % 2].save(run)
        time.sleep(float(rng.random()) * 3 * usual)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found[which(run, pair)] += 1
    print(f"\n{KILLS} writers killed: {dict(found)}")
    pair[1].save(run)
    assert which(run, pair) == 1
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_fit_from_a_run_killed_at_every_change(pair: list[Predictor], tmp_path: Path) -> None:
    """The command, in place: it reads the run, calibrates it with other facts and writes it."""
    from unkgcp.cli import main

    run, facts = tmp_path / "run", tmp_path / "facts.tsv"
    facts.write_text("".join(f"entity {i}\tr1\tentity {i + 1}\t0.{i:02}\n" for i in range(1, 37)))
    arguments = ["fit", "--from", str(run), str(facts), "--method", "cp"]
    kills, sizes = 0, []
    while True:
        pair[0].save(run)

        def command() -> None:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            try:
                main(arguments)
            except SystemExit as ending:
                os._exit(int(ending.code or 0))

        if not killed_at(kills, run, command):
            break
        sizes.append(Predictor.load(run).method.size)
        kills += 1
    print(f"\nkilled at each of {kills} changes: {dict(Counter(sizes))} calibration facts")
    assert kills > 20
    new = [size != pair[0].method.size for size in sizes]
    assert new == sorted(new)  # the old run up to one change, the new one from there on
    assert set(new) == {False, True}


def test_several_writers_at_once(pair: list[Predictor], tmp_path: Path) -> None:
    run, end = tmp_path / "run", time.monotonic() + SECONDS
    pair[0].save(run)

    def write(which_one: int) -> Counter[str]:
        found: Counter[str] = Counter()
        while time.monotonic() < end:
            try:
                pair[which_one].save(run)
                found["written"] += 1
            except InputError as error:
                found["refused" if "is being written by another program" in str(error) else str(error)] += 1
                time.sleep(0.002)  # so that others have their turn too
        return found

    reports = [tmp_path / f"{i}.json" for i in range(WRITERS)]
    children = {
        forked(lambda i=i: write(i % 2), report): report  # type: ignore[misc]
        for i, report in enumerate(reports)
    }
    found = counted(children)
    print(f"\n{WRITERS} writers: {dict(found)}")
    assert set(found) == {"written", "refused"}
    which(run, pair)
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with weights of 84 MiB."""
    words = vocabulary(entities=20, relations=2)
    folder = tmp_path_factory.mktemp("large")
    calibrate(random_model(words, dimension=1 << 20), random_graph(50, words), "cp").save(folder / "run")
    (folder / "q.tsv").write_text("".join(f"e{i}\tr1\te{i + 1}\t0.5\n" for i in range(19)))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "run", "q.tsv"],
        ["predict", "run", "q.tsv", "-o", "out.parquet"],
        ["evaluate", "run", "--data", "q.tsv"],
        ["monitor", "run", "q.tsv"],
        ["report", "run"],
        ["serve", "run", "--port", "0"],
        ["fit", "--from", "run", "q.tsv", "-o", "again"],
        ["fit", "--from", "run", "q.tsv"],
    ],
    ids=" ".join,
)
def test_altered_weights_are_used_by_no_command(command: list[str], large: Path) -> None:
    weights = large / "run" / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(-6, os.SEEK_END)
        byte = file.read(1)
        file.seek(-6, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "unkgcp", *command],
                cwd=large,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        finally:
            file.seek(-6, os.SEEK_END)
            file.write(byte)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run/model.safetensors is damaged: it is not what was written" in done.stderr
    assert {path.name for path in large.iterdir()} == {"run", "q.tsv"}


def test_a_service_does_not_see_what_becomes_of_its_files(large: Path, tmp_path: Path) -> None:
    """Overwritten in place, then cut short: a mapped file would change the answers, then end the process."""
    pytest.importorskip("uvicorn", reason="the service needs its extra: pip install 'unkgcp[serve]'")
    run = tmp_path / "run"
    shutil.copytree(large / "run", run)
    body = json.dumps({"triples": [[f"e{i}", "r1", f"e{i + 1}"] for i in range(19)]}).encode()

    def answers() -> Any:
        asked = urllib.request.Request(f"{address}v1/intervals", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    command = [sys.executable, "-m", "unkgcp", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            address = service.stdout.readline().split()[-1]
            before = answers()
            for path in run.iterdir():
                with path.open("r+b") as file:
                    file.write(b"\x3f" * path.stat().st_size)
            assert answers() == before
            for path in run.iterdir():
                os.truncate(path, 0)
            assert answers() == before
            assert service.poll() is None
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(60)


def test_too_little_memory_for_a_run(large: Path) -> None:
    """The limit leaves room for the program and not for the weights."""
    code = (
        "import resource, sys, unkgcp.run.predictor, unkgcp.cli.predict, pyarrow.parquet\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20),) * 2)\n"
        "from unkgcp.cli import main\nmain(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", "run", "q.tsv"],
        cwd=large,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("unkgcp: there is too little memory for run/model.safetensors: free some")


# Runs and calibrations that somebody made up, with hashes that agree.


@pytest.fixture(scope="module")
def evidence_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    from unkgcp.evidence import learn
    from unkgcp.evidence.trees import Boosting

    graph, few = mirrored_graph(1600, 3), Boosting(rounds=5)
    known = learn(graph[:1000], suggested=few, elsewhere=few)
    folder = tmp_path_factory.mktemp("evidence") / "run"
    calibrate(random_model(graph.vocabulary), graph[1000:], "evidence", evidence=known).save(folder)
    return folder


HOSTILE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "two billion entities": lambda a: {"entities": np.array(2**31 - 1)},
    "two billion relations": lambda a: {"relations": np.array(2**31 - 1)},
    "a trillion classes": lambda a: {"cells.classes": np.array(10**12), "elsewhere.total": np.array(10**12)},
    "a trillion classes, other trees": lambda a: {"cells.classes": np.array(10**12)},
    "values out of order": lambda a: {"values.units": a["values.units"][::-1].copy()},
    "values of other facts": lambda a: {"values.units": a["values.units"] + 10**15},
    "values that are none": lambda a: {"values.high": a["values.high"] * np.nan},
    "too few values": lambda a: {"values.low": a["values.low"][:1]},
    "classes of values": lambda a: {"cells.class_of_value": a["cells.class_of_value"] + 10**9},
    "no facts": lambda a: {name: a[name][:0] for name in ("head", "relation", "tail", "confidence")},
    "a tail less": lambda a: {"tail": a["tail"][:-1]},
    "a million pieces": lambda a: {
        f"cells.{name}": np.resize(a[f"cells.{name}"], 10**6)
        for name in ("low", "high", "share", "class_of_piece")
    },
}


def in_little_memory(work: Callable[[], object]) -> tuple[str, int]:
    """What some work is refused with in a copy of this process, and by how many bytes its memory grew."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        try:
            work()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        os.write(writing, json.dumps([said, grown]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    said, grown = json.loads(content)
    return said, grown


@pytest.mark.parametrize("what", HOSTILE)
def test_runs_that_ask_for_more_than_they_are(what: str, evidence_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for path in evidence_run.iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    prefix = "facts/evidence."
    arrays = dict(read_npz(run / "calibration.npz"))
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    changed = {f"{prefix}{name}": array for name, array in HOSTILE[what](own).items()}
    write_npz(run / "calibration.npz", {**arrays, **changed})
    record = json.loads((run / "provenance.json").read_text())
    content = (run / "calibration.npz").read_bytes()
    record["files"]["calibration.npz"] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (run / "provenance.json").write_text(json.dumps(record))

    def ask() -> None:
        Predictor.load(run).interval([("e1", "r1", "e2")])

    said, grown = in_little_memory(ask)
    assert said.startswith(f"InputError: {run} is damaged: its files do not fit together"), said
    # the file, the arrays in it and a copy of them, beside what loading any run takes
    assert grown < 100_000_000 + 4 * len(content), f"{grown:,} bytes"


@pytest.mark.parametrize("what", [*BAD_ARRAYS, "1 MiB that would be 1 GiB", "a pipe", "negative scores"])
def test_calibrations_that_ask_for_more_than_they_are(what: str, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "negative scores":
        rng = np.random.default_rng(0)
        SplitConformal().calibrate(rng.random(50), rng.random(50)).save(path)
        arrays = dict(read_npz(path))
        write_npz(path, {**arrays, "scores": arrays["scores"] - 1})
    elif what.startswith("1 MiB"):
        _write_bomb(path, 1 << 30)
        assert path.stat().st_size < 2 << 20
    else:
        path.write_bytes(BAD_ARRAYS[what]())
    said, grown = in_little_memory(lambda: SplitConformal.load(path))
    assert said.startswith(f"InputError: {path} is damaged"), said
    assert grown < 50_000_000, f"{grown:,} bytes"


def _write_bomb(path: Path, size: int) -> None:
    """Scores that are zeros, packed: an array of so many bytes in a thousandth of them."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({size // 8},)}}"
    about = zipfile.ZipInfo("scores.npy")
    about.compress_type = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w") as archive, archive.open(about, "w", force_zip64=True) as member:
        member.write(array(head))
        for _ in range(size >> 24):
            member.write(bytes(1 << 24))
