"""Triples to be asked about, from a file or a pipe: batches of three label columns, in order.

What it is: the reader of queries. Labels of a Parquet file come as dictionaries where the file has them so (most
have): then a label is looked up once and not once a row, and strings are never spelt out. With `open_places` a
head or tail may be left open, as `?` or as nothing, for a completion to fill. What it is not: a reader of facts
(`reading`); a column of confidences is not looked at.

>>> for batch in query_batches("queries.parquet"):       # doctest: +SKIP
...     batch.column("head")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.reading import Options, _opened, _strings
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.tabular.columns import ROLES, Request
from unkgcp.tabular.formats import PARQUET, recognise
from unkgcp.tabular.label_index import Ids, buffers
from unkgcp.tabular.layout import Batch, Malformed, acceptable
from unkgcp.tabular.parquet import _columns, _diagnose, _is_text
from unkgcp.tabular.source import Origin, Source

ROWS = 1 << 17
"""Rows of a batch of a Parquet file, at most."""
GROUP = 1 << 21
"""Rows of a row group up to which it is read as one, so that it has one dictionary; plain labels have none."""
OPEN = "?"
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
        if recognise(source, request.format, plain=request.columns is not None) == PARQUET:
            yield from _parquet(source, request, open_places, rows)
            return
        if rows is not None:
            raise ValueError(f"{source.name} is no Parquet file: it cannot be read from the middle")
        _, batches = _opened(source, request)
        for batch, _ in batches(_with_open_places if open_places else _strings, None):
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
        if sample.startswith(b"PAR1"):
            return int(pq.read_metadata(path).num_rows)
        rows = sample.count(b"\n")
        return None if not rows else round(rows * os.path.getsize(path) / len(sample))
    except (pa.ArrowException, OSError):
        return None


def _with_open_places(batch: Batch) -> pa.RecordBatch:
    """As `_strings`, with `?` where a head or tail is empty."""
    head, tail = (
        pc.if_else(pc.equal(pc.binary_length(labels), 0), pa.scalar(OPEN.encode(), pa.binary()), labels)
        for labels in (batch.head, batch.tail)
    )
    return _strings(Batch(head, batch.relation, tail, None))


def _parquet(
    source: Source, request: Request, open_places: bool, rows: range | None
) -> Iterator[pa.RecordBatch]:
    try:
        path = source.on_disk()
        with pq.ParquetFile(path) as file:
            names = _columns(file.schema_arrow, request, source.name)
            encoded = _encoded(file, names)
        with pq.ParquetFile(path, read_dictionary=encoded) as file:
            asked = range(file.metadata.num_rows) if rows is None else rows
            most = GROUP if len(encoded) == len(names) else ROWS
            for row, piece in _pieces(file, names, asked, most):
                columns = [_one(piece.column(name)) for name in names]
                try:
                    labels = [
                        _labels(column, open_places and role != "relation")
                        for role, column in zip(ROLES, columns, strict=False)
                    ]
                except Malformed:
                    raise _diagnose(columns, source.name, row + 1, request) from None
                whole = pa.record_batch(labels, names=list(ROLES[:3]))
                for start in range(0, len(whole), ROWS):
                    yield whole.slice(start, ROWS)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(
            f"{source.name} is a damaged Parquet file ({reason}): copy, download or write it again"
        ) from None


def _encoded(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """The columns of text that the file keeps as dictionaries, judged by its first row group."""
    if not file.num_row_groups:
        return []
    group = file.metadata.row_group(0)
    chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
    plain = {name for name in names if _is_text(file.schema_arrow.field(name).type)}
    return [name for name in names if name in plain and name in chunks and _is_dictionary(chunks[name])]


def _is_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether all of a chunk is kept as a dictionary: writers give up when there are too many labels."""
    # a label in plain bytes takes four bytes more than its length, a place in a dictionary two or three
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size < 4 * chunk.num_values + (
        1 << 20
    )


def _pieces(
    file: pq.ParquetFile, names: list[str], rows: range, most: int
) -> Iterator[tuple[int, pa.Table | pa.RecordBatch]]:
    """The rows asked for, with the position of the first of each piece; a piece has at most so many rows."""
    sizes = [file.metadata.row_group(place).num_rows for place in range(file.num_row_groups)]
    first = 0
    for place, size in enumerate(sizes):
        if first < rows.stop and first + size > rows.start:
            for row, piece in _group(file, place, names, first, size, most):
                begin, end = max(rows.start, row), min(rows.stop, row + len(piece))
                if begin < end:
                    yield begin, piece.slice(begin - row, end - begin)
                if row + len(piece) >= rows.stop:
                    break
        first += size


def _group(
    file: pq.ParquetFile, place: int, names: list[str], first: int, size: int, most: int
) -> Iterator[tuple[int, pa.Table | pa.RecordBatch]]:
    """A row group in one piece, or in several if it is large."""
    if size <= most:
        yield first, file.read_row_group(place, columns=names)
        return
    for piece in file.iter_batches(min(most, GROUP // 2), row_groups=[place], columns=names):
        yield first, piece
        first += len(piece)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _labels(column: pa.Array, may_be_open: bool) -> pa.Array:
    """A column of labels, checked: strings, or a dictionary of strings with 32-bit places."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary.cast(pa.string())
        places = column.indices.cast(pa.int32())
        if may_be_open and (column.null_count or not acceptable(values.cast(pa.binary()))):
            return _labels(column.cast(pa.string()), True)
        if column.null_count:
            raise Malformed
        if values.null_count or not acceptable(values.cast(pa.binary())):
            # a label that no row has does no harm
            used = pc.unique(pa.DictionaryArray.from_arrays(places, values).cast(pa.string()))
            if used.null_count or not acceptable(used.cast(pa.binary())):
                raise Malformed
        return pa.DictionaryArray.from_arrays(places, values)
    labels = column.cast(pa.string())
    if may_be_open:
        labels = pc.if_else(pc.equal(pc.binary_length(labels), 0), OPEN, labels).fill_null(OPEN)
    if labels.null_count or not _sound(labels):
        raise Malformed
    return labels


def _sound(labels: pa.StringArray) -> bool:
    """What `acceptable` says, quickly where every label is plain ASCII."""
    data, offsets = buffers(labels)
    text = data[offsets[0] : offsets[-1]]
    if len(labels) and text.view(np.int8).min(initial=1) > 0:
        return bool((offsets[1:] > offsets[:-1]).all())
    return acceptable(labels.cast(pa.binary()))


def spelt(column: pa.Array) -> pa.StringArray:
    """A column of labels as plain strings."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


# Queries in whatever form a caller has them, as the ids of one vocabulary.

Queries: TypeAlias = (
    Graph | Triples | pa.Table | pa.RecordBatch | Sequence[tuple[str, str, str]] | NDArray[np.integer]
)


def as_queries(queries: Any) -> Queries:
    """Queries as one of the forms below: frames of pandas and polars become Arrow tables, other iterables lists."""
    if isinstance(queries, Graph | Triples | pa.Table | pa.RecordBatch):
        return queries
    if isinstance(queries, np.ndarray):
        if queries.dtype.kind in "UO" and queries.ndim == 2:
            return [tuple(row) for row in queries.tolist()]
        return queries
    columns = list(getattr(queries, "columns", ()))
    if columns and hasattr(queries, "__getitem__"):
        names = [name for name in Triples._fields if name in columns]
        return pa.table({name: _label_columns(queries[name]) for name in names})
    return list(queries)


def _label_columns(column: Any) -> pa.Array:
    """A column of pandas or polars."""
    if hasattr(column, "to_arrow"):
        return column.to_arrow().cast(pa.string())
    return pa.array(column, pa.string(), from_pandas=True)


def to_triples(queries: Queries, vocabulary: Vocabulary) -> Triples:
    """Ids of queries: label triples, an Arrow table with columns head, relation and tail, a graph, or ids.

    Ids may come as `Triples` or as an integer array of shape (n, 3).
    """
    if isinstance(queries, Triples):
        return queries
    if isinstance(queries, Graph):
        return _translate(queries, vocabulary)
    if isinstance(queries, pa.Table | pa.RecordBatch):
        missing = [name for name in Triples._fields if name not in queries.schema.names]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}; it needs head, relation and tail")
        head, relation, tail = (queries.column(name) for name in Triples._fields)
        return _from_labels(head, relation, tail, vocabulary)
    if isinstance(queries, np.ndarray):
        if queries.ndim != 2 or queries.shape[1] != 3 or queries.dtype.kind not in "iu":
            raise ValueError(f"ids must be an integer array (n, 3), got {queries.dtype} {queries.shape}")
        inside = (queries >= 0) & (queries <= np.iinfo(np.int32).max)
        # converted first: unsigned numbers have no -1
        known = np.where(inside, queries.astype(np.int32), -1)
        return Triples(*(np.ascontiguousarray(known[:, place]) for place in range(3)))
    return _from_sequence(queries, vocabulary)


def labels_of(queries: Queries) -> pa.Table | pa.RecordBatch | None:
    """Columns head, relation and tail of queries that came as labels; None for ids and graphs."""
    if isinstance(queries, pa.Table | pa.RecordBatch):
        return queries.select(list(Triples._fields))
    if isinstance(queries, Graph | Triples | np.ndarray):
        return None
    return pa.table(
        {
            name: pa.array([query[place] for query in queries], pa.string())
            for place, name in enumerate(Triples._fields)
        }
    )


def _from_sequence(queries: Sequence[tuple[str, str, str]], vocabulary: Vocabulary) -> Triples:
    for place, query in enumerate(queries):
        if isinstance(query, str) or len(query) != 3 or not all(isinstance(label, str) for label in query):
            raise ValueError(f"query {place} is {query!r}; expected three labels (head, relation, tail)")
    head, relation, tail = (pa.array([query[place] for query in queries], pa.string()) for place in range(3))
    return _from_labels(head, relation, tail, vocabulary)


def _from_labels(head: pa.Array, relation: pa.Array, tail: pa.Array, vocabulary: Vocabulary) -> Triples:
    return Triples(
        _ids(head, vocabulary.entity_ids),
        _ids(relation, vocabulary.relation_ids),
        _ids(tail, vocabulary.entity_ids),
    )


def _ids(column: pa.Array | pa.ChunkedArray, find: Callable[[pa.Array], Ids]) -> Ids:
    """Ids of a column of labels; each value of a dictionary is looked up once."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # more text than one array can hold
        return np.concatenate([_ids(chunk, find) for chunk in column.chunks])
    if not pa.types.is_dictionary(column.type) or len(column) < len(column.dictionary):
        return find(column if column.type == pa.string() else column.cast(pa.string()))
    if column.null_count:
        return find(column.cast(pa.string()))
    ids: Ids = find(column.dictionary.cast(pa.string()))[np.asarray(column.indices)]
    return ids


def _translate(graph: Graph, vocabulary: Vocabulary) -> Triples:
    if graph.vocabulary == vocabulary:
        return Triples(graph.head, graph.relation, graph.tail)
    entity = vocabulary.entity_ids(graph.vocabulary.entities)
    relation = vocabulary.relation_ids(graph.vocabulary.relations)
    return Triples(entity[graph.head], relation[graph.relation], entity[graph.tail])
