"""A growing table from labels to integer ids, for columns of millions of labels at a time.

It is not a dictionary of Python strings: it works on whole Arrow columns with NumPy. A label is held as its last
64 bytes in eight words and found through an open-addressing table by comparing these words, which settles all
but very long labels; of those the eighth word is a hash of everything before, and the bytes are compared as well.
Two labels are never taken for each other.

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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Words = NDArray[np.uint64]
Slots = NDArray[np.intp]

# Rows handled at a time: enough to drown the overhead of a call, few enough to stay in a core's cache.
CHUNK = 16384
# Bytes of a label that are compared as words, and the number of these words.
EXACT, WORDS = 64, 8
# Labels from this length on share the part of their tags that tells the length.
LONGEST = 0x7FFF
# Beginnings longer than this are hashed one by one: a loop over their words would visit them alone anyway.
LONG = 256

_ODD = np.array(
    [
        0x9E3779B97F4A7C15,
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
        0xD6E8FEB86659FD93,
        0xD1B54A32D192ED03,
        0xAEF17502108EF2D9,
        0xF1357AEA2E62A9C5,
        0x8CB92BA72F3D8DD7,
        0xABC98388FB8FAC03,
    ],
    np.uint64,
)
_HALF = np.uint64(32)
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_EMPTY = np.int64(-1)


class Keys(NamedTuple):
    """What labels are compared by: their length in bytes (n,), and as many words (m, n) as the longest needs."""

    length: NDArray[np.int64]
    words: list[Words]

    def at(self, rows: NDArray[np.intp] | slice) -> Keys:
        return Keys(self.length[rows], [word[rows] for word in self.words])


class LabelIndex:
    """Labels and their ids, in the order in which the labels were first seen. Labels are binary arrays."""

    def __init__(self, labels: pa.Array | None = None) -> None:
        """Start empty, or with these distinct labels as ids 0, 1, 2, ..."""
        self._size = 0
        # the words of a label lie in one line of the cache, or in two for the rarer long ones
        self._words = [np.zeros((1024, 4), np.uint64), np.zeros((1024, 4), np.uint64)]
        self._offsets = np.zeros(1025, np.int64)
        self._bytes = np.zeros(1 << 14, np.uint8)
        self._new_table(12)
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

        Only the table is copied: of words and bytes, growing never changes what is there.
        """
        other = LabelIndex.__new__(LabelIndex)
        other.__dict__.update(self.__dict__)
        other._table, other._words = self._table.copy(), list(self._words)
        return other

    def find(self, column: pa.Array) -> Ids:
        """Ids of labels, -1 for an unknown one: (n,) int32."""
        ids = np.empty(len(column), np.int32)
        for start in range(0, len(ids), CHUNK):
            ids[start : start + CHUNK] = self._find(column.slice(start, CHUNK))
        return ids

    def encode(self, column: pa.Array) -> Ids:
        """Ids of labels, unknown ones added in the order of the column: (n,) int32."""
        ids = self.find(column)
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            new = column.take(pa.array(unknown)).dictionary_encode()
            ids[unknown] = np.asarray(new.indices) + np.int32(self._size)
            for start in range(0, len(new.dictionary), CHUNK):
                self._add(new.dictionary.slice(start, CHUNK))
        return ids

    def _find(self, column: pa.Array) -> Ids:
        keys = _keys(column)
        starts = _run_starts(keys)
        if starts is None:
            return self._search(column, keys)
        rows = np.flatnonzero(starts)
        ids = self._search(_taken(column, keys, rows), keys.at(rows))
        repeated: Ids = ids[np.cumsum(starts) - 1]
        return repeated

    def _search(self, column: pa.Array, keys: Keys) -> Ids:
        slot, tag = _spread(keys, self._bits)
        held = self._probe(slot, tag)
        same = self._compare(column, keys, held)
        ids: Ids = np.where(same, held, np.int32(-1))
        rows = np.flatnonzero(~same & (held >= 0))
        while len(rows):  # another label with the same tag: ours may come behind it
            after = slot[rows] + 1 & self._mask
            held = self._probe(after, tag[rows])
            slot[rows] = after
            same = self._compare(_taken(column, keys, rows), keys.at(rows), held)
            ids[rows[same]] = held[same]
            rows = rows[~same & (held >= 0)]
        return ids

    def _probe(self, slot: Slots, tag: Ids) -> Ids:
        """The ids under these tags, -1 if there is none; `slot` moves to where the search ended."""
        entry = self._table[slot].view(np.int32).reshape(-1, 2)
        rows = np.flatnonzero((entry[:, 1] != tag) & (entry[:, 0] >= 0))
        while len(rows):
            after = slot[rows] + 1 & self._mask
            found = self._table[after].view(np.int32).reshape(-1, 2)
            slot[rows], entry[rows] = after, found
            rows = rows[(found[:, 1] != tag[rows]) & (found[:, 0] >= 0)]
        return entry[:, 0]

    def _compare(self, column: pa.Array, keys: Keys, ids: Ids) -> NDArray[np.bool_]:
        """Whether these ids, of labels of the same length, are those of the labels."""
        same: NDArray[np.bool_] = ids >= 0
        for place, word in enumerate(keys.words):
            if place % 4 == 0:
                stored = self._words[place // 4].take(ids, axis=0, mode="clip")
            same &= stored[:, place % 4] == word
        if len(keys.words) == WORDS:
            rows = np.flatnonzero(same & (keys.length > EXACT))
            labels = self.labels().take(pa.array(ids[rows]))
            same[rows] = np.asarray(pc.equal(column.take(pa.array(rows)), labels))
        return same

    def _add(self, labels: pa.Array) -> None:
        """Labels that are distinct and new get the next ids."""
        first, self._size = self._size, self._size + len(labels)
        data, offsets = _buffers(labels)
        start = int(self._offsets[first])
        end = start + int(offsets[-1] - offsets[0])
        self._bytes = _grown(self._bytes, end)
        self._bytes[start:end] = data[offsets[0] : offsets[-1]]
        self._offsets = _grown(self._offsets, self._size + 1)
        self._offsets[first : self._size + 1] = offsets - np.int64(offsets[0]) + start
        self._words = [_grown(words, self._size) for words in self._words]
        keys = _keys(labels)
        for place, word in enumerate(keys.words):
            self._words[place // 4][first : self._size, place % 4] = word
        if self._size * 2 > len(self._table):
            self._new_table(int(self._size * 4).bit_length())
            first = 0
        self._place(first)

    def _place(self, first: int) -> None:
        """Write the ids from `first` on to the table; of several that want one slot, one gets it each round."""
        ids = np.arange(first, self._size, dtype=np.int32)
        words = [self._words[place // 4][first : self._size, place % 4] for place in range(WORDS)]
        slot, tag = _spread(Keys(np.diff(self._offsets[first : self._size + 1]), words), self._bits)
        entry = np.stack([ids, tag], axis=1).view(np.int64)[:, 0]
        while len(entry):
            free = self._table[slot] == _EMPTY
            self._table[slot[free]] = entry[free]
            rest = np.flatnonzero(self._table[slot] != entry)
            entry, slot = entry[rest], slot[rest] + 1 & self._mask

    def _new_table(self, bits: int) -> None:
        """A slot holds an id and its label's tag, in one number; -1 and -1 if it is empty."""
        self._bits, self._mask = bits, (1 << bits) - 1
        self._table = np.full(1 << bits, _EMPTY, np.int64)


def binary(column: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """A column of labels as one binary array, without copying where that can be."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _keys(column: pa.Array) -> Keys:
    """Words from the end of each label on: the last eight bytes, those before, and so on; 0 behind its start."""
    data, offsets = _buffers(column)
    bounds = offsets.astype(np.int64)
    if bounds[-1] + 8 > len(data):  # words are read eight bytes at a time, past the end of the last label
        data = np.concatenate([data[bounds[0] : bounds[-1]], np.zeros(8, np.uint8)])
        bounds -= bounds[0]
    text: Words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    start, position = bounds[:-1], bounds[1:].copy()
    length = position - start
    shortest, longest = (int(length.min()), int(length.max())) if len(length) else (0, 0)
    words = []
    for done in range(0, min(longest, EXACT), 8):
        position -= 8
        word = text[position] if shortest >= done + 8 else text[np.maximum(position, start)]
        if shortest <= done:
            word[length <= done] = 0
        if done == 0 and shortest < 8:
            short = np.flatnonzero(length < 8)
            word[short] &= _LOW_BYTES[length[short]]
        words.append(word)
    if longest > EXACT:
        rows = np.flatnonzero(length > EXACT)
        words[-1][rows] = _hash(data, text, start[rows], length[rows] - (EXACT - 8))
    return Keys(length, words)


def _taken(column: pa.Array, keys: Keys, rows: NDArray[np.intp]) -> pa.Array:
    """These rows of a column, if it has labels so long that they will be looked at again."""
    return column.take(pa.array(rows)) if len(keys.words) == WORDS else column


def _run_starts(keys: Keys) -> NDArray[np.bool_] | None:
    """Rows whose label is not that of the row before (n,), if labels come in runs as in most sorted files.

    Two very long labels in a row may have the same keys and still differ, so of these every one starts a run.
    """
    for rows in (slice(0, 512), slice(None)):  # a look at some rows tells whether all are worth one
        part = keys.at(rows)
        starts = np.ones(len(part.length), np.bool_)
        starts[1:] = part.length[1:] != part.length[:-1]
        for word in part.words:
            starts[1:] |= word[1:] != word[:-1]
        if len(part.words) == WORDS:
            starts |= part.length > EXACT
        if np.count_nonzero(starts) * 2 > len(starts):
            return None
    return starts


def _spread(keys: Keys, bits: int) -> tuple[Slots, Ids]:
    """Where in a table of 2^bits slots to look first, and the tag to look for: (n,) each.

    Half of a tag is the length, so that labels with the same tag have the same length as well, or very long ones.
    """
    mixed = keys.length.view(np.uint64) * _ODD[WORDS]
    for word, odd in zip(keys.words, _ODD, strict=False):
        mixed ^= word * odd
    mixed ^= mixed >> _HALF
    mixed *= _ODD[0]
    tag = (mixed >> _HALF).astype(np.uint16).astype(np.int32)
    tag |= np.minimum(keys.length, LONGEST).astype(np.int32) << 16
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.intp), tag


def _hash(data: NDArray[np.uint8], text: Words, start: NDArray[np.int64], length: NDArray[np.int64]) -> Words:
    """A hash of all bytes: (n,)."""
    state: Words = length.view(np.uint64) * _ODD[1]
    for position in range(0, min(int(length.max()), LONG), 8):
        rows = np.flatnonzero(length > position)
        word = text[start[rows] + position]
        word &= _LOW_BYTES[np.minimum(length[rows] - position, 8)]
        word ^= state[rows]
        word *= _ODD[0]
        word ^= word >> _HALF
        state[rows] = word
    for row in np.flatnonzero(length > LONG).tolist():
        label = data[start[row] : start[row] + length[row]].tobytes()
        state[row] = int.from_bytes(blake2b(label, digest_size=8).digest(), "little")
    return state


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
    larger = np.zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
