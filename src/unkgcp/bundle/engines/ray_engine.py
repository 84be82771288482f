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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp._version import __version__
from unkgcp.bundle.engines.cluster import connected
from unkgcp.bundle.engines.delivery import QUERIES, check_target, deliver, staged
from unkgcp.bundle.engines.parts import ROWS, Part, part_files, part_name, plan
from unkgcp.bundle.engines.worker import PLAN, Answerer
from unkgcp.conformal.predictors import Levels
from unkgcp.errors import InputError
from unkgcp.graph.queries import query_batches
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
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a Parquet file, a folder of them or a text file; returns how many there were.

    `target` is a folder (one Parquet file a part, in the order of their names), a file as for the local engine,
    or None for standard output; it appears when all of it is there. `workers` is how many parts are computed at
    once, by default one for each CPU (with `device="cuda"`: each GPU) of the cluster. `address` is that of a
    running cluster; without it one is started on this machine and stopped after.
    """
    check_target(target)
    with staged(target) as stage:
        paths, reading = _sources(queries, stage / QUERIES, rows_per_part, reading)
        parts = plan(paths, rows_per_part)
        work = {
            "run": os.path.abspath(run),
            "stage": str(stage),
            "confidence": confidence,
            "reading": reading,
            "device": device,
            "version": __version__,
        }
        with connected(workers or _cpus(), address, gpus=device == "cuda") as ray:
            _compute(ray, parts, work, _workers(ray, workers, len(parts), device), progress or Silent())
        deliver(stage, len(parts), target)
    return sum(part.rows for part in parts)


def _sources(
    queries: str, spool: Path, rows: int, reading: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The Parquet files to read, and how. Text is not cut into parts: it is read here and written as Parquet."""
    if queries != "-" and Path(queries).is_dir():
        return part_files(Path(queries).absolute()), reading
    if queries != "-" and reading.get("format") in (None, "parquet") and _is_parquet(queries):
        return [os.path.abspath(queries)], reading
    return list(_spooled(query_batches(queries, **reading), spool, rows)), {}


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
    start, done, finished = time.monotonic(), 0, 0
    try:
        for outcome in outcomes.iter_rows():
            if outcome["error"] is not None:
                raise (InputError if outcome["bad_input"] else RuntimeError)(outcome["error"])
            done, finished = done + outcome["rows"], finished + 1
            rate = done / max(time.monotonic() - start, 1e-9)
            progress.update(done, f"{rate:,.0f} queries/s, {finished} of {len(parts)} parts")
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
