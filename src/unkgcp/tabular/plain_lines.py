"""Large files of plain lines: fields found by compiled code, without a copy of the text.

A block is read here only if all its lines are plain: no quotation, no NUL byte, no empty line, no label of 64 bytes or
more. Any other block is left to Arrow (`delimited`). The facts are the same either way.
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
    """Facts of a block: begin and end of their heads and tails in turns (2 n, 2) and of their relations (n, 2), and
    their confidences (n,)."""

    kernels: Any
    data: NDArray[np.uint8]
    entities: NDArray[np.int32]
    relations: NDArray[np.int32]
    confidence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.relations)

    def find_relations(self, index: LabelIndex) -> Ids:
        """Ids of the relations, -1 for those the index does not know."""
        if not index.settled_by_words:
            return np.full(len(self), -1, np.int32)
        return index.search(self.kernels, self.data, self.relations)

    def enter_entities(self, index: LabelIndex) -> tuple[Ids, Ids]:
        """Ids of heads and tails; labels the index did not know are added to it, row by row, head before tail."""
        if index.settled_by_words:
            ids = index.search(self.kernels, self.data, self.entities, add=True)
        else:
            ids = index.encode(self.labels(self.entities))
        return ids[::2], ids[1::2]

    def labels(self, spans: NDArray[np.int32]) -> pa.BinaryArray:
        """What stands in the spans (m, 2) of the block."""
        offsets = np.zeros(len(spans) + 1, np.int32)
        np.cumsum(spans[:, 1] - spans[:, 0], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        self.kernels.gather(self.data, spans, offsets, data)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(spans), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def plain_reader(source: Source, layout: Layout) -> Callable[[Block, bool], Plain | None] | None:
    """What reads the blocks of a large file of plain lines, None for other files and where numba is not there."""
    simple = (
        not layout.format.quoted
        and layout.format.numbers is None
        and None not in (layout.relation, layout.confidence)
        and layout.keep is None
        and not layout.skip_missing
        and layout.default is None
    )
    if not simple or source.path is None or source.gzip or source.path.stat().st_size < LARGE:
        return None
    try:
        from unkgcp.tabular import label_kernels as kernels
    except ImportError:
        return None
    if layout.width > kernels.WIDEST:
        return None
    places = np.array([layout.head, layout.tail, layout.relation, layout.confidence], np.int64)
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
    entities, relations = np.empty((2 * most, 2), np.int32), np.empty((most, 2), np.int32)
    confidence, unread = np.empty(most), np.empty((most, 3), np.int32)
    rows, left = kernels.cut(
        block.data, begin, block.end, delimiter, width, places, entities, relations, confidence, unread
    )
    if rows < 0:
        return None
    found = Plain(kernels, block.data, entities[: 2 * rows], relations[:rows], confidence[:rows].copy())
    return found if not left or _read_by_arrow(found, unread[:left]) else None


def _read_by_arrow(found: Plain, unread: NDArray[np.int32]) -> bool:
    """Fill in the numbers that are not plain decimals; False if one is no finite number."""
    text = found.labels(np.ascontiguousarray(unread[:, 1:]))
    try:
        numbers = np.asarray(pc.cast(text.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        return False
    found.confidence[unread[:, 0]] = numbers
    return bool(np.isfinite(numbers).all())
