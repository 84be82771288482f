"""Read, work and hand on at the same time, in order: a few items are under way at once, never all of them.

What it is: threads around an iterator. Arrow, NumPy and compiled code let other threads run, so reading, answering
and writing overlap on a few cores. What it is not: several processes or machines.

>>> list(in_order(iter(range(4)), lambda number: number * number))
[0, 1, 4, 9]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from unkgcp.conformal.chunks import cores

T = TypeVar("T")
R = TypeVar("R")

AT_MOST = 4  # threads that work: with more the reader cannot keep up


def in_order(
    items: Iterator[T], work: Callable[[T], R], threads: int | None = None
) -> Generator[R, None, None]:
    """What `work` makes of each item, in the order of the items; an error comes where its item would.

    Items are drawn one after the other in a thread of their own. Closing the iterator, or leaving it with an
    error, waits for what is under way and starts nothing new.
    """
    threads = threads or min(cores(), AT_MOST)
    reader, workers = ThreadPoolExecutor(1, "unkgcp-read"), ThreadPoolExecutor(threads, "unkgcp-answer")
    pending: deque[Future[list[R]]] = deque()

    def draw() -> list[T]:
        return [item for _, item in zip(range(1), items, strict=False)]

    def task(drawn: Future[list[T]]) -> list[R]:
        return [work(item) for item in drawn.result()]

    try:
        for _ in range(threads + 1):
            pending.append(workers.submit(task, reader.submit(draw)))
        while found := pending.popleft().result():
            pending.append(workers.submit(task, reader.submit(draw)))
            yield found[0]
    finally:
        reader.shutdown(cancel_futures=True)
        workers.shutdown(cancel_futures=True)
        close = getattr(items, "close", None)
        if close is not None:
            close()
