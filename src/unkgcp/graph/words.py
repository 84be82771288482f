"""Labels as numbers: their last bytes as 64-bit words, and a place to look for them in a table.

Words, not hashes: of a label with less than 64 bytes nothing is lost. Only what a longer label has before its last
seven words is hashed, into the eighth. Nothing here remembers a label.

>>> words_of(pa.array([b"a", b"ab"]))[:, -1].tolist() == [ord("a") << 56, ord("a") << 48 | ord("b") << 56]
True
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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
    words[rows, 0] = _hash(column.take(pa.array(rows)))
    return words


def holds_nul(column: pa.Array) -> bool:
    """Whether a label holds a NUL byte, which looks like padding: then words do not settle what is the same."""
    data, offsets = buffers(column)
    return not data[offsets[0] : offsets[-1]].min(initial=1)


def holds_long(column: pa.Array) -> bool:
    """Whether a label is so long that its words, one of them a hash, do not settle what is the same.

    Against labels of other columns they do: a long label is never taken for a shorter one.
    """
    return bool(np.diff(buffers(column)[1]).max(initial=0) >= EXACT)


def slots(words: Words, bits: int) -> NDArray[np.intp]:
    """Where in a table of 2^bits slots to look first for labels: (n,)."""
    mixed = words @ MULTIPLIERS[MOST - words.shape[1] :]
    mixed ^= mixed >> _HALF
    mixed *= MULTIPLIERS[0]
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.intp)


def buffers(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Bytes and offsets (n + 1,) of a binary array."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    positions = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), positions


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
    length = np.asarray(pc.binary_length(labels))
    state = np.empty(len(labels), np.uint64)
    rows = np.flatnonzero(length <= LONG)
    if len(rows):
        mixed = np.zeros(len(rows), np.uint64)
        for word in _padded(labels.take(pa.array(rows)), int(length[rows].max())).T:
            mixed ^= word
            mixed *= MULTIPLIERS[0]
            mixed ^= mixed >> _HALF
        state[rows] = mixed
    for row in np.flatnonzero(length > LONG).tolist():
        state[row] = int.from_bytes(blake2b(labels[row].as_py(), digest_size=8).digest(), "little")
    return state | np.uint64(1)  # the first byte of a shorter label's eighth word is zero
