"""Answers written as they come: TSV, CSV (both plain or gzip) or Parquet, to a file or to standard output.

What it is: a sink for Arrow batches that holds one batch at a time. A file appears whole or not at all. What it
is not: a quoting puzzle; in TSV a quotation mark is a character like any other, so a label with a tab or a line
end cannot be written there and is refused, while CSV quotes what needs it.

>>> with open_output("answers.csv.gz") as write:     # doctest: +SKIP
...     write(batch)
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, standard_output

Write = Callable[[pa.RecordBatch], None]

ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet")
LEVEL = 6  # of gzip: the usual balance
ROW_GROUP = 1 << 20  # rows


@contextmanager
def open_output(target: str | None) -> Iterator[Write]:
    """A function that writes batches of one schema to `target`; None and `-` are standard output, as TSV."""
    if target is None or target == "-":
        stream: IO[bytes] = standard_output()
        yield _text_writer(stream, "\t", "standard output")
        stream.flush()
        return
    ending = next((ending for ending in ENDINGS if target.lower().endswith(ending)), None)
    if ending is None:
        raise InputError(f"{target} does not end in {', '.join(ENDINGS)}; its ending says how to write it")
    if Path(target).is_dir():
        raise InputError(f"{target} is a folder; give the name of a file")
    with atomic_path(target) as path, ExitStack() as opened:
        if ending == ".parquet":
            yield opened.enter_context(_parquet_writer(path))
        else:
            raw = opened.enter_context(path.open("wb"))
            # without a name and a time inside, the same answers give the same bytes
            packed = gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) if ending.endswith(".gz") else None
            stream = cast(IO[bytes], opened.enter_context(packed) if packed is not None else raw)
            yield _text_writer(stream, "\t" if ending.startswith(".tsv") else ",", target)


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Write]:
    """Gathers batches to row groups of a million rows."""
    import pyarrow.parquet as pq

    writer: Any = None
    waiting: list[pa.RecordBatch] = []

    def flush() -> None:
        nonlocal writer
        if waiting:
            table = gathered(waiting)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, **parquet_options(table.schema))
            writer.write_table(table, row_group_size=max(1, len(table)))
            waiting.clear()

    def write(batch: pa.RecordBatch) -> None:
        # a row group is closed before a batch would make it longer than it should be
        if sum(map(len, waiting)) + len(batch) > ROW_GROUP:
            flush()
        waiting.append(batch)

    try:
        yield write
        flush()
    finally:
        if writer is not None:
            writer.close()


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How answers are written as Parquet: labels as dictionaries, and read back as plain strings."""
    texts = [
        field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    return {
        "compression": "zstd",
        "use_dictionary": texts,
        "store_schema": False,
    }


def gathered(batches: list[pa.RecordBatch]) -> pa.Table:
    """Batches of one schema as one table, each column in one piece with one dictionary."""
    columns = [
        _gathered([batch.column(place) for batch in batches]) for place in range(batches[0].num_columns)
    ]
    return pa.table(columns, names=batches[0].schema.names)


def _gathered(pieces: list[pa.Array]) -> pa.Array | pa.ChunkedArray:
    if len(pieces) == 1:
        return pieces[0]
    if pa.types.is_dictionary(pieces[0].type):
        first = pieces[0].dictionary
        if all(_is_same(first, piece.dictionary) for piece in pieces[1:]):
            indices = pa.concat_arrays([piece.indices for piece in pieces])
            return pa.DictionaryArray.from_arrays(indices, first)
        whole = pa.chunked_array(pieces).unify_dictionaries()
        return whole.combine_chunks()
    return pa.chunked_array(pieces)


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same memory."""
    if len(one) != len(other) or one.offset != other.offset:
        return False
    places = [[buffer and buffer.address for buffer in array.buffers()] for array in (one, other)]
    return bool(places[0] == places[1])


def _text_writer(stream: IO[bytes], delimiter: str, name: str) -> Write:
    quote = _quoted if delimiter == "," else _unquoted
    fresh = True

    def write(batch: pa.RecordBatch) -> None:
        nonlocal fresh
        if fresh:
            stream.write((delimiter.join(batch.schema.names) + "\n").encode())
            fresh = False
        if not batch.num_rows:
            return
        columns = [
            quote(column, name) if pa.types.is_string(column.type) else column.cast(pa.string())
            for column in map(_spelt, batch.columns)
        ]
        stream.write(lines(columns, delimiter))

    return write


def _spelt(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _unquoted(column: pa.Array, name: str) -> pa.Array:
    if holds_any(column, b"\t\r\n"):
        label = column.filter(pc.match_substring_regex(column, r"[\t\r\n]"))[0].as_py()
        raise InputError(f"{name}: the label {label!r} cannot be written as TSV; write .csv or .parquet")
    return column


def _quoted(column: pa.Array, name: str) -> pa.Array:
    return quoted(column, ",")


# Delimited text from Arrow columns, without a loop over rows.

_EMPTY: dict[str, Any] = {"null_handling": "replace", "null_replacement": ""}


def lines(columns: list[pa.Array], delimiter: str) -> memoryview:
    """The rows of columns of text (or of what casts to it), each ended by a line feed; a null is an empty field."""
    if not len(columns[0]):
        return memoryview(b"")
    nothing, line_end, between = (pa.scalar(text, pa.large_string()) for text in ("", "\n", delimiter))
    texts = [column.cast(pa.large_string()) for column in columns]
    texts[-1] = pc.binary_join_element_wise(texts[-1], line_end, nothing, **_EMPTY)
    rows = pc.binary_join_element_wise(*texts, between, **_EMPTY)
    # the strings of an Arrow array lie end to end in one buffer: the text is already there
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]


def quoted(column: pa.Array, delimiter: str) -> pa.Array:
    """A column of text with quotation marks around the fields that need them, as CSV has it."""
    characters = f'"\r\n{delimiter}'
    if not holds_any(column, characters.encode()):
        return column
    nothing, mark = (pa.scalar(text, column.type) for text in ("", '"'))
    wrapped = pc.binary_join_element_wise(mark, pc.replace_substring(column, '"', '""'), mark, nothing)
    return pc.if_else(pc.match_substring_regex(column, f"[{re.escape(characters)}]"), wrapped, column)


def holds_any(column: pa.Array, characters: bytes) -> bool:
    """Whether one of these bytes is anywhere in a column of text; far quicker than to search each field."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(column.type) else np.int32)
    text = np.frombuffer(data, np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
    wanted = np.zeros(256, np.bool_)
    wanted[list(characters)] = True
    return bool(wanted[text].any())
