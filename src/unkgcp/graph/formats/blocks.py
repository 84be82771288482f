"""A text file cut into blocks of whole lines, each parsed by Arrow in a thread of its own.

Memory holds a few blocks, never the file. A block that does not parse is looked at line by line (`diagnosis`)
to name the line that is wrong; that needs the block alone, so it works for pipes too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.formats.batch import LABELS, Batch, Batches, Malformed, one_relation
from unkgcp.graph.formats.diagnosis import diagnose
from unkgcp.graph.formats.layout import Layout
from unkgcp.graph.formats.plain import MARGIN, Block, Plain, plain_reader
from unkgcp.graph.formats.quoting import last_record_end, misplaced_quote
from unkgcp.graph.formats.source import Source

BLOCK = 8 << 20
# No line of a table is this long; a file without line ends must not fill the memory.
LONGEST = 256 << 20

_MISSING = ["", "NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN", "NAN", "-nan", "-NaN"]

T = TypeVar("T")


def text_batches(
    source: Source,
    layout: Layout,
    then: Callable[[Batch], T],
    plainly: Callable[[Plain], T] | None = None,
) -> Batches[T]:
    """The facts of a text file, batch by batch: what `then` makes of each, and what is wrong with it if asked.

    `then` runs in the parsing threads and may raise `Malformed`; so does `plainly`, which gets the blocks of a large
    file of plain lines instead.
    """
    plain = plain_reader(source, layout) if plainly is not None else None
    line = 1 + source.sample[: _start(source.sample)].count(b"\n")
    header = layout.header

    def work(block: Block, first: bool) -> tuple[T, int]:
        skip = layout.header and first
        if plain is not None and plainly is not None and (facts := plain(block, skip)) is not None:
            return plainly(facts), len(facts) + skip
        batch, lines = _parse(block.arrow(), layout, skip)
        return then(batch), lines

    for block, future in _in_order(_blocks(source, layout.format.quoted), work):
        error = partial(_error, layout, block, line, header)
        try:
            result, lines = future.result()
        except Malformed:
            raise error() from None
        yield result, error
        line, header = line + lines, False


def _error(layout: Layout, block: Block, line: int, header: bool) -> InputError:
    return diagnose(layout, block.arrow().to_pybytes(), line, header)


def _in_order(blocks: Iterator[Block], work: Callable[[Block, bool], T]) -> Iterator[tuple[Block, Future[T]]]:
    """Work on some blocks at once, and hand them back in their order."""
    threads = min(_cores(), 8)
    executor = ThreadPoolExecutor(threads, thread_name_prefix="unkgcp-read")
    try:
        pending: deque[tuple[Block, Future[T]]] = deque()
        for number, block in enumerate(blocks):
            pending.append((block, executor.submit(work, block, number == 0)))
            if len(pending) > threads:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        executor.shutdown(cancel_futures=True)


def _cores() -> int:
    """Cores this process may use, which may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blocks(source: Source, quoted: bool) -> Iterator[Block]:
    """Blocks of whole records."""
    rest = memoryview(b"")
    # small ones first: the sooner a part of the labels is known, the fewer are new to several blocks at once
    size, start = max(BLOCK // 64, 1), _start(source.sample)
    while True:
        whole = np.empty(MARGIN + len(rest) + size + MARGIN, np.uint8)
        buffer = whole[MARGIN:-MARGIN]
        view = buffer.data
        view[: len(rest)] = rest
        count = source.readinto(view[len(rest) :])
        end = len(rest) + count
        cut = (last_record_end if quoted else _last_line_end)(buffer[:end]) if count else end
        if cut > start:
            yield Block(whole, MARGIN + start, MARGIN + cut)
            rest, size, start = view[cut:end], min(size + size // 3 + 1, BLOCK), 0
        elif end > LONGEST:
            what = "a quotation that is never closed" if quoted else "a line"
            raise InputError(
                f"{source.name} has {what} of more than {LONGEST >> 20} MiB: correct it, or choose another --format"
            )
        else:
            rest, size = view[:end], max(end, size)
        if not count:
            return


def _start(sample: bytes) -> int:
    """Where the first line begins: behind a byte order mark, which is no part of a label, and empty lines."""
    text = sample.removeprefix(b"\xef\xbb\xbf")
    return len(sample) - len(text.lstrip(b"\r\n"))


def _last_line_end(data: NDArray[np.uint8]) -> int:
    """Where the last whole line ends, 0 if none does."""
    window = 1 << 12
    while True:
        start = max(0, len(data) - window)
        found = data[start:].tobytes().rfind(b"\n")
        if found >= 0 or start == 0:
            return start + found + 1
        window *= 8


def _parse(block: pa.Buffer, layout: Layout, skip: bool) -> tuple[Batch, int]:
    """The facts of a block, after its first line if that is to be skipped, and the number of its lines."""
    try:
        if layout.format.quoted:
            if misplaced_quote(block, layout.format.delimiter) is not None:
                raise Malformed
            return _batch(_table(block, layout, skip, ignore_empty_lines=True), layout), _line_ends(block)
        table = _table(block, layout, skip, ignore_empty_lines=False)
        if pc.min(pc.binary_length(table.column(str(layout.head)))).as_py() == 0:
            # an empty line shows as an empty head; it is harmless, but a row is not a line then
            return _batch(_table(block, layout, skip, ignore_empty_lines=True), layout), _line_ends(block)
    except pa.ArrowException:
        if block.to_pybytes().strip(b"\r\n"):
            raise Malformed from None
        return _batch(_no_rows(layout), layout), _line_ends(block)
    return _batch(table, layout), len(table) + skip


def _columns(layout: Layout) -> dict[str, pa.DataType]:
    """The type of every column that is read; columns are called by their position."""
    types = {layout.head: pa.binary(), layout.tail: pa.binary()}
    if layout.relation is not None:
        types[layout.relation] = LABELS
    if layout.confidence is not None:
        types[layout.confidence] = pa.float64() if layout.format.numbers is None else pa.string()
    return {str(position): kind for position, kind in types.items()}


def _no_rows(layout: Layout) -> pa.Table:
    return pa.schema(_columns(layout).items()).empty_table()


def _table(block: pa.Buffer, layout: Layout, skip: bool, ignore_empty_lines: bool) -> pa.Table:
    columns = _columns(layout)
    return csv.read_csv(
        pa.BufferReader(block),
        read_options=csv.ReadOptions(
            column_names=[str(position) for position in range(layout.width)],
            block_size=len(block) + 1,
            skip_rows_after_names=int(skip),
            use_threads=False,
        ),
        parse_options=csv.ParseOptions(
            delimiter=layout.format.delimiter,
            quote_char='"' if layout.format.quoted else False,
            newlines_in_values=layout.format.quoted,
            ignore_empty_lines=ignore_empty_lines,
        ),
        convert_options=csv.ConvertOptions(
            column_types=columns,
            include_columns=list(columns),
            null_values=_MISSING,
            strings_can_be_null=False,
        ),
    )


def _batch(table: pa.Table, layout: Layout) -> Batch:
    def column(position: int) -> pa.Array:
        chunked = table.column(str(position))
        return chunked.chunk(0) if chunked.num_chunks == 1 else pa.concat_arrays(chunked.chunks)

    relation = (
        one_relation(layout.format.relation or "", len(table))
        if layout.relation is None
        else column(layout.relation)
    )
    confidence = None if layout.confidence is None else column(layout.confidence)
    if confidence is not None and layout.format.numbers is not None:
        try:
            confidence = layout.format.numbers(confidence)
        except pa.ArrowException:
            raise Malformed from None
    batch = Batch(column(layout.head), relation, column(layout.tail), confidence)
    if layout.keep is not None:
        batch = batch.where(layout.keep(batch))
    return batch.without_missing() if layout.skip_missing else batch


def _line_ends(block: pa.Buffer) -> int:
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
