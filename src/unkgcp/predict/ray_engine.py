"""A file of queries answered on a Ray cluster, part by part, with the answers of the local engine.

The work is a Ray Data pipeline: its rows are the parts of a plan (`unkgcp.predict.parts`), and its workers read, answer
and write them (`unkgcp.predict.ray_worker`). Queries and answers never pass through the driver or Ray's object store,
so neither grows with the file. A worker that dies is replaced, and its part computed again. All machines must see the
run, the queries and the output under the same names.

The cluster is a running one, or one on this machine that is started for this work and gone after it. Ray's usage
statistics are off, and its messages stay out of our output.

>>> answer_on_ray("run", "queries/", "answers/", confidence=0.9, workers=8)     # doctest: +SKIP
1000000000
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from unkgcp.conformal.selection import Counts
from unkgcp.errors import InputError
from unkgcp.loops import cores
from unkgcp.methods.intervals import Levels
from unkgcp.predict.parts import (
    PLACES,
    QUERIES,
    ROWS,
    Part,
    check_target,
    deliver,
    part_name,
    plan,
    spooled,
    staged,
)
from unkgcp.predict.ray_worker import COUNTED, Answerer, Work, write_index
from unkgcp.predict.stream import check_some
from unkgcp.progress import Progress, Silent
from unkgcp.run.chooser import Choice, Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.query_files import parquet_files, query_batches
from unkgcp.tabular.source import is_parquet
from unkgcp.tabular.writer import USUAL, Style

if TYPE_CHECKING:
    from unkgcp.run.answer_sets import Asked

# bytes of the object store of a local cluster: only the plan of the parts and the reports on them pass through it
STORE_BYTES = 80 << 20
PATIENCE = 10.0  # seconds for a cluster to accept a connection
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise a warning on machines without accelerators
    "RAY_TQDM": "0",
}


def answer_on_ray(
    run: str,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    workers: int | None = None,
    address: str | None = None,
    device: str = "cpu",
    rows_per_part: int = ROWS,
    completion: dict[str, Any] | None = None,
    condition: str | None = None,
    choice: Choice | None = None,
    after: bool = False,
    sets: Asked | None = None,
    progress: Progress | None = None,
    style: Style = USUAL,
    **reading: Any,
) -> int:
    """Answer every query of a Parquet file, a folder of them or a text file; returns how many there were.

    `target` is a folder (one Parquet file a part, in the order of their names), a file as for the local engine,
    or None for standard output; it appears when all of it is there. `workers` is how many parts are computed at
    once, by default one for each CPU (with `device="cuda"`: each GPU) of the cluster. `address` is that of a
    running cluster; without it one is started on this machine and stopped after. `completion` has the options
    `k`, `rank_by` and `exclude_known` for queries with an open head or tail; `condition` is a filter
    (`unkgcp.predict.filter`), with intervals that hold for what it keeps if `after` is set. `choice` chooses among the
    queries (`unkgcp.run.chooser`), for which workers pass over them twice. `sets` asks for answer sets of queries
    with an open place (`unkgcp.run.answer_sets`), for which every worker calibrates. `style` has the format of a
    file to write.
    """
    check_target(target, style)
    predictor = Predictor.load(run)  # whatever is wrong with the run is said before a cluster is started
    chooser = None if choice is None else Chooser(predictor, choice)
    with staged(target) as stage:
        open_places = completion is not None or sets is not None
        paths, reading = _sources(queries, stage / QUERIES, rows_per_part, open_places, reading)
        parts = plan(paths, rows_per_part)
        if choice is not None:
            check_some(sum(part.rows for part in parts), queries)
        work = Work(os.path.abspath(run), str(stage), confidence, reading, completion, condition, device, 1)
        work = work._replace(choice=choice, after=after, sets=sets)
        write_index(predictor, stage)
        if chooser is None:
            del predictor  # workers have their own
        with connected(workers or cores(), address, gpus=device == "cuda") as ray:
            try:
                report, started = progress or Silent(), _workers(ray, workers, len(parts), device)
                if chooser is not None:
                    _compute(ray, parts, work, started, report)
                    work = work._replace(cuts=chooser.cuts(_counted(stage, len(parts))))
                _compute(ray, parts, work, started, report)
            except BaseException:
                # before Ray is shut down: if its processes got the same signal as this one, Ray ends this one at once
                shutil.rmtree(stage, ignore_errors=True)
                raise
        deliver(stage, len(parts), target, style)
    return sum(part.rows for part in parts)


def _sources(
    queries: str, spool: Path, rows: int, open_places: bool, reading: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The Parquet files to read, and how. Text is not cut into parts: it is read here and written as Parquet."""
    if queries != "-" and Path(queries).is_dir():
        return parquet_files(Path(queries).absolute()), reading
    if queries != "-" and reading.get("format") in (None, "parquet") and _is_parquet(queries):
        return [os.path.abspath(queries)], reading
    batches = query_batches(queries, open_places=open_places, **reading)
    return list(spooled(batches, spool, rows)), {}


def _is_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return is_parquet(file.read(8))
    except OSError:
        return False  # the reader of text says what is wrong


def _compute(ray: Any, parts: Sequence[Part], work: Work, workers: int, progress: Progress) -> None:
    """Have every part answered; raises an error at the first that cannot be."""
    rows = [part._asdict() for part in parts]
    outcomes = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        Answerer,
        fn_constructor_args=(work,),
        concurrency=workers,
        num_cpus=0 if work.device == "cuda" else 1,
        num_gpus=1 if work.device == "cuda" else None,
    )
    start, done, finished = time.monotonic(), 0, 0
    try:
        for outcome in outcomes.iter_rows():
            if outcome["error"]:
                raise (InputError if outcome["bad_input"] else RuntimeError)(outcome["error"])
            done, finished = done + outcome["rows"], finished + 1
            progress.update(done, f"{finished} of {len(parts)} parts", since=start)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise RuntimeError(
            f"the Ray cluster gave up: {lines[-1] if lines else type(error).__name__}"
        ) from error


def _counted(stage: Path, parts: int) -> Counts:
    """How many candidates of all parts there are at each place."""
    names = [part_name(number, COUNTED) for number in range(parts)]
    return np.asarray(sum(np.load(stage / PLACES / name) for name in names), np.int64)


def _workers(ray: Any, asked: int | None, parts: int, device: str) -> int:
    """How many workers to start: no more than the cluster has room for, nor than there is work for."""
    kind = "GPU" if device == "cuda" else "CPU"
    room = int(ray.cluster_resources().get(kind, 0))
    if not room:
        raise InputError(f"the Ray cluster has no {kind}; choose --device cpu or another --address")
    return max(1, min(asked or room, room, parts))


# The cluster.


@contextlib.contextmanager
def connected(workers: int, address: str | None = None, gpus: bool = False) -> Iterator[Any]:
    """Yield the module `ray`, connected.

    To the cluster this process is connected to already, if there is one; else to `address` or $RAY_ADDRESS
    (`auto`, `host:port`); else to a new one on this machine with as many CPUs as `workers`.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    ray = _imported()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_muted())
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            _connect(ray, workers, address or os.environ.get("RAY_ADDRESS"), gpus, stack)
        stack.enter_context(_hushed(ray))
        yield ray


def _imported() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("--engine ray needs ray: pip install 'unkgcp[ray]'") from error
    return ray


def _connect(ray: Any, workers: int, address: str | None, gpus: bool, stack: contextlib.ExitStack) -> None:
    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if address is not None and address != "local":
        try:
            _knock(address)
            ray.init(address=address, **quiet)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            why = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
            raise InputError(
                f"no Ray cluster answers at {address} ({why}); start one with `ray start --head`, "
                "or leave --address out"
            ) from error
        return
    folder = tempfile.mkdtemp(prefix="unkgcp-ray-")
    # callbacks run in reverse: Ray is shut down before its folder goes
    shutdown = stack.pop_all()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.push(shutdown)
    ray.init(
        address="local",
        num_cpus=workers,
        num_gpus=workers if gpus else None,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        _temp_dir=folder,
        **quiet,
    )


def _knock(address: str) -> None:
    """An error unless something listens at this address: Ray itself goes on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        if not host or not port.isdecimal():
            raise ValueError("an address is auto or HOST:PORT")
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Keep what Ray itself prints out of our output.

    It prints the deaths of workers to standard output, where answers may go, and remarks of its C++ core straight
    to file descriptor 2. What Python writes to `sys.stderr`, our progress for instance, still gets there.
    """
    before = sys.stderr
    before.flush()
    with contextlib.ExitStack() as stack:
        kept = os.dup(2)
        stack.callback(os.close, kept)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if _is_descriptor_2(before):
            direct = stack.enter_context(
                open(kept, "w", buffering=1, encoding=before.encoding, errors="replace", closefd=False)
            )
            stack.enter_context(contextlib.redirect_stderr(direct))
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        stack.callback(os.dup2, kept, 2)
        yield


def _is_descriptor_2(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False  # a notebook or a test has put another stream in its place


@contextlib.contextmanager
def _hushed(ray: Any) -> Iterator[None]:
    """No progress bars and no log lines of Ray Data: progress is reported by us."""
    context = ray.data.DataContext.get_current()
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    before = context.enable_progress_bars, [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        for logger, level in zip(loggers, before[1], strict=True):
            logger.setLevel(level)
