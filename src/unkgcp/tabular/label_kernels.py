"""The compiled look-up of labels: a hash table of texts, which is kept, unlike Arrow's own.

Importing this imports numba. A text that is looked up lies between two neighbouring `starts` of the bytes of its
column, as Arrow lays it out; bytes come as `words`, overlapping numbers of eight bytes each, one for every byte. The
texts of the table lie in `records`, numbers of eight bytes: the place of a label and its length in one, then its text.
A slot holds where a record begins and, above it, bits of its hash, by which other labels are nearly always known
without a look at their text; -1 is an empty slot. Slots of a block are read together, and then records, so that the
processor fetches them at once: of a large vocabulary none is in its cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.loops import njit

U = np.uint64
FACTOR, ONE, EIGHT, HALF = U(0x9E3779B97F4A7C15), U(1), U(8), U(32)
LOW = np.int64(0xFFFFFFFF)  # of a slot: where the record begins; of the first number of a record: the length
BLOCK = 64
WORD = 8  # bytes


class LabelTable:
    """The places of labels by their text."""

    def __init__(self, labels: pa.StringArray) -> None:
        self._slots, self._held = np.zeros(0, np.int64), 0
        self.hold(labels)

    def hold(self, labels: pa.StringArray) -> None:
        """Take in these labels, which begin with those that it holds."""
        if 2 * len(labels) >= len(self._slots):
            self._slots = np.full(1 << (2 * len(labels)).bit_length(), -1, np.int64)
            self._records, self._held = np.zeros(0, np.int64), 0
        words, starts = _texts(labels)
        sizes = (np.diff(starts[self._held :]) + 2 * WORD - 1) // WORD
        first = len(self._records)
        self._records = np.append(self._records, np.zeros(sizes.sum(), np.int64))
        fill(words, starts, self._held, self._records, first, self._slots)
        self._held = len(labels)

    def places(self, labels: pa.StringArray) -> NDArray[np.int32]:
        """The place of each of these labels, -1 for one that it does not hold: (n,)."""
        out = np.empty(len(labels), np.int32)
        find(self._records, self._slots, *_texts(labels), out)
        return out


def _texts(labels: pa.StringArray) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """The words of a column and where its texts start, (n + 1,), both read-only."""
    _, offsets, content = labels.buffers()
    starts = np.frombuffer(offsets or bytes(4), np.int32)[labels.offset :][: len(labels) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    data = np.pad(data, (0, WORD)) if len(data) < WORD else data
    words = np.ndarray((len(data) - WORD + 1,), np.uint64, data, strides=(1,))
    words.flags.writeable = starts.flags.writeable = False
    return words, starts


exact: dict[str, Any] = {"alone": True, "nogil": True, "error_model": "numpy"}


@njit(**exact)
def word(words: Any, at: Any, end: Any) -> Any:
    """The next eight bytes of a text as a number, or those that are left of it, at least one."""
    if end - at >= EIGHT:
        return words[at]
    base = min(at, U(len(words) - 1))
    return (words[base] >> (EIGHT * (at - base))) & ((ONE << (EIGHT * (end - at))) - ONE)


@njit(**exact)
def hash_of(words: Any, start: Any, stop: Any) -> Any:
    """63 bits of the text between two places."""
    at, end = U(start), U(stop)
    value = (end - at) * FACTOR
    while at < end:
        value = (value ^ word(words, at, end)) * FACTOR
        value ^= value >> HALF
        at += EIGHT
    return np.int64((value * FACTOR) >> ONE)


@njit(**exact)
def fill(words: Any, starts: Any, first: Any, records: Any, record: Any, slots: Any) -> None:
    """Enter the texts from `first` on into slots, whose number is a power of two, and into records from one on."""
    mask = len(slots) - 1
    for i in range(first, len(starts) - 1):
        value = hash_of(words, starts[i], starts[i + 1])
        place = value & mask
        while slots[place] >= 0:
            place = (place + 1) & mask
        slots[place] = (value & ~LOW) | record
        records[record] = (i << 32) | (starts[i + 1] - starts[i])
        record += 1
        for at in range(starts[i], starts[i + 1], WORD):
            records[record] = word(words, U(at), U(starts[i + 1]))
            record += 1


@njit(**exact)
def alike(records: Any, record: Any, words: Any, start: Any, stop: Any) -> Any:
    """Whether the text of a record is that between two places, which is as long."""
    for at in range(start, stop, WORD):
        record += 1
        if records[record] != np.int64(word(words, U(at), U(stop))):
            return False
    return True


@njit(**exact)
def find(records: Any, slots: Any, words: Any, starts: Any, out: Any) -> None:
    """Fill `out` (n,) with the places that records have for texts, -1 where there is no such record."""
    mask = len(slots) - 1
    values, seen, begun = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, len(out), BLOCK):
        size = min(BLOCK, len(out) - first)
        for j in range(size):
            values[j] = hash_of(words, starts[first + j], starts[first + j + 1])
            seen[j] = slots[values[j] & mask]
        for j in range(size):
            begun[j] = records[max(seen[j], 0) & LOW]
        for j in range(size):
            start, stop = starts[first + j], starts[first + j + 1]
            value, slot, record = values[j], seen[j], begun[j]
            place = value & mask
            out[first + j] = -1
            while slot >= 0:
                hit = (slot ^ value) & ~LOW == 0 and record & LOW == stop - start
                if hit and alike(records, slot & LOW, words, start, stop):
                    out[first + j] = record >> 32
                    break
                place = (place + 1) & mask
                slot = slots[place]
                record = records[max(slot, 0) & LOW]
