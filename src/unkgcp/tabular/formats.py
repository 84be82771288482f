"""Formats of files of facts: recognised by their first line or their name, or chosen by the user.

A `TextFormat` is a format of text files (TSV, STRING's links, NELL's beliefs, ...). A `Layout` says where one file of
that format keeps its facts; it follows from the first line. Neither reads any facts. To add a format of text files, add
a `TextFormat` to `TEXT_FORMATS`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError, at
from unkgcp.tabular.arrow_arrays import numbers, one_array, texts
from unkgcp.tabular.columns import RDF, TURTLE, Request, Scale, find, is_number
from unkgcp.tabular.delimited import MISSING, Layout, first_record_end
from unkgcp.tabular.fact_batches import (
    Malformed,
    batch_of,
    beside,
    checked,
    objection_to_confidence,
    objection_to_ends,
    objection_to_labels,
    settled,
)
from unkgcp.tabular.source import Source, is_parquet, records

Numbers = Callable[[pa.StringArray], pa.DoubleArray]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A kind of delimited text file.

    `signature` recognises such a file by the fields of its first line; a format without one is known by the name of
    the file. `columns` are those of head, relation, tail and confidence, by name where there is a header, else by
    position; for None they are found file by file. `relation` is the one relation of a file that has no column for it.
    `numbers` extracts confidences from fields that are more than a number, null where there is none.
    """

    name: str
    delimiter: str
    about: str
    quoted: bool = False
    header: bool | None = None
    columns: tuple[int | str, ...] | None = None
    relation: str | None = None
    scale: Scale = field(default_factory=Scale)
    numbers: Numbers | None = None
    signature: Callable[[Sequence[str]], bool] | None = None

    def fields(self, line: str) -> list[str]:
        """The fields of one line; in a quoted format possibly more than one line."""
        if not self.quoted:
            return line.split(self.delimiter)
        return next((fields for _, fields in records(io.StringIO(line, newline=""), self.delimiter)), [])

    def layout(self, name: str, first_line: str, request: Request) -> FactLayout:
        """Where the file `name` keeps its facts, given its first line and what the caller said of it."""
        first = self.fields(first_line)
        if self.columns is None:
            header, found_at = find(
                first, request.header, request.columns, request.with_confidence, (name, 1)
            )
        elif request.columns is not None or request.header is not None:
            raise InputError(
                f"{name} is read as {self.name}, whose columns are known: leave header and columns out"
            )
        else:
            header = bool(self.header)
            columns = self.columns if request.with_confidence else self.columns[:-1]
            found_at = tuple(self._place(column, first, name) for column in columns)
        positions: list[int | None] = list(found_at)
        if self.relation is not None:
            positions.insert(1, None)
        return FactLayout(
            name=name,
            delimiter=self.delimiter,
            quoted=self.quoted,
            width=len(first),
            header=header,
            positions=tuple(positions[: None if request.with_confidence else 3]),
            format=self,
            scale=request.scale or self.scale,
            request=request,
            titles=tuple(first) if header else tuple(f"column_{place}" for place in range(len(first))),
        )

    def _place(self, column: int | str, first: Sequence[str], name: str) -> int:
        if isinstance(column, str) and column in first:
            return first.index(column)
        if isinstance(column, int) and column < len(first):
            return column
        missing = f"column {column!r}" if isinstance(column, str) else f"{column + 1} columns"
        raise InputError(
            f"{at(name, 1)} has no {missing}, so this is no {self.about}: choose another --format"
        )


@dataclass(frozen=True, kw_only=True)
class FactLayout(Layout):
    """Where one text file keeps its facts: `positions` of head, relation, tail and perhaps confidence, or its two ends.

    That of the relation is None in a file of one relation.
    """

    positions: tuple[int | None, ...]
    format: TextFormat
    scale: Scale
    request: Request
    opening: str | None = None
    """What stands for a head or tail that is empty; None: they must not be."""
    titles: tuple[str, ...] = ()
    carries: bool = False
    """Whether the other columns come along, as text, called as in the header."""

    @property
    def further(self) -> dict[str, int]:
        """The columns that come along, by what they are called."""
        titles = enumerate(self.titles if self.carries else ())
        return {title: place for place, title in titles if place not in self.positions}

    @property
    def types(self) -> Mapping[int, pa.DataType]:
        head, relation, tail, *confidence = self.positions
        number = pa.float64() if self.format.numbers is None else pa.string()
        kinds = {head: pa.string(), relation: LABELS, tail: pa.string(), **dict.fromkeys(confidence, number)}
        kinds |= dict.fromkeys(self.further.values(), pa.string())
        return {position: kind for position, kind in kinds.items() if position is not None}

    def batch(self, table: pa.Table) -> pa.RecordBatch:
        """The facts of a block, checked; `Malformed` if one of them is bad."""
        columns = [
            self._one_relation(len(table)) if position is None else one_array(table.column(str(position)))
            for position in self.positions
        ]
        if len(columns) > 3 and self.format.numbers is not None:
            try:
                columns[3] = self.format.numbers(columns[3])
            except pa.ArrowException:
                raise Malformed from None
        if self.opening:
            nothing, opening = texts(["", self.opening])  # for text of Python Arrow would load pandas
            for end in (0, 2):
                columns[end] = pc.if_else(pc.equal(columns[end], nothing), opening, columns[end])
        batch = checked(settled(batch_of(columns), self.request), self.scale if len(columns) > 3 else None)
        further = {title: one_array(table.column(str(place))) for title, place in self.further.items()}
        return beside(batch, further) if further else batch

    def _one_relation(self, rows: int) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(
            numbers(np.zeros(rows, np.int32)), texts([self.format.relation or ""])
        )

    def objection(self, row: Sequence[str], line: int, rows: Sequence[Sequence[str]]) -> str | None:
        head, relation, tail, *confidence = self.positions
        one = self.format.relation if relation is None else row[relation]
        wrong = objection_to_labels([row[head or 0] or self.opening, one, row[tail or 0] or self.opening])
        ends = []
        for position in confidence:
            field = row[position or 0].strip()
            shown = repr(field if len(field) <= 60 else field[:57] + "...")
            try:
                ends.append(self._number(field))
            except pa.ArrowException:
                if self.format.numbers is not None:
                    return wrong or f"has {shown}, in which there is no confidence: correct it"
                remedy = (
                    ", or say with the setting header that this line names the columns" if line == 1 else ""
                )
                return wrong or f"has the confidence {shown}, which is no number: correct it{remedy}"
            if ends[-1] is None or not self.scale.accepts(np.array(ends[-1:])):
                others = [other[position or 0] for other in rows if len(other) == self.width]
                largest = max((float(other) for other in others if is_number(other)), default=0.0)
                wrong = wrong or objection_to_confidence(ends[-1], shown, self.request, self.scale, largest)
        return wrong or objection_to_ends(ends)

    def _number(self, field: str) -> float | None:
        if self.format.numbers is not None:
            return self.format.numbers(pa.array([field]))[0].as_py()  # type: ignore[no-any-return]
        if field in MISSING:
            return None
        # Arrow has the last word; Python is quicker, and takes underscores
        return (
            float(field)
            if is_number(field) and "_" not in field
            else pa.array([field]).cast(pa.float64())[0].as_py()
        )


LABELS = pa.dictionary(pa.int32(), pa.string())

# In TSV a quotation mark is a character like any other, so a label cannot hold a tab or a line end. In CSV it can hold
# commas and line ends, in quotation marks.
TSV = TextFormat("tsv", "\t", "tab-separated file")
CSV = TextFormat("csv", ",", "comma-separated file", quoted=True)


# ConceptNet 5 assertions: assertion, relation, start, end and a JSON object, separated by tabs, no header.


def weights(fields: pa.StringArray) -> pa.DoubleArray:
    """The weight of each object, null where it has none.

    >>> weights(pa.array(['{"weight": 2.0}', '{"dataset": "/d/x"}'])).to_pylist()
    [2.0, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    from pyarrow import json

    data = pc.binary_join_element_wise(fields, "\n", "").buffers()[2]
    schema = pa.schema([("weight", pa.float64())])
    table = json.read_json(
        pa.BufferReader(data),
        json.ReadOptions(use_threads=False, block_size=len(data)),
        json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if len(table) != len(fields):
        raise pa.ArrowInvalid("a field holds no object, or more than one")
    return pa.concat_arrays(table.column("weight").chunks)


CONCEPTNET = TextFormat(
    "conceptnet",
    "\t",
    "ConceptNet assertions file",
    header=False,
    columns=(2, 1, 3, 4),
    scale=Scale("log", cap=3.0, floor=0.1, low=0.1),
    numbers=weights,
    signature=lambda fields: (
        len(fields) == 5 and fields[0].startswith("/a/[") and fields[1].startswith("/r/")
    ),
)


# NELL's beliefs, "ESV CSV": tab-separated in spite of the name, thirteen columns, one belief a line.


def probabilities(fields: pa.StringArray) -> pa.DoubleArray:
    """The number in each field, the largest of a list, null where there is none.

    >>> probabilities(pa.array(["0.5", "[0.25, 0.75]", "", "NaN"])).to_pylist()
    [0.5, 0.75, None, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    lists = pc.split_pattern_regex(pc.utf8_trim(fields, characters="[] "), pattern=r"[,\s]+")
    texts = lists.flatten()
    texts = pc.if_else(pc.equal(texts, ""), "NaN", texts)
    values = np.asarray(texts.cast(pa.float64()))
    largest = np.fmax.reduceat(values, np.asarray(lists.offsets)[:-1] - lists.offsets[0].as_py())
    return pa.array(largest, pa.float64(), mask=np.isnan(largest))


NELL = TextFormat(
    "nell",
    "\t",
    "NELL ESV file",
    header=True,
    columns=("Entity", "Relation", "Value", "Probability"),
    numbers=probabilities,
    signature=lambda fields: tuple(fields[:3]) == ("Entity", "Relation", "Value"),
)


# STRING, the database of protein interactions: its files of links and actions, scores 0 to 1000, and what its website
# exports of a network, scores 0 to 1.

LINK = "linked"
LINKS = TextFormat(
    "string-links",
    " ",
    "STRING protein.links file",
    header=True,
    columns=("protein1", "protein2", "combined_score"),
    relation=LINK,
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("protein1", "protein2"),
)
ACTIONS = TextFormat(
    "string-actions",
    "\t",
    "STRING protein.actions file",
    header=True,
    columns=("item_id_a", "mode", "item_id_b", "score"),
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("item_id_a", "item_id_b"),
)

EXPORT = TextFormat(
    "string-export",
    "\t",
    "table of a network of STRING's website",
    header=True,
    columns=("#node1", "node2", "combined_score"),
    relation=LINK,
    signature=lambda fields: tuple(fields[:2]) == ("#node1", "node2"),
)

PARQUET = "parquet"
# In the order in which their signatures are tried; the plain ones have none and are known by the file's name.
TEXT_FORMATS = {kind.name: kind for kind in (LINKS, ACTIONS, EXPORT, NELL, CONCEPTNET, TSV, CSV)}
NAMES = ("tsv", "csv", PARQUET, "string-links", "string-actions", "string-export", "conceptnet", "nell", *RDF)

PACKED = (".gz", ".bz2", ".xz", ".zst")
_ENDINGS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".parquet": PARQUET, ".pq": PARQUET}
_ENDINGS |= {
    end + more: kind for end, kind in zip((".nt", ".nq", ".ttl"), RDF, strict=True) for more in ("", "s")
}


def recognise(source: Source, chosen: str | None = None, plain: bool = False) -> str:
    """The name of a file's format: the chosen one, else what its first bytes, line or name say.

    `plain` leaves out the formats with columns of their own, because the caller knows which columns to read.
    """
    if chosen is not None and chosen not in NAMES:
        raise InputError(f"the format {chosen!r} is none of {', '.join(NAMES)}")
    expected = chosen or ending(source.name)
    if is_parquet(source.sample):
        if chosen not in (None, PARQUET):
            raise InputError(f"{source.name} is a Parquet file, not {chosen}: leave --format out")
        return PARQUET
    if expected == PARQUET and source.sample:
        raise InputError(
            f"{source.name} is not a Parquet file: name its format with --format or write it again"
        )
    line = first_line(source.sample, source.name, quoted=expected == "csv")
    if expected is None and line.startswith(("<", "_:")):
        from unkgcp.tabular.rdf import kind_of_line

        expected = kind_of_line(line)
    elif expected is None and line.startswith(("@prefix", "@base", "PREFIX")):
        expected = TURTLE
    if expected in RDF:
        return expected
    if chosen is None and not plain:
        for kind in TEXT_FORMATS.values():
            if kind.signature is not None and kind.signature(kind.fields(line)):
                return kind.name
    return _checked(expected, chosen is not None, line, source.name)


def layout_of(source: Source, request: Request) -> FactLayout | str:
    """Where a text file keeps its facts; for Parquet and RDF, which need not be told that, the name of the format."""
    kind = recognise(source, request.format, plain=request.columns is not None)
    if kind not in RDF and request.confidence_predicates:
        raise InputError(
            f"{source.name} is read as {kind}: the setting confidence_predicates is for RDF, leave it out"
        )
    if kind in RDF and (request.columns is not None or request.header is not None):
        raise InputError(
            f"{source.name} is read as {kind}, which has no columns: leave header and columns out"
        )
    if kind not in TEXT_FORMATS:
        return kind
    text = TEXT_FORMATS[kind]
    return text.layout(source.name, first_line(source.sample, source.name, text.quoted), request)


def ending(name: str) -> str | None:
    """The format that a file's name promises, looking behind `.gz` and the like."""
    path = PurePath(name.lower())
    return _ENDINGS.get(PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix)


def _checked(expected: str | None, chosen: bool, line: str, name: str) -> str:
    """The format by tabs or commas in the first line; the name of the file must agree, a chosen format need not."""
    separated = [kind.name for kind in (TSV, CSV) if kind.delimiter in line]
    if expected is not None and (chosen or expected in separated):
        return expected
    if expected is None and len(separated) == 1:
        return separated[0]
    held = {"": "neither tabs nor commas", "tsv": "tabs and no comma", "csv": "commas and no tab"}
    raise InputError(
        f"{name} has {held.get(''.join(separated), 'both tabs and commas')} on line 1: separate its columns by one of "
        f"the two, and say which with --format {' or '.join(separated) or 'tsv or csv'}"
    )


def first_line(sample: bytes, name: str, quoted: bool) -> str:
    """The first line that is not empty, without its end; InputError if the file is plainly no text."""
    text = sample.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not text.strip(b"\r\n \t"):
        raise InputError(f"{name} is empty: give a file with at least one fact a line")
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name} is UTF-16 text: save it as UTF-8")
    if b"\0" in text:
        raise InputError(f"{name} is a binary file, not text: give TSV, CSV or Parquet")
    if quoted:
        line = text[: first_record_end(text)].strip(b"\r\n")
        if line.count(b'"') % 2:
            raise InputError(
                f"{at(name, 1)} has a quotation mark that neither begins nor ends a field, or is never closed: "
                "put the field in quotation marks and double those inside it"
            )
    else:
        line = text.split(b"\n", 1)[0].split(b"\r", 1)[0]
    try:
        return line.decode()
    except UnicodeDecodeError:
        if any(byte < 32 and byte not in b"\t\r\n\f" for byte in line[:4096]):
            raise InputError(f"{name} is a binary file, not text: give TSV, CSV or Parquet") from None
        raise InputError(f"{at(name, 1)} is not valid UTF-8: save the file as UTF-8") from None
