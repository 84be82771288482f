"""What a kind of text file looks like, and where one such file keeps its facts.

A `TextFormat` is a kind of file (TSV, STRING's links, NELL's beliefs, ...); a `Layout` is what its first line
makes of it. Neither reads any facts. A new kind of file is one more `TextFormat` in
`unkgcp.tabular.formats.TEXT_FORMATS`.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError, at
from unkgcp.tabular.columns import Request, find
from unkgcp.tabular.scaling import Scale

# What every reader hands on: some facts as Arrow columns.

NTRIPLES, NQUADS, TURTLE = RDF = ("ntriples", "nquads", "turtle")
"""Formats of RDF, read by `unkgcp.tabular.rdf_statements`."""

LABELS = pa.dictionary(pa.int32(), pa.binary())


T = TypeVar("T")
Batches = Iterator[tuple[T, Callable[[], InputError]]]


class Malformed(Exception):
    """Raised where a quick check of many rows fails; the reader then finds the row and the words."""


@dataclass(slots=True)
class Batch:
    """Consecutive rows of a file, labels as bytes not yet known to be valid UTF-8.

    `confidence` is None when only triples were asked for.
    """

    head: pa.BinaryArray
    relation: pa.DictionaryArray
    tail: pa.BinaryArray
    confidence: pa.DoubleArray | None

    def __len__(self) -> int:
        return len(self.head)

    def where(self, keep: pa.BooleanArray) -> Batch:
        confidence = None if self.confidence is None else self.confidence.filter(keep)
        return Batch(self.head.filter(keep), self.relation.filter(keep), self.tail.filter(keep), confidence)

    def settled(self, skip_missing: bool, default: float | None) -> Batch:
        """Rows whose confidence is empty or NaN are left out, or have the default; as they are if neither is asked."""
        if self.confidence is None or not (skip_missing or default is not None):
            return self
        missing = pc.is_null(self.confidence, nan_is_null=True)
        if not missing.true_count:
            return self
        if default is None:
            return self.where(pc.invert(missing))
        return replace(self, confidence=pc.if_else(missing, default, self.confidence))


def one_relation(label: str, length: int) -> pa.DictionaryArray:
    """The relation column of a file that has but one relation and no column for it."""
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), pa.array([label.encode()], pa.binary()))


def acceptable(labels: pa.Array) -> bool:
    """Whether labels are valid UTF-8, not empty, and free of NUL bytes."""
    if not len(labels):
        return True
    if pc.min(pc.binary_length(labels)).as_py() == 0 or pc.any(pc.match_substring(labels, "\0")).as_py():
        return False
    try:
        labels.cast(pa.large_string() if pa.types.is_large_binary(labels.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


Numbers = Callable[[pa.StringArray], pa.DoubleArray]
Filter = Callable[[Batch], pa.BooleanArray]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A kind of delimited text file.

    `signature` are the fields that begin the first line of every such file (None: any). `columns` are the
    columns of head, relation, tail and confidence, by name where there is a header, else by position; for None
    they are found file by file. `relation` is the one relation of a file that has no column for it. `numbers`
    gets confidences out of fields that are more than a number; it gives null where there is none.
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
    by_language: Callable[[str], Filter] | None = None

    def recognises(self, first_line: str) -> bool:
        return self.signature is not None and self.signature(self.fields(first_line))

    def fields(self, line: str) -> list[str]:
        """The fields of one line; in a quoted format possibly more than one line."""
        if not self.quoted:
            return line.split(self.delimiter)
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=self.delimiter), [])

    def layout(self, name: str, first_line: str, request: Request) -> Layout:
        """Where the file `name` keeps its facts, given its first line and what the caller said of it."""
        first = self.fields(first_line)
        if self.columns is None:
            header, places = find(first, request.header, request.columns, request.with_confidence, (name, 1))
        elif request.columns is not None or request.header is not None:
            raise InputError(
                f"{name} is read as {self.name}, whose columns are known: leave header and columns out"
            )
        else:
            header = bool(self.header)
            places = tuple(self._place(column, first, name) for column in self.columns)
        labels = places[:3] if self.relation is None else places[:2]
        return Layout(
            name,
            self,
            len(first),
            header,
            labels[0],
            labels[1] if self.relation is None else None,
            labels[-1],
            places[len(labels)] if request.with_confidence else None,
            request.scale or self.scale,
            self._filter(name, request.language),
            request.skip_missing,
            request.default_confidence,
        )

    def _filter(self, name: str, language: str | None) -> Filter | None:
        if language is None:
            return None
        if self.by_language is None:
            raise InputError(
                f"{name} is read as {self.name}, which knows no languages: leave the language out"
            )
        return self.by_language(language)

    def _place(self, column: int | str, first: Sequence[str], name: str) -> int:
        if isinstance(column, str) and column in first:
            return first.index(column)
        if isinstance(column, int) and column < len(first):
            return column
        missing = f"column {column!r}" if isinstance(column, str) else f"{column + 1} columns"
        raise InputError(
            f"{at(name, 1)} has no {missing}, so this is no {self.about}: choose another --format"
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one text file keeps its facts: positions from 0; `relation` None for a file of one relation."""

    name: str
    format: TextFormat
    width: int
    header: bool
    head: int
    relation: int | None
    tail: int
    confidence: int | None
    scale: Scale
    keep: Filter | None
    skip_missing: bool
    default: float | None


def first_line(sample: bytes, name: str, quoted: bool) -> str:
    """The first line of a file that has one, without its end; refuses what is plainly no text."""
    text = sample.removeprefix(b"\xef\xbb\xbf")
    if not text.strip(b"\r\n \t"):
        raise InputError(f"{name} is empty: give a file with at least one fact a line")
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name} is UTF-16 text: save it as UTF-8")
    if b"\0" in text:
        raise InputError(f"{name} is a binary file, not text: give TSV, CSV or Parquet")
    stream = io.BytesIO(text)
    line = b""
    for piece in stream:
        line += piece
        if not line.strip(b"\r\n"):
            line = b""
        elif not quoted or line.count(b'"') % 2 == 0:
            break
    line = line.strip(b"\r\n").split(b"\r")[0] if not quoted else line.strip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError:
        if _mostly_text(line):
            raise InputError(f"{at(name, 1)} is not valid UTF-8: save the file as UTF-8") from None
        raise InputError(f"{name} is a binary file, not text: give TSV, CSV or Parquet") from None


def _mostly_text(line: bytes) -> bool:
    control = sum(byte < 32 and byte not in b"\t\r\n\f" for byte in line[:4096])
    return control == 0


def records(
    text: Iterable[str], delimiter: str, quoted: bool = True, empty: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The line, counted from 1, and the fields of every record; with `empty` those of empty lines, too.

    `text` gives lines with their ends, as a file opened with `newline=""` does. Slow: for what is wrong with a file.
    """
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(
            text, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        )
        line = 1
        for fields in reader:
            if fields or empty:
                yield line, fields
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)
