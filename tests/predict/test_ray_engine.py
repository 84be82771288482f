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
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.predict.conftest import LEVELS, ROWS
from unkgcp.errors import InputError
from unkgcp.predict.ray_engine import (
    ANSWERS,
    FilePart,
    answer_on_ray,
    check_target,
    is_folder,
    plan,
)
from unkgcp.predict.stream import PredictRequest, answer_file, chosen_in_file
from unkgcp.run import Predictor
from unkgcp.run.chooser import Choice

ray = pytest.importorskip("ray", reason="ray is not installed: see the extra ray")

PREDICT = (sys.executable, "-m", "unkgcp", "predict")


# one cluster for all of them, in one process


def test_the_command_starts_and_stops_a_cluster_quietly(
    run: Path, queries: Path, local: pa.Table, tmp_path: Path
) -> None:
    """Text in, one file out, by a cluster of its own: the same file, nothing printed, nobody left behind."""
    frame = pq.read_table(queries).to_pandas()
    frame.to_csv(tmp_path / "queries.csv", index=False)
    config = tmp_path / "ray.yaml"
    config.write_text("{workers: 2, rows_per_part: 5000}")
    mark = f"mark-{uuid.uuid4()}"
    environment = {**os.environ, "UNKGCP_TEST_MARK": mark}
    environment.pop("RAY_ADDRESS", None)
    options = ("--confidence", "0.8,0.95", "--engine", "ray", "--config", config)
    command = [*PREDICT, run, tmp_path / "queries.csv", "-o", tmp_path / "out.parquet", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert all(re.match(r"\S+ predicting: ", line) for line in done.stderr.splitlines()), done.stderr
    assert pq.read_table(tmp_path / "out.parquet").equals(local)
    assert sorted(os.listdir(tmp_path)) == ["out.parquet", "queries.csv", "ray.yaml"]
    deadline = time.monotonic() + 120
    while (left := processes("environ", mark.encode())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def processes(file: str, mark: bytes) -> list[int]:
    """Processes with a mark in this file of theirs under /proc: their environment, or their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / file).read_bytes():
                found.append(int(folder.name))
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


def test_killed_workers_change_nothing(
    cluster: None, run: Path, table: pa.Table, local: pa.Table, tmp_path: Path
) -> None:
    source, out = tmp_path / "queries", tmp_path / "out"
    source.mkdir()
    for number, first in enumerate(range(0, ROWS, 5_000)):  # a folder of part files, uneven
        pq.write_table(table.slice(first, 5_000), source / f"{number}.parquet", row_group_size=700)
    over, killed = threading.Event(), []

    def kill() -> None:
        """Ends the workers once, when the first answers are there."""
        while not killed and not over.wait(0.005):
            if list(tmp_path.glob(f".partial-*/{ANSWERS}/part-*")):
                for worker in processes("cmdline", b"ray::answer_part"):
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows = answer_on_ray(
            str(run), str(source), str(out), PredictRequest(LEVELS), workers=1, rows_per_part=700
        )
    finally:
        over.set()
        killer.join()
    assert (rows, bool(killed)) == (ROWS, True)
    names = sorted(os.listdir(out))
    assert names == [FilePart(number, "", 0, 0, 0).name for number in range(len(names))]
    assert pa.concat_tables(pq.read_table(out / name) for name in names).equals(local)
    assert sorted(os.listdir(tmp_path)) == ["out", "queries"]


def test_a_bad_query_ends_it_with_the_local_sentence(
    cluster: None, run: Path, table: pa.Table, tmp_path: Path
) -> None:
    broken = table.to_pandas()
    broken.loc[9_000, "tail"] = None
    pq.write_table(pa.Table.from_pandas(broken, preserve_index=False), tmp_path / "q.parquet")
    with pytest.raises(InputError, match=r"q.parquet, row 9001 has an empty tail"):
        answer_on_ray(
            str(run), str(tmp_path / "q.parquet"), str(tmp_path / "answers"), workers=1, rows_per_part=3_000
        )
    assert os.listdir(tmp_path) == ["q.parquet"]


def test_ctrl_c_leaves_nothing(cluster: None, run: Path, queries: Path, tmp_path: Path) -> None:
    """A second process asks the running cluster and is interrupted when the first part is there."""
    address = ray.get_runtime_context().gcs_address
    config = run.parent / "ray.yaml"
    config.write_text(f"{{address: '{address}', workers: 1, rows_per_part: 100}}")
    options = ("--engine", "ray", "--config", str(config))
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
    with pytest.raises(InputError, match="pip install ray"):
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
        answer_file(predictor, str(queries), str(tmp_path / "local.parquet"), answer=chosen.answering(0.9))
    expected = pq.read_table(tmp_path / "local.parquet")
    for target, rows in (("one.parquet", 5_000), ("folder/", 3_100)):
        path = str(tmp_path / target)
        if target.endswith("/"):
            path += "/"
        answer_on_ray(
            str(run),
            str(queries),
            path,
            PredictRequest(choice=choice),
            workers=2,
            rows_per_part=rows,
        )
        assert pq.read_table(path).equals(expected)


def test_parts_hold_every_row_once_in_order(tmp_path: Path) -> None:
    for name, rows in (("a.parquet", 7), ("b.parquet", 5), ("c.parquet", 0)):
        pq.write_table(pa.table({"head": ["x"] * rows}), tmp_path / name)
    parts = plan([str(tmp_path / f"{name}.parquet") for name in "abc"], 4)
    assert [(Path(part.path).name, part.first, part.rows, part.before) for part in parts] == [
        ("a.parquet", 0, 4, 0),
        ("a.parquet", 4, 3, 4),
        ("b.parquet", 0, 4, 7),
        ("b.parquet", 4, 1, 11),
    ]
    assert [(part.rows, part.number) for part in plan([str(tmp_path / "c.parquet")])] == [(0, 0)]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"broken.parquet is a damaged Parquet file"):
        plan([str(tmp_path / "broken.parquet")])


def test_outputs_that_cannot_be_are_refused_first(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for target in ("answers.docx", "full", "full/file/"):
        with pytest.raises(InputError):
            check_target(str(tmp_path / target) + ("/" if target.endswith("/") else ""))
    folders = {"answers/": True, "answers": True, "a.parquet": False, "-": False}
    assert {name: is_folder(name) for name in folders} == folders
    for target in (None, "-", str(tmp_path / "new"), str(tmp_path / "new.tsv.gz")):
        check_target(target)
