"""The labels of a graph's entities and relations, and the way between labels and integer ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from unkgcp.tabular.label_index import Ids, LabelIndex, binary

__all__ = ["Ids", "Vocabulary"]


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Entity and relation labels; the position of a label is its id.

    >>> vocabulary = Vocabulary.of(["a", "b"], ["likes"])
    >>> vocabulary.entity_ids(["b", "nobody"]).tolist()
    [1, -1]
    """

    entities: pa.StringArray
    relations: pa.StringArray
    # made when first needed: a graph that is only read never looks a label up
    _indexes: dict[str, LabelIndex] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, entities: Sequence[str], relations: Sequence[str]) -> Vocabulary:
        return cls(pa.array(entities, pa.string()), pa.array(relations, pa.string()))

    def entity_ids(self, labels: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return self._find(labels, self.entities, "entities")

    def relation_ids(self, labels: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return self._find(labels, self.relations, "relations")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return bool(self.entities.equals(other.entities) and self.relations.equals(other.relations))

    def __hash__(self) -> int:
        return hash((len(self.entities), len(self.relations)))

    def _find(
        self, labels: Sequence[str] | pa.Array | pa.ChunkedArray, known: pa.StringArray, kind: str
    ) -> Ids:
        index = self._indexes.get(kind)
        if index is None:
            index = self._indexes[kind] = LabelIndex(binary(known))
        if not isinstance(labels, pa.Array | pa.ChunkedArray):
            labels = pa.array(labels, pa.string())
        ids = index.find(binary(labels))
        if labels.null_count:
            ids[np.asarray(labels.is_null())] = -1
        return ids
