"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

`answering` makes the function that answers a batch, on any engine. `answer_file` is the local engine: a small file is
read, answered and written; for a larger one reading, answering and writing overlap in threads.

Choosing among the candidates of a file, with a bound on the share of wrong ones, takes two passes. `chosen_in_file` is
the first: it finds the place of every candidate among the calibration facts that fail the condition, keeps the places
in a temporary file (four bytes a candidate) and counts them. The second pass is `answer_file`, which adds what was
chosen. A pipe can be read only once, so its candidates are first written to temporary Parquet files.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", confidence=0.9)               # doctest: +SKIP
1000000
>>> with chosen_in_file(predictor, "candidates.tsv", choice) as chosen:                    # doctest: +SKIP
...     answer_file(predictor, chosen.queries, "answers.tsv", asked=chosen.answering(0.9), **chosen.reading)
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.files import room_for
from unkgcp.graph.facts import Triples
from unkgcp.loops import cores
from unkgcp.methods.intervals import Levels, as_batch
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import LABELS, answer_batch
from unkgcp.tabular.arrow_arrays import numbers
from unkgcp.tabular.query_files import query_batches
from unkgcp.tabular.writer import USUAL, Style, open_output

if TYPE_CHECKING:
    from unkgcp.conformal.selection import Cuts, Places
    from unkgcp.predict.filter import Condition
    from unkgcp.run.answer_sets import Asked
    from unkgcp.run.chooser import Choice, Chooser
    from unkgcp.run.predictor import Predictor

SMALL = 1 << 17  # bytes: a smaller file of queries is answered before threads have started
AT_MOST = 4  # threads that answer: with more of them the reader cannot keep up
AHEAD = 10  # batches read ahead: a row group takes eight, so that the next ones are ready when it has been written
MOST_ROWS = 1 << 18  # rows of answer sets held in memory at once
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
    """The function that answers a batch of queries, on any engine.

    Queries with an open head or tail are completed with the options `k`, `rank_by` and `exclude_known` of `completion`,
    or get the answer sets that `sets` asks for. Answers for which `keep` does not hold are left out.
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
    `sets` are those of `answering`; `asked`, if given, answers the batches instead (`Chosen.answering`). `style` has
    the format to write and the prefixes of IRIs. `reading` goes to `unkgcp.tabular.query_files.query_batches`.
    """
    report = progress or Silent()
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
        report.update(done, since=start)
        return done
    with open_output(target, style) as write, closing(_overlapping(predictor, batches, asked)) as answers:
        for count, found in answers:
            write(found)
            done += count
            report.update(done, since=start)
    return done


def _naming(queries: str, asked: Answer) -> Answer:
    """The same function, whose errors name the file of the queries."""

    def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        try:
            return asked(batch, first=first)
        except InputError as error:
            raise InputError(f"{_name(queries)}: {error}") from None

    return answer


def _name(queries: str) -> str:
    return "standard input" if queries == "-" else queries


def in_pieces(
    batches: Iterator[pa.RecordBatch], predictor: Predictor, sets: Asked
) -> Iterator[pa.RecordBatch]:
    """Batches cut so small that their answer sets fit into memory, even if each set holds all entities."""
    most = min(sets.k or MOST_ROWS, len(predictor.model.seen_entities), MOST_ROWS)
    step = max(1, MOST_ROWS // max(most, 1))
    return (batch.slice(start, step) for batch in batches for start in range(0, max(len(batch), 1), step))


def _is_small(queries: str) -> bool:
    """Whether the queries are a plain file that is not worth starting threads for."""
    return os.path.isfile(queries) and not queries.endswith(".gz") and os.path.getsize(queries) <= SMALL


def _overlapping(
    predictor: Predictor,
    batches: Iterator[pa.RecordBatch],
    answer: Answer,
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """The number of queries and the answers of each batch, in order, while later batches are read and answered."""

    def work(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
        first, batch = numbered
        ready.result()
        return len(batch), answer(batch, first=first)

    with ThreadPoolExecutor(1, "unkgcp-ready") as pool:
        ready = pool.submit(_prepare, predictor)  # while the first queries are read
        with closing(in_order(_numbered(batches), work)) as answers:
            yield from answers


def _prepare(predictor: Predictor) -> None:
    """Build the label index and answer one query, side by side: the first batch would have to wait for both."""
    with ThreadPoolExecutor(1, "unkgcp-ready") as pool:
        pool.submit(predictor.model.vocabulary.entity_ids, [])
        predictor.method.interval(Triples(*(np.zeros(1, np.int32) for _ in range(3))))


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of rows before them."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


# Choosing among the candidates of a file.


class Chosen(NamedTuple):
    """What the first pass found: the places of all candidates in order, and the cut of each share of wrong ones.

    The second pass reads the candidates from `queries` with the options `reading`. A worker on a cluster has only a
    part of the candidates; `before` rows of other parts come before its own.
    """

    chooser: Chooser
    cuts: list[Cuts]
    places: Places
    queries: str
    reading: Mapping[str, Any]
    before: int = 0

    def answering(self, confidence: Levels) -> Answer:
        """The function that answers a batch in the second pass; after a selection, only what was chosen of it."""
        chooser, answer_places = self.chooser, self.chooser.answering(self.cuts, confidence)
        untouched = _stamp(self.queries)

        def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
            start = first - self.before
            places = np.array(self.places[start : start + len(batch)])
            if len(places) < len(batch) or _stamp(self.queries) != untouched:
                raise InputError(
                    f"{self.queries} has changed while it was read; leave it alone and start again"
                )
            if chooser.choice.after:
                rows = np.flatnonzero(places >= self.cuts[0].chosen)
                batch, places = batch.take(numbers(rows)), places[rows]
            labels = {name: batch.column(name) for name in LABELS}
            return as_batch(answer_places(chooser.triples(batch), places), labels)

        return answer


@contextmanager
def chosen_in_file(
    predictor: Predictor,
    queries: str,
    choice: Choice,
    *,
    progress: Progress | None = None,
    **reading: Any,
) -> Iterator[Chosen]:
    """The first pass over a file of candidates (`-`: standard input). Temporary files are gone at the end."""
    from unkgcp.run.chooser import Chooser

    chooser = Chooser(predictor, choice)
    report, start, done = progress or Silent(), time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="unkgcp-") as folder, room_for(folder):
        again, how = _readable_twice(queries, Path(folder) / "candidates", reading)
        counts = np.zeros(chooser.reference.bins, np.int64)
        path = Path(folder) / "places"

        def work(batch: pa.RecordBatch) -> Places:
            return chooser.places(chooser.triples(batch))

        with path.open("wb") as file, closing(in_order(query_batches(again, **how), work)) as found:
            for places in found:
                file.write(places.tobytes())
                counts += chooser.reference.count(places)
                done += len(places)
                report.update(done, since=start)
        check_some(done, queries)
        yield Chosen(chooser, chooser.cuts(counts), np.memmap(path, np.int32, "r"), again, how)


def check_some(candidates: int, queries: str) -> None:
    """InputError if there is nothing to choose from."""
    if not candidates:
        raise InputError(f"{_name(queries)} has no triples, so there is nothing to choose from; give it some")


def _readable_twice(queries: str, folder: Path, reading: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A file that can be read twice, and its options: the file itself, or a copy of what a pipe brings."""
    if queries != "-" and (os.path.isfile(queries) or os.path.isdir(queries) or not os.path.exists(queries)):
        return queries, reading  # the reader says what is wrong with a file that is not there
    from unkgcp.predict.parts import ROWS, spooled  # pipes are rare here

    folder.mkdir()
    for _ in spooled(query_batches(queries, **reading), folder, ROWS):
        pass
    return str(folder), {}


def _stamp(path: str) -> Any:
    """Size, time and place of a file, at least one of which changes when somebody writes to it."""
    try:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns, found.st_ino
    except OSError:
        return None


# Reading, working and handing on in threads, in order.


def in_order(
    items: Iterator[T], work: Callable[[T], R], threads: int | None = None
) -> Generator[R, None, None]:
    """What `work` makes of each item, in the order of the items; an error comes where its item would.

    Items are read in a thread of their own and worked on in others, while the caller uses earlier ones; at most `AHEAD`
    items wait. Closing the iterator, or leaving it with an error, waits for the work that has begun and starts no more.
    """
    # one core is kept busy by reading and writing
    workers = ThreadPoolExecutor(threads or max(1, min(cores() - 1, AT_MOST)), "unkgcp-answer")
    under_way: queue.Queue[Future[R] | None] = queue.Queue(AHEAD)  # None marks the end
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

    # a daemon, because it may wait for a pipe for ever
    reader = threading.Thread(target=read, name=READER, daemon=True)
    reader.start()
    try:
        while (found := under_way.get()) is not None:
            yield found.result()
    finally:
        stopped.set()
        reader.join(PATIENCE)
        workers.shutdown(cancel_futures=True)
