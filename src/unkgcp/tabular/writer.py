"""The one writer of tables: Arrow batches to TSV, CSV or Parquet, plain or gzip, to a file or to standard output.

Memory holds one batch at a time, or one row group for Parquet. A file appears whole or not at all. Answers and facts
are written to TSV without quotation marks, so a label with a tab or a line end is refused there; a table that was read
with quotation marks is written with them. Whole columns are written at once, several times as quick as by Python's csv.

>>> with open_output("answers.csv.gz") as write:     # doctest: +SKIP
...     write(batch)
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, check_file, room_for, standard_output
from unkgcp.tabular.arrow_arrays import content, texts
from unkgcp.tabular.source import check_remote, is_remote, sent

Write = Callable[[pa.RecordBatch], None]
Quoting = Literal["never", "needed", "always"]

ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet")
_BY_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
LEVEL = 6  # of gzip: the usual balance
ROW_GROUP = 1 << 20  # rows


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How answers are written as Parquet: labels as dictionaries, and read back as plain strings."""
    texts = [
        field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    return {"compression": "zstd", "use_dictionary": texts, "store_schema": False}


@dataclass(frozen=True, slots=True)
class Style:
    """How to write a table: when fields of TSV and of CSV get quotation marks, and the options of Parquet."""

    tsv: Quoting = "never"
    csv: Quoting = "needed"
    parquet: Callable[[pa.Schema], dict[str, Any]] = parquet_options


USUAL = Style()


def check_output(target: str | None) -> None:
    """Refuse, before any work is done, a target that `open_output` could not write."""
    _check_ending(target)
    if target is not None and target != "-":
        check_target(target)


def check_target(target: str) -> None:
    """Refuse, before any work is done, a file, here or elsewhere, that could not be written in the end."""
    (check_remote if is_remote(target) else check_file)(target)


def _check_ending(target: str | None) -> None:
    if target not in (None, "-") and not str(target).lower().endswith(ENDINGS):
        raise InputError(f"{target} does not end in {', '.join(ENDINGS)}; its ending says how to write it")


@contextmanager
def open_output(target: str | None, style: Style = USUAL) -> Iterator[Write]:
    """A function that writes answers of one schema to `target`; None and `-` are standard output, as TSV."""
    _check_ending(target)
    if target is None or target == "-":
        stream: IO[bytes] = standard_output()
        with room_for("standard output"):
            yield _text_writer("tsv", style, "standard output")(stream)
            stream.flush()
        return
    with write_file(target, style) as write:
        yield write


@contextmanager
def write_file(target: str, style: Style = USUAL) -> Iterator[Write]:
    """The same as `open_output` for a file, whose name is not checked."""
    plain = target.lower().removesuffix(".gz")
    format = next((_BY_ENDING[end] for end in _BY_ENDING if plain.endswith(end)), "tsv")
    text = None if format == "parquet" else _text_writer(format, style, target)
    with (sent if is_remote(target) else atomic_path)(target) as path, ExitStack() as opened:
        sink: Any = opened.enter_context(pa.OSFile(str(path), "wb"))
        if plain != target.lower():
            # without a name and a time inside, the same rows give the same bytes
            packed = gzip.GzipFile("", "wb", LEVEL, cast(IO[bytes], sink), mtime=0)
            sink = opened.enter_context(packed)
        yield opened.enter_context(_parquet_writer(sink, style)) if text is None else text(sink)


def _text_writer(format: str, style: Style, name: str) -> Callable[[IO[bytes]], Write]:
    """What makes a stream a writer of text; chosen before the stream is opened."""
    delimiter, quoting = (",", style.csv) if format == "csv" else ("\t", style.tsv)
    return partial(TextWriter, delimiter=delimiter, quoting=quoting, name=name)


@contextmanager
def write_at_the_end(stream: IO[bytes], delimiter: str) -> Iterator[Write]:
    """A function that writes quoted text; the stream gets all rows at the end, or none if something fails before."""
    with tempfile.TemporaryFile(prefix="unkgcp-") as waiting:
        yield TextWriter(waiting, delimiter, "needed", "standard output")
        waiting.seek(0)
        with room_for("standard output"):
            shutil.copyfileobj(waiting, stream)
            stream.flush()


@contextmanager
def _parquet_writer(sink: Any, style: Style) -> Iterator[Write]:
    """Gathers batches to row groups."""
    import pyarrow.parquet as pq

    writer: Any = None
    waiting: list[pa.RecordBatch] = []

    def flush() -> None:
        nonlocal writer
        if waiting:
            table = gathered(waiting)
            if writer is None:
                writer = pq.ParquetWriter(sink, table.schema, **style.parquet(table.schema))
            writer.write_table(table, row_group_size=max(1, len(table)))
            waiting.clear()

    def write(batch: pa.RecordBatch) -> None:
        # a row group is closed before a batch would make it longer than it should be
        if sum(map(len, waiting)) + len(batch) > ROW_GROUP:
            flush()
        waiting.append(batch)

    try:
        yield write
        flush()
    finally:
        if writer is not None:
            writer.close()


def gathered(batches: list[pa.RecordBatch]) -> pa.Table:
    """Batches of one schema as one table, each column in one piece with one dictionary."""
    columns = [_gathered(list(pieces)) for pieces in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.table(columns, names=batches[0].schema.names)


def _gathered(pieces: list[pa.Array]) -> pa.Array | pa.ChunkedArray:
    if len(pieces) == 1:
        return pieces[0]
    if not pa.types.is_dictionary(pieces[0].type):
        return pa.chunked_array(pieces)
    first = pieces[0].dictionary
    if all(first.equals(piece.dictionary) for piece in pieces[1:]):
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([piece.indices for piece in pieces]), first)
    return pa.chunked_array(pieces).unify_dictionaries().combine_chunks()


# Delimited text.


@dataclass(slots=True)
class TextWriter:
    """Writes batches to a stream; the first brings the names of the columns."""

    stream: IO[bytes]
    delimiter: str
    quoting: Quoting
    name: str
    fresh: bool = True

    def __call__(self, batch: pa.RecordBatch) -> None:
        fresh, self.fresh = self.fresh, False
        if self.quoting == "always":
            csv.write_csv(
                batch, self.stream, csv.WriteOptions(include_header=fresh, delimiter=self.delimiter)
            )
            return
        titles = batch.schema.names
        if fresh:
            self._write([texts([title]) for title in titles], titles)
        self._write(batch.columns, titles)

    def _write(self, columns: list[pa.Array], titles: list[str]) -> None:
        self.stream.write(lines(list(map(self._fields, columns, titles)), self.delimiter))

    def _fields(self, column: pa.Array, title: str) -> pa.Array:
        """The column called `title` as fields of text."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
        try:
            if column.type not in (pa.string(), pa.large_string()):
                column = column.cast(pa.large_string())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise InputError(f"column {title!r} ({kind}) cannot be written as text; write Parquet") from None
        if pa.types.is_primitive(kind):  # numbers and times: they hold nothing that separates fields
            return column
        if self.quoting != "never":
            return quoted(column, self.delimiter)
        if holds_any(column, b"\t\r\n"):
            label = column.filter(pc.match_substring_regex(column, r"[\t\r\n]"))[0].as_py()
            raise InputError(
                f"{self.name}: the label {label!r} cannot be written as TSV; write .csv or .parquet"
            )
        return column


def lines(columns: list[pa.Array], delimiter: str) -> memoryview:
    """The rows of columns of text (or of what casts to it), each ended by a line feed; a null is an empty field."""
    if not len(columns[0]):
        return memoryview(b"")
    empty: dict[str, Any] = {"null_handling": "replace", "null_replacement": ""}
    nothing, line_end, between = texts(["", "\n", delimiter]).cast(pa.large_string())
    fields = [column.cast(pa.large_string()) for column in columns]
    fields[-1] = pc.binary_join_element_wise(fields[-1], line_end, nothing, **empty)
    rows = pc.binary_join_element_wise(*fields, between, **empty)
    return content(rows).data


def quoted(column: pa.Array, delimiter: str) -> pa.Array:
    """A column of text with quotation marks around the fields that need them, as CSV has it."""
    characters = f'"\r\n{delimiter}'
    if not holds_any(column, characters.encode()):
        return column
    nothing, mark = texts(["", '"']).cast(column.type)
    wrapped = pc.binary_join_element_wise(mark, pc.replace_substring(column, '"', '""'), mark, nothing)
    return pc.if_else(pc.match_substring_regex(column, f"[{re.escape(characters)}]"), wrapped, column)


def holds_any(column: pa.Array, characters: bytes) -> bool:
    """Whether one of these bytes is anywhere in a column of text; far quicker than to search each field."""
    text = content(column)
    return any(bool((text == character).any()) for character in characters)
