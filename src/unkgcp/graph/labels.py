"""A growing table from labels to integer ids, for columns of millions of labels at a time.

It is not a dictionary of Python strings: a label is reduced to a 64-bit fingerprint, fingerprints are looked up
in an open-addressing table with whole-array NumPy operations, and every answer is then compared with the label
itself. A fingerprint shared by two labels therefore costs time, never correctness.

>>> index = LabelIndex()
>>> index.encode(pa.array([b"a", b"b", b"a"])).tolist()
[0, 1, 0]
>>> index.find(pa.array([b"b", b"c"])).tolist()
[1, -1]

Why not Arrow's `dictionary_encode` for every batch and a merge of the dictionaries: both walk a hash table one
label after the other and wait for memory each time. Gathers of a whole array overlap those waits, and the table
lives on from batch to batch, so that nothing is merged.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Fingerprints = NDArray[np.uint64]

# Rows handled at a time: enough to drown the overhead of a call, few enough to stay in a core's cache.
CHUNK = 16384
# Labels longer than this are hashed one by one: a loop over their words would visit them alone anyway.
LONG = 256

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD1B54A32D192ED03)
_HALF = np.uint64(32)
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


class LabelIndex:
    """Labels and their ids, in the order in which the labels were first seen. Labels are binary arrays."""

    def __init__(self, labels: pa.Array | None = None) -> None:
        """Start empty, or with these distinct labels as ids 0, 1, 2, ..."""
        self._size = 0
        self._new_table(12)
        self._offsets = np.zeros(1024, np.int64)
        self._bytes = np.zeros(1 << 14, np.uint8)
        if labels is not None:
            self.encode(labels)
            if len(self) < len(labels):
                raise ValueError("a label stands twice in a vocabulary, so it has no one id")

    def __len__(self) -> int:
        return self._size

    def labels(self, start: int = 0) -> pa.LargeBinaryArray:
        """The labels of ids start, start + 1, ... without a copy."""
        offsets = pa.py_buffer(self._offsets[start : self._size + 1])
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), self._size - start, [None, offsets, pa.py_buffer(self._bytes)]
        )

    def frozen(self) -> LabelIndex:
        """A copy as of now that other threads may search while this index grows.

        The bytes of the labels are shared: growing only ever writes behind them.
        """
        other = LabelIndex.__new__(LabelIndex)
        other.__dict__.update(self.__dict__)
        other._keys, other._values = self._keys.copy(), self._values.copy()
        return other

    def find(self, column: pa.Array, fingerprints: Fingerprints | None = None) -> Ids:
        """Ids of labels, -1 for an unknown one: (n,) int32."""
        return self._find(column, fingerprint(column) if fingerprints is None else fingerprints, level=0)

    def encode(self, column: pa.Array, fingerprints: Fingerprints | None = None) -> Ids:
        """Ids of labels, unknown ones added in the order of the column: (n,) int32."""
        ids = self.find(column, fingerprints)
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            new = column.take(pa.array(unknown)).dictionary_encode()
            ids[unknown] = np.asarray(new.indices) + np.int32(self._size)
            self._add(new.dictionary)
        return ids

    def _find(self, column: pa.Array, fingerprints: Fingerprints, level: int) -> Ids:
        ids = np.empty(len(column), np.int32)
        for start in range(0, len(ids), CHUNK):
            ids[start : start + CHUNK] = self._look_up(fingerprints[start : start + CHUNK])
        other = self._mistaken(column, ids)
        if len(other):
            labels = column.take(pa.array(other))
            ids[other] = self._find(labels, fingerprint(labels, level + 1), level + 1)
        return ids

    def _mistaken(self, column: pa.Array, ids: Ids) -> NDArray[np.intp]:
        """Rows whose id belongs to another label with the same fingerprint."""
        labels = self.labels()
        mistaken = [np.empty(0, np.intp)]
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            known = pa.array(part, mask=part < 0) if part.min() < 0 else pa.array(part)
            equal = pc.equal(column.slice(start, CHUNK), labels.take(known))
            if equal.false_count:
                mistaken.append(start + np.flatnonzero(~np.asarray(equal.fill_null(True))))
        return np.concatenate(mistaken)

    def _look_up(self, fingerprints: Fingerprints) -> Ids:
        slot = (fingerprints >> self._shift).astype(np.intp)
        ids: Ids = self._values[slot]
        rows = np.flatnonzero(self._keys[slot] != fingerprints)
        while len(rows):
            ids[rows] = -1
            rows = rows[self._keys[slot[rows]] != 0]
            slot[rows] = (slot[rows] + 1) & self._mask
            ids[rows] = self._values[slot[rows]]
            rows = rows[self._keys[slot[rows]] != fingerprints[rows]]
        return ids

    def _add(self, labels: pa.Array) -> None:
        """Labels that are distinct and new get the next ids."""
        ids = np.arange(self._size, self._size + len(labels), dtype=np.int32)
        self._append(labels)
        if self._size * 2 > len(self._keys):
            used = self._keys != 0
            old_keys, old_ids = self._keys[used], self._values[used]
            self._new_table(int(self._size * 4).bit_length())
            self._place(old_keys, old_ids)
        level = 0
        while len(ids):
            keys = fingerprint(labels, level)
            free = np.zeros(len(keys), np.bool_)
            free[np.unique(keys, return_index=True)[1]] = True
            free &= self._look_up(keys) < 0
            self._place(keys[free], ids[free])
            # a fingerprint that belongs to another label already: these are found under the next one
            taken = np.flatnonzero(~free)
            labels, ids, level = labels.take(pa.array(taken)), ids[taken], level + 1

    def _place(self, keys: Fingerprints, ids: Ids) -> None:
        """Write distinct, absent keys to the table; of several that want one slot, one gets it each round."""
        slot = (keys >> self._shift).astype(np.intp)
        while len(keys):
            free = self._keys[slot] == 0
            self._keys[slot[free]] = keys[free]
            placed = self._keys[slot] == keys
            self._values[slot[placed]] = ids[placed]
            rest = ~placed
            keys, ids, slot = keys[rest], ids[rest], (slot[rest] + 1) & self._mask

    def _new_table(self, bits: int) -> None:
        self._shift, self._mask = np.uint64(64 - bits), (1 << bits) - 1
        self._keys = np.zeros(1 << bits, np.uint64)  # 0 marks an empty slot; no fingerprint is 0
        self._values = np.full(1 << bits, -1, np.int32)

    def _append(self, labels: pa.Array) -> None:
        data, offsets = _buffers(labels)
        start, size = int(self._offsets[self._size]), self._size + len(labels)
        end = start + int(offsets[-1] - offsets[0])
        self._offsets = _grown(self._offsets, size + 1)
        self._bytes = _grown(self._bytes, end)
        self._offsets[self._size : size + 1] = offsets - np.int64(offsets[0]) + start
        self._bytes[start:end] = data[offsets[0] : offsets[-1]]
        self._size = size


def binary(column: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """A column of labels as one binary array, without copying where that can be."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def fingerprint(column: pa.Array, level: int = 0) -> Fingerprints:
    """A 64-bit hash of every label of a binary column, never 0: (n,) uint64. Each level is another function."""
    data, offsets = _buffers(column)
    result = np.empty(len(column), np.uint64)
    for start in range(0, len(result), CHUNK):
        bounds = offsets[start : start + CHUNK + 1].astype(np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        chunk = data
        if last + 8 > len(data):  # words are read eight bytes at a time, past the end of the last label
            chunk = np.zeros(last - first + 8, np.uint8)
            chunk[:-8] = data[first:last]
            bounds -= first
        words: Fingerprints = np.ndarray((len(chunk) - 7,), "<u8", chunk, 0, (1,))
        result[start : start + CHUNK] = _hash_all(words, bounds, level) if level else _hash_end(words, bounds)
        if level and np.diff(bounds).max() > LONG:
            for row in np.flatnonzero(np.diff(bounds) > LONG):
                result[start + row] = _hash_one(chunk[bounds[row] : bounds[row + 1]].tobytes(), level)
    result[result == 0] = 1
    return result


def _hash_end(words: Fingerprints, bounds: NDArray[np.int64]) -> Fingerprints:
    """Of the length and the last sixteen bytes: quick, and enough to tell most labels apart."""
    start, end = bounds[:-1], bounds[1:]
    length = end - start
    last = words[np.maximum(end - 8, start)]
    state = words[np.maximum(end - 16, start)]
    if length.min() < 8:
        short = np.flatnonzero(length < 8)
        last[short] &= _LOW_BYTES[length[short]]
        state[short] = 0
    state *= _MULTIPLIER
    state ^= state >> _HALF
    state ^= last
    state += length.view(np.uint64) * _OTHER
    state *= _MULTIPLIER
    state ^= state >> _HALF
    state *= _MULTIPLIER
    return state


def _hash_all(words: Fingerprints, bounds: NDArray[np.int64], level: int) -> Fingerprints:
    """Of every byte, for labels that `_hash_end` does not tell apart."""
    start, length = bounds[:-1], np.diff(bounds)
    state = (length.view(np.uint64) + np.uint64(level)) * _OTHER
    for position in range(0, min(int(length.max()), LONG), 8):
        rows = np.flatnonzero(length > position)
        word = words[start[rows] + position]
        word &= _LOW_BYTES[np.minimum(length[rows] - position, 8)]
        word ^= state[rows]
        word *= _MULTIPLIER
        word ^= word >> _HALF
        state[rows] = word
    state *= _MULTIPLIER
    return state


def _hash_one(label: bytes, level: int) -> int:
    return int.from_bytes(blake2b(label, digest_size=8, key=b"%d" % level).digest(), "little")


def _buffers(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Bytes and offsets (n + 1,) of a binary array."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    positions = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), positions


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    if length <= len(array):
        return array
    larger = np.zeros(max(length, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
