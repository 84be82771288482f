"""Parquet files, read batch by batch: labels as text or integers, confidences as any kind of number.

Rows are counted from 1 in error sentences; a Parquet file has no lines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.tabular.columns import ROLES, Request, find
from unkgcp.tabular.label_index import binary
from unkgcp.tabular.layout import Batch, Batches, Malformed
from unkgcp.tabular.scaling import Scale
from unkgcp.tabular.source import Source

ROWS = 1 << 16

T = TypeVar("T")


def parquet_batches(source: Source, request: Request, then: Callable[[Batch], T]) -> Batches[T]:
    """The facts of a Parquet file, batch by batch; as `text_batches`."""
    try:
        with pq.ParquetFile(source.on_disk()) as file:
            names = _columns(file.schema_arrow, request, source.name)
            row = 1
            for piece in file.iter_batches(ROWS, columns=names):
                columns = [piece.column(name) for name in names]
                error = partial(_diagnose, columns, source.name, row, request)
                try:
                    batch = _batch(columns)
                    result = then(batch.without_missing() if request.skip_missing else batch)
                except Malformed:
                    raise error() from None
                yield result, error
                row += len(piece)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(
            f"{source.name} is a damaged Parquet file ({reason}): copy, download or write it again"
        ) from None


def _columns(schema: pa.Schema, request: Request, name: str) -> list[str]:
    if request.language is not None:
        raise InputError(f"{name} is a Parquet file, which knows no languages: leave the language out")
    found = find(schema.names, True, request.columns, request.with_confidence, name)
    chosen = [schema.names[position] for position in found.positions]
    for role, column in zip(ROLES, chosen, strict=False):
        kind = schema.field(column).type
        if role == "confidence":
            fits = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        else:
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            fits = pa.types.is_integer(plain) or _is_text(plain)
        if not fits:
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
    head, relation, tail = (_labels(column) for column in columns[:3])
    confidence = columns[3].cast(pa.float64(), safe=False) if len(columns) == 4 else None
    return Batch(head, relation.dictionary_encode(), tail, confidence)


def _labels(column: pa.Array) -> pa.BinaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return binary(column.cast(pa.string()))


def _diagnose(columns: list[pa.Array], name: str, row: int, request: Request) -> InputError:
    """The first row with a null or empty label or a confidence that will not do."""
    bad = []
    for role, column in zip(ROLES, columns[:3], strict=False):
        empty = pc.fill_null(pc.equal(pc.binary_length(_labels(column)), 0), True)
        nul = pc.fill_null(pc.match_substring(_labels(column), "\0"), False)
        bad += [(at, f"has an empty {role}: give it a label or remove the row") for at in _first(empty)]
        bad += [(at, f"has a NUL byte in its {role}: remove it") for at in _first(nul)]
    if len(columns) == 4:
        values = np.asarray(columns[3].cast(pa.float64(), safe=False).fill_null(float("nan")))
        scale = request.scale or Scale()
        objections = [scale.objection(value) for value in values.tolist()]
        wrong = pa.array([objection is not None for objection in objections])
        if request.skip_missing:
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
