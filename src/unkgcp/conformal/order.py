"""Numbers that are put in order once, and only as far as anybody asked.

The threshold of one level is one rank, and finding it takes a fraction of the time of sorting. So the first
few ranks of a large calibration set are selected; the first p-value, or one rank more, sorts it for good. Every
answer is the same as after sorting at once. Safe to ask from several threads.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

WORTH_SELECTING = 1_000_000
"""Smaller arrays are sorted at once."""
FEW = 8
"""How many ranks are selected before sorting is cheaper."""


class Order:
    """Takes over an array (l,) and answers with its k-th smallest values; `in_order` says it is sorted already.

    >>> Order(np.array([0.3, 0.1, 0.2])).smallest([1, 3]).tolist()
    [0.1, 0.3]
    """

    def __init__(self, values: Floats, in_order: bool = False) -> None:
        self._values = values
        self._lock = Lock()
        self._places: list[int] = []  # positions that hold what they would hold after sorting
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
        places = sorted({rank - 1 for rank in ranks})
        with self._lock:
            if not self._sorted:
                new = [place for place in places if place not in self._places]
                if len(self._places) + len(new) > FEW:
                    self._sort()
                else:
                    for place in new:
                        self._select(place)
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

    def _select(self, place: int) -> None:
        # what lies between two places already found is smaller than the one and larger than the other
        index = bisect(self._places, place)
        start = self._places[index - 1] + 1 if index else 0
        stop = self._places[index] if index < len(self._places) else len(self._values)
        self._values[start:stop].partition(place - start)
        self._places.insert(index, place)
