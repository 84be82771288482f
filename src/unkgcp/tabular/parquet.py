"""Parquet files and Arrow tables, batch by batch: labels as text or integers, confidences as any kind of number.

Labels that the file keeps as dictionaries, as most files do, are read as dictionaries: then each is checked and looked
up once and not once a row, and a small file cannot unfold to a large one. Errors count rows from 1; a Parquet file has
no lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import one_array, values
from unkgcp.tabular.columns import INTERVAL, ROLES, Request, Scale, find, may_be_named
from unkgcp.tabular.fact_batches import (
    Malformed,
    acceptable,
    batch_of,
    beside,
    checked,
    objection_to_confidence,
    objection_to_ends,
    objection_to_labels,
    settled,
)
from unkgcp.tabular.source import Source

ROWS = 1 << 18
"""Rows of a batch, at most."""
OPEN_ROWS = 1 << 17
"""The same of queries with open places, each of which may have many answers."""
GROUP = 1 << 21
"""Rows that are read at once, at most; those of one row group have one dictionary."""
UNFOLDED, TIMES = 256 << 20, 1000
"""Bytes that may come out of any file, and how many times its own bytes may come out of a larger one."""


def parquet_batches(
    source: Source,
    request: Request,
    opening: str | None = None,
    rows: range | None = None,
    carries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The facts or queries of a Parquet file; of some rows, counted from 0, if these are given.

    opening: what stands for a head or tail that is empty or null; None: they must not be. carries: whether the other
    columns come along.
    """
    path = source.on_disk()
    max_bytes = max(UNFOLDED, TIMES * path.stat().st_size)
    with source.explained():
        with pq.ParquetFile(path) as file:
            names = column_names(file.schema_arrow, request, source.name)
            _check_size(file.metadata, source.name, max_bytes)
            others = [name for name in file.schema_arrow.names if carries and name not in names]
            encoded = _encoded(file, [*names, *others])
        with pq.ParquetFile(path, read_dictionary=encoded) as file:
            encoded = [name for name in encoded if not _written_out(file, name, max_bytes)]
        with pq.ParquetFile(path, read_dictionary=encoded) as file:
            wanted = range(file.metadata.num_rows) if rows is None else rows
            for row, piece in _pieces(file, [*names, *others], wanted):
                columns = [one_array(piece.column(name)) for name in names]
                further = {name: one_array(piece.column(name)) for name in others}
                if sum(map(_unfolded, [*columns, *further.values()])) > max_bytes:
                    raise _too_large(source.name, max_bytes)
                yield from _batches(columns, source.name, row, request, opening, further)


def table_batches(table: pa.Table, name: str, request: Request) -> Iterator[pa.RecordBatch]:
    """The same for a table in memory, which errors call `name`."""
    names = column_names(table.schema, request, name)
    yield from _batches([one_array(table.column(column)) for column in names], name, 0, request)


def _batches(
    columns: Sequence[pa.Array],
    name: str,
    row: int,
    request: Request,
    opening: str | None = None,
    further: Mapping[str, pa.Array] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns as batches, and what is wrong with them; `row` rows of the file, called `name`, come before."""
    try:
        labels = [
            _labels(column, None if role == "relation" else opening)
            for role, column in zip(ROLES, columns[:3], strict=False)
        ]
        numbers = [column.cast(pa.float64(), safe=False) for column in columns[3:]]
        batch = settled(batch_of([*labels, *numbers]), request)
        checked(batch, (request.scale or Scale()) if numbers else None)
        batch = beside(batch, further) if further else batch
    except (Malformed, pa.ArrowInvalid):
        raise _diagnose(columns, name, row, request) from None
    rows = ROWS if opening is None else OPEN_ROWS
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def column_names(schema: pa.Schema, request: Request, name: str) -> list[str]:
    """The names of the columns of head, relation, tail and perhaps confidence, or lower and upper."""
    names = schema.names
    # columns are read by name, so two of the same name cannot be told apart, not even by --columns
    roles = ROLES if request.with_confidence else ROLES[:3]
    meant = request.columns or [column for column in names if may_be_named(column, roles)]
    for column in meant:
        called = names[column] if isinstance(column, int) and 0 <= column < len(names) else column
        if names.count(called) > 1:
            raise InputError(
                f"{name} has two columns called {called!r}: write the file again with one of them renamed"
            )
    _, positions = find(names, True, request.columns, request.with_confidence, (name,))
    chosen = [names[position] for position in positions]
    for role, column in zip(INTERVAL if len(chosen) == len(INTERVAL) else ROLES, chosen, strict=False):
        kind = schema.field(column).type
        if role not in ROLES[:3]:
            fits = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        else:
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            fits = pa.types.is_integer(plain) or _is_text(plain)
        # a column of nulls passes here; the error that follows names its first row
        if not fits and not pa.types.is_null(kind):
            wanted = "text or integers" if role in ROLES[:3] else "numbers"
            raise InputError(
                f"{name} has {kind} in its {role} column {column!r}, expected {wanted}: "
                "convert the column, or choose another with --columns"
            )
    return chosen


def _is_text(kind: pa.DataType) -> bool:
    is_view = getattr(pa.types, "is_string_view", lambda _: False)  # newer than the oldest Arrow we run on
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_view(kind))


def _labels(column: pa.Array, opening: str | None) -> pa.Array:
    """A column of labels as strings, or as a dictionary of strings with 32-bit places."""
    if pa.types.is_dictionary(column.type):
        labels, codes = _text(column.dictionary), column.indices.cast(pa.int32())
        if acceptable(labels) and not (opening and codes.null_count):
            return pa.DictionaryArray.from_arrays(codes, labels)
        return _labels(labels.take(codes), opening)  # a bad label that no row has does no harm
    labels = _text(column)
    if opening:
        return pc.if_else(pc.equal(labels, ""), opening, labels).fill_null(opening)
    return labels


def _text(column: pa.Array) -> pa.StringArray:
    """Labels as strings; an error of Arrow if they are no valid UTF-8, which a file may say of any bytes."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    try:
        text = column.cast(pa.string())
    except pa.ArrowNotImplementedError:  # views of strings, which Arrow 17 can only give to Python
        text = pa.array(column.to_pylist(), pa.string())
    return text.cast(pa.binary()).cast(pa.string())


def _diagnose(columns: Sequence[pa.Array], name: str, row: int, request: Request) -> InputError:
    """The first row with a label or a confidence that will not do."""
    scale, numbers = (
        request.scale or Scale(),
        [column.cast(pa.float64(), safe=False) for column in columns[3:]],
    )
    for place in range(len(columns[0])):
        try:
            labels = [column[place].as_py() for column in columns[:3]]
        except UnicodeDecodeError:
            return InputError(f"{name}, row {row + place + 1} is not valid UTF-8: write the file again")
        wrong = objection_to_labels([None if label is None else str(label) for label in labels], "row")
        ends = [column[place].as_py() for column in numbers]
        for value, column in zip(ends, numbers, strict=True):
            largest = pc.max(column.filter(pc.is_finite(column))).as_py() or 0.0
            wrong = wrong or objection_to_confidence(value, str(value), request, scale, largest, "row")
        wrong = wrong or objection_to_ends(ends)
        if wrong is not None:
            return InputError(f"{name}, row {row + place + 1} {wrong}")
    return InputError(
        f"{name} has a label in rows {row + 1} and following that cannot be read: write it again"
    )


# How much a file may hold, and its row groups.


def _check_size(metadata: pq.FileMetaData, name: str, max_bytes: int) -> None:
    """Refuse a file that says of itself that it unfolds to much more than it is; 16 bytes of a row are ids."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    if max(16 * metadata.num_rows, sum(group.total_byte_size for group in groups)) > max_bytes:
        raise _too_large(name, max_bytes)


def _too_large(name: str, max_bytes: int) -> InputError:
    return InputError(
        f"{name} unfolds to more than {max_bytes >> 20:,} MiB, {TIMES} times its own size or more: "
        "write it again as several files, or without compression"
    )


def _unfolded(column: pa.Array) -> int:
    """The bytes of a column with a text in each row."""
    if not pa.types.is_dictionary(column.type) or pa.types.is_integer(column.type.value_type):
        return int(column.nbytes)
    length = pc.binary_length(column.dictionary).cast(pa.int64()).fill_null(0)
    return int(np.append(values(length), 0)[values(column.indices.cast(pa.int64()).fill_null(-1))].sum())


def _encoded(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """The columns of text or bytes that the file keeps as dictionaries."""
    schema = file.schema_arrow
    texts = {
        name
        for name in names
        if _is_text(schema.field(name).type) or pa.types.is_binary(schema.field(name).type)
    }
    groups = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    encoded = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    return [name for name in names if name in texts & encoded]


def _written_out(file: pq.ParquetFile, name: str, max_bytes: int) -> bool:
    """Whether most texts of a column stand outside its dictionaries, which writers give up when they become long.

    Such a column is read as text, which takes a quarter of the time, unless that could unfold to too much.
    """
    outside = 0
    for place in range(file.num_row_groups):
        group = file.metadata.row_group(place)
        # columns inside of others have chunks of their own, so that a column is found by its path
        chunks = [group.column(number) for number in range(group.num_columns)]
        for first_row in islice(file.iter_batches(1, [place], [name]), 1):
            dictionary = first_row.column(0).dictionary
            longest = pc.max(pc.binary_length(dictionary)).as_py() or 0
            size = next(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == name)
            if group.num_rows * longest + size > max_bytes:
                return False
            # a place in a dictionary has 4 bytes at most
            outside += size - dictionary.nbytes - 4 * group.num_rows
    return outside > 0


def _pieces(file: pq.ParquetFile, names: list[str], rows: range) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows asked for in pieces, each with the position of its first row."""
    first = 0
    for place in range(file.num_row_groups):
        size = file.metadata.row_group(place).num_rows
        if first < rows.stop and first + size > rows.start:
            row = first
            for piece in file.iter_batches(GROUP, [place], names):
                begin, end = max(rows.start, row), min(rows.stop, row + len(piece))
                if begin < end:
                    yield begin, piece.slice(begin - row, end - begin)
                row += len(piece)
        first += size
