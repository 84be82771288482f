"""A table of predictions in CSV, TSV or Parquet, plain or gzip, read in batches.

Delimited columns stay the strings they are, so that what is carried through comes out as it went in; numbers are
taken from them where they are needed. It is not a reader of facts (`unkgcp.graph`): the first line names the
columns, and every row is one query.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError, at
from unkgcp.tabular.writer import lines, quoted

BLOCK_BYTES = 4 << 20
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Table:
    """A table that has been looked at but not read: its columns and where it is."""

    path: str
    """What messages call it."""
    file: str
    """Where its bytes are: the same, or a copy of standard input."""
    names: list[str]
    compression: str | None
    delimiter: str | None
    """None for Parquet."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, at least one batch; every batch has the columns `names`."""
        with _explained(self.path):
            empty = True
            for batch in self._delimited() if self.delimiter else self._parquet():
                empty = False
                yield batch.rename_columns(self.names)
            if empty:
                yield pa.record_batch([pa.array([], pa.string())] * len(self.names), names=self.names)

    def numbers(self, batch: pa.RecordBatch, name: str, first: int) -> NDArray[np.float64]:
        """A column of a batch as floats: (n,); `first` is the number of rows before the batch."""
        column = batch.column(name)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        try:
            cast = pc.cast(pc.utf8_trim_whitespace(column) if text else column, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            row, value = _first_bad(column)
            shown = "empty" if value in (None, "") else f"{value!r}, which is not a number"
            raise InputError(f"{self.place(first + row)}: {name} is {shown}; correct or remove it") from None
        if cast.null_count:
            row = int(np.argmax(np.asarray(cast.is_null())))
            raise InputError(f"{self.place(first + row)}: {name} is empty; correct or remove it")
        return np.asarray(cast, dtype=np.float64)

    def strings(self, batch: pa.RecordBatch, name: str) -> NDArray[np.str_]:
        """A column of a batch as strings: (n,)."""
        column = pc.fill_null(pc.cast(batch.column(name), pa.string()), "").dictionary_encode()
        labels: NDArray[np.str_] = np.array(column.dictionary.to_pylist(), np.str_)
        return np.take(labels, np.asarray(column.indices))

    def place(self, row: int) -> str:
        """`file, line n` of a row counted from 0; only for messages, it reads the file again."""
        if self.delimiter is None:
            return f"{self.path}, row {row + 1}"
        with _text(self.file, self.compression) as file:
            lines = csv.reader(file, delimiter=self.delimiter)
            records = (lines.line_num for record in lines if record or len(self.names) == 1)
            return at(self.path, next((line for index, line in enumerate(records) if index == row + 1), None))

    def _delimited(self) -> Iterator[pa.RecordBatch]:
        assert self.delimiter is not None
        bad: list[Any] = []

        def note(row: Any) -> str:
            bad.append(row)
            return "error"

        options = {
            "read_options": pa_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            "parse_options": pa_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                invalid_row_handler=note,
                ignore_empty_lines=len(self.names) > 1,  # of one column, they are rows without a value
            ),
            "convert_options": pa_csv.ConvertOptions(
                column_types=dict.fromkeys(
                    _header(self.path, self.file, self.compression, self.delimiter), pa.string()
                ),
                strings_can_be_null=False,
            ),
        }
        try:
            with pa.input_stream(self.file, compression=self.compression) as stream:
                yield from pa_csv.open_csv(stream, **options)
        except pa.ArrowInvalid:
            if not bad:
                raise
            row = bad[0]
            where = f"{self.path}, row {row.number - 1}" if row.number else self.path
            raise InputError(
                f"{where}: {row.actual_columns} columns where the first line has {row.expected_columns}; "
                "correct or remove that row"
            ) from None

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        if self.compression:
            with pa.input_stream(self.file, compression=self.compression) as stream:
                source: Any = pa.BufferReader(stream.read())
        else:
            source = self.file
        yield from pq.ParquetFile(source).iter_batches(batch_size=BATCH_ROWS)


def open_table(path: str | os.PathLike[str], place: str | None = None) -> Table:
    """Look at a file: its kind from its first bytes, its columns from the first line or the schema.

    place: where its bytes are, if not at `path`.
    """
    path = os.fspath(path)
    place = place or path
    with _explained(path):
        with open(place, "rb") as raw:
            compression = "gzip" if raw.read(2) == b"\x1f\x8b" else None
        with pa.input_stream(place, compression=compression) as stream:
            start = stream.read(4)
        if start == b"PAR1":
            table = Table(path, place, [], compression, None)
            names = _parquet_names(table)
            delimiter = None
        else:
            with _text(place, compression) as file:
                delimiter = "\t" if "\t" in file.readline() else ","
            names = [name.strip() for name in _header(path, place, compression, delimiter)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}; rename one of them")
    return Table(path, place, names, compression, delimiter)


@contextmanager
def given_table(path: str | os.PathLike[str]) -> Iterator[Table]:
    """`open_table`, where `-` is standard input, kept in a temporary file as long as it is needed."""
    if path != "-":
        yield open_table(path)
        return
    if sys.stdin is None:
        raise InputError("standard input is closed; give the name of a file")
    with tempfile.TemporaryDirectory(prefix="unkgcp-") as folder:
        place = os.path.join(folder, "table")
        with open(place, "wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield open_table("standard input", place)


def require(table: Table, wanted: Sequence[str], why: str = "") -> None:
    """InputError unless the table has all these columns."""
    for name in wanted:
        if name not in table.names:
            have = ", ".join(table.names[:12]) or "none"
            reason = f", {why}" if why else ""
            raise InputError(f"{table.path} has no column {name!r}{reason} (its columns: {have}); add it")


def _parquet_names(table: Table) -> list[str]:
    if not table.compression:
        return list(pq.ParquetFile(table.file).schema_arrow.names)
    with pa.input_stream(table.file, compression=table.compression) as stream:
        return list(pq.ParquetFile(pa.BufferReader(stream.read())).schema_arrow.names)


def _header(path: str, place: str, compression: str | None, delimiter: str) -> list[str]:
    with _text(place, compression) as file:
        record = next(csv.reader(file, delimiter=delimiter), None)
    if not record:
        raise InputError(f"{path} is empty; its first line must name the columns")
    return record


@contextmanager
def _text(path: str, compression: str | None) -> Iterator[io.TextIOBase]:
    with open(path, "rb") as raw, gzip.open(raw) if compression else raw as binary:
        yield io.TextIOWrapper(cast(IO[bytes], binary), encoding="utf-8-sig", newline="")


def _first_bad(column: pa.Array) -> tuple[int, Any]:
    """The first value that is no number; values are only looked at one by one once one of them is bad."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return row, value
    return 0, column[0].as_py()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Whatever goes wrong while reading becomes one sentence about the file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a CSV, TSV or Parquet file") from None
    except (UnicodeDecodeError, pa.ArrowInvalid, csv.Error) as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{path} cannot be read as CSV, TSV or Parquet: {first}; check the file") from error
    except (EOFError, OSError) as error:
        raise InputError(f"{path} cannot be read, it may be cut short: {error}; check the file") from error


# Answers as CSV, TSV or Parquet, plain or gzip by the name of the file, written in batches.

ENDINGS = (".csv", ".tsv", ".parquet", ".pq")


def check_name(target: str) -> None:
    """Refuse a file whose name does not say how to write it."""
    if not target.lower().removesuffix(".gz").endswith(ENDINGS):
        known = ", ".join(ENDINGS)
        raise InputError(
            f"{target} does not end in {known}, or one of them and .gz; its ending says how to write it"
        )


class Writer:
    """Writes batches to a path whose name (of `named_like`) says how; used as a context.

    Numbers are written with the fewest digits that read back as the same float. A value is quoted only where
    it has to be.
    """

    def __init__(self, path: Path, named_like: Path, delimiter: str | None) -> None:
        suffixes = [suffix.lower() for suffix in named_like.suffixes]
        self.compression = "gzip" if suffixes[-1:] == [".gz"] else None
        kind = ([suffix for suffix in suffixes if suffix != ".gz"] or [""])[-1]
        self.parquet = kind in (".parquet", ".pq")
        self.delimiter = {".csv": ",", ".tsv": "\t"}.get(kind, delimiter or ",")
        self.path = path
        self._sink: Any = None
        self._writer: Any = None

    def __enter__(self) -> Writer:
        self._sink = pa.output_stream(self.path, compression=self.compression)
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; the first batch decides the columns."""
        if self.parquet:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._sink, batch.schema)
            self._writer.write_batch(batch)
            return
        if self._writer is None:
            self._writer = True
            names = _lines(
                [pa.array([name], pa.large_string()) for name in batch.schema.names], self.delimiter
            )
            self._sink.write(names)
        columns = [_delimited_text(batch.column(name), name) for name in batch.schema.names]
        if len(batch):
            self._sink.write(_lines(columns, self.delimiter))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.parquet and self._writer is not None:
            self._writer.close()
        self._sink.close()


def _delimited_text(column: pa.Array, name: str) -> pa.Array:
    try:
        return pc.fill_null(pc.cast(column, pa.large_string()), "")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise InputError(
            f"column {name!r} ({column.type}) cannot be written as text; write Parquet"
        ) from None


def _lines(columns: list[pa.Array], delimiter: str) -> memoryview:
    return lines([quoted(column, delimiter) for column in columns], delimiter)
