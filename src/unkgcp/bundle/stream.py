"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

What it is: the local engine: `answer_batch` around a reader and a writer, overlapped in threads. What it is not:
parallel over machines.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)     # doctest: +SKIP
1000000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from unkgcp.bundle.batch import answer_batch
from unkgcp.bundle.output import open_output
from unkgcp.bundle.pipeline import in_order
from unkgcp.bundle.predictor import Predictor
from unkgcp.conformal.predictors import Levels
from unkgcp.graph.queries import query_batches
from unkgcp.progress import Progress, Silent

Answer = Callable[[pa.RecordBatch], pa.RecordBatch]


def answer_file(
    predictor: Predictor,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a file (`-`: standard input); returns how many there were.

    `target` is a file or None for standard output; it appears when all of it is written. `reading` goes to
    `unkgcp.graph.queries.query_batches`.
    """
    return stream_file(
        lambda batch: answer_batch(predictor, batch, confidence),
        queries,
        target,
        progress=progress,
        **reading,
    )


def stream_file(
    answer: Answer, queries: str, target: str | None, *, progress: Progress | None = None, **reading: Any
) -> int:
    """The same for any answer to a batch of queries."""
    report = progress or Silent()
    start, done = time.monotonic(), 0
    batches = query_batches(queries, **reading)
    with open_output(target) as write:
        answers = in_order(batches, lambda batch: (len(batch), answer(batch)))
        try:
            for count, found in answers:
                write(found)
                done += count
                report.update(done, f"{done / max(time.monotonic() - start, 1e-9):,.0f} queries/s")
        finally:
            answers.close()
    return done
