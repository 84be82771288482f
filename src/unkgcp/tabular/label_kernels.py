"""The compiled look-up of labels: a hash table over the texts of an Arrow column, which is kept, unlike Arrow's own.

Importing this imports numba. A text lies between two neighbouring `starts` of the bytes of its column, as Arrow lays it
out; bytes come as `words`, overlapping numbers of eight bytes each, one for every byte. A slot of a table holds the
place of a label and, above it, bits of its hash, by which other labels are nearly always known without a look at their
text; -1 is an empty slot. Slots of a block are read together, so that the processor fetches them at once: of a large
vocabulary none is in its cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.loops import njit
from unkgcp.tabular.arrow_arrays import values

U = np.uint64
FACTOR, ONE, EIGHT, HALF = U(0x9E3779B97F4A7C15), U(1), U(8), U(32)
PLACE = np.int64(0xFFFFFFFF)  # the bits of a slot that are a place
BLOCK = 64
WORD = 8  # bytes


class LabelTable:
    """The places of labels by their text."""

    def __init__(self, labels: pa.StringArray) -> None:
        self.labels = _texts(labels)
        self.table = np.full(1 << (2 * len(labels)).bit_length(), -1, np.int64)
        fill(*self.labels, self.table)

    def places(self, labels: pa.StringArray) -> NDArray[np.int32]:
        """The place of each of these labels, -1 for null and for one that is not there: (n,)."""
        out = np.empty(len(labels), np.int32)
        find(*self.labels, self.table, *_texts(labels), out)
        if labels.null_count:
            out[values(labels.is_null())] = -1
        return out


def _texts(labels: pa.StringArray) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """The words of a column and where its texts start, (n + 1,), both read-only."""
    _, offsets, content = labels.buffers()
    starts = np.frombuffer(offsets or b"", np.int32)[labels.offset : labels.offset + len(labels) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    data = np.pad(data, (0, WORD)) if len(data) < WORD else data
    words = np.ndarray((len(data) - WORD + 1,), np.uint64, data, strides=(1,))
    words.flags.writeable = starts.flags.writeable = False
    return words, starts


exact: dict[str, Any] = {"alone": True, "nogil": True, "error_model": "numpy"}


@njit(**exact)
def rest(words: Any, at: Any, end: Any) -> Any:
    """The bytes of a text from a place on, of which fewer than eight are left, as a number."""
    if at == end:
        return U(0)
    base = min(at, U(len(words) - 1))
    return (words[base] >> (EIGHT * (at - base))) & ((ONE << (EIGHT * (end - at))) - ONE)


@njit(**exact)
def hash_of(words: Any, start: Any, stop: Any) -> Any:
    """63 bits of the text between two places."""
    at, end = U(start), U(stop)
    value = (end - at) * FACTOR
    while at + EIGHT <= end:
        value = (value ^ words[at]) * FACTOR
        value ^= value >> HALF
        at += EIGHT
    value = (value ^ rest(words, at, end)) * FACTOR
    value = (value ^ (value >> HALF)) * FACTOR
    return np.int64((value ^ (value >> HALF)) >> ONE)


@njit(**exact)
def alike(one: Any, start: Any, other: Any, begin: Any, length: Any) -> Any:
    """Whether two texts of a length are the same."""
    a, b, end = U(start), U(begin), U(start) + U(length)
    while a + EIGHT <= end:
        if one[a] != other[b]:
            return False
        a, b = a + EIGHT, b + EIGHT
    return rest(one, a, end) == rest(other, b, b + (end - a))


@njit(**exact)
def fill(words: Any, starts: Any, table: Any) -> None:
    """Enter labels into an empty table, whose size is a power of two."""
    mask = len(table) - 1
    for i in range(len(starts) - 1):
        value = hash_of(words, starts[i], starts[i + 1])
        place = value & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = (value & ~PLACE) | i


@njit(**exact)
def find(words: Any, starts: Any, table: Any, asked: Any, begins: Any, out: Any) -> None:
    """Fill `out` (n,) with the places of the texts `asked` among the labels of a table, -1 where it lacks one."""
    mask = len(table) - 1
    values, slots = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, len(out), BLOCK):
        size = min(BLOCK, len(out) - first)
        for j in range(size):
            values[j] = hash_of(asked, begins[first + j], begins[first + j + 1])
            slots[j] = table[values[j] & mask]
        for j in range(size):
            i, value, slot = first + j, values[j], slots[j]
            place, length = value & mask, begins[i + 1] - begins[i]
            out[i] = -1
            while slot >= 0:
                label = slot & PLACE
                if (slot ^ value) & ~PLACE == 0 and starts[label + 1] - starts[label] == length:
                    if alike(words, starts[label], asked, begins[i], length):
                        out[i] = label
                        break
                place = (place + 1) & mask
                slot = table[place]
