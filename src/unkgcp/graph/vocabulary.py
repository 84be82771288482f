"""The labels of a graph's entities and relations, and the way between labels and integer ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Entity and relation labels; the position of a label is its id.

    >>> vocabulary = Vocabulary.of(["a", "b"], ["likes"])
    >>> vocabulary.entity_ids(["b", "nobody"]).tolist()
    [1, -1]
    """

    entities: pa.StringArray
    relations: pa.StringArray

    @classmethod
    def of(cls, entities: Sequence[str], relations: Sequence[str]) -> Vocabulary:
        return cls(pa.array(entities, pa.string()), pa.array(relations, pa.string()))

    def entity_ids(self, labels: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return _ids(labels, self.entities)

    def relation_ids(self, labels: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return _ids(labels, self.relations)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return bool(self.entities.equals(other.entities) and self.relations.equals(other.relations))

    def __hash__(self) -> int:
        return hash((len(self.entities), len(self.relations)))


def _ids(labels: Sequence[str] | pa.Array | pa.ChunkedArray, known: pa.StringArray) -> Ids:
    if not isinstance(labels, pa.Array | pa.ChunkedArray):
        labels = pa.array(labels, pa.string())
    found = pc.fill_null(pc.index_in(labels, value_set=known), -1)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return np.asarray(found, dtype=np.int32)
