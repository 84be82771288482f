"""The one writer of tables: Arrow batches to TSV, CSV, Parquet or RDF, plain or gzip, to a file or to standard output.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, check_file, room_for, standard_output
from unkgcp.tabular.arrow_arrays import content, texts
from unkgcp.tabular.columns import ROLES
from unkgcp.tabular.source import check_remote, is_remote, sent

if TYPE_CHECKING:
    from unkgcp.tabular.rdf_text import Prefixes

Write = Callable[[pa.RecordBatch], None]
Quoting = Literal["never", "needed", "always"]

FORMATS = ("tsv", "csv", "parquet", "turtle", "ntriples", "ntriples-star", "neo4j")
"""What answers and facts can be written as. `neo4j` is CSV with the names of columns that Neo4j wants."""
ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet", ".ttl", ".ttl.gz", ".nt", ".nt.gz")
_BY_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".ttl": "turtle", ".nt": "ntriples"}
RDF = ("turtle", "ntriples", "ntriples-star")
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
    """How to write a table: when fields of TSV and of CSV get quotation marks, the options of Parquet, the format, and
    the prefixes of IRIs for RDF. Without a format the name of the file decides.
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
        _prefixes(style)  # bad prefixes are refused before any work is done


def _prefixes(style: Style) -> Prefixes:
    from unkgcp.tabular.rdf_text import Prefixes

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
    """The same as `open_output` for a file, whose name is not checked."""
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
    if format in RDF:
        return partial(RdfWriter, format=format, prefixes=_prefixes(style))
    if format == "neo4j":
        return partial(_neo4j_writer, name=name)
    delimiter, quoting = (",", style.csv) if format == "csv" else ("\t", style.tsv)
    return partial(TextWriter, delimiter=delimiter, quoting=quoting, name=name)


def _neo4j_writer(stream: IO[bytes], name: str) -> Write:
    text = TextWriter(stream, ",", "needed", name)
    return lambda batch: text(
        pa.record_batch(list(map(_exact, batch.columns)), names=neo4j_names(batch.schema))
    )


def _exact(column: pa.Array) -> pa.Array:
    """Floats with 64 bits: the shortest digits of a score, which has 32, are another number when read with 64."""
    return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column


def neo4j_names(schema: pa.Schema) -> list[str]:
    """What Neo4j calls the columns of relationships, with their types.

    >>> neo4j_names(pa.schema([("head", pa.string()), ("score", pa.float64())]))
    [':START_ID', 'score:double']
    """
    ids = {"head": ":START_ID", "relation": ":TYPE", "tail": ":END_ID"}
    kinds = {None: "string", "integer": "long"}
    typed = [(field.name, _type_name(field.type)) for field in schema]
    return [ids.get(name) or f"{name}:{kinds.get(kind, kind)}" for name, kind in typed]


def _type_name(kind: pa.DataType) -> str | None:
    """What XML Schema calls a type of numbers or truth values; None for other types."""
    if pa.types.is_floating(kind):
        return "double"
    return "boolean" if pa.types.is_boolean(kind) else "integer" if pa.types.is_integer(kind) else None


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


# RDF. Columns other than head, relation and tail become statements about the triple, which is quoted, not asserted:
#
#     turtle          << s p o >> u:score "0.8"^^xsd:double ; u:status "ok" .      Turtle-star, and Turtle of RDF 1.2
#     ntriples        _:unkgcp-row-0 rdf:reifies <<( s p o )>> .  _:unkgcp-row-0 u:score "0.8"^^xsd:double .     RDF 1.2
#     ntriples-star   << s p o >> u:score "0.8"^^xsd:double .                      for stores that know RDF-star only
#
# `u:` is `urn:unkgcp:column:`. `Prefixes` of `unkgcp.tabular.rdf_text` makes terms of labels. Numbers are written with
# all their digits, so that they are read back bit by bit; what is null is left out.

COLUMN = "urn:unkgcp:column:"
XSD = "http://www.w3.org/2001/XMLSchema#"
REIFIES = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
ROW = "_:unkgcp-row-"
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


@dataclass(slots=True)
class RdfWriter:
    """Writes batches of one schema to a stream."""

    stream: IO[bytes]
    format: str
    prefixes: Prefixes
    rows: int = 0
    fresh: bool = True

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self.fresh and self.format == "turtle":
            self.stream.write(f"@prefix u: <{COLUMN}> .\n@prefix xsd: <{XSD}> .\n".encode())
        self.fresh = False
        if not len(batch):
            return
        names = [name for name in batch.schema.names if name not in ROLES[:3]]
        said = [self._said(batch.column(name), name) for name in names]
        triple = self._triple(batch)
        if self.format == "turtle":
            text = _joined("<< ", triple, " >> ", _listed(said, " ; "), " .\n")
        elif self.format == "ntriples-star":
            text = _listed([_joined("<< ", triple, " >> ", column, " .\n") for column in said], "")
        else:
            number = pa.array(np.arange(self.rows, self.rows + len(batch))).cast(pa.large_string())
            node = _joined(ROW, number, " ")
            first = _joined(node, f"{REIFIES} <<( ", triple, " )>> .\n")
            text = _listed([first, *(_joined(node, column, " .\n") for column in said)], "")
        self.rows += len(batch)
        self.stream.write(content(text).data)

    def _triple(self, batch: pa.RecordBatch) -> pa.Array:
        """Head, relation and tail of each row, as terms with a blank between them."""
        terms = []
        for role in ROLES[:3]:
            column = batch.column(role)
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            labels = coded.dictionary.cast(pa.string())
            found = self.prefixes.terms(labels, tails=role == "tail")
            nodes = pc.starts_with(found, ROW if role != "relation" else "_:")
            if nodes.true_count:
                label = labels.filter(nodes)[0].as_py()
                raise InputError(f"the label {label!r} cannot be written as a {role} of RDF: rename it")
            terms.append(found.cast(pa.large_string()).take(coded.indices))
        return pc.binary_join_element_wise(*terms, pa.scalar(" ", pa.large_string()))

    def _said(self, column: pa.Array, name: str) -> pa.Array:
        """A predicate and its object for each row, null where there is none."""
        kind, short = column.type, self.format == "turtle"
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        typed = _type_name(kind)
        if typed is None and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(f"column {name!r} ({kind}) cannot be written as RDF; write Parquet")
        text = _exact(column).cast(pa.large_string())
        if typed is None:
            for one, other in _ESCAPES:
                text = pc.replace_substring(text, one, other)
        plain = name.isascii() and name.isidentifier()
        predicate = f"u:{name}" if short and plain else f"<{COLUMN}{quote(name, safe='')}>"
        behind = "" if typed is None else f"^^xsd:{typed}" if short else f"^^<{XSD}{typed}>"
        return _joined(f'{predicate} "', text, f'"{behind}')


def _joined(*parts: Any) -> pa.Array:
    """Texts and columns of text end to end; null where a column is."""
    large = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*large, pa.scalar("", pa.large_string()))


def _listed(columns: list[pa.Array], between: str) -> pa.Array:
    """Columns of text joined row by row; a null is left out."""
    separator = pa.scalar(between, pa.large_string())
    return pc.binary_join_element_wise(*columns, separator, null_handling="skip")
