"""A text file cut into blocks of whole lines, which Arrow parses in several threads.

Memory holds a few blocks, never the file. If a block cannot be parsed, `diagnose` goes through its lines to name the
first that is wrong. It needs no other block, so this works for pipes too.
"""

from __future__ import annotations

import io
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from unkgcp.errors import InputError, at
from unkgcp.loops import cores
from unkgcp.tabular.arrow_arrays import LABELS, Batch, Batches, Malformed, one_array
from unkgcp.tabular.formats import Layout
from unkgcp.tabular.source import SAMPLE, Source, records

BLOCK = 8 << 20
# No line of a table is this long; a file without line ends must not fill the memory.
LONGEST = 256 << 20
MARGIN = 64  # bytes before and after the lines of a block, which compiled code may read

_MISSING = ["", "NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN", "NAN", "-nan", "-NaN"]

T = TypeVar("T")


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


def text_batches(
    source: Source,
    layout: Layout,
    then: Callable[[Batch], T],
    quickly: Callable[[Block, bool], tuple[T, int] | None] | None = None,
) -> Batches[T]:
    """The facts of a text file: for each batch what `then` makes of it, and a function that says what is wrong there.

    `then` runs in the parsing threads and may raise `Malformed`. `quickly` may read a block in the place of Arrow and
    `then`: it gets the block and whether its first line is a header, and gives the result and the number of lines, or
    None to leave the block to Arrow.
    """
    line = line_of_first(source)
    header = layout.header

    def work(block: Block, first: bool) -> tuple[T, int]:
        skip = layout.header and first
        if quickly is not None and (done := quickly(block, skip)) is not None:
            return done
        batch, lines = _parse(block.arrow(), layout, skip)
        return then(batch), lines

    for block, parsed in in_turn(source, blocks_of(source, layout.format.quoted), work):
        error = partial(diagnose, layout, block, line, header)
        try:
            result, lines = parsed()
        except Malformed:
            raise error() from None
        yield result, error
        line, header = line + lines, False


def line_of_first(source: Source) -> int:
    """The number of the line with which the first block of a file begins."""
    return 1 + source.sample[: _start(source.sample)].count(b"\n")


def in_turn(
    source: Source, blocks: Iterator[Block], work: Callable[[Block, bool], T]
) -> Iterator[tuple[Block, Callable[[], T]]]:
    """Each block, in order, and a function that gives the result of `work(block, whether it is the first)`.

    Some blocks of a large file are worked on at once.
    """
    if (
        len(source.sample) < SAMPLE
    ):  # the whole file is in the sample: it is parsed before threads would have started
        for number, block in enumerate(blocks):
            yield block, partial(work, block, number == 0)
        return
    threads = min(cores(), 8)
    executor = ThreadPoolExecutor(threads, thread_name_prefix="unkgcp-read")
    try:
        pending: deque[tuple[Block, Callable[[], T]]] = deque()
        for number, block in enumerate(blocks):
            pending.append((block, executor.submit(work, block, number == 0).result))
            if len(pending) > threads:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        executor.shutdown(cancel_futures=True)


def blocks_of(source: Source, quoted: bool) -> Iterator[Block]:
    """Blocks of whole records."""
    rest = memoryview(b"")
    # the first blocks are small: the sooner some labels are known, the fewer are new to several blocks at once
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
            # an empty line shows as an empty head; it is harmless, but then rows are no longer lines
            return _batch(_table(block, layout, skip, ignore_empty_lines=True), layout), _line_ends(block)
    except pa.ArrowException:
        if block.to_pybytes().strip(b"\r\n"):
            raise Malformed from None
        return _batch(pa.schema(_columns(layout).items()).empty_table(), layout), _line_ends(block)
    return _batch(table, layout), len(table) + skip


def _columns(layout: Layout) -> dict[str, pa.DataType]:
    """The type of every column that is read; columns are called by their position."""
    types = {layout.head: pa.binary(), layout.tail: pa.binary()}
    if layout.relation is not None:
        types[layout.relation] = LABELS
    if layout.confidence is not None:
        types[layout.confidence] = pa.float64() if layout.format.numbers is None else pa.string()
    return {str(position): kind for position, kind in types.items()}


def _table(block: pa.Buffer, layout: Layout, skip: bool, ignore_empty_lines: bool) -> pa.Table:
    columns = _columns(layout)
    return arrow_csv.read_csv(
        pa.BufferReader(block),
        read_options=arrow_csv.ReadOptions(
            column_names=[str(position) for position in range(layout.width)],
            block_size=len(block) + 1,
            skip_rows_after_names=int(skip),
            use_threads=False,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=layout.format.delimiter,
            quote_char='"' if layout.format.quoted else False,
            newlines_in_values=layout.format.quoted,
            ignore_empty_lines=ignore_empty_lines,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=columns,
            include_columns=list(columns),
            null_values=_MISSING,
            strings_can_be_null=False,
        ),
    )


def _batch(table: pa.Table, layout: Layout) -> Batch:
    def column(position: int) -> pa.Array:
        return one_array(table.column(str(position)))

    if layout.relation is not None:
        relation = column(layout.relation)
    else:
        label = pa.array([(layout.format.relation or "").encode()], pa.binary())
        relation = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), label)
    confidence = None if layout.confidence is None else column(layout.confidence)
    if confidence is not None and layout.format.numbers is not None:
        try:
            confidence = layout.format.numbers(confidence)
        except pa.ArrowException:
            raise Malformed from None
    batch = Batch(column(layout.head), relation, column(layout.tail), confidence)
    if layout.keep is not None:
        batch = batch.where(layout.keep(batch))
    return batch.settled(layout.skip_missing, layout.default)


def _line_ends(block: pa.Buffer) -> int:
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


# Where quotations begin and end in CSV, for a whole block at once.

_MARK, _LINE_END, _RETURN = ord('"'), ord("\n"), ord("\r")


def last_record_end(data: NDArray[np.uint8]) -> int:
    """Where the last line ends that is not inside a quotation, 0 if none does. Data starts outside of one."""
    marks = np.flatnonzero(data == _MARK)
    ends = np.flatnonzero(data == _LINE_END)
    outside = ends[np.searchsorted(marks, ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def misplaced_quote(block: pa.Buffer, delimiter: str) -> int | None:
    """Position of the first quotation mark that neither begins nor ends a field, or is left open."""
    data = np.frombuffer(block, np.uint8)
    marks = np.flatnonzero(data == _MARK)
    if not len(marks):
        return None
    borders = np.array([ord(delimiter), _LINE_END, _RETURN, _MARK], np.uint8)
    opening, closing = marks[::2], marks[1::2]
    wrong = [
        opening[(opening > 0) & ~np.isin(data[opening - 1], borders)],
        closing[(closing < len(data) - 1) & ~np.isin(data[np.minimum(closing + 1, len(data) - 1)], borders)],
        marks[-1:] if len(marks) % 2 else marks[:0],
    ]
    found = np.concatenate(wrong)
    return int(found.min()) if len(found) else None


# What is wrong with a block of text, and on which line: looked for slowly, after the quick parsing has failed.

_ANY_LINE_END = re.compile(r"\r\n|\n|\r")


def diagnose(layout: Layout, block: Block, first_line: int, header: bool) -> InputError:
    """The error of the first bad line of a block that starts at line `first_line` of its file.

    `header` tells whether that line names the columns.
    """
    buffer = block.arrow()
    text = buffer.to_pybytes()
    end, objection = len(text), "cannot be told from a fact, nor be read as one: correct it"
    if layout.format.quoted:
        mark = misplaced_quote(buffer, layout.format.delimiter)
        if mark is not None:
            end = mark
            objection = (
                "has a quotation mark that neither begins nor ends a field, or is never closed: "
                "put the field in quotation marks and double those inside it"
            )
    try:
        text[:end].decode()
    except UnicodeDecodeError as error:
        end, objection = error.start, "is not valid UTF-8: save the file as UTF-8 or correct the line"
    before = text[:end].decode()
    lines = before if end == len(text) else before[: max(before.rfind("\n"), before.rfind("\r")) + 1]
    separated = io.StringIO(lines, newline="")
    for place, fields in records(separated, layout.format.delimiter, layout.format.quoted):
        line = first_line + place - 1
        if header and line == first_line:
            continue
        found = _objection(layout, fields, line)
        if found is not None:
            return InputError(f"{at(layout.name, line)} {found}")
    return InputError(f"{at(layout.name, first_line + len(_ANY_LINE_END.findall(before)))} {objection}")


def _objection(layout: Layout, fields: list[str], line: int) -> str | None:
    """What is wrong with one record, as the end of a sentence."""
    if len(fields) != layout.width:
        columns = f"{len(fields)} column{'s' if len(fields) != 1 else ''}"
        return f"has {columns}, expected {layout.width}: correct the line, or choose another --format"
    named = {"head": layout.head, "relation": layout.relation, "tail": layout.tail}
    for role, position in named.items():
        if position is None:
            continue
        if not fields[position]:
            return f"has an empty {role}: give it a label or remove the line"
        if "\0" in fields[position]:
            return f"has a NUL byte in its {role}: the file is no text, or damaged"
    if layout.confidence is None:
        return None
    return _objection_to_confidence(layout, fields[layout.confidence].strip(), line)


def _objection_to_confidence(layout: Layout, field: str, line: int) -> str | None:
    numbers = layout.format.numbers
    shown = repr(field if len(field) <= 60 else field[:57] + "...")
    try:
        if numbers is not None:
            value = numbers(pa.array([field]))[0].as_py()
        else:
            value = pa.array([field]).cast(pa.float64())[0].as_py() if field else None
    except pa.ArrowException:
        if numbers is not None:
            return f"has {shown}, in which there is no confidence: correct it"
        remedy = ", or say with --header that this line names the columns" if line == 1 else ""
        return f"has the confidence {shown}, which is no number: correct it{remedy}"
    if (layout.skip_missing or layout.default is not None) and (value is None or math.isnan(value)):
        return None
    if value is None:
        return (
            f"has no confidence ({shown}): add it, remove the line, leave such lines out with --skip-missing, "
            "or give them one with --default-confidence"
        )
    return layout.scale.objection(value)
