"""What every reader hands on: some facts as Arrow columns.

A reader is an iterator over batches in the order of the file. Beside what the caller makes of a batch it yields
a function that says what is wrong with that batch: it is slow, and called only when something is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError

LABELS = pa.dictionary(pa.int32(), pa.binary())


T = TypeVar("T")
Batches = Iterator[tuple[T, Callable[[], InputError]]]


class Malformed(Exception):
    """Raised where a quick check of many rows fails; the reader then finds the row and the words."""


@dataclass(slots=True)
class Batch:
    """Consecutive rows of a file, labels as bytes not yet known to be valid UTF-8.

    `confidence` is None when only triples were asked for.
    """

    head: pa.BinaryArray
    relation: pa.DictionaryArray
    tail: pa.BinaryArray
    confidence: pa.DoubleArray | None

    def __len__(self) -> int:
        return len(self.head)

    def where(self, keep: pa.BooleanArray) -> Batch:
        confidence = None if self.confidence is None else self.confidence.filter(keep)
        return Batch(self.head.filter(keep), self.relation.filter(keep), self.tail.filter(keep), confidence)

    def without_missing(self) -> Batch:
        """Without the rows whose confidence is empty or NaN."""
        if self.confidence is None:
            return self
        missing = pc.is_null(self.confidence, nan_is_null=True)
        return self.where(pc.invert(missing)) if missing.true_count else self


def one_relation(label: str, length: int) -> pa.DictionaryArray:
    """The relation column of a file that has but one relation and no column for it."""
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), pa.array([label.encode()], pa.binary()))


def acceptable(labels: pa.Array) -> bool:
    """Whether labels are valid UTF-8, not empty, and free of NUL bytes."""
    if not len(labels):
        return True
    if pc.min(pc.binary_length(labels)).as_py() == 0 or pc.any(pc.match_substring(labels, "\0")).as_py():
        return False
    try:
        labels.cast(pa.large_string() if pa.types.is_large_binary(labels.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True
