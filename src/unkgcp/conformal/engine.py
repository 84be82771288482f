"""Scores and ends of the rows of one call: compiled code for large calls, NumPy otherwise and wherever in doubt.

Both give the same floats. numba takes a second to load, longer the first time, and is not needed: without it
everything works on NumPy alone.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.chunks import ROWS
from unkgcp.conformal.queries import Queries

Floats = NDArray[np.floating[Any]]

WORTH_LOADING = 10_000_000
"""Rows of one call from which on loading the kernels pays; once loaded they are used for fewer too."""
_MODULE = "unkgcp.conformal.kernels"


class Engine:
    """Computes with the rows of `queries`; compiled if the score is a residual, in float64, and work is large."""

    def __init__(self, queries: Queries, work: int) -> None:
        self.queries = queries
        large = work >= WORTH_LOADING or _MODULE in sys.modules
        fits = queries.score.centred and queries.dtype == np.float64
        self.kernels = _load() if large and fits else None
        # a kernel has no temporaries that should stay in the cache, only a start that larger chunks spread out
        self.chunk = ROWS if self.kernels is None or not queries.score.takes_scale else 8 * ROWS

    def rows(self, start: int, stop: int) -> tuple[Floats, Floats | None]:
        """Prediction and prepared scale of some rows; checked here unless a kernel will do it."""
        if self.kernels is None:
            self.queries.check(start, stop)
        return self.queries.rows(start, stop)

    def fill_ends(
        self,
        rows: tuple[Floats, Floats | None],
        threshold: Any,
        start: int,
        stop: int,
        lower: Floats,
        upper: Floats,
    ) -> None:
        """Write the ends of what `rows(start, stop)` gave, at one threshold or one a row, into `lower`, `upper`."""
        prediction, scale = rows
        if self.kernels is not None:
            unit = np.ones_like(prediction) if scale is None else scale
            fill = self.kernels.ends_at_each if threshold.ndim else self.kernels.ends_at_one
            if fill(prediction, unit, threshold, *self.queries.bounds, lower, upper):
                return
            self.queries.check(start, stop)
        lower[:], upper[:] = self.queries.score.bounds(prediction, threshold, scale, self.queries.bounds)

    def fill_scores(self, truth: Floats, start: int, stop: int, out: Floats) -> None:
        """Write the nonconformity of the labels of some rows into `out`."""
        if self.kernels is not None and truth.dtype.itemsize <= self.queries.dtype.itemsize:
            prediction, scale = self.queries.rows(start, stop)
            unit = np.ones_like(prediction) if scale is None else scale
            label = np.ascontiguousarray(truth[start:stop], self.queries.dtype)
            if self.kernels.scores(prediction, unit, label, *self.queries.bounds, out):
                return
        out[:] = self.queries.scores(truth, start, stop)

    def scores(self, truth: Floats, start: int, stop: int) -> Floats:
        """Nonconformity of the labels of some rows: (n,)."""
        out = np.empty(stop - start, self.queries.dtype)
        self.fill_scores(truth, start, stop, out)
        return out


def _load() -> Any:
    try:
        from unkgcp.conformal import kernels
    except (ImportError, RuntimeError):  # no numba, or nowhere to keep what it compiles
        return None
    return kernels
