"""Read, work and hand on at the same time, in order: a few items are under way at once, never all of them.

What it is: threads around an iterator. Arrow, NumPy and compiled code let other threads run, so reading, answering
and writing overlap on a few cores. What it is not: several processes or machines.

>>> list(in_order(iter(range(4)), lambda number: number * number))
[0, 1, 4, 9]
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from unkgcp.conformal.chunks import cores

T = TypeVar("T")
R = TypeVar("R")

AT_MOST = 4  # threads that work: with more the reader cannot keep up
AHEAD = 10  # items under way: so many are ready when a row group, which takes eight batches, has been written
READER = "unkgcp-read"
PATIENCE = 0.5  # seconds


def in_order(
    items: Iterator[T], work: Callable[[T], R], threads: int | None = None
) -> Generator[R, None, None]:
    """What `work` makes of each item, in the order of the items; an error comes where its item would.

    Items are drawn one after the other in a thread of their own. Closing the iterator, or leaving it with an
    error, waits for what is being worked on and starts nothing new.
    """
    threads = threads or min(cores(), AT_MOST)
    reader = _Reader(items)
    pending: deque[Future[R]] = deque()
    workers = ThreadPoolExecutor(threads, "unkgcp-answer")
    try:
        while True:
            while len(pending) < AHEAD and reader.take(wait=not pending):
                pending.append(workers.submit(work, reader.item))
            if not pending:
                break
            yield pending.popleft().result()
        if reader.error is not None:
            raise reader.error
    finally:
        reader.stop()
        workers.shutdown(cancel_futures=True)


class _Reader(Generic[T]):
    """Draws items in a thread, one ahead. The thread may wait for a pipe for ever, so nobody waits for the thread."""

    item: T

    def __init__(self, items: Iterator[T]) -> None:
        self.error: BaseException | None = None
        self._items, self._stopped, self._ended = items, threading.Event(), False
        self._drawn: queue.Queue[list[T]] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name=READER, daemon=True)
        self._thread.start()

    def take(self, wait: bool) -> bool:
        """Put the next item into `item`; False if there is none, or if it would have to be waited for."""
        if self._ended:
            return False
        try:
            found = self._drawn.get(block=wait)
        except queue.Empty:
            return False
        if not found:
            self._ended = True
            return False
        self.item = found[0]
        return True

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put([item]):
                    break
        except BaseException as error:
            self.error = error
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._put([])

    def _put(self, found: list[T]) -> bool:
        while not self._stopped.is_set():
            try:
                self._drawn.put(found, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False
