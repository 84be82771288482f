"""A file of queries answered on a Ray cluster, part by part, with the answers of the local engine.

What it is: a Ray Data pipeline whose blocks are the parts of a plan and whose stateful workers read, answer and
write them (`Answerer`). Queries and answers never pass through the driver or Ray's object store, so neither grows
with the file. A worker that dies is replaced, and its part computed again. What it is not: a file system; all
machines must see the run, the queries and the output under the same names.

>>> answer_on_ray("run", "queries/", "answers/", confidence=0.9, workers=8)     # doctest: +SKIP
1000000000
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp._version import __version__
from unkgcp.bundle.engines.cluster import connected
from unkgcp.bundle.engines.delivery import QUERIES, check_target, deliver, staged
from unkgcp.bundle.engines.parts import ROWS, Part, part_name, plan
from unkgcp.bundle.engines.worker import PLAN, Answerer
from unkgcp.bundle.predictor import Predictor
from unkgcp.bundle.stream import speed, verifying
from unkgcp.conformal.predictors import Levels
from unkgcp.errors import InputError
from unkgcp.graph.queries import parquet_files, query_batches
from unkgcp.progress import Progress, Silent

MAGIC = b"PAR1"


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
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a Parquet file, a folder of them or a text file; returns how many there were.

    `target` is a folder (one Parquet file a part, in the order of their names), a file as for the local engine,
    or None for standard output; it appears when all of it is there. `workers` is how many parts are computed at
    once, by default one for each CPU (with `device="cuda"`: each GPU) of the cluster. `address` is that of a
    running cluster; without it one is started on this machine and stopped after. `completion` has the options
    `k`, `rank_by` and `exclude_known` for queries with an open head or tail; `condition` is a filter
    (`unkgcp.bundle.conditions`).
    """
    check_target(target)
    predictor = Predictor.load(run)  # whatever is wrong with the run is said before a cluster is started
    with staged(target) as stage, verifying(predictor) as verified:
        paths, reading = _sources(queries, stage / QUERIES, rows_per_part, completion is not None, reading)
        parts = plan(paths, rows_per_part)
        work = {
            "run": os.path.abspath(run),
            "stage": str(stage),
            "confidence": confidence,
            "reading": reading,
            "completion": completion,
            "condition": condition,
            "device": device,
            "threads": 1,
            "version": __version__,
        }
        with connected(workers or _cpus(), address, gpus=device == "cuda") as ray:
            try:
                _compute(ray, parts, work, _workers(ray, workers, len(parts), device), progress or Silent())
            except BaseException:
                # before Ray is shut down: where its processes got the same signal as we, it ends ours at once
                shutil.rmtree(stage, ignore_errors=True)
                raise
        verified.result()
        deliver(stage, len(parts), target)
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
    return list(_spooled(batches, spool, rows)), {}


def _is_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # the reader of text says what is wrong


def _spooled(batches: Iterator[pa.RecordBatch], folder: Path, rows: int) -> Iterator[str]:
    """Write batches as Parquet files of about `rows` rows; yields their names."""
    number, writer, written = 0, None, 0
    try:
        for batch in batches:
            if writer is None:
                path = folder / part_name(number)
                writer, written = pq.ParquetWriter(path, batch.schema, compression="lz4"), 0
                yield str(path)
            writer.write_batch(batch)
            written += len(batch)
            if written >= rows:
                writer.close()
                writer, number = None, number + 1
    finally:
        if writer is not None:
            writer.close()


def _compute(ray: Any, parts: Sequence[Part], work: dict[str, Any], workers: int, progress: Progress) -> None:
    """Have every part answered; returns when all are there, raises at the first that cannot be."""
    blocks = [pa.Table.from_pylist([part._asdict()], PLAN) for part in parts]
    outcomes = ray.data.from_arrow(blocks).map_batches(
        Answerer,
        fn_constructor_kwargs=work,
        batch_size=1,
        batch_format="pyarrow",
        concurrency=workers,
        num_cpus=0 if work["device"] == "cuda" else 1,
        num_gpus=1 if work["device"] == "cuda" else None,
    )
    start, done, finished, total = time.monotonic(), 0, 0, sum(part.rows for part in parts)
    try:
        for outcome in outcomes.iter_rows():
            if outcome["error"] is not None:
                raise (InputError if outcome["bad_input"] else RuntimeError)(outcome["error"])
            done, finished = done + outcome["rows"], finished + 1
            pace = speed(done, time.monotonic() - start, total)
            progress.update(done, f"{pace}, {finished} of {len(parts)} parts")
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise RuntimeError(
            f"the Ray cluster gave up: {lines[-1] if lines else type(error).__name__}"
        ) from error


def _workers(ray: Any, asked: int | None, parts: int, device: str) -> int:
    """How many workers to start: no more than the cluster has room for, nor than there is work for."""
    kind = "GPU" if device == "cuda" else "CPU"
    room = int(ray.cluster_resources().get(kind, 0))
    if not room:
        raise InputError(f"the Ray cluster has no {kind}; choose --device cpu or another --address")
    return max(1, min(asked or room, room, parts))


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
