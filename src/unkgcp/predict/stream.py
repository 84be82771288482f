"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

`answering` is what is done with a batch on any engine. `answer_file` is the local engine: it does this between a
reader and a writer, all three at the same time in threads.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)     # doctest: +SKIP
1000000
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.graph.query_files import query_batches
from unkgcp.methods import Levels
from unkgcp.parallel import in_order
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import answer_batch
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.writer import open_output

if TYPE_CHECKING:
    from unkgcp.predict.filter import Condition

# a batch of queries and the number of rows before it -> their answers
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
    if completion is not None:
        from unkgcp.run.completion import complete_batch

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
    completion: Mapping[str, Any] | None = None,
    keep: Condition | None = None,
    progress: Progress | None = None,
    total: float | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a file (`-`: standard input); returns how many there were.

    `target` is a file or None for standard output; it appears when all of it is written. `completion` and `keep` are
    those of `answering`. `total` is how many queries are expected, for `progress`. `reading` goes to
    `unkgcp.graph.query_batches`.
    """
    report, start, done = progress or Silent(), time.monotonic(), 0

    def work(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
        first, batch = numbered
        try:
            return len(batch), answering(ready.result(), confidence, completion, keep)(batch, first)
        except InputError as error:
            if completion is None:
                raise
            raise InputError(f"{'standard input' if queries == '-' else queries}: {error}") from None

    with (
        ThreadPoolExecutor(1, "unkgcp-ready") as pool,
        open_output(target) as write,
        verifying(predictor) as verified,
    ):
        ready = pool.submit(_ready, predictor)  # while the first queries are read
        batches = query_batches(queries, open_places=completion is not None, **reading)
        with closing(in_order(_numbered(batches), work)) as answers:
            for count, found in answers:
                write(found)
                done += count
                report.update(done, speed(done, time.monotonic() - start, total))
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
