"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

What it is: `answering`, what is done with a batch on any engine, and the local engine, which does it between a reader
and a writer, overlapped in threads. What it is not: parallel over machines.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)     # doctest: +SKIP
1000000
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.graph.query_files import query_batches
from unkgcp.methods import Levels
from unkgcp.parallel import in_order
from unkgcp.predict.filter import Condition
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import answer_batch
from unkgcp.run.completion import complete_batch
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.writer import open_output

Answer = Callable[[pa.RecordBatch, int], pa.RecordBatch]


def answering(
    predictor: Predictor,
    confidence: Levels,
    completion: Mapping[str, Any] | None = None,
    keep: Condition | None = None,
) -> Answer:
    """What is done with each batch of queries and the number of rows before it, on any engine.

    `completion` has the options `k`, `rank_by` and `exclude_known` for queries with an open head or tail, None for
    others; `keep` leaves out the answers for which it does not hold.
    """

    def answer(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if completion is None:
            found = answer_batch(predictor, batch, confidence)
        else:
            found = complete_batch(predictor, batch, confidence=confidence, first=first, **completion)
        return found if keep is None else keep.keep(found)

    return answer


def answer_file(
    predictor: Predictor,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    keep: Condition | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a file (`-`: standard input); returns how many there were.

    `target` is a file or None for standard output; it appears when all of it is written. `keep` leaves out the
    answers for which it does not hold. `reading` goes to `unkgcp.graph.query_batches`.
    """

    with ThreadPoolExecutor(1, "unkgcp-ready") as pool:
        ready = pool.submit(_ready, predictor)  # while the first queries are read

        def answer(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
            return answering(ready.result(), confidence, keep=keep)(batch, first)

        return _stream(predictor, answer, queries, target, progress, **reading)


def complete_file(
    predictor: Predictor,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    k: int = 10,
    rank_by: str = "score",
    exclude_known: bool = False,
    keep: Condition | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """The same for queries with an open head or tail: the best k entities for each; see `complete_batch`."""
    options = {"k": k, "rank_by": rank_by, "exclude_known": exclude_known}
    complete = answering(predictor, confidence, options, keep)

    def answer(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        try:
            return complete(batch, first)
        except InputError as error:
            raise InputError(f"{'standard input' if queries == '-' else queries}: {error}") from None

    return _stream(predictor, answer, queries, target, progress, open_places=True, **reading)


def _stream(
    predictor: Predictor,
    answer: Answer,
    queries: str,
    target: str | None,
    progress: Progress | None,
    **reading: Any,
) -> int:
    report = progress or Silent()
    total = getattr(report, "total", None)
    start, done = time.monotonic(), 0

    def work(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
        first, batch = numbered
        return len(batch), answer(batch, first)

    with open_output(target) as write, verifying(predictor) as verified:
        answers = in_order(_numbered(query_batches(queries, **reading)), work)
        try:
            for count, found in answers:
                write(found)
                done += count
                report.update(done, speed(done, time.monotonic() - start, total))
        finally:
            answers.close()
        verified.result()  # before the output appears
    return done


def _ready(predictor: Predictor) -> Predictor:
    """The predictor with all that the first batch would have to wait for, made side by side."""
    vocabulary = predictor.model.vocabulary
    with ThreadPoolExecutor(2, "unkgcp-ready") as pool:
        held = pool.submit(predictor.in_memory) if predictor.unverified else None
        pool.submit(vocabulary.entity_ids, [])
        predictor.method.interval(Triples(*(np.zeros(1, np.int32) for _ in range(3))))
        return predictor if held is None else held.result()


def speed(done: int, seconds: float, total: float | None) -> str:
    """How quick it goes, and how long it will take.

    >>> speed(1_000_000, 2.0, 10_000_000)
    '500,000 queries/s, 18 s left'
    """
    rate = done / max(seconds, 1e-9)
    left = "" if total is None or not done else f", {max(0.0, (total - done) / rate):.0f} s left"
    return f"{rate:,.0f} queries/s{left}"


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of rows before them."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


@contextmanager
def verifying(predictor: Predictor) -> Iterator[Future[None]]:
    """Hash what was too large to be hashed at loading, while the first answers are made."""
    with ThreadPoolExecutor(1, "unkgcp-verify") as pool:
        yield pool.submit(predictor.verify if predictor.unverified else lambda: None)
