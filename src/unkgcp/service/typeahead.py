"""Labels that begin with what somebody has typed so far, whatever its case; fast for any number of labels.

What it is: the labels in the order of their lower-case forms, searched by halving, so that half a million
labels take about twenty comparisons. What it is not: a spelling corrector.

>>> search = LabelSearch(pa.array(["MDM2", "mdm4", "TP53"]))
>>> search.find("MD", 10).ids.tolist()
[0, 1]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class Found(NamedTuple):
    """Ids of labels, the best first, and whether there are more than those."""

    ids: NDArray[np.int64]
    more: bool


class LabelSearch:
    """Finds labels by their first letters, or by any letters within."""

    def __init__(self, labels: pa.StringArray) -> None:
        lower = _plain(labels)
        order = pc.array_sort_indices(lower)
        self._order: NDArray[np.int64] = order.to_numpy().astype(np.int64)
        self._lower = lower.take(order)

    def find(self, text: str, limit: int, anywhere: bool = False) -> Found:
        """Labels that begin with the text, in alphabetical order; `anywhere` adds those that contain it later on."""
        wanted: str = _plain(pa.array([text], pa.string()))[0].as_py()
        start, stop = self._range(wanted)
        places = np.arange(start, min(stop, start + limit + 1))
        if anywhere and wanted and len(places) <= limit:
            inside = np.flatnonzero(np.asarray(pc.match_substring(self._lower, wanted)))
            inside = inside[(inside < start) | (inside >= stop)]
            places = np.concatenate([places, inside[: limit + 1 - len(places)]])
        return Found(self._order[places[:limit]], len(places) > limit)

    def _range(self, wanted: str) -> tuple[int, int]:
        """First and last place (exclusive) of labels that begin with the text."""
        key = wanted.encode()
        start = self._place(key, len(self._lower))
        # no UTF-8 text has a byte of all ones, so that this is above everything that begins with the key
        return start, self._place(key + b"\xff", len(self._lower))

    def _place(self, key: bytes, high: int) -> int:
        """How many labels are below the key, in the order of their bytes."""
        low = 0
        while low < high:
            middle = (low + high) // 2
            if self._lower[middle].as_py().encode() < key:
                low = middle + 1
            else:
                high = middle
        return low


def _plain(labels: pa.StringArray) -> pa.StringArray:
    """Labels without the differences that typing does not make: case and the way an accent is written."""
    return pc.utf8_lower(pc.utf8_normalize(labels, form="NFKC"))
