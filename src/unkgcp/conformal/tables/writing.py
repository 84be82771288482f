"""Answers as CSV, TSV or Parquet, plain or gzip by the name of the file, written in batches."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError


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
        columns = [_text(batch.column(name), name) for name in batch.schema.names]
        if len(batch):
            self._sink.write(_lines(columns, self.delimiter))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.parquet and self._writer is not None:
            self._writer.close()
        self._sink.close()


def _text(column: pa.Array, name: str) -> pa.Array:
    try:
        return pc.fill_null(pc.cast(column, pa.large_string()), "")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise InputError(
            f"column {name!r} ({column.type}) cannot be written as text; write Parquet"
        ) from None


def _lines(columns: list[pa.Array], delimiter: str) -> memoryview:
    """The rows of string columns as delimited text, without a loop over rows."""
    nothing, quote, line_end, separator = (
        pa.scalar(text, pa.large_string()) for text in ("", '"', "\n", delimiter)
    )
    quoted = []
    for column in columns:
        special = pc.match_substring_regex(column, f'["\r\n{delimiter}]')
        if pc.any(special).as_py():
            doubled = pc.replace_substring(column, '"', '""')
            wrapped = pc.binary_join_element_wise(quote, doubled, quote, nothing)
            column = pc.if_else(special, wrapped, column)
        quoted.append(column)
    rows = pc.binary_join_element_wise(*quoted, separator)
    rows = pc.binary_join_element_wise(rows, line_end, nothing)
    # the strings of an Arrow array lie end to end in one buffer: the text is already there
    offsets = memoryview(rows.buffers()[1]).cast("q")
    return memoryview(rows.buffers()[2])[offsets[rows.offset] : offsets[rows.offset + len(rows)]]
