"""Work on long arrays in chunks that stay in the processor's cache, on all cores when that pays.

NumPy lets other threads run while it computes, so plain threads are enough. Memory stays flat: the
temporaries of a chunk are all there ever is beside input and output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROWS = 8192
"""Rows a chunk: a float64 temporary of 64 KiB, which the allocator reuses instead of asking the system."""
_ROWS_A_TASK = 16 * ROWS


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
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
