"""The conditional distribution of a query's confidence, and the interval that grows through it.

What it is: masses of cells. The interval of a query starts as the heaviest cell of the shortest run that holds half of
the mass, and grows by the stretch with the most mass per width on either side, atoms first, until it is the whole
range. The *nonconformity* of a label is the mass of the interval just before it takes the label in; inside a cell it
rises evenly. One interval for every threshold, each within the next: nested by construction. If intervals may be
*empty*, the first cell has a score too, the mass that it lacks, so that sure queries have theirs before doubtful ones;
all other scores are 1 more. What it is not: calibrated; a threshold comes from calibration facts
(`unkgcp.conformal.predictors.evidence`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.cells import Cells
from unkgcp.evidence.threads import in_threads

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distribution:
    """n queries over K classes of cells and a few values of their own (slots)."""

    cells: Cells
    class_mass: Floats
    """(n, K)"""
    slot_low: Floats
    slot_high: Floats
    """(n, slots) the floats that stand for each suggested value."""
    slot_mass: Floats
    """(n, slots), 0 where there is no suggestion."""

    def __len__(self) -> int:
        return len(self.class_mass)

    def scores(self, label: Floats, empty: bool = False) -> Floats:
        """Nonconformity of a label in [0, 1] a query, from 0 to 1, or to 2 if intervals may be empty: (n,)."""
        out = np.empty(len(self))
        self._run("scores", np.ascontiguousarray(label, np.float64), out, settings=(empty,))
        return out

    def bounds(self, threshold: Floats, empty: bool = False) -> Floats:
        """Smallest and largest label with a score of at most each threshold, NaN if there is none: (n, 2, levels).

        threshold: (n, levels), not negative unless intervals may be empty. Exact: for every float y in [0, 1],
        lower <= y <= upper holds exactly when `scores` gives y at most the threshold.
        """
        ends = np.empty((len(self), 2, threshold.shape[1]))
        self._run("bounds", np.ascontiguousarray(threshold, np.float64), ends, settings=(empty,))
        return ends

    def mean(self) -> Floats:
        """The mean, which has the smallest expected squared error: (n,)."""
        return self._moments()[0]

    def median(self) -> Floats:
        """The median, which has the smallest expected absolute error: (n,)."""
        return self._moments()[1]

    def _moments(self) -> tuple[Floats, Floats]:
        mean, median = np.empty(len(self)), np.empty(len(self))
        self._run("moments", mean, median)
        return mean, median

    def _run(self, kernel: str, *more: NDArray[Any], settings: tuple[bool, ...] = ()) -> None:
        from unkgcp.evidence import kernels

        cells = self.cells
        columns = (self.class_mass, self.slot_low, self.slot_high, self.slot_mass)
        own = [np.ascontiguousarray(column, np.float64) for column in columns]
        compiled: Any = getattr(kernels, kernel)

        def work(rows: slice) -> None:
            compiled(
                cells.low,
                cells.high,
                cells.class_of_piece,
                cells.share,
                *(column[rows] for column in own),
                *(column[rows] for column in more),
                *settings,
            )

        in_threads(len(self), work)
