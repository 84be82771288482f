"""Labels and their ids: columns of labels looked up in a vocabulary, and a vocabulary that grows while a file is read.

>>> LabelIds(pa.array(["a", "b"]), pa.array(["likes"])).entity_ids(["b", "nobody"]).tolist()
[1, -1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import numbers, one_array, values

Ids = NDArray[np.int32]
Labels: TypeAlias = pa.Array | pa.ChunkedArray

OPEN = "?"
"""The label of a head or tail that is to be found."""
FEW = 16  # times as many labels as are looked up: then a dictionary that is kept is quicker than Arrow's


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
    # made when first needed: a graph that is only read never looks a label up
    _id_of: dict[str, dict[str, int]] = field(default_factory=dict, init=False, repr=False)

    def entity_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return self._ids("entities", labels)

    def relation_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return self._ids("relations", labels)

    def triple_ids(self, head: Labels, relation: Labels, tail: Labels) -> tuple[Ids, Ids, Ids]:
        """Ids of the three columns of triples, -1 for an unknown label: (n,) int32 each."""
        if not all(
            isinstance(column, pa.Array) and pa.types.is_string(column.type) for column in (head, tail)
        ):
            return self.entity_ids(head), self.relation_ids(relation), self.entity_ids(tail)
        # at once, since Arrow makes a table of all labels each time
        ends = self._of_text("entities", pa.chunked_array([head, tail]))
        return ends[: len(head)], self.relation_ids(relation), ends[len(head) :]

    def _ids(self, kind: str, labels: Sequence[str] | Labels) -> Ids:
        if not isinstance(labels, pa.Array | pa.ChunkedArray):
            return self._of_text(kind, as_labels(labels))
        column = one_array(labels)
        if not pa.types.is_dictionary(column.type) or len(column) < len(column.dictionary):
            return self._of_text(kind, column.cast(pa.string()))
        ids = np.append(self._of_text(kind, column.dictionary.cast(pa.string())), np.int32(-1))
        return np.asarray(ids[_codes(column.indices.cast(pa.int32()))])  # the last is for null

    def _of_text(self, kind: str, labels: pa.StringArray | pa.ChunkedArray) -> Ids:
        if len(labels) * FEW < len(getattr(self, kind)):
            id_of = self._dictionary(kind)
            return np.array([id_of.get(label, -1) for label in labels.to_pylist()], np.int32)
        return _codes(one_array(pc.index_in(labels, value_set=getattr(self, kind), skip_nulls=True)))

    def _dictionary(self, kind: str) -> dict[str, int]:
        if kind not in self._id_of:
            labels = getattr(self, kind).to_pylist()
            self._id_of[kind] = dict(zip(labels, range(len(labels)), strict=True))
            if len(self._id_of[kind]) < len(labels):
                raise ValueError("a label stands twice in a vocabulary, so it has no one id")
        return self._id_of[kind]


def _codes(column: pa.Int32Array) -> Ids:
    """The numbers of a column, -1 where it is null; a plain -1 as what to fill with would load pandas."""
    return values(column.fill_null(numbers(np.array([-1], np.int32))[0]))


class GrowingLabels:
    """The labels of a vocabulary while files are read: new ones get the next ids."""

    def __init__(self, labels: pa.StringArray | None = None) -> None:
        self.labels = pa.array([], pa.string()) if labels is None else labels

    def encode(self, columns: Sequence[pa.Array]) -> list[Ids]:
        """The ids of columns of strings or dictionaries, in one pass of Arrow over all of them."""
        texts, rows = zip(*map(_used, columns), strict=True) if columns else ((), ())
        filled = [labels for labels in (self.labels, *texts) if len(labels)]
        if not filled:
            return [np.zeros(0, np.int32) for _ in columns]
        encoded = pa.chunked_array(filled).dictionary_encode()
        chunks = iter(encoded.chunks[1 if len(self.labels) else 0 :])
        self.labels = encoded.chunk(0).dictionary
        ids = [values(next(chunks).indices) if len(labels) else np.zeros(0, np.int32) for labels in texts]
        return [codes if of_row is None else codes[of_row] for codes, of_row in zip(ids, rows, strict=True)]

    def renumber(self, first: int, columns: Sequence[Ids]) -> Ids:
        """New ids of all labels (n,), so that those from `first` on follow their first appearance in the columns.

        The labels are put into this order.
        """
        appearance = np.empty(len(self.labels), np.int64)
        end = sum(map(len, columns))
        for ids in reversed(columns):  # backwards, so that the first place of a label is written last
            appearance[ids[::-1]] = np.arange(end - 1, end - 1 - len(ids), -1)
            end -= len(ids)
        appearance[:first] = np.arange(-first, 0)
        order = np.argsort(appearance)
        self.labels = self.labels.take(numbers(order))
        ids = np.empty(len(order), np.int32)
        ids[order] = np.arange(len(order), dtype=np.int32)
        return ids


def _used(column: pa.Array) -> tuple[pa.StringArray, Ids | None]:
    """The labels of a column, without those of a dictionary that no row has, and the place of each row's label."""
    if not pa.types.is_dictionary(column.type):
        return column, None
    used = column.indices.dictionary_encode()
    return column.dictionary.take(used.dictionary), values(used.indices)
