"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

What it is: the local engine, a plain loop around `answer_batch`. What it is not: parallel over machines.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)     # doctest: +SKIP
1000000
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from unkgcp.bundle.batch import LABELS, answer_batch
from unkgcp.bundle.output import open_output
from unkgcp.bundle.predictor import Predictor
from unkgcp.conformal.predictors import Levels
from unkgcp.graph import open_batches
from unkgcp.progress import Progress, Silent

EMPTY = pa.schema([(name, pa.string()) for name in LABELS]).empty_table().to_batches()


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
    `unkgcp.graph.open_batches`.
    """
    report = progress or Silent()
    start, done = time.monotonic(), 0
    with open_output(target) as write:
        for batch in open_batches(queries, **reading):
            write(answer_batch(predictor, batch, confidence))
            done += len(batch)
            report.update(done, f"{done / max(time.monotonic() - start, 1e-9):,.0f} queries/s")
    return done
