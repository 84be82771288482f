"""Labels and their ids: columns of labels looked up in a vocabulary, and a vocabulary that grows while a file is read.

>>> LabelIds(pa.array(["a", "b"]), pa.array(["likes"])).entity_ids(["b", "nobody"]).tolist()
[1, -1]
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import numbers, one_array, values

if TYPE_CHECKING:
    from unkgcp.tabular.label_kernels import LabelTable

Ids = NDArray[np.int32]
Labels: TypeAlias = pa.Array | pa.ChunkedArray

OPEN = "?"
"""The label of a head or tail that is to be found."""
KEPT_AFTER = 1 << 20
"""Labels that Arrow goes through, making a hash table anew each time, before a compiled one is made that is kept."""


def as_labels(labels: Sequence[Any], kind: pa.DataType | None = pa.string()) -> pa.Array:  # noqa: B008
    """Labels that a caller gave, as an Arrow column; InputError where one is no text. kind: None to infer it."""
    try:
        return pa.array(labels, kind)
    except UnicodeEncodeError as error:
        raise InputError(
            f"the label {error.object!r} holds half of a surrogate pair, which is no character: correct it"
        ) from None


@dataclass(frozen=True, slots=True, eq=False)
class LabelIds:
    """The labels of entities and of relations, by which columns of labels become ids."""

    entities: pa.StringArray
    relations: pa.StringArray
    _places: dict[str, LabelPlaces] = field(default_factory=dict, init=False, repr=False)

    def entity_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return self._ids("entities", labels)

    def relation_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return self._ids("relations", labels)

    def triple_ids(self, head: Labels, relation: Labels, tail: Labels) -> tuple[Ids, Ids, Ids]:
        """Ids of the three columns of triples, -1 for an unknown label: (n,) int32 each."""
        return self.entity_ids(head), self.relation_ids(relation), self.entity_ids(tail)

    def _ids(self, kind: str, labels: Sequence[str] | Labels) -> Ids:
        column = one_array(labels if isinstance(labels, pa.Array | pa.ChunkedArray) else as_labels(labels))
        if kind not in self._places:
            self._places[kind] = LabelPlaces(getattr(self, kind))
        return self._places[kind].find(column)


class LabelPlaces:
    """The places of labels in a list of them, to which new ones may be added."""

    def __init__(self, labels: pa.StringArray) -> None:
        self.labels = labels
        self._labels_seen = 0  # by Arrow, those of its tables among them
        self._table: LabelTable | None = None

    def find(self, column: pa.Array) -> Ids:
        """The place of each label of a column of text or of a dictionary, -1 for a null and for a new one: (n,)."""
        if not pa.types.is_dictionary(column.type) or len(column) < len(column.dictionary):
            return self._of_text(column.cast(pa.string()))
        places = np.append(self._of_text(column.dictionary.cast(pa.string())), np.int32(-1))
        return np.asarray(places[_codes(column.indices.cast(pa.int32()))])  # the last is for null

    def _of_text(self, labels: pa.StringArray) -> Ids:
        if self._table is None:
            self._labels_seen += len(self.labels) + len(labels)
            if self._labels_seen > KEPT_AFTER:
                with suppress(ModuleNotFoundError):  # without numba Arrow goes on
                    from unkgcp.tabular.label_kernels import LabelTable

                    self._table = LabelTable(self.labels)
        if self._table is None:
            return _codes(pc.index_in(labels, value_set=self.labels, skip_nulls=True))
        places = self._table.places(labels)
        if labels.null_count:
            places[values(labels.is_null())] = -1
        return places

    def enter(self, columns: Sequence[pa.Array]) -> NDArray[np.int32]:
        """The places of the labels of columns of one length, none of them null: (columns, n).

        New labels are added as they appear, row by row and from the first column to the last.
        """
        places = np.stack([self.find(column) for column in columns])
        column, row = np.nonzero(places < 0)
        if len(row):
            order = np.argsort(row, kind="stable")
            new = [some.take(numbers(row[column == k])).cast(pa.string()) for k, some in enumerate(columns)]
            encoded = pa.concat_arrays(new).take(numbers(order)).dictionary_encode()
            places[column[order], row[order]] = len(self.labels) + values(encoded.indices)
            self.labels = pa.concat_arrays([self.labels, encoded.dictionary])
            if self._table is not None:
                self._table.hold(self.labels)
        return places


def _codes(column: pa.Int32Array) -> Ids:
    """The numbers of a column, -1 where it is null; a plain -1 as what to fill with would load pandas."""
    return values(column.fill_null(numbers(np.array([-1], np.int32))[0]))
