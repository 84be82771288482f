"""Numbers that are put in order once, and only when anybody needs more than a few ranks.

The threshold of one level is one rank, and finding it takes a tenth of the time of sorting. So where compiled code
is at hand the first few ranks of a large calibration set are selected; the first p-value, or one rank more, sorts
it for good. Every answer is the same as after sorting at once. Safe to ask from several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.chunks import ROWS, run_chunks
from unkgcp.conformal.loading import loaded_kernels

Floats = NDArray[np.floating[Any]]

WORTH_SELECTING = 1_000_000
"""Smaller arrays are sorted at once."""
FEW = 8
"""How many ranks are selected before sorting is cheaper."""
_SAMPLE = 1 << 16


class Order:
    """Takes over an array (l,) and answers with its k-th smallest values; `in_order` if it is sorted already.

    >>> Order(np.array([0.3, 0.1, 0.2])).smallest([1, 3]).tolist()
    [0.1, 0.3]
    """

    def __init__(self, values: Floats, in_order: bool = False) -> None:
        self._values = values
        self._lock = Lock()
        self._known: dict[int, Any] = {}
        self._sorted = in_order
        if len(values) < WORTH_SELECTING:
            self.sorted()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    def smallest(self, ranks: Sequence[int]) -> Floats:
        """The k-th smallest value for each rank k from 1 to l: (ranks,)."""
        with self._lock:
            if not self._sorted and self._select(set(ranks)):
                return np.array([self._known[k] for k in ranks], self.dtype)
            self._sort()
            return self._values[np.array(ranks, np.intp) - 1]

    def sorted(self) -> Floats:
        """All values upwards: (l,). It never changes afterwards."""
        with self._lock:
            self._sort()
        return self._values

    def _sort(self) -> None:
        if not self._sorted:
            self._values.sort()
            self._sorted = True

    def _select(self, ranks: set[int]) -> bool:
        """Make the values at these ranks known without sorting; False if it cannot be done or does not pay."""
        kernels = loaded_kernels()
        if kernels is None or self.dtype != np.float64 or len(self._known.keys() | ranks) > FEW:
            return False
        new = sorted(ranks - self._known.keys())
        found = select(self._values, new, kernels) if new else []
        if found is None:
            return False
        self._known.update(zip(new, found, strict=True))
        return True


def select(values: Floats, ranks: Sequence[int], kernels: Any) -> list[Any] | None:
    """The values at these ranks (upwards), exactly and without moving anything; None if sorting is better.

    A sorted sample gives two values that almost surely enclose the answers. One pass counts what is below the
    lower one and equal to it, and keeps the values between the two, among which the answers are. None if there
    are many of these, or if the sample was misleading.
    """
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
    margin = 5 * int(np.sqrt(len(sample)))
    first, last = (rank * len(sample) // len(values) for rank in (ranks[0], ranks[-1]))
    if last - first > len(sample) // 4:
        return None
    low = sample[first - margin] if first >= margin else np.float64(-np.inf)
    high = sample[last + margin] if last + margin < len(sample) else np.float64(np.inf)
    found: list[tuple[int, int, Floats]] = []

    def work(start: int, stop: int) -> None:
        kept = np.empty(stop - start)
        below, equal, size = kernels.enclosed(values[start:stop], low, high, kept)
        found.append((below, equal, kept[:size].copy()))

    run_chunks(len(values), work, 8 * ROWS)
    below, equal = (sum(part[index] for part in found) for index in (0, 1))
    between = np.concatenate([kept for _, _, kept in found])
    between.sort()
    if ranks[0] <= below or ranks[-1] > below + equal + len(between):
        return None
    return [low if rank <= below + equal else between[rank - below - equal - 1] for rank in ranks]
