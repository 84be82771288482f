"""Labels that begin with what somebody has typed so far, whatever its case; fast for any number of labels.

What it is: the labels in the order of their lower-case forms, searched by halving, so that half a million
labels take about twenty comparisons. What it is not: a spelling corrector.

>>> search = LabelSearch(pa.array(["MDM2", "mdm4", "TP53"]))
>>> search.find("MD", 10).ids.tolist()
[0, 1]
"""

from __future__ import annotations

from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SEPARATOR = b"\xff"


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
        # all labels in one text, between them a byte that no text has: a search through it stops at the first few
        self._text: bytes = SEPARATOR.join(self._lower.cast(pa.binary()).to_pylist())
        lengths = np.asarray(pc.binary_length(self._lower), np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths + 1)])

    def find(self, text: str, limit: int, anywhere: bool = False) -> Found:
        """Labels that begin with the text, in alphabetical order; `anywhere` adds those that contain it later on."""
        wanted: str = _plain(pa.array([text], pa.string()))[0].as_py()
        start, stop = self._range(wanted)
        places = np.arange(start, min(stop, start + limit + 1))
        if anywhere and wanted and len(places) <= limit:
            later = self._holding(wanted.encode(), (start, stop), limit + 1 - len(places))
            places = np.concatenate([places, np.array(later, np.int64)])
        return Found(self._order[places[:limit]], len(places) > limit)

    def _holding(self, wanted: bytes, but: tuple[int, int], limit: int) -> list[int]:
        """The first places of labels that hold the text, except a range that is known already."""
        found: list[int] = []
        at = 0
        while len(found) < limit and (at := self._text.find(wanted, at)) >= 0:
            place = int(np.searchsorted(self._starts, at, side="right")) - 1
            after = place + 1
            if but[0] <= place < but[1]:
                after = but[1]
            else:
                found.append(place)
            at = int(self._starts[after])
        return found

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
    # not Arrow's own NFKC: up to version 19 at least it leaves accents apart from their letters
    composed = [normalize("NFKC", label) for label in labels.to_pylist()]
    return pc.utf8_lower(pa.array(composed, pa.string()))
