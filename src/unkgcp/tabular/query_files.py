"""Triples to be asked about, from a file or a pipe: batches of three label columns, in order.

A column of confidences is not looked at. With `open_places` a head or tail may be left open, as `?` or as nothing,
for a completion to fill.

>>> for batch in query_batches("queries.parquet"):       # doctest: +SKIP
...     batch.column("head")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import Batch, Malformed, acceptable
from unkgcp.tabular.columns import ROLES, Options, Request
from unkgcp.tabular.delimited import text_batches
from unkgcp.tabular.formats import PARQUET, layout_of
from unkgcp.tabular.label_index import OPEN
from unkgcp.tabular.parquet import parquet_queries
from unkgcp.tabular.source import Origin, Source, is_parquet

LOOK = 1 << 18


def query_batches(
    path: Origin, *, open_places: bool = False, rows: range | None = None, **options: Unpack[Options]
) -> Iterator[pa.RecordBatch]:
    """Columns head, relation and tail, each of strings or of a dictionary of strings. Options as in `read`.

    A folder of Parquet files is read in the order of their names. `rows`, counted from 0, asks for these rows of one
    Parquet file only; row groups outside are not read. There is at least one batch, empty if there is no query.
    """
    request = Request(**options, with_confidence=False)
    files = parquet_files(Path(path)) if isinstance(path, str) and Path(path).is_dir() else [path]
    nothing = True
    for file in files:
        for batch in _file_batches(file, request, open_places, rows):
            nothing = False
            yield batch
    if nothing:
        yield pa.record_batch([pa.array([], pa.string())] * 3, names=list(ROLES[:3]))


def parquet_files(folder: Path) -> list[str]:
    """The Parquet files of a folder by name; hidden ones and those that begin with _ (`_SUCCESS`) are no data."""
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    other = [name for name in names if not name.endswith(".parquet") or not (folder / name).is_file()]
    if other:
        raise InputError(
            f"{folder / other[0]} is no Parquet file: a folder of queries holds *.parquet files only; "
            "move it away"
        )
    if not names:
        raise InputError(
            f"{folder} holds no *.parquet file: name a file of queries, or a folder of Parquet files"
        )
    return [str(folder / name) for name in names]


def _file_batches(
    path: Origin, request: Request, open_places: bool, rows: range | None
) -> Iterator[pa.RecordBatch]:
    with Source(path) as source:
        layout = layout_of(source, request)
        if layout == PARQUET:
            yield from parquet_queries(source, request, OPEN if open_places else None, rows)
            return
        if rows is not None:
            raise ValueError(f"{source.name} is no Parquet file: it cannot be read from the middle")
        if isinstance(layout, str):
            from unkgcp.tabular.rdf_statements import RdfFile

            yield from RdfFile(source, layout, request).triples()
            return
        for batch, _ in text_batches(source, layout, _with_open_places if open_places else _strings):
            yield batch


def count_queries(path: str) -> int | None:
    """How many there are, as far as a look can tell: exactly in a Parquet file, about in a plain text file."""
    try:
        if os.path.isdir(path):
            return sum(int(pq.read_metadata(file).num_rows) for file in parquet_files(Path(path)))
        if path == "-" or not os.path.isfile(path) or path.endswith(".gz"):
            return None
        with open(path, "rb") as file:
            sample = file.read(LOOK)
        if is_parquet(sample):
            return int(pq.read_metadata(path).num_rows)
        rows = sample.count(b"\n")
        return None if not rows else round(rows * os.path.getsize(path) / len(sample))
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def _strings(batch: Batch) -> pa.RecordBatch:
    relation = batch.relation.dictionary
    if not all(acceptable(labels) for labels in (batch.head, relation, batch.tail)):
        raise Malformed
    columns = [
        batch.head.cast(pa.string()),
        relation.cast(pa.string()).take(batch.relation.indices),
        batch.tail.cast(pa.string()),
    ]
    return pa.record_batch(columns, names=list(ROLES[:3]))


def _with_open_places(batch: Batch) -> pa.RecordBatch:
    """The same with `?` where a head or tail is empty."""
    head, tail = (
        pc.if_else(pc.equal(pc.binary_length(labels), 0), pa.scalar(OPEN.encode(), pa.binary()), labels)
        for labels in (batch.head, batch.tail)
    )
    return _strings(Batch(head, batch.relation, tail, None))
