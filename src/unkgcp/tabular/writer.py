"""The one writer of tables: Arrow batches to TSV, CSV, Parquet or RDF, plain or gzip, to a file or to standard output.

It holds one batch at a time, or one row group for Parquet. A file appears whole or not at all. Callers differ in what
text fields may hold: answers and facts have no quotation marks around fields of TSV, so a label with a tab or a line
end is refused there, while a table that was read with quotation marks is written with them.

>>> with open_output("answers.csv.gz") as write:     # doctest: +SKIP
...     write(batch)
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, check_file, room_for, standard_output
from unkgcp.tabular.arrow_arrays import content, texts
from unkgcp.tabular.source import check_remote, is_remote, sent

if TYPE_CHECKING:
    from unkgcp.tabular.rdf_terms import Prefixes

Write = Callable[[pa.RecordBatch], None]
Quoting = Literal["never", "needed", "always"]

FORMATS = ("tsv", "csv", "parquet", "turtle", "ntriples", "ntriples-star", "neo4j")
"""What answers and facts can be written as. `neo4j` is CSV with the names of columns that Neo4j wants."""
ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet", ".ttl", ".ttl.gz", ".nt", ".nt.gz")
_BY_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".ttl": "turtle", ".nt": "ntriples"}
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
    """What callers choose: when fields of TSV and of CSV get quotation marks, the options of Parquet, the format where
    the name of the file is not to decide, and the prefixes of IRIs for RDF.
    """

    tsv: Quoting = "never"
    csv: Quoting = "needed"
    parquet: Callable[[pa.Schema], dict[str, Any]] = parquet_options
    format: str | None = None
    prefixes: Mapping[str, str] | None = None


USUAL = Style()


def check_output(target: str | None, style: Style = USUAL) -> None:
    """Refuse, before any work is done, a target that `open_output` could not write."""
    _check_format(target, style)
    if target is not None and target != "-":
        check_target(target)


def check_target(target: str) -> None:
    """Refuse, before any work is done, a file, here or elsewhere, that could not be written in the end."""
    (check_remote if is_remote(target) else check_file)(target)


def _check_format(target: str | None, style: Style) -> None:
    piped = target is None or target == "-"
    if style.format is not None and style.format not in FORMATS:
        raise InputError(f"the output format {style.format!r} is none of {', '.join(FORMATS)}")
    if piped and style.format == "parquet":
        raise InputError("Parquet is not written to standard output: name a file with -o")
    if not piped and style.format is None and not str(target).lower().endswith(ENDINGS):
        raise InputError(f"{target} does not end in {', '.join(ENDINGS)}; its ending says how to write it")
    if style.prefixes:
        _rdf_prefixes(style)  # what is wrong with them is said before any work is done


def _rdf_prefixes(style: Style) -> Prefixes:
    from unkgcp.tabular.rdf_terms import Prefixes

    return Prefixes(style.prefixes)


@contextmanager
def open_output(target: str | None, style: Style = USUAL) -> Iterator[Write]:
    """A function that writes answers of one schema to `target`; None and `-` are standard output, TSV if not chosen."""
    _check_format(target, style)
    if target is None or target == "-":
        stream: IO[bytes] = standard_output()
        with room_for("standard output"):
            yield _text_writer(style.format or "tsv", style, "standard output")(stream)
            stream.flush()
        return
    with write_file(target, style) as write:
        yield write


@contextmanager
def write_file(target: str, style: Style = USUAL) -> Iterator[Write]:
    """The same for a file whose name says how to write it."""
    plain = target.lower().removesuffix(".gz")
    format = style.format or next((_BY_ENDING[end] for end in _BY_ENDING if plain.endswith(end)), "tsv")
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
    if format in ("turtle", "ntriples", "ntriples-star"):
        from unkgcp.tabular.rdf_lines import RdfWriter

        return partial(RdfWriter, format=format, prefixes=_rdf_prefixes(style))
    if format == "neo4j":
        return partial(_neo4j_writer, name=name)
    delimiter, quoting = (",", style.csv) if format == "csv" else ("\t", style.tsv)
    return partial(TextWriter, delimiter=delimiter, quoting=quoting, name=name)


def _neo4j_writer(stream: IO[bytes], name: str) -> Write:
    text = TextWriter(stream, ",", "needed", name)
    return lambda batch: text(_for_neo4j(batch))


def _for_neo4j(batch: pa.RecordBatch) -> pa.RecordBatch:
    # a score has 32 bits: its shortest digits, read as a number of 64 bits, would give another number
    columns = [
        column.cast(pa.float64()) if pa.types.is_floating(column.type) else column for column in batch.columns
    ]
    return pa.record_batch(columns, names=neo4j_names(batch.schema))


def neo4j_names(schema: pa.Schema) -> list[str]:
    """What Neo4j calls the columns of relationships, with their types.

    >>> neo4j_names(pa.schema([("head", pa.string()), ("score", pa.float64())]))
    [':START_ID', 'score:double']
    """
    ids = {"head": ":START_ID", "relation": ":TYPE", "tail": ":END_ID"}
    return [ids.get(field.name) or f"{field.name}:{_neo4j_type(field.type)}" for field in schema]


def _neo4j_type(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "double"
    return "boolean" if pa.types.is_boolean(kind) else "long" if pa.types.is_integer(kind) else "string"


@contextmanager
def write_at_the_end(stream: IO[bytes], delimiter: str) -> Iterator[Write]:
    """The same for a stream that gets all rows as quoted text, or none if something goes wrong before the last."""
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
    columns = [
        _gathered([batch.column(place) for batch in batches]) for place in range(batches[0].num_columns)
    ]
    return pa.table(columns, names=batches[0].schema.names)


def _gathered(pieces: list[pa.Array]) -> pa.Array | pa.ChunkedArray:
    if len(pieces) == 1:
        return pieces[0]
    if pa.types.is_dictionary(pieces[0].type):
        first = pieces[0].dictionary
        if all(_is_same(first, piece.dictionary) for piece in pieces[1:]):
            indices = pa.concat_arrays([piece.indices for piece in pieces])
            return pa.DictionaryArray.from_arrays(indices, first)
        whole = pa.chunked_array(pieces).unify_dictionaries()
        return whole.combine_chunks()
    return pa.chunked_array(pieces)


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same memory."""
    if len(one) != len(other) or one.offset != other.offset:
        return False
    places = [[buffer and buffer.address for buffer in array.buffers()] for array in (one, other)]
    return bool(places[0] == places[1])


# Delimited text from Arrow columns, without a loop over rows: several times as quick as the csv module.


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
            options = csv.WriteOptions(include_header=fresh, delimiter=self.delimiter)
            csv.write_csv(batch, self.stream, options)
            return
        titles = batch.schema.names
        if fresh:
            self._write([texts([title]) for title in titles], [""] * len(titles))
        self._write(batch.columns, titles)

    def _write(self, columns: list[pa.Array], titles: list[str]) -> None:
        fields = [
            _text(column, self.delimiter, self.quoting, self.name, title)
            for column, title in zip(columns, titles, strict=True)
        ]
        self.stream.write(lines(fields, self.delimiter))


def _text(column: pa.Array, delimiter: str, quoting: Quoting, name: str, title: str) -> pa.Array:
    """The column called `title` as fields of the file called `name`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    try:
        column = column if column.type in (pa.string(), pa.large_string()) else column.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise InputError(f"column {title!r} ({kind}) cannot be written as text; write Parquet") from None
    if pa.types.is_primitive(kind):  # numbers and times: they hold nothing that separates fields
        return column
    if quoting == "never":
        if holds_any(column, b"\t\r\n"):
            label = column.filter(pc.match_substring_regex(column, r"[\t\r\n]"))[0].as_py()
            raise InputError(f"{name}: the label {label!r} cannot be written as TSV; write .csv or .parquet")
        return column
    return quoted(column, delimiter)


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
