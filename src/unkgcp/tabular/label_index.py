"""A growing table from labels to integer ids, for columns of millions of labels at a time.

It works on whole Arrow columns with NumPy. A label is found through an open-addressing table by comparing its last
bytes as 64-bit words. Where words are not enough, for very long labels and for NUL bytes, the labels themselves are
compared as well, so that two labels are never taken for each other.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.tabular.arrow_arrays import binary, buffers, content, numbers, values

Ids = NDArray[np.int32]
Labels: TypeAlias = pa.Array | pa.ChunkedArray

OPEN = "?"
"""The label of a head or tail that is to be found."""

CHUNK = 1 << 17  # rows at a time: so many that threads seldom wait for each other between two calls of NumPy
MANY = 1 << 16  # labels that are worth loading compiled code
SPARSE = 4  # slots of the table for each label
_ALL_FOUR = np.uint32(0x01010101)
_FIRST_BYTE = np.uint64(0xFF)


class LabelIndex:
    """Labels and their ids, in the order in which the labels were first seen. Labels are binary arrays."""

    def __init__(self, labels: pa.Array | None = None) -> None:
        """Start empty, or with these distinct labels as ids 0, 1, 2, ..."""
        self._size = 0
        self._holds_nul = False
        # the last four words of each label, and the four before, which few labels have
        self._last = np.zeros((1024, 4), np.uint64)
        self._before = np.zeros((1024, 4), np.uint64)
        self._offsets = np.zeros(1025, np.int64)
        self._bytes = np.zeros(1 << 14, np.uint8)
        self._new_table(12)
        if labels is not None:
            self._add(labels)
            if not np.array_equal(self.find(labels), np.arange(len(labels))):
                raise ValueError("a label stands twice in a vocabulary, so it has no one id")

    def __len__(self) -> int:
        return self._size

    def labels(self, start: int = 0) -> pa.LargeBinaryArray:
        """The labels of ids start, start + 1, ... without a copy."""
        offsets = pa.py_buffer(self._offsets[start : self._size + 1])
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), self._size - start, [None, offsets, pa.py_buffer(self._bytes)]
        )

    @property
    def settled_by_words(self) -> bool:
        """Whether labels of less than 64 bytes with equal words are equal, as they are unless one holds a NUL byte."""
        return not self._holds_nul

    def search(
        self, kernels: Any, data: NDArray[np.uint8], spans: NDArray[np.int32], add: bool = False
    ) -> Ids:
        """Ids (n,) of labels that stand in `data` from spans[:, 0] to spans[:, 1], by compiled code (`label_kernels`).

        Unknown labels get -1, or are added in their order. Only for labels of less than 64 bytes, and only if no label,
        here or there, holds a NUL byte.
        """
        ids = np.empty(len(spans), np.int32)
        done = 0
        while True:
            table, words = (self._table, self._bits), (self._last, self._before, MULTIPLIERS)
            index = (*table, *words, self._offsets, self._bytes, self._size)
            done, self._size = kernels.look_up(data, spans, ids, done, *index, add)
            if done == len(ids):
                return ids
            room = self._size + kernels.TOGETHER
            self._make_room(room, int(self._offsets[self._size]) + kernels.TOGETHER * kernels.LONGEST)
            if room * SPARSE > len(self._table):
                self._new_table(int(room * SPARSE).bit_length())
                self._place(0)

    def frozen(self) -> LabelIndex:
        """A copy as of now that other threads may search while this index grows.

        Only the table is copied: of words and bytes, growing never changes what is there.
        """
        other = LabelIndex.__new__(LabelIndex)
        other.__dict__.update(self.__dict__)
        other._table = self._table.copy()
        return other

    def ids(self, column: pa.Array | pa.ChunkedArray | Sequence[str]) -> Ids:
        """Ids of a column of text, plain or a dictionary, -1 for an unknown label and for none: (n,) int32."""
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            column = pa.array(column, pa.string())
        if isinstance(column, pa.ChunkedArray) and column.num_chunks != 1:
            parts = [self.ids(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, np.int32)
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(column.type):
            if len(column) >= len(column.dictionary) and not column.null_count:
                # each value of the dictionary is looked up once
                found: Ids = self.ids(column.dictionary)[values(column.indices)]
                return found
            column = column.cast(pa.string())
        ids = self.find(binary(column if column.type == pa.string() else column.cast(pa.string())))
        if column.null_count:
            ids[values(column.is_null())] = -1
        return ids

    def find(self, column: pa.Array) -> Ids:
        """Ids of labels, -1 for an unknown one: (n,) int32."""
        ids = np.empty(len(column), np.int32)
        done = self._find_compiled(column, ids) if len(column) >= MANY else 0
        for start in range(done, len(ids), CHUNK):
            ids[start : start + CHUNK] = self._find(column.slice(start, CHUNK))
        return ids

    def encode(self, column: pa.Array) -> Ids:
        """Ids of labels, unknown ones added in the order of the column: (n,) int32."""
        distinct = column.dictionary_encode()
        ids: Ids = self.encode_distinct(distinct.dictionary)[values(distinct.indices)]
        return ids

    def encode_distinct(self, labels: pa.Array) -> Ids:
        """The same for distinct labels."""
        ids = self.find(labels)
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            ids[unknown] = np.arange(self._size, self._size + len(unknown), dtype=np.int32)
            self._add(labels.take(numbers(unknown)))
        return ids

    def _find_compiled(self, column: pa.Array, ids: Ids) -> int:
        """Fill in the ids; returns how many rows are done: all, or none where compiled code cannot do it."""
        data, offsets = buffers(column)
        if not self.settled_by_words or holds_long(column) or holds_nul(column):
            return 0
        try:
            from unkgcp.tabular import label_kernels
        except ImportError:  # without numba
            return 0
        # compiled code reads some bytes before a label, and there are none before the first labels
        first = int(np.searchsorted(offsets[1:], label_kernels.MARGIN))
        ids[:first] = self._search(column.slice(0, first))
        if first < len(ids):
            spans = np.lib.stride_tricks.sliding_window_view(offsets[first:], 2)
            ids[first:] = self.search(label_kernels, data, spans)
        return len(ids)

    def _find(self, column: pa.Array) -> Ids:
        starts = _run_starts(column)
        if starts is None:
            return self._search(column)
        ids: Ids = self._search(column.take(numbers(np.flatnonzero(starts))))[np.cumsum(starts) - 1]
        return ids

    def _search(self, column: pa.Array) -> Ids:
        words = words_of(column)
        doubtful = column if self._holds_nul or holds_nul(column) or holds_long(column) else None
        slot = slots(words, self._bits)
        ids: Ids = self._table.take(slot)
        rows = np.flatnonzero(~self._same(words, ids, doubtful))
        while len(rows):
            rows = rows[ids[rows] >= 0]  # the slot holds another label: look into the next slot
            slot[rows] = after = slot[rows] + 1 & self._mask
            ids[rows] = held = self._table.take(after)
            part = None if doubtful is None else doubtful.take(numbers(rows))
            rows = rows[~self._same(words[rows], held, part)]
        return ids

    def _same(self, words: Words, ids: Ids, column: pa.Array | None) -> NDArray[np.bool_]:
        """Whether the labels with these ids have these words and, if a column is given, are its labels."""
        more = words.shape[1] - LEAST
        same: NDArray[np.bool_] = _rows_equal(self._last.take(ids, axis=0, mode="clip"), words[:, more:])
        same &= ids >= 0
        # labels that fill the last words, the few with 32 bytes or more, may have others before
        full = np.flatnonzero(words[:, more] & _FIRST_BYTE)
        if len(full):
            full = full[same[full]]
            before = np.zeros((len(full), MOST - LEAST), np.uint64)
            before[:, MOST - LEAST - more :] = words[full, :more]
            same[full] = _rows_equal(self._before.take(ids[full], axis=0), before)
        if column is not None:
            rows = np.flatnonzero(same)
            labels = self.labels().take(numbers(ids[rows]))
            same[rows] = values(pc.equal(column.take(numbers(rows)), labels))
        return same

    def _add(self, labels: pa.Array) -> None:
        """Labels that are distinct and new get the next ids."""
        first, self._size = self._size, self._size + len(labels)
        data, offsets = buffers(labels)
        start = int(self._offsets[first])
        end = start + int(offsets[-1] - offsets[0])
        self._make_room(self._size, end)
        self._bytes[start:end] = data[offsets[0] : offsets[-1]]
        self._offsets[first : self._size + 1] = offsets - np.int64(offsets[0]) + start
        self._holds_nul |= holds_nul(labels)
        words = words_of(labels)
        more = words.shape[1] - LEAST
        self._last[first : self._size] = words[:, more:]
        self._before[first : self._size, : MOST - LEAST - more] = 0
        self._before[first : self._size, MOST - LEAST - more :] = words[:, :more]
        if self._size * SPARSE > len(self._table):
            self._new_table(int(self._size * SPARSE).bit_length())
            first = 0
        self._place(first)

    def _make_room(self, size: int, length: int) -> None:
        """Room for so many labels with so many bytes together."""
        self._bytes = _grown(self._bytes, length)
        self._last, self._before = _grown(self._last, size), _grown(self._before, size)
        self._offsets = _grown(self._offsets, len(self._last) + 1)

    def _place(self, first: int) -> None:
        """Write the ids from `first` on to the table; of several that want one slot, one gets it each round."""
        ids = np.arange(first, self._size, dtype=np.int32)
        slot = slots(
            np.hstack([self._before[first : self._size], self._last[first : self._size]]), self._bits
        )
        while len(ids):
            free = self._table[slot] < 0
            self._table[slot[free]] = ids[free]
            rest = np.flatnonzero(self._table[slot] != ids)
            ids, slot = ids[rest], slot[rest] + 1 & self._mask

    def _new_table(self, bits: int) -> None:
        """2^bits slots for ids, -1 in an empty one."""
        self._bits, self._mask = bits, (1 << bits) - 1
        self._table = np.full(1 << bits, -1, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class LabelIds:
    """The labels of entities and of relations, by which columns of labels become ids."""

    entities: pa.StringArray
    relations: pa.StringArray
    # made when first needed: a graph that is only read never looks a label up
    _indexes: dict[str, LabelIndex] = field(default_factory=dict, init=False, repr=False)

    def entity_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of entity labels, -1 for an unknown one: (n,) int32."""
        return self._index("entities").ids(labels)

    def relation_ids(self, labels: Sequence[str] | Labels) -> Ids:
        """Ids of relation labels, -1 for an unknown one: (n,) int32."""
        return self._index("relations").ids(labels)

    def triple_ids(self, head: Labels, relation: Labels, tail: Labels) -> tuple[Ids, Ids, Ids]:
        """Ids of the three columns of triples, -1 for an unknown label: (n,) int32 each."""
        entities, relations = self._index("entities"), self._index("relations")
        return entities.ids(head), relations.ids(relation), entities.ids(tail)

    def _index(self, kind: str) -> LabelIndex:
        if kind not in self._indexes:
            self._indexes[kind] = LabelIndex(binary(getattr(self, kind)))
        return self._indexes[kind]


def _rows_equal(one: Words, other: Words) -> NDArray[np.bool_]:
    """Whether rows of four words are the same: (n,). The four results of a row are compared as one number."""
    same: NDArray[np.bool_] = (one == other).view(np.uint32)[:, 0] == _ALL_FOUR
    return same


def _run_starts(column: pa.Array) -> NDArray[np.bool_] | None:
    """Which rows differ from the row before (n,), None unless labels come in runs, as in most sorted files."""
    for length in (min(512, len(column)), len(column)):  # the first rows mostly tell whether there are runs
        part = column.slice(0, length)
        starts = np.ones(length, np.bool_)
        starts[1:] = values(pc.not_equal(part.slice(1), part.slice(0, max(length - 1, 0))))
        if np.count_nonzero(starts) * 2 > length:
            return None
    return starts


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    if length <= len(array):
        return array
    # not `zeros`: NumPy asks for large pages only where memory is not cleared, and searching waits less with them
    larger = np.empty((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


# Labels as numbers: their last bytes as 64-bit words, and the slot of a table in which to look first.

Words = NDArray[np.uint64]

# Bytes of a label that are held as words, and the largest and smallest number of these words.
EXACT, MOST, LEAST = 64, 8, 4
# Labels longer than this are hashed one by one; padding all others to their length would cost more.
LONG = 512

# Odd numbers that spread words over a table, one a word.
MULTIPLIERS = np.array(
    [
        0x9E3779B97F4A7C15,
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
        0xD6E8FEB86659FD93,
        0xD1B54A32D192ED03,
        0xAEF17502108EF2D9,
        0xF1357AEA2E62A9C5,
        0x8CB92BA72F3D8DD7,
    ],
    np.uint64,
)
_HALF = np.uint64(32)


def words_of(column: pa.Array) -> Words:
    """The last words of binary labels, the very last one last, zeros before a label's start: (n, 4 to 8).

    There are as many as the longest label of the column needs.
    """
    length = np.diff(buffers(column)[1])
    longest = int(length.max(initial=0))
    if longest <= EXACT:
        return _padded(column, longest)
    words = _padded(pc.binary_slice(column, -EXACT, None), EXACT).copy()
    rows = np.flatnonzero(length > EXACT)
    words[rows, 0] = _hash(column.take(numbers(rows)))
    return words


def holds_nul(column: pa.Array) -> bool:
    """Whether a label holds a NUL byte. It looks like padding, so that different labels may have the same words."""
    return not content(column).min(initial=1)


def holds_long(column: pa.Array) -> bool:
    """Whether a label is so long that one of its words is a hash, which other long labels may have as well.

    A shorter label never has the same words as a long one.
    """
    return bool(np.diff(buffers(column)[1]).max(initial=0) >= EXACT)


def slots(words: Words, bits: int) -> NDArray[np.intp]:
    """Where in a table of 2^bits slots to look first for labels: (n,)."""
    mixed = words @ MULTIPLIERS[MOST - words.shape[1] :]
    mixed ^= mixed >> _HALF
    mixed *= MULTIPLIERS[0]
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.intp)


def _padded(column: pa.Array, longest: int) -> Words:
    """All bytes of each label as words, with zeros before its start."""
    count = max(-(-longest // 8), LEAST)
    padded = pc.ascii_lpad(column.view(pa.string()), width=8 * count, padding="\0")
    data = padded.buffers()[2]
    if data is None:
        return np.zeros((0, count), np.uint64)
    return np.frombuffer(data, "<u8", count=count * len(column)).reshape(-1, count)


def _hash(labels: pa.Array) -> Words:
    """A hash of all bytes: (n,). Labels beyond a few hundred bytes are rare, and hashed one by one."""
    length = values(pc.binary_length(labels))
    state = np.empty(len(labels), np.uint64)
    rows = np.flatnonzero(length <= LONG)
    if len(rows):
        mixed = np.zeros(len(rows), np.uint64)
        for word in _padded(labels.take(numbers(rows)), int(length[rows].max())).T:
            mixed ^= word
            mixed *= MULTIPLIERS[0]
            mixed ^= mixed >> _HALF
        state[rows] = mixed
    for row in np.flatnonzero(length > LONG).tolist():
        state[row] = int.from_bytes(blake2b(labels[row].as_py(), digest_size=8).digest(), "little")
    return state | np.uint64(1)  # never 0 in its first byte, as the eighth word of a shorter label is
