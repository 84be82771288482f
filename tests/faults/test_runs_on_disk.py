"""Runs that are replaced, altered or made up while others use them; minutes of it. `tests/run` has a little of each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unkgcp
from tests.processes import served
from tests.runs import which
from tests.worlds import random_graph, random_model, vocabulary
from unkgcp.graph import Graph
from unkgcp.run import Predictor, calibrate
from unkgcp.run.store import RUN
from unkgcp.training import Model

pytestmark = pytest.mark.faults

READERS, WRITERS, SECONDS, KILLS = 3, 4, 15.0, 60


@pytest.fixture(scope="module")
def pair(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> list[Predictor]:
    return [calibrate(make_model(seed), make_facts(50 + 50 * seed), "cp") for seed in (0, 1)]


def forked(work: Callable[[], object]) -> Callable[[], Any]:
    """Do some work in a copy of this process; gives a function that waits for what it returned, or for its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            outcome = work()
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writing)

    def wait() -> Any:
        with os.fdopen(reading, "rb") as pipe:
            content = pipe.read()
        os.waitpid(child, 0)
        return json.loads(content)

    return wait


def test_readers_while_several_writers_replace_a_run(pair: list[Predictor], tmp_path: Path) -> None:
    run, end = tmp_path / "run", time.monotonic() + SECONDS
    pair[0].save(run)

    def read() -> Counter[str]:
        loads: Counter[str] = Counter()
        while time.monotonic() < end:
            loads[f"run {which(run, pair)}"] += 1
        return loads

    def write(one: Predictor) -> int:
        times = 0
        while time.monotonic() < end:
            one.save(run)
            times += 1
        return times

    readers = [forked(read) for _ in range(READERS)]
    writers = [forked(lambda i=i: write(pair[i % 2])) for i in range(WRITERS)]  # type: ignore[misc]
    loads = [wait() for wait in readers]
    print(f"\n{loads} during {[wait() for wait in writers]} replacements")
    assert all(set(one) == {"run 0", "run 1"} for one in loads)


def test_writers_killed_at_random(pair: list[Predictor], tmp_path: Path) -> None:
    run, rng, kept = tmp_path / "run", np.random.default_rng(0), Counter[int]()
    pair[0].save(run)
    for kill in range(KILLS):
        child = os.fork()
        if not child:
            while True:
                pair[kill % 2].save(run)
        time.sleep(float(rng.random()) * 0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kept[which(run, pair)] += 1
    print(f"\n{KILLS} writers killed: {dict(kept)}")
    assert set(kept) == {0, 1}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with weights of 84 MiB."""
    words = vocabulary(entities=320, relations=2)
    folder = tmp_path_factory.mktemp("large")
    calibrate(random_model(words, dimension=1 << 16), random_graph(50, words), "cp").save(folder / "run")
    (folder / "q.tsv").write_text("".join(f"e{i}\tr1\te{i + 1}\t0.5\n" for i in range(19)))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "run", "q.tsv", "-o", "out.parquet"],
        ["evaluate", "run", "--data", "q.tsv"],
        ["monitor", "run", "q.tsv"],
        ["report", "run"],
        ["serve", "run", "--port", "0"],
        ["fit", "--from", "run", "q.tsv", "-o", "again"],
        ["fit", "--from", "run", "q.tsv"],
        ["update", "run", "q.tsv"],
    ],
    ids=" ".join,
)
def test_an_altered_run_is_used_by_no_command(command: list[str], large: Path) -> None:
    with (large / "run" / RUN).open("r+b") as file:
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
    assert f"run/{RUN} is damaged or foreign (it is not what was written)" in done.stderr
    assert {path.name for path in large.iterdir()} == {"run", "q.tsv"}


def test_a_service_does_not_see_what_becomes_of_its_files(large: Path, tmp_path: Path) -> None:
    """Overwritten in place, then cut short: a mapped file would change the answers, then end the process."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    run = Path(shutil.copytree(large / "run", tmp_path / "run"))
    queries = [(f"e{i}", "r1", f"e{i + 1}") for i in range(19)]

    def overwrite(path: Path) -> None:
        with path.open("r+b") as file:
            file.write(b"\x3f" * path.stat().st_size)

    with served(run) as (service, address):
        client = unkgcp.Client(address)
        before = client.interval(queries)
        for damage in (overwrite, lambda path: os.truncate(path, 0)):
            for path in run.iterdir():
                damage(path)
            now = client.interval(queries)  # in other batches, whose sums may differ in the last bit
            for name in ("score", "lower", "upper"):
                np.testing.assert_allclose(getattr(now, name), getattr(before, name), atol=1e-9)
        assert service.poll() is None
