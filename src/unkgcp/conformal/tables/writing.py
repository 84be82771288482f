"""Answers as CSV, TSV or Parquet, plain or gzip by the name of the file, written in batches."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.lines import lines, quoted

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
    return lines([quoted(column, delimiter) for column in columns], delimiter)
