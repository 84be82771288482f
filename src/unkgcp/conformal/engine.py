"""Scores and ends of the rows of one call: compiled code for large calls, NumPy otherwise and wherever in doubt.

Both give the same floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.chunks import ROWS
from unkgcp.conformal.loading import kernels_for
from unkgcp.conformal.queries import Queries

Floats = NDArray[np.floating[Any]]

# float64 arrays of so many rows are just below the 128 KiB from which on the allocator asks the system for each
_WITH_TEMPORARIES = 15 * 1024
_WITHOUT = 8 * ROWS


class Engine:
    """Computes with the rows of `queries`; compiled if the score is a residual, in float64, and work is large."""

    def __init__(self, queries: Queries, work: int) -> None:
        self.queries = queries
        fits = queries.score.centred and queries.dtype == np.float64
        self.kernels: Any = kernels_for(work) if fits else None
        self.chunk = ROWS
        if self.kernels is not None:
            self.chunk = _WITHOUT if queries.score.takes_scale else _WITH_TEMPORARIES

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
