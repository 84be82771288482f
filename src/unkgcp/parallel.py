"""Work shared among the cores of one machine: long arrays in chunks, rows of a loop.

NumPy and compiled loops let other threads run while they compute, so plain threads are enough. Memory stays flat: what
is being worked on is all there ever is beside input and output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROWS = 8192
"""Rows a chunk: a float64 temporary of 64 KiB, which the allocator reuses instead of asking the system."""
_ROWS_A_TASK = 16 * ROWS
FEWEST = 2048  # rows of a compiled loop that are worth a thread


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


def in_threads(n: int, work: Callable[[slice], None], fewest: int = FEWEST) -> None:
    """Call `work` with slices that together are the rows 0 .. n; `fewest` rows are worth a thread."""
    parts = min(cores(), n // fewest)
    if parts < 2:
        work(slice(0, n))
        return
    cuts = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda part: work(slice(cuts[part], cuts[part + 1])), range(parts)))
