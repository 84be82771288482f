"""Files of queries, in batches and in order: triples to be asked about, and tables of predictions (`Table`, below).

Triples are three columns of labels; a column of confidences is not looked at. With `open_places` a head or tail may be
`?` or empty, for a completion to fill.

>>> for batch in query_batches("queries.parquet"):       # doctest: +SKIP
...     batch.column("head")
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError, at
from unkgcp.tabular.arrow_arrays import Batch, Malformed, acceptable
from unkgcp.tabular.columns import ROLES, Options, Request
from unkgcp.tabular.delimited import text_batches
from unkgcp.tabular.formats import PARQUET, layout_of
from unkgcp.tabular.label_index import OPEN
from unkgcp.tabular.parquet import parquet_queries
from unkgcp.tabular.source import Origin, Source, is_parquet, records

LOOK = 1 << 18  # bytes from which the number of queries is estimated
BLOCK_BYTES, BATCH_ROWS = 4 << 20, 1 << 16  # of a table of predictions that are read at a time


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
    """The number of queries: exact for Parquet, an estimate for plain text, None where it cannot be told quickly."""
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


# Tables of predictions: CSV, TSV or Parquet, plain or gzip. The first line names the columns, every row is one query.
# Delimited columns stay strings, so that columns that are only carried through are written as they were read; numbers
# are taken from them where they are needed.


class Table(Source):
    """An open table of predictions: `names` are its columns, `delimiter` is None for Parquet. `-` is standard input."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.delimiter: str | None = None
        with self._close_on_error(), self.explained():
            if is_parquet(self.sample):
                self._file = self.on_disk()
                self._header = list(pq.read_schema(self._file).names)
            else:
                # what comes through a pipe is kept on disk, since it is read again to find the line of a bad row
                self._file = self.path or self.on_disk()
                self.delimiter = "\t" if "\t" in _text(io.BytesIO(self.sample)).readline() else ","
                start = _text(io.BytesIO(self.sample))
                line, self._header = next(records(start, self.delimiter), (0, []))
                if line != 1:
                    raise InputError(f"{self.name} is empty; its first line must name the columns")
            self.names = [name.strip() for name in self._header]
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            if twice:
                raise InputError(f"{self.name} has two columns named {twice[0]!r}; rename one of them")

    def require(self, wanted: Sequence[str], why: str = "") -> None:
        """InputError unless the table has all these columns."""
        for name in wanted:
            if name not in self.names:
                have = ", ".join(self.names[:12]) or "none"
                reason = f", {why}" if why else ""
                raise InputError(f"{self.name} has no column {name!r}{reason} (its columns: {have}); add it")

    def batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The rows in order, at least one batch, each with the number of rows before it; columns are `names`."""
        first = 0
        with self.explained():
            batch = None
            for batch in self._delimited() if self.delimiter else self._parquet():
                yield batch.rename_columns(self.names), first
                first += len(batch)
            if batch is None:
                yield pa.record_batch([pa.array([], pa.string())] * len(self.names), names=self.names), 0

    def numbers(self, batch: pa.RecordBatch, name: str, first: int) -> NDArray[np.float64]:
        """A column of a batch as floats: (n,); `first` is the number of rows before the batch."""
        column = batch.column(name)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        try:
            found = pc.cast(pc.utf8_trim_whitespace(column) if text else column, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            row, value = _first_bad(column)
            shown = "empty" if value in (None, "") else f"{value!r}, which is not a number"
            raise InputError(f"{self.place(first + row)}: {name} is {shown}; correct or remove it") from None
        if found.null_count:
            row = int(np.argmax(np.asarray(found.is_null())))
            raise InputError(f"{self.place(first + row)}: {name} is empty; correct or remove it")
        return np.asarray(found, dtype=np.float64)

    def strings(self, batch: pa.RecordBatch, name: str) -> NDArray[np.str_]:
        """A column of a batch as strings: (n,)."""
        column = pc.fill_null(pc.cast(batch.column(name), pa.string()), "").dictionary_encode()
        labels: NDArray[np.str_] = np.array(column.dictionary.to_pylist(), np.str_)
        return np.take(labels, np.asarray(column.indices))

    def place(self, row: int) -> str:
        """`file, line n` of a row counted from 0; only for messages, it reads the file again."""
        if self.delimiter is None:
            return f"{self.name}, row {row + 1}"
        with gzip.open(self._file) if self._packed else self._file.open("rb") as file:
            found = records(_text(file), self.delimiter, empty=len(self.names) == 1)
            lines = (line for index, (line, _) in enumerate(found) if index == row + 1)
            return at(self.name, next(lines, None))

    def sentence(self, error: Exception) -> str:
        """The sentence for an error; tables have their own."""
        match error:
            case FileNotFoundError():
                return f"there is no file {self.name}"
            case IsADirectoryError():
                return f"{self.name} is a folder, expected a CSV, TSV or Parquet file"
            case UnicodeDecodeError() if is_parquet(self.sample):
                return super().sentence(error)
            case EOFError() | OSError():
                return f"{self.name} cannot be read, it may be cut short: {error}; check the file"
        first = str(error).splitlines()[0].rstrip(".")
        return f"{self.name} cannot be read as CSV, TSV or Parquet: {first}; check the file"

    @property
    def _packed(self) -> bool:
        return self.gzip and self._file == self.path

    def _delimited(self) -> Iterator[pa.RecordBatch]:
        bad: list[Any] = []

        def note(row: Any) -> str:
            bad.append(row)
            return "error"

        options = {
            "read_options": arrow_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                invalid_row_handler=note,
                ignore_empty_lines=len(self.names) > 1,  # in a table of one column they are empty values
            ),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._header, pa.string()), strings_can_be_null=False
            ),
        }
        try:
            with pa.input_stream(self._file, compression="gzip" if self._packed else None) as stream:
                yield from arrow_csv.open_csv(stream, **options)
        except pa.ArrowInvalid:
            if not bad:
                raise
            row = bad[0]
            where = f"{self.name}, row {row.number - 1}" if row.number else self.name
            raise InputError(
                f"{where}: {row.actual_columns} columns where the first line has {row.expected_columns}; "
                "correct or remove that row"
            ) from None

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._file) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS)


def _text(file: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def _first_bad(column: pa.Array) -> tuple[int, Any]:
    """The row and the first value that is no number."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return row, value
    return 0, column[0].as_py()
