"""A file of queries answered batch by batch, in order, with memory that does not grow with the file.

`PredictRequest` says what is asked of every query, and makes the function that answers a batch, on any engine.
`answer_file` is the local engine: reading, answering and writing overlap in threads.

Choosing among the candidates of a file, with a bound on the share of wrong ones, takes two passes. `chosen_in_file` is
the first: it finds the place of every candidate among the calibration facts that fail the condition, and counts the
places. The second pass is `answer_file`, which finds them again and adds what was chosen. A pipe can be read only once,
so its candidates are first written to temporary Parquet files.

>>> answer_file(predictor, "queries.tsv", "answers.parquet", PredictRequest(0.9))                  # doctest: +SKIP
1000000
>>> with chosen_in_file(predictor, "candidates.tsv", choice) as chosen:                    # doctest: +SKIP
...     answer_file(predictor, chosen.queries, "answers.tsv", answer=chosen.answering(0.9), **chosen.reading)
"""

from __future__ import annotations

import os
import queue
import sys
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
import pyarrow.compute as pc

from unkgcp.errors import InputError, public
from unkgcp.files import room_for
from unkgcp.graph.objects import spelt
from unkgcp.loops import cores
from unkgcp.methods.intervals import Levels, as_batch
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import LABELS, answer_batch
from unkgcp.tabular.arrow_arrays import numbers, texts
from unkgcp.tabular.fact_batches import beside
from unkgcp.tabular.label_index import OPEN
from unkgcp.tabular.query_files import query_batches
from unkgcp.tabular.writer import open_output

if TYPE_CHECKING:
    from unkgcp.conformal.selection import Counts, Cuts
    from unkgcp.predict.filter import Condition
    from unkgcp.run.answer_sets import SetRequest
    from unkgcp.run.chooser import Choice, Chooser
    from unkgcp.run.predictor import Predictor

MAX_THREADS = 4  # that answer: with more of them the reader cannot keep up
AHEAD = 10  # batches read ahead: a row group takes up to eight, so that the next are ready when it has been written
MAX_ROWS = 1 << 18  # rows of answer sets held in memory at once
READER = "unkgcp-read"
DECIMALS = 9  # of confidences, see `unkgcp.graph.read`
ZERO = numbers(np.zeros(1))[0]  # Arrow would load pandas to see what a number of Python is
PATIENCE = 0.5  # seconds to wait for a reader that is told to stop

T = TypeVar("T")
R = TypeVar("R")


class Answer(Protocol):
    """A batch of queries and the number of rows before it -> their answers."""

    def __call__(self, batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch: ...


class PredictRequest(NamedTuple):
    """What is asked of every query of a file, the same on any engine.

    completion: the options `k`, `rank_by`, `exclude_known` and `exclude` with which open places are completed. sets:
    the answer sets that are asked for instead. keep: a filter of the answers; after: whether intervals are to hold for
    what it keeps. choice: which candidates to choose.
    """

    confidence: Levels = 0.9
    completion: Mapping[str, Any] | None = None
    sets: SetRequest | None = None
    keep: Condition | None = None
    after: bool = False
    choice: Choice | None = None

    @property
    def open_places(self) -> bool:
        """Whether queries have an open head or tail."""
        return self.completion is not None or self.sets is not None

    def answering(self, predictor: Predictor) -> Answer:
        """The function that answers a batch of queries."""
        answer = carrying(rounding(self._answering(predictor)))
        if self.keep is None:
            return answer
        keep = self.keep.keep
        return lambda batch, first: keep(answer(batch, first=first))

    def _answering(self, predictor: Predictor) -> Answer:
        if self.sets is not None:
            sets, request = predictor.answer_sets(self.sets.least, self.sets.per), self.sets
            return lambda batch, first: sets.answer(batch, request, first)
        if self.completion is not None:
            from unkgcp.run.completion import complete_batch

            return partial(complete_batch, predictor, confidence=self.confidence, **self.completion)
        return _closed(predictor, partial(answer_batch, predictor, confidence=self.confidence))

    def batches(self, predictor: Predictor, queries: Any, **reading: Any) -> Iterator[pa.RecordBatch]:
        """Queries in batches, which are so small that their answer sets fit into memory if each holds all entities."""
        batches = query_batches(queries, open_places=self.open_places, **reading)
        if self.sets is None:
            return batches
        largest = min(self.sets.k or MAX_ROWS, len(predictor.model.seen_entities), MAX_ROWS)
        step = max(1, MAX_ROWS // max(largest, 1))
        return (batch.slice(start, step) for batch in batches for start in range(0, max(len(batch), 1), step))


def rounding(answer: Answer) -> Answer:
    """The same function, whose numbers have nine decimals, as confidences have wherever they are read.

    No confidence leaves an interval by it: whatever is rounded keeps its order.
    """

    def rounded(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        answers = answer(batch, first=first)
        columns = [
            # the sum makes 0 of -0, which would be printed so
            pc.add(pc.round(column, DECIMALS), ZERO) if pa.types.is_float64(column.type) else column
            for column in answers.columns
        ]
        return pa.record_batch(columns, names=answers.schema.names)

    return rounded


def carrying(answer: Answer) -> Answer:
    """The same function, whose answers have the further columns of their queries after their own."""

    def carried(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        answers = answer(batch.select(LABELS), first=first)
        further = {name: batch.column(name) for name in batch.schema.names[len(LABELS) :]}
        if further and "query" in answers.schema.names:  # a query has several answers, or none
            rows = pc.subtract(answers.column("query"), numbers(np.array([first]))[0])
            further = {name: column.take(rows) for name, column in further.items()}
        return beside(answers, further) if further else answers

    return carried


def _closed(predictor: Predictor, answer: Answer) -> Answer:
    """The same function, which refuses queries with an open place, unless `?` is an entity of the run."""
    open_place = texts([OPEN])  # a string as such would load pandas
    if predictor.model.vocabulary.entity_ids(open_place)[0] >= 0:
        return answer

    def checked(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        for name in ("head", "tail"):
            row = pc.index(spelt(batch.column(name)), open_place[0]).as_py()
            if row >= 0:
                raise InputError(
                    f"query {first + row + 1:,} leaves its {name} open ({OPEN}); add --top-k 10 for the best entities "
                    "there, or --answers for a set of them"
                )
        return answer(batch, first=first)

    return checked


def answer_file(
    predictor: Predictor,
    queries: str,
    target: str | None,
    request: PredictRequest | None = None,
    *,
    answer: Answer | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> int:
    """Answer every query of a file (`-`: standard input); returns how many there were.

    `target` is a file or None for standard output; it appears when all of it is written. `answer`, if given, answers
    the batches instead of what `request` says (`Chosen.answering`). `reading` goes to
    `unkgcp.tabular.query_files.query_batches`.
    """
    request, report = request or PredictRequest(), progress or Silent()
    start, done = time.monotonic(), 0
    answering = answer or request.answering(predictor)

    def work(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
        first, batch = numbered
        try:
            return len(batch), answering(batch, first=first)
        except InputError as error:
            raise InputError(f"{_name(queries)}: {error}") from None

    batches = _numbered(request.batches(predictor, queries, **reading))
    with open_output(target) as write, closing(in_order(batches, work)) as answers:
        for count, answered in answers:
            write(answered)
            done += count
            report.update(done, since=start)
    return done


def _name(queries: str) -> str:
    return "standard input" if queries == "-" else public(queries)


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of rows before them."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


# Choosing among the candidates of a file.


class Chosen(NamedTuple):
    """What the first pass found: the cut of each share of wrong ones, and how many candidates each chooses.

    The second pass reads the candidates from `queries` with the options `reading`. candidates: how many there are;
    unjudged: those of them that are unknown, of which none is chosen. stamp: of the file, to notice changes.
    """

    chooser: Chooser
    cuts: list[Cuts]
    queries: str
    reading: Mapping[str, Any]
    candidates: int
    unjudged: int
    chosen: list[int]
    stamp: tuple[int, int] | None

    def answering(self, confidence: Levels) -> Answer:
        """The function that answers a batch in the second pass; the bound holds for the file of the first pass only."""
        answer_batch = choosing(self.chooser, self.cuts, confidence)

        def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
            if _stamp(self.queries) != self.stamp:
                raise InputError(
                    f"{self.queries} has changed while it was read; leave it alone and start again"
                )
            return answer_batch(batch, first=first)

        return answer

    @property
    def sentence(self) -> str:
        """How many were chosen, and what that promises."""
        shares = [f"{float(share):.12g}" for share in self.chooser.choice.shares]
        bounds = zip(self.chosen, shares, strict=True)
        counts = "; ".join(
            f"{count:,} with at most {share} of them wrong on average" for count, share in bounds
        )
        sentence = f"chosen among {self.candidates:,} triples: {counts} ({self.chooser.choice.condition})"
        if self.unjudged:
            sentence += f"; {self.unjudged:,} cannot be judged, since no calibration fact is of their kind"
        return sentence + ("" if self.chooser.nonfacts else "; that candidates are facts is presumed")


def choosing(chooser: Chooser, cuts: list[Cuts], confidence: Levels) -> Answer:
    """The function that answers a batch of candidates; after a selection, only what was chosen of it."""
    answer_places = chooser.answering(cuts, confidence)

    def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
        places = chooser.places(chooser.triples(batch.select(LABELS)))
        if chooser.choice.after:
            rows = np.flatnonzero(places >= cuts[0].chosen)
            batch, places = batch.take(numbers(rows)), places[rows]

        def chosen(labels: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
            answers = answer_places(chooser.triples(labels), places)
            return as_batch(answers, {name: labels.column(name) for name in LABELS})

        return carrying(rounding(chosen))(batch, first=first)

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
        stamp = _stamp(again)
        counts = np.zeros(chooser.reference.bins, np.int64)

        def work(batch: pa.RecordBatch) -> Counts:
            return chooser.reference.count(chooser.places(chooser.triples(batch.select(LABELS))))

        with closing(in_order(query_batches(again, **how), work)) as counted:
            for batch_counts in counted:
                counts += batch_counts
                done += int(batch_counts.sum())
                report.update(done, since=start)
        check_some(done, queries)
        cuts = chooser.cuts(counts)
        # the first count is that of unknown candidates, the others are those of the places
        chosen = [int(counts[cut.chosen + 1 :].sum()) for cut in cuts]
        yield Chosen(chooser, cuts, again, how, done, int(counts[0]), chosen, stamp)


def _stamp(path: str) -> tuple[int, int] | None:
    """Size and time of a file, which change when somebody writes to it; None for one that is elsewhere."""
    if not os.path.exists(path):
        return None
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns


SPOOLED = {"columns": LABELS, "carries": True}
"""How what `spooled` wrote is read."""


def spooled(batches: Iterator[pa.RecordBatch], folder: Path, rows: int = 1 << 20) -> Iterator[str]:
    """Write batches as Parquet files of about `rows` rows; yields their names."""
    import pyarrow.parquet as pq

    number, writer, written = 0, None, 0
    try:
        for batch in batches:
            if writer is None:
                path = folder / f"{number:07d}.parquet"
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


def check_some(candidates: int, queries: str) -> None:
    """InputError if there is nothing to choose from."""
    if not candidates:
        raise InputError(f"{_name(queries)} has no triples, so there is nothing to choose from; give it some")


def _readable_twice(queries: str, folder: Path, reading: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A file that can be read twice, and its options: the file itself, or a copy of what a pipe brings."""
    if queries != "-" and (os.path.isfile(queries) or os.path.isdir(queries) or not os.path.exists(queries)):
        return queries, reading  # the reader says what is wrong with a file that is not there
    folder.mkdir()
    (copy,) = spooled(query_batches(queries, **reading), folder, rows=sys.maxsize)
    return copy, SPOOLED


# Reading, working and handing on in threads, in order.


def in_order(
    items: Iterator[T], work: Callable[[T], R], threads: int | None = None
) -> Generator[R, None, None]:
    """What `work` makes of each item, in the order of the items; an error comes where its item would.

    Items are read in a thread of their own and worked on in others, while the caller uses earlier ones; at most `AHEAD`
    items wait. Closing the iterator, or leaving it with an error, waits for the work that has begun and starts no more.
    """
    # one core is kept busy by reading and writing
    workers = ThreadPoolExecutor(threads or max(1, min(cores() - 1, MAX_THREADS)), "unkgcp-answer")
    under_way: queue.Queue[Future[R] | None] = queue.Queue(AHEAD)  # None marks the end
    stopped = threading.Event()

    def put(future: Future[R] | None) -> bool:
        while not stopped.is_set():
            try:
                under_way.put(future, timeout=0.05)
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
        while (future := under_way.get()) is not None:
            yield future.result()
    finally:
        stopped.set()
        reader.join(PATIENCE)
        workers.shutdown(cancel_futures=True)
