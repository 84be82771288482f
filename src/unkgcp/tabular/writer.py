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
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError, public
from unkgcp.files import atomic_path, check_file, room_for, standard_output
from unkgcp.tabular.arrow_arrays import content, texts
from unkgcp.tabular.source import check_remote, is_remote, sent

Write = Callable[[pa.RecordBatch], None]

ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet")
LEVEL = 6  # of gzip: the usual balance
ROW_GROUP = 1 << 20  # rows


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How answers are written as Parquet: labels as dictionaries, and read back as plain strings."""
    texts = [
        field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    return {"compression": "zstd", "use_dictionary": texts, "store_schema": False}


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
        raise InputError(
            f"{public(str(target))} does not end in {', '.join(ENDINGS)}; its ending says how to write it"
        )


@contextmanager
def open_output(target: str | None) -> Iterator[Write]:
    """A function that writes batches of one schema to `target`; None and `-` are standard output, as TSV."""
    _check_ending(target)
    if target is None or target == "-":
        stream = standard_output()
        with room_for("standard output"):
            yield text_writer(stream, "\t", False, "standard output")
            stream.flush()
        return
    with write_file(target) as write:
        yield write


@contextmanager
def write_file(target: str, carried: bool = False) -> Iterator[Write]:
    """The same as `open_output` for a file, whose name is not checked.

    carried: whether the columns are those of a table that was read with quotation marks, and has any types.
    """
    plain = target.lower().removesuffix(".gz")
    with (sent if is_remote(target) else atomic_path)(target) as path, ExitStack() as opened:
        sink: Any = opened.enter_context(pa.OSFile(str(path), "wb"))
        if plain != target.lower():
            # without a name and a time inside, the same rows give the same bytes
            packed = gzip.GzipFile("", "wb", LEVEL, cast(IO[bytes], sink), mtime=0)
            sink = opened.enter_context(packed)
        if plain.endswith((".parquet", ".pq")):
            yield opened.enter_context(_parquet_writer(sink, carried))
        else:
            is_csv = plain.endswith(".csv")
            yield text_writer(sink, "," if is_csv else "\t", is_csv or carried, public(target))


@contextmanager
def write_at_the_end(stream: IO[bytes], delimiter: str) -> Iterator[Write]:
    """A function that writes quoted text; the stream gets all rows at the end, or none if something fails before."""
    with tempfile.TemporaryFile(prefix="unkgcp-") as waiting:
        yield text_writer(waiting, delimiter, True, "standard output")
        waiting.seek(0)
        with room_for("standard output"):
            shutil.copyfileobj(waiting, stream)
            stream.flush()


@contextmanager
def _parquet_writer(sink: Any, carried: bool) -> Iterator[Write]:
    """Gathers batches to row groups."""
    import pyarrow.parquet as pq

    writer: Any = None
    waiting: list[pa.RecordBatch] = []

    def flush() -> None:
        nonlocal writer
        if waiting:
            table = gathered(waiting)
            if writer is None:
                writer = pq.ParquetWriter(
                    sink, table.schema, **({} if carried else parquet_options(table.schema))
                )
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
    """Batches of one schema as one table, with one dictionary a column."""
    table = pa.Table.from_batches(batches)
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            first, *others = (chunk.dictionary for chunk in column.chunks)
            if not all(map(first.equals, others)):
                table = table.set_column(place, table.column_names[place], column.unify_dictionaries())
    return table


# Delimited text.


def text_writer(stream: IO[bytes], delimiter: str, quotes: bool, name: str) -> Write:
    """A function that writes batches to a stream; the first brings the names of the columns.

    quotes: whether fields that need them get quotation marks; without, a field that needs them is refused.
    """
    has_header = False

    def write(batch: pa.RecordBatch) -> None:
        nonlocal has_header
        titles = batch.schema.names
        for columns in (
            [batch.columns] if has_header else [[texts([title]) for title in titles], batch.columns]
        ):
            stream.write(lines(list(map(fields, columns, titles)), delimiter))
        has_header = True

    def fields(column: pa.Array, title: str) -> pa.Array:
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
        if quotes:
            return quoted(column, delimiter)
        if holds_any(column, b"\t\r\n"):
            label = column.filter(pc.match_substring_regex(column, r"[\t\r\n]"))[0].as_py()
            raise InputError(f"{name}: the label {label!r} cannot be written as TSV; write .csv or .parquet")
        return column

    return write


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
