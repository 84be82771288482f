"""A file of queries answered on a Ray cluster, part by part, by the functions of the local engine.

A part is a range of rows of one Parquet file. Each is a Ray task: it loads the run once for its process, reads, answers
and writes its rows. Queries and answers never pass through the driver or Ray's object store, so neither grows with the
file. Ray starts the task of a worker that dies again. The answers of a part are a file named by its number, in a folder
beside the output, and become the output when all are there. All machines must see the run, the queries and the output
under the same names.

The cluster is a running one, or one on this machine that is started for this work and gone after it.

>>> answer_on_ray("run", "queries/", "answers/", PredictRequest(0.9), workers=8)     # doctest: +SKIP
1000000000
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp._version import __version__
from unkgcp.conformal.selection import Cuts
from unkgcp.errors import InputError, remedy
from unkgcp.files import explained
from unkgcp.loops import cores
from unkgcp.predict.filter import after_filter
from unkgcp.predict.stream import SPOOLED, PredictRequest, check_some, choosing, spooled
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import LABELS
from unkgcp.run.chooser import Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.query_files import parquet_files, query_batches
from unkgcp.tabular.source import Source, is_parquet, is_remote
from unkgcp.tabular.writer import ENDINGS, check_output, open_output

ROWS = 1 << 20  # of a part
STORE_BYTES = 80 << 20  # of the object store of a local cluster: only reports on parts pass through it
PATIENCE = 10.0  # seconds for a cluster to accept a connection
RETRIES = 4  # of a part whose worker died
ANSWERS, QUERIES = "answers", "queries"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise a warning on machines without accelerators
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the first bad part ends the work; others may be bad, too
}


class FilePart(NamedTuple):
    """Rows `first` to `first + rows` of the file at `path`; `before` rows of the input come before them."""

    number: int
    path: str
    first: int
    rows: int
    before: int

    @property
    def name(self) -> str:
        """The name of its answers; names sort as numbers do, up to ten million parts."""
        return f"part-{self.number:07d}.parquet"


class RayJob(NamedTuple):
    """What every worker is told; with a choice and no cuts yet it only counts the places of candidates."""

    run: str
    stage: str
    request: PredictRequest
    reading: dict[str, Any]
    cuts: list[Cuts] | None = None
    version: str = __version__


def answer_on_ray(
    run: str,
    queries: str,
    target: str | None,
    request: PredictRequest | None = None,
    *,
    workers: int | None = None,
    address: str | None = None,
    rows_per_part: int = ROWS,
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a Parquet file, a folder of them or a text file; returns how many there were.

    `target` is a folder (one Parquet file a part, in the order of their names), a file as for the local engine, or None
    for standard output; it appears when all of it is there. `workers` is how many parts are computed at once, by
    default one for each CPU of the cluster. `address` is that of a running cluster.
    """
    check_target(target)
    request, report = request or PredictRequest(), progress or Silent()
    predictor = Predictor.load(run)  # whatever is wrong with the run is said before a cluster is started
    with staged(target) as stage:
        paths, reading = _sources(queries, stage / QUERIES, rows_per_part, request.open_places, reading)
        file_parts = plan(paths, rows_per_part)
        total = sum(part.rows for part in file_parts)
        job = RayJob(os.path.abspath(run), str(stage), request, reading)
        with connected(workers or cores(), address) as ray:
            room = int(ray.cluster_resources().get("CPU", 1))
            at_once = max(1, min(workers or room, room, len(file_parts)))
            try:
                if request.choice is not None:
                    check_some(total, queries)
                    counts = sum(_compute(ray, file_parts, job, at_once, report))
                    job = job._replace(cuts=Chooser(predictor, request.choice).cuts(counts))
                _compute(ray, file_parts, job, at_once, report)
            except BaseException:
                # before Ray is shut down: if its processes got the same signal as this one, Ray ends this one at once
                shutil.rmtree(stage, ignore_errors=True)
                raise
        deliver(stage, file_parts, target)
    return total


def plan(paths: Sequence[str], rows_per_part: int = ROWS) -> list[FilePart]:
    """All rows of the files in parts of at most `rows_per_part` rows, in order; at least one part, perhaps empty."""
    file_parts: list[FilePart] = []
    before = 0
    for path in paths:
        with Source(path) as source, source.explained():
            total = pq.read_metadata(path).num_rows
        for first in range(0, total, rows_per_part):
            rows = min(rows_per_part, total - first)
            file_parts.append(FilePart(len(file_parts), path, first, rows, before + first))
        before += total
    return file_parts or [FilePart(0, paths[0], 0, 0, 0)]


def _sources(
    queries: str, spool: Path, rows: int, open_places: bool, reading: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The Parquet files to read, and how. Text is not cut into parts: it is read here and written as Parquet."""
    if queries != "-" and Path(queries).is_dir():
        return parquet_files(Path(queries).absolute()), reading
    if os.path.isfile(queries) and reading.get("format") in (None, "parquet"):
        with open(queries, "rb") as file:
            if is_parquet(file.read(8)):
                return [os.path.abspath(queries)], reading
    batches = query_batches(queries, open_places=open_places, **reading)
    return list(spooled(batches, spool, rows)), dict(SPOOLED)


def _compute(
    ray: Any, file_parts: Sequence[FilePart], job: RayJob, at_once: int, progress: Progress
) -> list[Any]:
    """What every part gives, in no order; raises an error at the first that cannot be answered."""
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(answer_part)
    waiting, results = deque(file_parts), []
    running: dict[Any, FilePart] = {}
    start, done = time.monotonic(), 0
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                part = waiting.popleft()
                running[task.remote(job, part)] = part
            (ready,), _ = ray.wait(list(running))
            results.append(ray.get(ready))
            done += running.pop(ready).rows
            progress.update(done, f"{len(results)} of {len(file_parts)} parts", since=start)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        raise RuntimeError(f"{error.cause} ({type(error.cause).__name__} in a worker)") from error
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeError(f"the Ray cluster gave up: {lines[-1]}; there may be too little memory") from error
    return results


# What a worker does.


def answer_part(job: RayJob, part: FilePart) -> Any:
    """Write the answers of a part, or count the places of its candidates in a first pass."""
    if job.version != __version__:
        raise InputError(
            f"{socket.gethostname()} has unkgcp {__version__}, this program is {job.version}: install the same "
            "version on every machine of the cluster"
        )
    if not Path(job.stage).is_dir():
        raise InputError(
            f"{Path(job.stage).parent} is not there on {socket.gethostname()}: every machine of the cluster must "
            "see the run, the queries and the output under the same names, on a shared file system"
        )
    pa.set_cpu_count(1)  # other workers are on this machine too
    return _answer(job, part, _loaded(job.run, job.stage))


@lru_cache(maxsize=1)
def _loaded(run: str, stage: str) -> Predictor:
    """The run, which a process loads once for all parts of the same work."""
    return Predictor.load(run)


def _answer(job: RayJob, part: FilePart, predictor: Predictor) -> Any:
    """Write the answers of a part; with a choice and no cuts yet, count the places of its candidates."""
    request = job.request
    rows = range(part.first, part.first + part.rows)
    batches = request.batches(predictor, part.path, rows=rows, **job.reading)
    if request.choice is None:
        if request.keep is not None and request.after:
            predictor = after_filter(predictor, request.keep, request.confidence)
        answer = request.answering(predictor)
    else:
        chooser = Chooser(predictor, request.choice)
        if job.cuts is None:
            places = (chooser.places(chooser.triples(batch.select(LABELS))) for batch in batches)
            return sum(map(chooser.reference.count, places))
        answer = choosing(chooser, job.cuts, request.confidence)
    done = part.before
    with open_output(str(Path(job.stage) / ANSWERS / part.name)) as write:
        for batch in batches:
            write(answer(batch, first=done))
            done += len(batch)
    return None


# The folder in which the answers of parts wait, and how they become the output, whole or not at all.


def is_folder(target: str | None) -> bool:
    """Whether the output is to be a folder of parts: an existing one, or a name without an ending; here."""
    if target is None or target == "-" or is_remote(target):
        return False
    names_file = target.lower().endswith(ENDINGS) or Path(target).suffix
    return target.endswith(("/", os.sep)) or Path(target).is_dir() or not names_file


def check_target(target: str | None) -> None:
    """Refuse, before any work is done, an output that could not be written in the end."""
    if not is_folder(target):
        check_output(target)
    elif target and Path(target).exists() and not (Path(target).is_dir() and not any(Path(target).iterdir())):
        raise InputError(f"{target} is there and not empty; give the name of a new folder with -o")


@contextlib.contextmanager
def staged(target: str | None) -> Iterator[Path]:
    """A folder for the parts, on the file system of the output if that is here; gone at the end, whatever happens."""
    beside = (
        Path(tempfile.gettempdir())
        if target is None or target == "-" or is_remote(target)
        else Path(target).absolute().parent
    )
    with explained(target or beside):
        # not by tempfile: workers may run as somebody else
        stage = beside / f".partial-{os.urandom(8).hex()}"
        stage.mkdir(parents=True)
    try:
        for name in (ANSWERS, QUERIES):
            (stage / name).mkdir()
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def deliver(stage: Path, file_parts: Sequence[FilePart], target: str | None) -> None:
    """Make the output of the answers of all parts."""
    answers, names = stage / ANSWERS, [part.name for part in file_parts]
    for entry in list(answers.iterdir()):
        if entry.name not in names:
            entry.unlink()  # an unfinished file of a worker that died
    if is_folder(target):
        answers.rename(str(target).rstrip("/" + os.sep) or "/")
        return
    with open_output(target) as write:
        for name in names:
            with pq.ParquetFile(answers / name) as file:
                for batch in file.iter_batches():
                    write(batch)
            (answers / name).unlink()  # so that the disk never holds all answers twice


# The cluster.


@contextlib.contextmanager
def connected(workers: int, address: str | None = None) -> Iterator[Any]:
    """Yield the module `ray`, connected; what Ray itself prints stays out of our output.

    To the cluster this process is connected to already, if there is one; else to `address` or $RAY_ADDRESS (`auto`,
    `host:port`); else to a new one on this machine with as many CPUs as `workers`.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise InputError(f"--engine ray needs ray: {remedy('ray')}") from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if not ray.is_initialized():
            folder = tempfile.mkdtemp(prefix="unkgcp-ray-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.callback(ray.shutdown)
            _connect(ray, workers, address or os.environ.get("RAY_ADDRESS"), folder)
        yield ray


def _connect(ray: Any, workers: int, address: str | None, folder: str) -> None:
    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if address is None or address == "local":
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            _temp_dir=folder,
            **quiet,
        )
        return
    try:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon:  # Ray itself goes on trying for minutes where nothing listens
            if not host or not port.isdecimal():
                raise ValueError("an address is auto or HOST:PORT")
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        ray.init(address=address, **quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        why = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
        raise InputError(
            f"no Ray cluster answers at {address} ({why}); start one with `ray start --head`, or leave --address out"
        ) from error
