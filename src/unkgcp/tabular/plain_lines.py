"""Large files of plain lines: fields found by compiled code, without a copy of the text.

A block of text is taken here only if nothing in it needs judgement; otherwise the reader in `blocks` has it. The
facts are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.tabular.label_index import Ids, LabelIndex
from unkgcp.tabular.layout import Layout
from unkgcp.tabular.source import Source

# Smaller files are read before numba is loaded.
LARGE = 128 << 20
MARGIN = 64  # bytes that a block has before its first and after its last

RELATION = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines: the bytes of `data` from `begin` to `end`, with a margin on both sides."""

    data: NDArray[np.uint8]
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def arrow(self) -> pa.Buffer:
        return pa.py_buffer(self.data[self.begin : self.end])


@dataclass(frozen=True, slots=True)
class Plain:
    """Facts of a block: where their labels stand, (n, 6) begin and end of each, and their confidences (n,)."""

    kernels: Any
    data: NDArray[np.uint8]
    spans: NDArray[np.int32]
    confidence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.spans)

    def relations(self, index: LabelIndex) -> Ids:
        """Ids of the relations, -1 for those the index does not know."""
        ids = np.full(len(self), -1, np.int32)
        if index.settled_by_words:
            self.kernels.find(self.data, self.spans[:, 2], self.spans[:, 3], *index.arrays(), ids)
        return ids

    def enter_entities(self, index: LabelIndex) -> tuple[Ids, Ids]:
        """Ids of heads and tails; labels the index did not know are added to it."""
        if index.settled_by_words:
            return index.enter(self.kernels, self.data, self.spans)
        rows = np.arange(2 * len(self))
        both = Plain(self.kernels, self.data, self.spans[:, [0, 1, 4, 5]].reshape(-1, 2), self.confidence)
        ids = index.encode(both.labels(0, rows))
        return np.ascontiguousarray(ids[::2]), np.ascontiguousarray(ids[1::2])

    def labels(self, which: int, rows: NDArray[np.intp]) -> pa.BinaryArray:
        """The labels of some rows."""
        begins, ends = self.spans[:, 2 * which], self.spans[:, 2 * which + 1]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(ends[rows] - begins[rows], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        self.kernels.gathered(self.data, begins, ends, rows, offsets, data)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def plain_reader(source: Source, layout: Layout) -> Callable[[Block, bool], Plain | None] | None:
    """What reads the blocks of a large file of plain lines, None for other files and where numba is not there."""
    simple = (
        not layout.format.quoted
        and layout.format.numbers is None
        and None not in (layout.relation, layout.confidence)
        and layout.keep is None
        and not layout.skip_missing
    )
    if not simple or source.path is None or source.gzip or source.path.stat().st_size < LARGE:
        return None
    try:
        from unkgcp.tabular import label_kernels as kernels
    except ImportError:
        return None
    if layout.width > kernels.WIDEST:
        return None
    places = np.array([layout.head, layout.relation, layout.tail, layout.confidence], np.int64)
    delimiter = ord(layout.format.delimiter)

    def read(block: Block, skip: bool) -> Plain | None:
        return _read(kernels, block, skip, delimiter, layout.width, places)

    return read


def _read(
    kernels: Any, block: Block, skip: bool, delimiter: int, width: int, places: NDArray[np.int64]
) -> Plain | None:
    begin = block.begin
    if skip:
        begin += block.data[begin : block.end].tobytes().find(b"\n") + 1
    most = len(block) // width + 1  # a line has at least one byte a field
    spans, confidence = np.empty((most, 6), np.int32), np.empty(most)
    unread = np.empty((most, 3), np.int32)
    rows, left = kernels.cut(
        block.data, begin, block.end, delimiter, width, places, spans, confidence, unread
    )
    if rows < 0:
        return None
    found = Plain(kernels, block.data, spans[:rows], confidence[:rows].copy())
    return found if not left or _read_by_arrow(found, unread[:left]) else None


def _read_by_arrow(found: Plain, unread: NDArray[np.int32]) -> bool:
    """Fill in the numbers that are not plain decimals; False if one is no finite number."""
    where = Plain(found.kernels, found.data, np.ascontiguousarray(unread[:, [1, 2]]), found.confidence)
    text = where.labels(0, np.arange(len(unread)))
    try:
        numbers = np.asarray(pc.cast(text.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        return False
    found.confidence[unread[:, 0]] = numbers
    return bool(np.isfinite(numbers).all())
