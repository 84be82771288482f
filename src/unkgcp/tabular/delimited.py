"""A text file cut into blocks of whole lines, which Arrow parses in several threads.

Memory holds a few blocks, never the file. If a block cannot be parsed, `diagnose` goes through its lines to name the
first that is wrong. It needs no other block, so this works for pipes too.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from unkgcp.errors import InputError, at
from unkgcp.loops import cores
from unkgcp.tabular.fact_batches import Malformed
from unkgcp.tabular.source import LONGEST, SAMPLE, Source, records

BLOCK = 8 << 20

MISSING = ["", "NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN", "NAN", "-nan", "-NaN"]

T = TypeVar("T")


class Block(NamedTuple):
    """Whole lines of a file, the number of the first of them, and whether it is the first of the file."""

    text: bytes | bytearray
    line: int
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is known of a text file before its rows are read: its name, what separates and quotes fields, how many there
    are in a row, and whether the first row names the columns.
    """

    name: str
    delimiter: str
    quoted: bool
    width: int
    header: bool
    remedy: str = "correct the line, or choose another --format"

    @property
    def types(self) -> Mapping[int, pa.DataType]:
        """The type of every column that is read, by its position."""
        return {position: pa.string() for position in range(self.width)}

    def objection(self, row: Sequence[str], line: int, rows: Sequence[Sequence[str]]) -> str | None:
        """What is wrong with one of the rows, as the end of a sentence; None if nothing."""
        return None


def text_batches(source: Source, layout: Layout, then: Callable[[pa.Table], T]) -> Iterator[T]:
    """What `then` makes of the columns of each block, which are called by their positions.

    `then` runs in the parsing threads and may raise `Malformed`.
    """

    def work(block: Block) -> T:
        return then(_parse(block, layout))

    for block, result in in_turn(source, blocks_of(source, layout.quoted), work):
        try:
            yield result()
        except Malformed:
            raise diagnose(layout, block) from None


def in_turn(
    source: Source, blocks: Iterator[Block], work: Callable[[Block], T]
) -> Iterator[tuple[Block, Callable[[], T]]]:
    """Each block, in order, and a function that gives the result of `work(block)`.

    Some blocks of a large file are worked on at once.
    """
    if len(source.sample) < SAMPLE:  # the whole file, which is parsed before threads would have started
        for block in blocks:
            yield block, partial(work, block)
        return
    threads = min(cores(), 8)
    executor = ThreadPoolExecutor(threads, thread_name_prefix="unkgcp-read")
    try:
        pending: deque[tuple[Block, Callable[[], T]]] = deque()
        for block in blocks:
            pending.append((block, executor.submit(work, block).result))
            if len(pending) > threads:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        executor.shutdown(cancel_futures=True)


def blocks_of(source: Source, quoted: bool) -> Iterator[Block]:
    """Blocks of whole records."""
    # a byte order mark is no part of a label, and empty lines are none of a table
    start = len(source.sample) - len(source.sample.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"))
    rest, size = bytearray(), BLOCK
    line, is_first = 1 + source.sample[:start].count(b"\n"), True
    while True:
        buffer = bytearray(len(rest) + size)
        buffer[: len(rest)] = rest
        count = source.readinto(memoryview(buffer)[len(rest) :])
        del buffer[len(rest) + count :]
        cut = (
            len(buffer)
            if not count
            else int(_record_ends(buffer)[-1:].sum())
            if quoted
            else buffer.rfind(b"\n") + 1
        )
        if cut > start:
            rest = buffer[cut:]
            del buffer[cut:], buffer[:start]
            yield Block(buffer, line, is_first)
            line += int(np.count_nonzero(np.frombuffer(buffer, np.uint8) == _LINE_END))
            is_first, size, start = False, BLOCK, 0
        elif len(buffer) > LONGEST:
            what = "a quotation that is never closed" if quoted else "a line"
            raise InputError(
                f"{source.name} has {what} of more than {LONGEST >> 20} MiB: correct it, or choose another --format"
            )
        else:
            rest, size = buffer, max(len(buffer), size)
        if not count:
            return


def _parse(block: Block, layout: Layout) -> pa.Table:
    """The columns of a block, without the line that names them; `Malformed` if Arrow cannot read it."""
    if layout.quoted and misplaced_quote(block.text, layout.delimiter) is not None:
        raise Malformed
    types = {str(position): kind for position, kind in layout.types.items()}
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(block.text),
            read_options=arrow_csv.ReadOptions(
                column_names=[str(position) for position in range(layout.width)],
                block_size=len(block.text) + 1,
                skip_rows_after_names=int(layout.header and block.is_first),
                use_threads=False,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char='"' if layout.quoted else False,
                newlines_in_values=layout.quoted,
                ignore_empty_lines=layout.width > 1,  # in a table of one column they are empty values
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=MISSING,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        if block.text.strip(b"\r\n"):
            raise Malformed from None
        return pa.schema(types.items()).empty_table()


# Where quotations begin and end in CSV, for a whole block at once.

_MARK, _LINE_END, _RETURN = ord('"'), ord("\n"), ord("\r")


def first_record_end(text: bytes) -> int:
    """Where the first line ends that is not inside a quotation; the end of the text if none does."""
    return int(next(iter(_record_ends(text)), len(text)))


def _record_ends(text: bytes | bytearray) -> NDArray[np.intp]:
    """Where the lines end that are not inside a quotation; the text starts outside of one."""
    data = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(data == _MARK)
    ends = np.flatnonzero(data == _LINE_END)
    return np.asarray(ends[np.searchsorted(marks, ends) % 2 == 0] + 1)


def misplaced_quote(text: bytes | bytearray, delimiter: str) -> int | None:
    """Position of the first quotation mark that neither begins nor ends a field, or is left open."""
    data = np.frombuffer(text, np.uint8)
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
    positions = np.concatenate(wrong)
    return int(positions.min()) if len(positions) else None


def place_of_row(file: Path, layout: Layout, row: int) -> str:
    """`file, line n` of a row counted from 0. Slow, and only for an error."""
    with file.open(encoding="utf-8-sig", newline="") as text:
        lines = (line for line, _ in records(text, layout.delimiter, layout.quoted, layout.width == 1))
        return at(layout.name, next(islice(lines, row + layout.header, None), None))


# What is wrong with a block of text, and on which line: looked for slowly, after the quick parsing has failed.

_ANY_LINE_END = re.compile(r"\r\n|\n|\r")


def diagnose(layout: Layout, block: Block) -> InputError:
    """The error of the first bad line of a block."""
    text, first_line = block.text, block.line
    end, objection = len(text), "cannot be read: correct it"
    if layout.quoted and (mark := misplaced_quote(text, layout.delimiter)) is not None:
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
    separated = records(io.StringIO(lines, newline=""), layout.delimiter, layout.quoted, layout.width == 1)
    numbers, rows = zip(*separated, strict=True) if lines.strip("\r\n") else ((), ())
    for number, row in zip(numbers, rows, strict=True):
        line = first_line + number - 1
        if layout.header and block.is_first and number == 1:
            continue
        if len(row) != layout.width:
            columns = f"{len(row)} column{'s' if len(row) != 1 else ''}"
            wrong: str | None = f"has {columns}, expected {layout.width}: {layout.remedy}"
        else:
            wrong = layout.objection(row, line, rows)
        if wrong is not None:
            return InputError(f"{at(layout.name, line)} {wrong}")
    return InputError(f"{at(layout.name, first_line + len(_ANY_LINE_END.findall(before)))} {objection}")
