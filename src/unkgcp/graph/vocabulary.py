"""The labels of a graph's entities and relations, and the way between labels and integer ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from unkgcp.tabular.arrow_arrays import binary, numbers
from unkgcp.tabular.label_index import Ids, LabelIndex

__all__ = ["Ids", "Vocabulary"]

Labels: TypeAlias = pa.Array | pa.ChunkedArray


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

    @classmethod
    def numbered(cls, entities: int, relations: int) -> Vocabulary:
        """Labels 0, 1, 2, ... for so many of each, where only ids matter."""
        return cls(*(numbers(np.arange(size)).cast(pa.string()) for size in (entities, relations)))

    def entity_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return self._indexes_of("entities")["entities"].ids(_column(labels))

    def relation_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return self._indexes_of("relations")["relations"].ids(_column(labels))

    def triple_ids(self, head: Labels, relation: Labels, tail: Labels) -> tuple[Ids, Ids, Ids]:
        """Ids of the three columns of triples, -1 for an unknown label: (n,) int32 each."""
        known = self._indexes_of("entities", "relations")
        return known["entities"].ids(head), known["relations"].ids(relation), known["entities"].ids(tail)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return bool(self.entities.equals(other.entities) and self.relations.equals(other.relations))

    def __hash__(self) -> int:
        return hash((len(self.entities), len(self.relations)))

    def _indexes_of(self, *kinds: str) -> dict[str, LabelIndex]:
        """The indexes, among them those of these kinds of labels; each is made when it is first needed."""
        for kind in kinds:
            if kind not in self._indexes:
                labels = self.entities if kind == "entities" else self.relations
                self._indexes[kind] = LabelIndex(binary(labels))
        return self._indexes


def _column(labels: Sequence[str] | Labels) -> Labels:
    return labels if isinstance(labels, pa.Array | pa.ChunkedArray) else pa.array(labels, pa.string())
