"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

`answering` is what is done with a batch on any engine. `answer_file` is the local engine: a small file is read,
answered and written; with a larger one reader, answers and writer are at work at the same time, in threads.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)     # doctest: +SKIP
1000000
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.methods.intervals import Levels
from unkgcp.parallel import cores
from unkgcp.run.answers import answer_batch
from unkgcp.tabular.query_files import query_batches
from unkgcp.tabular.writer import USUAL, Style, open_output

if TYPE_CHECKING:
    from unkgcp.predict.filter import Condition
    from unkgcp.progress import Progress
    from unkgcp.run.answer_sets import Asked
    from unkgcp.run.predictor import Predictor

SMALL = 1 << 17  # bytes of a file of queries that is answered before threads would be ready
AT_MOST = 4  # threads that work on a stream: with more the reader cannot keep up
AHEAD = 10  # items under way: so many are ready when a row group, which takes eight batches, has been written
MOST_ROWS = 1 << 18  # answers that a piece of a batch of questions may have
READER = "unkgcp-read"
PATIENCE = 0.5  # seconds to wait for a reader that is told to stop

T = TypeVar("T")
R = TypeVar("R")


class Answer(Protocol):
    """A batch of queries and the number of rows before it -> their answers."""

    def __call__(self, batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch: ...


def answering(
    predictor: Predictor,
    confidence: Levels,
    completion: Mapping[str, Any] | None = None,
    keep: Condition | None = None,
    sets: Asked | None = None,
) -> Answer:
    """What is done with each batch of queries and the number of rows before it, on any engine.

    `completion` has the options `k`, `rank_by` and `exclude_known` for queries with an open head or tail, None for
    others; `keep` leaves out the answers for which it does not hold. `sets` asks for answer sets of such queries.
    """
    if sets is not None:
        found = predictor.answer_sets(sets.least, sets.per)
        return lambda batch, first: found.answer(batch, sets, first)
    answer: Answer = partial(answer_batch, predictor, confidence=confidence)
    if completion is not None:
        from unkgcp.run.completion import complete_batch

        answer = partial(complete_batch, predictor, confidence=confidence, **completion)
    if keep is None:
        return answer
    return lambda batch, first: keep.keep(answer(batch, first=first))


def answer_file(
    predictor: Predictor,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    completion: Mapping[str, Any] | None = None,
    keep: Condition | None = None,
    sets: Asked | None = None,
    asked: Answer | None = None,
    progress: Progress | None = None,
    style: Style = USUAL,
    **reading: Any,
) -> int:
    """Answer every query of a file (`-`: standard input); returns how many there were.

    `target` is a file or None for standard output; it appears when all of it is written. `completion`, `keep` and
    `sets` are those of `answering`; `asked` takes the place of what these make (`unkgcp.predict.two_passes`). `style`
    has the format to write and the prefixes of IRIs. `reading` goes to `unkgcp.graph.query_batches`.
    """
    start, done = time.monotonic(), 0
    asked = asked or answering(predictor, confidence, completion, keep, sets)
    open_places = completion is not None or sets is not None
    if open_places:
        asked = _naming(queries, asked)
    small = _is_small(queries)
    batches = query_batches(queries, open_places=open_places, **reading)
    if sets is not None:
        batches = in_pieces(batches, predictor, sets)
    if small:
        waiting = list(batches)
        with open_output(target, style) as write:
            for batch in waiting:
                write(asked(batch, first=done))
                done += len(batch)
        if progress is not None:
            progress.update(done, since=start)
        return done
    with open_output(target, style) as write, closing(_overlapping(predictor, batches, asked)) as answers:
        for count, found in answers:
            write(found)
            done += count
            if progress is not None:
                progress.update(done, since=start)
    return done


def _naming(queries: str, asked: Answer) -> Answer:
    """The same; what is wrong with a question is said of the file it stands in."""

    def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        try:
            return asked(batch, first=first)
        except InputError as error:
            raise InputError(f"{'standard input' if queries == '-' else queries}: {error}") from None

    return answer


def in_pieces(
    batches: Iterator[pa.RecordBatch], predictor: Predictor, sets: Asked
) -> Iterator[pa.RecordBatch]:
    """Batches of questions cut into so few that their answer sets, which may be all entities each, fit into memory."""
    most = min(sets.k or MOST_ROWS, len(predictor.model.seen_entities), MOST_ROWS)
    step = max(1, MOST_ROWS // max(most, 1))
    return (batch.slice(start, step) for batch in batches for start in range(0, max(len(batch), 1), step))


def _is_small(queries: str) -> bool:
    """Whether it is a plain file so small that it is answered before threads would be ready."""
    return os.path.isfile(queries) and not queries.endswith(".gz") and os.path.getsize(queries) <= SMALL


def _overlapping(
    predictor: Predictor,
    batches: Iterator[pa.RecordBatch],
    answer: Answer,
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """The number of queries and the answers of each batch, in order; batches are read and answered meanwhile."""

    def work(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
        first, batch = numbered
        ready.result()
        return len(batch), answer(batch, first=first)

    with ThreadPoolExecutor(1, "unkgcp-ready") as pool:
        ready = pool.submit(_ready, predictor)  # while the first queries are read
        with closing(in_order(_numbered(batches), work)) as answers:
            yield from answers


def _ready(predictor: Predictor) -> None:
    """Make what the first batch would have to wait for, side by side."""
    with ThreadPoolExecutor(1, "unkgcp-ready") as pool:
        pool.submit(predictor.model.vocabulary.entity_ids, [])
        predictor.method.interval(Triples(*(np.zeros(1, np.int32) for _ in range(3))))


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of rows before them."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


# Threads that read, work and hand on, in order.


def in_order(
    items: Iterator[T], work: Callable[[T], R], threads: int | None = None
) -> Generator[R, None, None]:
    """What `work` makes of each item, in the order of the items; an error comes where its item would.

    Reading, working and what the caller does go on at the same time; a few items are under way, never all of them.
    Items are drawn one after the other in a thread of their own. Closing the iterator, or leaving it with an error,
    waits for what is being worked on and starts nothing new.
    """
    # reading and writing keep a core busy
    workers = ThreadPoolExecutor(threads or max(1, min(cores() - 1, AT_MOST)), "unkgcp-answer")
    under_way: queue.Queue[Future[R] | None] = queue.Queue(AHEAD)  # None stands at the end
    stopped = threading.Event()

    def put(found: Future[R] | None) -> bool:
        while not stopped.is_set():
            try:
                under_way.put(found, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for item in items:
                if stopped.is_set() or not put(workers.submit(work, item)):
                    break
        except BaseException as error:
            failed: Future[R] = Future()
            failed.set_exception(error)
            put(failed)
        if isinstance(items, Generator):
            items.close()
        put(None)

    # the thread may wait for a pipe for ever, so nobody waits for the thread
    reader = threading.Thread(target=read, name=READER, daemon=True)
    reader.start()
    try:
        while (found := under_way.get()) is not None:
            yield found.result()
    finally:
        stopped.set()
        reader.join(PATIENCE)
        workers.shutdown(cancel_futures=True)
