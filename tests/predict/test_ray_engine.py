"""The Ray engine on a local cluster of two workers: the answers of the local engine, whatever dies on the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.predict.conftest import LEVELS, ROWS, same_bytes
from tests.worlds import crowded_graph
from unkgcp.errors import InputError
from unkgcp.evidence import Evidence
from unkgcp.predict.filter import after_filter, parse
from unkgcp.predict.parts import ANSWERS, ATTEMPTS, part_name
from unkgcp.predict.ray_engine import answer_on_ray
from unkgcp.predict.ray_worker import use_index, write_index
from unkgcp.predict.stream import answer_file, chosen_in_file
from unkgcp.run import Predictor
from unkgcp.run.chooser import Choice

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'unkgcp[ray]'")
pytest.importorskip("ray.data", reason="ray is there without ray.data: pip install 'unkgcp[ray]'")

PREDICT = (sys.executable, "-m", "unkgcp", "predict")


class EvidenceRun:
    """What workers ask of a run that answers from evidence."""

    def __init__(self, sha256: str) -> None:
        self.evidence = Evidence.of(crowded_graph(60, 0))
        self.method = SimpleNamespace(evidence=self)
        self.provenance = {"files": {"calibration.npz": {"sha256": sha256}}}


def test_workers_map_the_index_that_was_made_once(tmp_path: Path) -> None:
    planned, same, other = EvidenceRun("a"), EvidenceRun("a"), EvidenceRun("b")
    write_index(planned, tmp_path)  # type: ignore[arg-type]
    for run in (same, other):
        use_index(run, tmp_path)  # type: ignore[arg-type]
    queries = crowded_graph(40, 1)
    assert "pairs" not in vars(other.evidence), "a run that has come since has facts of its own"
    for name, array in same.evidence.index().items():
        np.testing.assert_array_equal(array, planned.evidence.index()[name])
        assert not len(array) or isinstance(array.base, np.memmap), "mapped, not copied"
    for one, two in zip(same.evidence.features(queries), planned.evidence.features(queries), strict=True):
        np.testing.assert_array_equal(one, two)


# one cluster for all of them, in one process


def test_the_command_starts_and_stops_a_cluster_quietly(
    run: Path, queries: Path, local: pa.Table, tmp_path: Path
) -> None:
    """Text in, one file out, by a cluster of its own: the same file, nothing printed, nobody left behind."""
    frame = pq.read_table(queries).to_pandas()
    frame.to_csv(tmp_path / "queries.csv", index=False)
    mark = f"mark-{uuid.uuid4()}"
    environment = {**os.environ, "UNKGCP_TEST_MARK": mark}
    environment.pop("RAY_ADDRESS", None)
    options = ("--confidence", "0.8,0.95", "--engine", "ray", "--workers", "2", "--rows-per-part", "50000")
    command = [*PREDICT, run, tmp_path / "queries.csv", "-o", tmp_path / "out.parquet", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert all(re.match(r"\S+ predicting: ", line) for line in done.stderr.splitlines()), done.stderr
    same_bytes(pq.read_table(tmp_path / "out.parquet"), local)
    assert sorted(os.listdir(tmp_path)) == ["out.parquet", "queries.csv"]
    deadline = time.monotonic() + 120
    while (left := _processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def _processes(mark: str) -> list[str]:
    """Command lines of the processes that inherited a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two CPUs, one worker each; its files are short-named because Unix sockets must be."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        logging_level="CRITICAL",
        log_to_driver=False,
        _temp_dir=folder,
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Killer(threading.Thread):
    """Kills the process of every worker that is at work on a part, once some parts are finished."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.after, self.killed = folder, after, dict[int, int]()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.killed and not self.over.wait(0.002):
            for stage in self.folder.glob(".partial-*"):
                done = {path.name for path in (stage / ANSWERS).glob("part-*")}
                if len(done) < self.after:
                    continue
                for mark in (stage / ATTEMPTS).glob("*-0"):
                    number = int(mark.name.split("-")[0])
                    text = mark.read_text().split()
                    if part_name(number) not in done and text:
                        os.kill(int(text[0]), signal.SIGKILL)
                        time.sleep(0.05)
                        if not (
                            stage / ANSWERS / part_name(number)
                        ).exists():  # else it was finished just then
                            self.killed[number] = int(text[0])


class Attempts:
    """Keeps the marks of all attempts while the work goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marks = folder, dict[str, str]()

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        for mark in self.folder.glob(f".partial-*/{ATTEMPTS}/*"):
            self.marks[mark.name] = mark.read_text()


def test_killed_workers_change_nothing(
    cluster: None, run: Path, table: pa.Table, local: pa.Table, tmp_path: Path
) -> None:
    source, out = tmp_path / "queries", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    for number, first in enumerate(range(0, ROWS, 50_000)):  # a folder of part files, uneven
        pq.write_table(table.slice(first, 50_000), source / f"{number}.parquet", row_group_size=7_000)
    killer, attempts = Killer(out, after=2), Attempts(out)
    killer.start()
    try:
        rows = answer_on_ray(
            str(run), str(source), str(out / "answers"), LEVELS, workers=2, rows_per_part=7_000,
            progress=attempts,
        )  # fmt: skip
    finally:
        killer.over.set()
        killer.join()
    assert rows == ROWS
    assert killer.killed  # really in the middle: these parts were begun and not finished
    for number, process in killer.killed.items():
        assert attempts.marks[f"{number}-0"].startswith(f"{process} ")
        assert int(attempts.marks[f"{number}-1"].split()[0]) != process
    names = sorted(os.listdir(out / "answers"))
    assert names == [part_name(number) for number in range(len(names))]
    assert len(names) == 19
    same_bytes(pa.concat_tables(pq.read_table(out / "answers" / name) for name in names), local)
    assert os.listdir(out) == ["answers"]


def test_a_bad_query_ends_it_with_the_local_sentence(
    cluster: None, run: Path, table: pa.Table, tmp_path: Path
) -> None:
    broken = table.to_pandas()
    broken.loc[90_000, "tail"] = None
    pq.write_table(pa.Table.from_pandas(broken, preserve_index=False), tmp_path / "q.parquet")
    with pytest.raises(InputError, match=r"q.parquet, row 90001 has an empty tail"):
        answer_on_ray(
            str(run), str(tmp_path / "q.parquet"), str(tmp_path / "answers"), workers=1, rows_per_part=30_000
        )
    assert os.listdir(tmp_path) == ["q.parquet"]


def test_ctrl_c_leaves_nothing(cluster: None, run: Path, queries: Path, tmp_path: Path) -> None:
    """A second process asks the running cluster and is interrupted when the first part is there."""
    address = ray.get_runtime_context().gcs_address
    options = ("--engine", "ray", "--address", address, "--workers", "1", "--rows-per-part", "1000")
    with subprocess.Popen(
        [*PREDICT, run, queries, "-o", tmp_path / "answers", *options], stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not list(tmp_path.glob(f".partial-*/{ANSWERS}/part-*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "unkgcp: stopped by the user"
    assert os.listdir(tmp_path) == []


def test_without_ray(monkeypatch: pytest.MonkeyPatch, run: Path, queries: Path, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'unkgcp\[ray\]'"):
        answer_on_ray(str(run), str(queries), str(tmp_path / "answers"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("127.0.0.1:1", r"answers at 127.0.0.1:1 \(.*refused"), ("here:there", "is auto or HOST:PORT")],
)
def test_an_address_where_nobody_is(
    address: str, sentence: str, run: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test may have started one
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(InputError, match=sentence):
        answer_on_ray(str(run), str(queries), str(tmp_path / "answers"), address=address)
    assert os.listdir(tmp_path) == []


def test_candidates_are_chosen_as_by_the_local_engine(run: Path, queries: Path, tmp_path: Path) -> None:
    choice = Choice.of("confidence >= 0.5", [0.5, 0.9])
    predictor = Predictor.load(run)
    with chosen_in_file(predictor, str(queries), choice) as chosen:
        answer_file(predictor, str(queries), str(tmp_path / "local.parquet"), asked=chosen.answering(0.9))
    expected = pq.read_table(tmp_path / "local.parquet")
    for target, rows in (("one.parquet", 50_000), ("folder/", 31_000)):
        path = str(tmp_path / target)
        if target.endswith("/"):
            path += "/"
        answer_on_ray(str(run), str(queries), path, 0.9, workers=2, rows_per_part=rows, choice=choice)
        same_bytes(pq.read_table(path), expected)


def test_intervals_after_a_filter_are_those_of_the_local_engine(
    run: Path, queries: Path, tmp_path: Path
) -> None:
    predictor, condition = Predictor.load(run), "score >= 0.5"
    keep = parse(condition, [0.9])
    target = str(tmp_path / "local.parquet")
    answer_file(after_filter(predictor, keep, [0.9]), str(queries), target, 0.9, keep=keep)
    found = str(tmp_path / "ray.parquet")
    answer_on_ray(str(run), str(queries), found, 0.9, workers=2, condition=condition, after=True)
    same_bytes(pq.read_table(found), pq.read_table(target))
