"""Labels as numbers: their last bytes as 64-bit words, and a place to look for them in a table.

Words, not hashes: labels of up to 64 bytes have the same words exactly if they are the same. Only what a longer
label has before its last seven words is hashed, into the eighth. Nothing here remembers a label.

>>> keys_of(pa.array([b"a", b"ab"])).words[:, -1].tolist() == [ord("a") << 56, ord("a") << 48 | ord("b") << 56]
True
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Words = NDArray[np.uint64]

# Bytes of a label that are held as words, and the number of these words.
EXACT, COUNT = 64, 8
# Labels from this length on share the part of their tags that tells the length.
LONGEST = 0x7FFF
# Labels longer than this are hashed one by one; padding all others to their length would cost more.
LONG = 512

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
    ],
    np.uint64,
)
_HALF = np.uint64(32)


class Keys(NamedTuple):
    """What labels are compared by: their length in bytes (n,), and their last words, the very last one last (n, m)."""

    length: NDArray[np.int32]
    words: Words

    def at(self, rows: NDArray[np.intp]) -> Keys:
        return Keys(self.length[rows], self.words[rows])


def keys_of(column: pa.Array) -> Keys:
    """The keys of a binary column, with as many words as its longest label needs."""
    _, offsets = buffers(column)
    length = np.diff(offsets)
    longest = int(length.max(initial=0))
    if longest <= EXACT:
        return Keys(length, _words(column, longest))
    words = _words(pc.binary_slice(column, -EXACT, None), EXACT).copy()
    rows = np.flatnonzero(length > EXACT)
    words[rows, 0] = _hash(column.take(pa.array(rows)))
    return Keys(length, words)


def _words(column: pa.Array, longest: int) -> Words:
    """The bytes of each label as words, with zeros before its start: (n, m), at least four words."""
    count = max(-(-longest // 8), 4)
    padded = pc.ascii_lpad(column.view(pa.string()), width=8 * count, padding="\0")
    data = padded.buffers()[2]
    if data is None:
        return np.zeros((0, count), np.uint64)
    return np.frombuffer(data, "<u8", count=count * len(column)).reshape(-1, count)


def spread(keys: Keys, bits: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Where in a table of 2^bits slots to look first, and the tag to look for: (n,) each.

    Half of a tag is the length, so that labels with the same tag have the same length as well, or very long ones.
    """
    count = keys.words.shape[1]
    mixed = keys.words @ _ODD[COUNT - count :]
    mixed ^= mixed >> _HALF
    mixed *= _ODD[0]
    tag = np.minimum(keys.length, LONGEST) << 16
    tag |= mixed.view(np.int32)[::2] & 0xFFFF
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.intp), tag


def _hash(labels: pa.Array) -> Words:
    """A hash of all bytes: (n,). Labels beyond a few hundred bytes are rare, and hashed one by one."""
    length = np.asarray(pc.binary_length(labels))
    state = np.empty(len(labels), np.uint64)
    rows = np.flatnonzero(length <= LONG)
    if len(rows):
        mixed = np.zeros(len(rows), np.uint64)
        for word in _words(labels.take(pa.array(rows)), int(length[rows].max())).T:
            mixed ^= word
            mixed *= _ODD[0]
            mixed ^= mixed >> _HALF
        state[rows] = mixed
    for row in np.flatnonzero(length > LONG).tolist():
        state[row] = int.from_bytes(blake2b(labels[row].as_py(), digest_size=8).digest(), "little")
    return state


def buffers(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Bytes and offsets (n + 1,) of a binary array."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    positions = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), positions
