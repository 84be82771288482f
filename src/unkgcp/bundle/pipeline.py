"""Read, work and hand on at the same time, in order: a few items are under way at once, never all of them.

What it is: threads around an iterator. Arrow, NumPy and compiled code let other threads run, so reading, answering
and writing overlap on a few cores. What it is not: several processes or machines.

>>> list(in_order(iter(range(4)), lambda number: number * number))
[0, 1, 4, 9]
"""

from __future__ import annotations

import queue
import threading
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
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._put(None)

    def _put(self, found: Future[R] | None) -> bool:
        while not self._stopped.is_set():
            try:
                self.under_way.put(found, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False
