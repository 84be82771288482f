"""Loops over many rows made quick: shared among the cores of the machine, or compiled by numba.

NumPy and compiled loops let other threads run while they compute, so plain threads are enough. The rows being worked on
are the only memory besides input and output.

`njit` is the compiler of all compiled loops; its first call imports numba, which keeps compiled code on disk: beside
the source, in $NUMBA_CACHE_DIR or in the user's cache folder. A service in a container or under systemd often may write
to none of them; each of its processes then compiles for itself, which takes some seconds at the first call. (A folder
of ours for all users would be no remedy: numba runs whatever code it finds there.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unkgcp.lazy import needed

ROWS = 1 << 16
"""Rows a chunk: its float64 temporaries of 512 KiB stay in the cache, and calls of NumPy are worth their time."""
_ROWS_A_TASK = 4 * ROWS
FEWEST = 2048  # rows of a compiled loop that are worth a thread
TRIED = ((0, 60), (0, 68))
"""The first and the last version of numba with which `njit(alone=True)` was tried; others load as numba does."""


def cores() -> int:
    """The cores this process may use, which may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_chunks(size: int, work: Callable[[int, int], None], rows: int = ROWS) -> None:
    """Call `work(start, stop)` for consecutive chunks of range(size); the earliest error is raised.

    `work` must write only to its own rows. Rounding to infinity and to zero is expected in it, not reported.
    """

    def task(first: int) -> None:
        with np.errstate(all="ignore"):
            last = min(first + _ROWS_A_TASK, size)
            for start in range(first, last, rows):
                work(start, min(start + rows, last))

    _shared(range(0, size, _ROWS_A_TASK), task)


def in_threads(n: int, work: Callable[[slice], None], fewest: int = FEWEST) -> None:
    """Call `work` with slices that together are the rows 0 .. n; `fewest` rows are worth a thread."""
    chunks = max(1, min(cores(), n // fewest))
    _shared([slice(n * part // chunks, n * (part + 1) // chunks) for part in range(chunks)], work)


def places_in(
    ordered: NDArray[Any], keys: NDArray[Any], side: Literal["left", "right"] = "left"
) -> NDArray[np.intp]:
    """What `np.searchsorted` gives, in a third of the time: keys are looked up in their order, so that what one of them
    reads is in the cache for the next.
    """
    places = np.empty(len(keys), np.intp)

    def work(start: int, stop: int) -> None:
        order = np.argsort(keys[start:stop])
        places[start:stop][order] = np.searchsorted(ordered, keys[start:stop][order], side)

    run_chunks(len(keys), work, _ROWS_A_TASK)
    return places


def _shared(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
    """Tasks among the cores, one after the other where there is one only; the error of the earliest is raised."""
    threads = min(cores(), len(tasks))
    if threads < 2:
        for task in tasks:
            work(task)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, tasks))


def njit(*signature: Any, alone: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator like `numba.njit`, with numba's cache on disk where there can be one.

    `alone`, for functions without a signature: cached code is loaded by `alone_cache`. Not for parallel loops, and
    their modules should call no `sum` or `max` of arrays: that would load SciPy anyway.
    """
    numba = needed("numba")
    compiler: Any = numba.njit

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            made = compiler(*signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return compiler(*signature, **options)(function)
        if alone and TRIED[0] <= numba.version_info.short <= TRIED[1]:
            made._cache = alone_cache()(function)
        load = made._cache.load_overload

        def load_or_forget(signature: Any, context: Any) -> Any:
            try:
                return load(signature, context)
            # left by another version of the program, whose names are gone
            except (AttributeError, ImportError):
                made._cache.flush()

        made._cache.load_overload = load_or_forget
        return made

    return compiled


@cache
def alone_cache() -> Any:
    """numba's cache of a function on disk, made to load the function alone.

    Before numba looks into its cache it loads all that compiling could need, SciPy's linear algebra among it, which
    takes longer than answering fifty queries. A compiled function needs only the part of numba that hands out memory
    for arrays. If the function is not in the cache, numba itself prepares its compiler, as always.
    """
    caching, runtime = (import_module(f"numba.core.{name}") for name in ("caching", "runtime"))

    class AloneCache(caching.FunctionCache):  # type: ignore[misc,name-defined]
        def load_overload(self, signature: Any, context: Any) -> Any:
            runtime.rtsys.initialize(context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(signature, context)

    return AloneCache
