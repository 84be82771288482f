"""Labels to ids for small batches: labels asked before are remembered.

What it is: a table in front of the vocabulary's index, which is made for columns of thousands; a few hundred
labels are found faster one by one. Only known labels are remembered, and only so many, so that no client can
make it grow. What it is not: for several threads at once.

>>> Lookup(lambda labels: np.array([7 if label == "a" else -1 for label in labels], np.int32)).ids(["a", "b"])
array([ 7, -1], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np

from unkgcp.graph.vocabulary import Ids

MOST = 1_000_000


class Lookup:
    """Ids of labels, -1 for an unknown one; `find` answers for those not seen before."""

    def __init__(self, find: Callable[[Sequence[str]], Ids]) -> None:
        self._find = find
        self._known: dict[str, int] = {}

    def ids(self, labels: Sequence[str]) -> Ids:
        """(n,) int32."""
        ids = np.fromiter(map(self._known.get, labels, repeat(-1)), np.int32, len(labels))
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            new = [labels[place] for place in missing.tolist()]
            ids[missing] = found = self._find(new)
            if len(self._known) < MOST:
                self._known.update(
                    (label, one) for label, one in zip(new, found.tolist(), strict=True) if one >= 0
                )
        return ids
