"""Parquet files and Arrow tables, batch by batch: labels as text or integers, confidences as any kind of number.

Labels of facts are read as text, since each is looked up in an index that grows. Labels of queries are read as
dictionaries where the file keeps them so, as most do: then a label is looked up once and not once a row. Errors count
rows from 1; a Parquet file has no lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import (
    Batch,
    Batches,
    Malformed,
    acceptable,
    binary,
    buffers,
    content,
    one_array,
)
from unkgcp.tabular.columns import ROLES, Request, Scale, find, may_be_named
from unkgcp.tabular.source import Source

ROWS = 1 << 16
QUERIES = 1 << 17
"""Rows of a batch of queries, at most."""
GROUP = 1 << 21
"""Rows of a row group up to which it is read as one, so that it has one dictionary; plain labels have none."""

NOTHING = (
    "has no confidence: add it, remove the row, leave such rows out with --skip-missing, or give them one with "
    "--default-confidence"
)

T = TypeVar("T")


def parquet_batches(source: Source, request: Request, then: Callable[[Batch], T]) -> Batches[T]:
    """The facts of a Parquet file, batch by batch; as `text_batches`."""
    with source.explained(), pq.ParquetFile(source.on_disk()) as file:
        names = _columns(file.schema_arrow, request, source.name)
        yield from _facts(file.iter_batches(ROWS, columns=names), names, source.name, request, then)


def table_batches(table: pa.Table, name: str, request: Request, then: Callable[[Batch], T]) -> Batches[T]:
    """The same for a table in memory, which errors call `name`."""
    names = _columns(table.schema, request, name)
    yield from _facts(table.select(names).to_batches(ROWS), names, name, request, then)


def _facts(
    pieces: Iterable[pa.RecordBatch],
    names: list[str],
    name: str,
    request: Request,
    then: Callable[[Batch], T],
) -> Batches[T]:
    row = 1
    for piece in pieces:
        columns = [piece.column(name) for name in names]
        error = partial(_diagnose, columns, name, row, request)
        try:
            result = then(_batch(columns).settled(request.skip_missing, request.default_confidence))
        except Malformed:
            raise error() from None
        yield result, error
        row += len(piece)


def _columns(schema: pa.Schema, request: Request, name: str) -> list[str]:
    if request.language is not None:
        raise InputError(f"{name} is a Parquet file, which knows no languages: leave the language out")
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
    for role, column in zip(ROLES, chosen, strict=False):
        kind = schema.field(column).type
        if role == "confidence":
            fits = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        else:
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            fits = pa.types.is_integer(plain) or _is_text(plain)
        # a column of nulls passes here; the error that follows names its first row
        if not fits and not pa.types.is_null(kind):
            wanted = "numbers" if role == "confidence" else "text or integers"
            raise InputError(
                f"{name} has {kind} in its {role} column {column!r}, expected {wanted}: "
                "convert the column, or choose another with --columns"
            )
    return chosen


def _is_text(kind: pa.DataType) -> bool:
    is_view = getattr(pa.types, "is_string_view", lambda _: False)  # newer than the oldest Arrow we run on
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_view(kind))


def _batch(columns: list[pa.Array]) -> Batch:
    if any(column.null_count for column in columns[:3]):
        raise Malformed
    head, relation, tail = (_bytes(column) for column in columns[:3])
    confidence = columns[3].cast(pa.float64(), safe=False) if len(columns) == 4 else None
    return Batch(head, relation.dictionary_encode(), tail, confidence)


def _bytes(column: pa.Array) -> pa.BinaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return binary(column.cast(pa.string()))


def _diagnose(columns: list[pa.Array], name: str, row: int, request: Request) -> InputError:
    """The first row with a null or empty label or a confidence that will not do."""
    bad = []
    for role, column in zip(ROLES, columns[:3], strict=False):
        empty = pc.fill_null(pc.equal(pc.binary_length(_bytes(column)), 0), True)
        nul = pc.fill_null(pc.match_substring(_bytes(column), "\0"), False)
        bad += [(at, f"has an empty {role}: give it a label or remove the row") for at in _first(empty)]
        bad += [(at, f"has a NUL byte in its {role}: remove it") for at in _first(nul)]
    if len(columns) == 4:
        values = np.asarray(columns[3].cast(pa.float64(), safe=False).fill_null(float("nan")))
        scale = request.scale or Scale()
        objections = [NOTHING if math.isnan(value) else scale.objection(value) for value in values.tolist()]
        wrong = pa.array([objection is not None for objection in objections])
        if request.skip_missing or request.default_confidence is not None:
            wrong = pc.and_(wrong, pc.is_finite(values))
        bad += [(at, objections[at] or "") for at in _first(wrong)]
    if not bad:
        return InputError(
            f"{name} has a label in rows {row} and following that is not valid UTF-8: write it again"
        )
    place, objection = min(bad)
    return InputError(f"{name}, row {row + place} {objection}")


def _first(mask: pa.BooleanArray) -> list[int]:
    position = pc.index(mask, True).as_py()
    return [] if position < 0 else [position]


# Queries: labels as strings or as dictionaries of strings, perhaps of some rows only.


def parquet_queries(
    source: Source, request: Request, opening: str | None = None, rows: range | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns head, relation and tail of a Parquet file; of some rows, counted from 0, if these are given.

    opening: what stands for a head or tail that is empty or null; None: they must not be
    """
    path = source.on_disk()
    with source.explained():
        with pq.ParquetFile(path) as file:
            names = _columns(file.schema_arrow, request, source.name)
            encoded = _encoded(file, names)
        with pq.ParquetFile(path, read_dictionary=encoded) as file:
            asked = range(file.metadata.num_rows) if rows is None else rows
            most = GROUP if len(encoded) == len(names) else QUERIES
            for row, piece in _pieces(file, names, asked, most):
                columns = [one_array(piece.column(name)) for name in names]
                try:
                    labels = [
                        _labels(column, None if role == "relation" else opening)
                        for role, column in zip(ROLES, columns, strict=False)
                    ]
                except Malformed:
                    raise _diagnose(columns, source.name, row + 1, request) from None
                whole = pa.record_batch(labels, names=list(ROLES[:3]))
                for start in range(0, len(whole), QUERIES):
                    yield whole.slice(start, QUERIES)


def _encoded(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """The columns of text that the file keeps as dictionaries, judged by its first row group."""
    if not file.num_row_groups:
        return []
    group, texts = (
        file.metadata.row_group(0),
        {name for name in names if _is_text(file.schema_arrow.field(name).type)},
    )
    encoded = {
        chunk.path_in_schema
        for chunk in map(group.column, range(group.num_columns))
        # writers give a dictionary up when there are too many labels; a plain label takes four bytes and its own
        # length, a place in a dictionary two or three bytes
        if chunk.has_dictionary_page and chunk.total_uncompressed_size < 4 * chunk.num_values + (1 << 20)
    }
    return [name for name in names if name in texts & encoded]


def _pieces(
    file: pq.ParquetFile, names: list[str], rows: range, most: int
) -> Iterator[tuple[int, pa.Table | pa.RecordBatch]]:
    """The rows asked for in pieces of at most `most` rows, each with the position of its first row."""
    first = 0
    for place in range(file.num_row_groups):
        size = file.metadata.row_group(place).num_rows
        if first < rows.stop and first + size > rows.start:
            row = first
            for piece in _group(file, place, names, size, most):
                begin, end = max(rows.start, row), min(rows.stop, row + len(piece))
                if begin < end:
                    yield begin, piece.slice(begin - row, end - begin)
                row += len(piece)
                if row >= rows.stop:
                    break
        first += size


def _group(
    file: pq.ParquetFile, place: int, names: list[str], size: int, most: int
) -> Iterable[pa.Table | pa.RecordBatch]:
    """A row group in one piece, or in several if it is large."""
    if size <= most:
        return [file.read_row_group(place, columns=names)]
    pieces: Iterable[pa.RecordBatch] = file.iter_batches(min(most, GROUP // 2), [place], names)
    return pieces


def _labels(column: pa.Array, opening: str | None) -> pa.Array:
    """A column of labels, checked: strings, or a dictionary of strings with 32-bit places."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary.cast(pa.string())
        places = column.indices.cast(pa.int32())
        if opening and (column.null_count or not acceptable(values.cast(pa.binary()))):
            return _labels(column.cast(pa.string()), opening)
        if column.null_count:
            raise Malformed
        if values.null_count or not acceptable(values.cast(pa.binary())):
            # a label that no row has does no harm
            used = pc.unique(pa.DictionaryArray.from_arrays(places, values).cast(pa.string()))
            if used.null_count or not acceptable(used.cast(pa.binary())):
                raise Malformed
        return pa.DictionaryArray.from_arrays(places, values)
    labels = column.cast(pa.string())
    if opening:
        labels = pc.if_else(pc.equal(pc.binary_length(labels), 0), opening, labels).fill_null(opening)
    if labels.null_count or not _sound(labels):
        raise Malformed
    return labels


def _sound(labels: pa.StringArray) -> bool:
    """The same as `acceptable`, but quick where every label is plain ASCII."""
    if len(labels) and content(labels).view(np.int8).min(initial=1) > 0:
        return bool((np.diff(buffers(labels)[1]) > 0).all())
    return acceptable(labels.cast(pa.binary()))
