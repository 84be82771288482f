"""Files of queries, in batches and in order: triples to be asked about, and tables of predictions (`Table`, below).

Triples are three columns of labels; a column of confidences is not looked at. With `open_places` a head or tail may be
`?` or empty, for a completion to fill.

>>> for batch in query_batches("queries.parquet"):       # doctest: +SKIP
...     batch.column("head")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.columns import Options, Request, is_number
from unkgcp.tabular.delimited import Layout, place_of_row, text_batches
from unkgcp.tabular.fact_batches import batch_of
from unkgcp.tabular.formats import PACKED, PARQUET, FactLayout, first_line, layout_of
from unkgcp.tabular.label_index import OPEN
from unkgcp.tabular.parquet import parquet_batches
from unkgcp.tabular.source import Origin, Source, is_parquet, records

LOOK = 1 << 18  # bytes from which the number of queries is estimated
BATCH_ROWS = 1 << 16  # of a table of predictions in Parquet that are read at a time


def query_batches(
    path: Origin,
    *,
    open_places: bool = False,
    rows: range | None = None,
    carries: bool = False,
    **options: Unpack[Options],
) -> Iterator[pa.RecordBatch]:
    """Columns head, relation and tail, each of strings or of a dictionary of strings. Options as in `read`.

    If it `carries`, the other columns of one TSV, CSV or Parquet file follow, called as there; without a header they
    are called by their positions, column_3. Those of a folder, whose files may have different ones, do not.
    A folder of Parquet files is read in the order of their names. `rows`, counted from 0, asks for these rows of one
    Parquet file only; row groups outside are not read. There is at least one batch, empty if there is no query.
    """
    request = Request(**options, with_confidence=False)
    is_folder = isinstance(path, str) and Path(path).is_dir()
    files = parquet_files(Path(str(path))) if is_folder else [path]
    nothing = True
    for file in files:
        for batch in _file_batches(file, request, open_places, rows, carries and not is_folder):
            nothing = False
            yield batch
    if nothing:
        yield batch_of([pa.array([], pa.string())] * 3)


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
    path: Origin, request: Request, open_places: bool, rows: range | None, carries: bool
) -> Iterator[pa.RecordBatch]:
    with Source(path) as source:
        layout = layout_of(source, request)
        if layout == PARQUET:
            yield from parquet_batches(source, request, OPEN if open_places else None, rows, carries)
            return
        if rows is not None:
            raise ValueError(f"{source.name} is no Parquet file: it cannot be read from the middle")
        if isinstance(layout, FactLayout):
            layout = replace(layout, opening=OPEN if open_places else None, carries=carries)
            yield from text_batches(source, layout, layout.batch)
            return
        from unkgcp.tabular.rdf import query_statements

        yield from query_statements(source, layout, request)


def count_queries(path: str) -> int | None:
    """The number of queries, for a progress bar: exact for Parquet, else about so many, None where it is not quick."""
    try:
        if os.path.isdir(path):
            return sum(int(pq.read_metadata(file).num_rows) for file in parquet_files(Path(path)))
        if not os.path.isfile(path) or path.endswith(PACKED):
            return None
        with open(path, "rb") as file:
            sample = file.read(LOOK)
        if is_parquet(sample):
            return int(pq.read_metadata(path).num_rows)
        return round(sample.count(b"\n") * os.path.getsize(path) / max(len(sample), 1)) or None
    except (pa.ArrowException, OSError, UnicodeDecodeError, InputError):
        return None


# Tables of predictions: CSV, TSV or Parquet. The first line names the columns, every row is one query. Columns of text
# files stay strings, so that what is only carried through is written as it was read; numbers are taken from them where
# they are needed.


class Table(Source):
    """An open table of predictions: `names` are its columns, `delimiter` is None for Parquet. `-` is standard input."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.delimiter: str | None = None
        try:
            # what comes through a pipe is kept on disk, since it is read again to find the line of a bad row
            self._file = self.on_disk()
            if is_parquet(self.sample):
                with self.explained():
                    header = list(pq.read_schema(self._file).names)
            else:
                line = first_line(self.sample, self.name, quoted=True)
                self.delimiter = "\t" if "\t" in line else ","
                header = next(fields for _, fields in records([line], self.delimiter, empty=True))
                self._layout = Layout(
                    name=self.name,
                    delimiter=self.delimiter,
                    quoted=True,
                    width=len(header),
                    header=True,
                    remedy="correct or remove it",
                )
            self.names = [name.strip() for name in header]
            for name in self.names:
                if self.names.count(name) > 1:
                    raise InputError(f"{self.name} has two columns named {name!r}; rename one of them")
        except BaseException:
            self._open.close()
            raise

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
            for batch in self._rows():
                yield batch.rename_columns(self.names), first
                first += len(batch)
        if not first:
            yield pa.record_batch([pa.array([], pa.string())] * len(self.names), names=self.names), 0

    def numbers(self, batch: pa.RecordBatch, name: str, first: int) -> NDArray[np.float64]:
        """A column of a batch as floats: (n,); `first` is the number of rows before the batch."""
        column = batch.column(name)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        try:
            parsed = pc.cast(pc.utf8_trim_whitespace(column) if text else column, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            parsed = None
        if parsed is None or parsed.null_count:
            rows = enumerate(column.to_pylist())
            row, value = next(((row, value) for row, value in rows if not is_number(str(value))), (0, None))
            shown = "empty" if value in (None, "") else f"{value!r}, which is not a number"
            raise InputError(f"{self.place(first + row)}: {name} is {shown}; correct or remove it")
        return np.asarray(parsed, dtype=np.float64)

    def strings(self, batch: pa.RecordBatch, name: str) -> NDArray[np.str_]:
        """A column of a batch as strings: (n,)."""
        column = pc.fill_null(pc.cast(batch.column(name), pa.string()), "").dictionary_encode()
        labels: NDArray[np.str_] = np.array(column.dictionary.to_pylist(), np.str_)
        return np.take(labels, np.asarray(column.indices))

    def place(self, row: int) -> str:
        """`file, line n` of a row counted from 0; only for messages, it reads the file again."""
        if self.delimiter is None:
            return f"{self.name}, row {row + 1}"
        return place_of_row(self._file, self._layout, row)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        if self.delimiter is None:
            with pq.ParquetFile(self._file) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS)
            return
        with Source(self._file) as source:
            for table in text_batches(source, self._layout, lambda table: table):
                yield from table.combine_chunks().to_batches()
