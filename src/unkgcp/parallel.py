"""Work shared among the cores of one machine: long arrays in chunks, streams of items in order, rows of a loop.

NumPy and compiled loops let other threads run while they compute, so plain threads are enough. Memory stays flat: what
is being worked on is all there ever is beside input and output.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np

ROWS = 8192
"""Rows a chunk: a float64 temporary of 64 KiB, which the allocator reuses instead of asking the system."""
_ROWS_A_TASK = 16 * ROWS
FEWEST = 2048  # rows of a compiled loop that are worth a thread
AT_MOST = 4  # threads that work on a stream: with more the reader cannot keep up
AHEAD = 10  # items under way: so many are ready when a row group, which takes eight batches, has been written
READER = "unkgcp-read"
PATIENCE = 0.5  # seconds to wait for a reader that is told to stop

T = TypeVar("T")
R = TypeVar("R")


def run_chunks(size: int, work: Callable[[int, int], None], rows: int = ROWS) -> None:
    """Call `work(start, stop)` for consecutive chunks of range(size); the earliest error is raised.

    `work` must write only to its own rows. Rounding to infinity and to zero is expected in it, not reported.
    """

    def task(first: int) -> None:
        with np.errstate(all="ignore"):
            last = min(first + _ROWS_A_TASK, size)
            for start in range(first, last, rows):
                work(start, min(start + rows, last))

    firsts = range(0, size, _ROWS_A_TASK)
    threads = min(cores(), len(firsts))
    if threads < 2:
        for first in firsts:
            task(first)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(task, firsts):  # in order, so the earliest bad row is the one reported
            pass


def cores() -> int:
    """The cores this process may use, which may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    reader = _Reader(items, lambda item: workers.submit(work, item))
    try:
        while (found := reader.under_way.get()) is not None:
            yield found.result()
    finally:
        reader.stop()
        workers.shutdown(cancel_futures=True)


class _Reader(Generic[T, R]):
    """Draws items in a thread and has them worked on, some ahead; whoever takes the results may be busy meanwhile.

    The thread may wait for a pipe for ever, so nobody waits for the thread. None stands at the end.
    """

    def __init__(self, items: Iterator[T], start: Callable[[T], Future[R]]) -> None:
        self.under_way: queue.Queue[Future[R] | None] = queue.Queue(AHEAD)
        self._items, self._start, self._stopped = items, start, threading.Event()
        self._thread = threading.Thread(target=self._run, name=READER, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            for item in self._items:
                if self._stopped.is_set() or not self._put(self._start(item)):
                    break
        except BaseException as error:
            failed: Future[R] = Future()
            failed.set_exception(error)
            self._put(failed)
        if isinstance(self._items, Generator):
            self._items.close()
        self._put(None)

    def _put(self, found: Future[R] | None) -> bool:
        while not self._stopped.is_set():
            try:
                self.under_way.put(found, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False


def in_threads(n: int, work: Callable[[slice], None], fewest: int = FEWEST) -> None:
    """Call `work` with slices that together are the rows 0 .. n; `fewest` rows are worth a thread."""
    parts = min(cores(), n // fewest)
    if parts < 2:
        work(slice(0, n))
        return
    cuts = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda part: work(slice(cuts[part], cuts[part + 1])), range(parts)))
