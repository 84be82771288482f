"""Rows of a compiled loop shared among threads.

What it is: a plain pool, which any number of callers may use at once. What it is not: numba's own parallel loops; these
may not be started from two threads at a time, and a service does just that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

FEWEST = 2048  # rows worth a thread


def in_threads(n: int, work: Callable[[slice], None], fewest: int = FEWEST) -> None:
    """Call `work` with slices that together are the rows 0 .. n; `fewest` rows are worth a thread."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = min(cores, n // fewest)
    if parts < 2:
        work(slice(0, n))
        return
    cuts = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda part: work(slice(cuts[part], cuts[part + 1])), range(parts)))
