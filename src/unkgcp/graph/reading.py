"""Reading facts: TSV, CSV and Parquet, and the files of STRING, ConceptNet and NELL, plain or gzip.

Files are streamed: memory holds the columns of integers and confidences, the vocabulary, and a few blocks of the
file. Confidences are not touched unless a scale says so, and no row is dropped: repeated triples and self-loops
are facts too.

>>> graph = read("facts.tsv")                                                       # doctest: +SKIP
>>> graph = read("links.csv", columns=("a", "kind", "b", "w"), scale=Scale("minmax"))   # doctest: +SKIP
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp.errors import InputError, at
from unkgcp.graph.building import AnyPrepared, GraphBuilder
from unkgcp.graph.facts import Graph
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.tabular.columns import ROLES, Columns, Request, interval_positions
from unkgcp.tabular.delimited import text_batches
from unkgcp.tabular.formats import PARQUET, TEXT_FORMATS, recognise
from unkgcp.tabular.layout import Batch, Batches, Malformed, acceptable, first_line
from unkgcp.tabular.parquet import parquet_batches
from unkgcp.tabular.plain_lines import Plain
from unkgcp.tabular.scaling import Scale
from unkgcp.tabular.source import Origin, Source

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What may be said of a file: see `unkgcp.tabular.columns.Request`."""

    format: str | None
    header: bool | None
    columns: Columns | None
    scale: Scale | None
    language: str | None
    skip_missing: bool


def read(path: Origin, *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]) -> Graph:
    """The facts of a file, of `-` (standard input) or of an open binary stream.

    vocabulary    labels that keep the ids they have there; new ones follow
    format        tsv, csv, parquet, string-links, string-actions, conceptnet or nell; recognised if not given
    header        whether the first line names the columns; recognised if not given
    columns       head, relation, tail and confidence by name, or by position counted from 0; five for confidences
                  that are intervals, whose ends are the columns lower and upper
    scale         how numbers become confidences; if not given they are confidences already, except in files of
                  STRING (of 1000) and ConceptNet (the paper's logarithmic scale)
    language      ConceptNet only: keep the assertions within one language, `en` for instance
    skip_missing  leave out rows whose confidence is empty or NaN; they are an error otherwise

    Ids follow the first appearance of a label, row by row, head before tail.
    """
    return read_parts({"": path}, vocabulary=vocabulary, **options)[""]


def read_parts(
    paths: Mapping[str, Origin], *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]
) -> dict[str, Graph]:
    """Several files over one vocabulary, in the given order; a given scale sees them as one. See `read`."""
    request = Request(**options)
    valued = read_intervals(paths, request, options, vocabulary, read_parts)
    if valued is not None:
        return valued
    builder = GraphBuilder(vocabulary)
    columns, confidences = {}, []
    for part, path in paths.items():
        with Source(path) as source:
            scale, batches = _opened(source, request)
            prepare: Callable[[Batch], AnyPrepared] = partial(builder.prepare, scale=scale)
            plainly: Callable[[Plain], AnyPrepared] = partial(builder.prepare_plain, scale=scale)
            for prepared, error in batches(prepare, plainly):
                try:
                    builder.add(prepared)
                except Malformed:
                    raise error() from None
            columns[part] = builder.columns()
            if not len(columns[part][0]):
                raise InputError(f"{source.name} holds no facts: give a file with at least one fact")
        confidence = columns[part][3]
        confidences.append(confidence if request.scale else scale(confidence))
    if request.scale:
        confidences = request.scale.together(confidences)
    whole = builder.vocabulary()
    return {
        part: Graph(head, relation, tail, confidence, whole)
        for (part, (head, relation, tail, _)), confidence in zip(columns.items(), confidences, strict=True)
    }


def open_batches(path: Origin, **options: Unpack[Options]) -> Iterator[pa.RecordBatch]:
    """Triples in the order of the file, batch by batch: columns head, relation and tail, all strings.

    For queries: a confidence column may be there, but is not looked at. Options as in `read`.

    >>> for batch in open_batches("queries.tsv"):       # doctest: +SKIP
    ...     batch.column("head")
    """
    request = Request(**options, with_confidence=False)
    with Source(path) as source:
        _, batches = _opened(source, request)
        for batch, _ in batches(_strings, None):
            yield batch


def _strings(batch: Batch) -> pa.RecordBatch:
    relation = batch.relation.dictionary
    if not all(acceptable(labels) for labels in (batch.head, relation, batch.tail)):
        raise Malformed
    columns = [
        batch.head.cast(pa.string()),
        relation.cast(pa.string()).take(batch.relation.indices),
        batch.tail.cast(pa.string()),
    ]
    return pa.record_batch(columns, names=list(ROLES[:3]))


def _opened(
    source: Source, request: Request
) -> tuple[Scale, Callable[[Callable[[Batch], T], Callable[[Plain], T] | None], Batches[T]]]:
    """The scale of a file, and its batches for what is to be done with each."""
    kind = recognise(source, request.format, plain=request.columns is not None)
    if kind == PARQUET:
        return request.scale or Scale(), lambda then, _: parquet_batches(source, request, then)
    text = TEXT_FORMATS[kind]
    layout = text.layout(source.name, first_line(source.sample, source.name, text.quoted), request)
    return layout.scale, partial(text_batches, source, layout)


# Confidences that are intervals: files with the columns lower and upper instead of one confidence.

ENDS = ("lower", "upper")

Read = Callable[..., dict[str, Graph]]


def interval_columns(path: Origin, request: Request) -> tuple[Columns, Columns] | None:
    """The columns of the lower and of the upper ends (each with those of the labels); None for plain confidences."""
    if request.columns is not None:
        if len(request.columns) != 5:
            return None
        *labels, lower, upper = request.columns
        return [*labels, lower], [*labels, upper]
    if request.header is False or not isinstance(path, str | os.PathLike) or os.fspath(path) == "-":
        return None
    names = _names(path, request)
    positions = None if names is None else interval_positions(names, at(path, 1))
    if positions is None:
        return None
    *head, lower, upper = positions
    return [*head, lower], [*head, upper]


def read_intervals(
    paths: Mapping[str, Origin],
    request: Request,
    options: Mapping[str, Any],
    vocabulary: Vocabulary | None,
    read_parts: Read,
) -> dict[str, Graph] | None:
    """All parts with their ends, over one vocabulary; None if no part has any."""
    told = {part: interval_columns(path, request) for part, path in paths.items()}
    if not any(told.values()):
        return None
    _check(paths, told, request)
    found: dict[str, Graph] = {}
    for part, path in paths.items():
        columns, header = told[part], request.header if request.columns is not None else True
        ends = []
        for column in columns or ():
            one = {**options, "columns": column, "header": header}
            graph = read_parts({part: path}, vocabulary=vocabulary, **one)[part]
            vocabulary = graph.vocabulary
            ends.append(graph)
        lower, upper = (graph.confidence for graph in ends)
        wrong = np.flatnonzero(lower > upper)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"{_place(path, request, row)} has the lower end {lower[row]:g} above the upper end {upper[row]:g}: "
                "correct it, or name the columns in their order with --columns"
            )
        found[part] = ends[0].with_ends(np.stack([lower, upper], axis=1))
    assert vocabulary is not None
    return {part: replace(graph, vocabulary=vocabulary) for part, graph in found.items()}


def _check(
    paths: Mapping[str, Origin], told: Mapping[str, tuple[Columns, Columns] | None], request: Request
) -> None:
    for part, path in paths.items():
        if not isinstance(path, str | os.PathLike) or os.fspath(path) == "-":
            raise InputError("interval-valued confidences are read from a file, not from standard input")
        if told[part] is None:
            raise InputError(
                f"{path} has one confidence a fact where other parts have lower and upper: give all parts alike"
            )
    if request.skip_missing:
        raise InputError("--skip-missing does not go with the columns lower and upper: remove such lines")
    scale = request.scale
    if scale is not None and scale.kind != "none" and (scale.floor is None or scale.cap is None):
        raise InputError(
            "a scale for the columns lower and upper needs --floor and --cap, so that both are mapped alike"
        )


def _names(path: str | os.PathLike[str], request: Request) -> list[str] | None:
    """The fields of the first line, for the formats that have no columns of their own."""
    with Source(path) as source:
        kind = recognise(source, request.format)
        if kind == PARQUET:
            try:
                return list(pq.read_schema(source.on_disk()).names)
            except Exception:  # whoever reads it says what is wrong with it
                return None
        text = TEXT_FORMATS[kind]
        if text.columns is not None:
            return None
        return text.fields(first_line(source.sample, source.name, text.quoted))


def _place(path: Origin, request: Request, row: int) -> str:
    """Where the row (from 0) stands: file and line. Slow, and only for an error that is certain."""
    assert isinstance(path, str | os.PathLike)
    with Source(path) as source:
        kind = recognise(source, request.format, plain=request.columns is not None)
        packed = source.gzip
    if kind == PARQUET:
        return f"{path}, row {row + 1}"
    text = TEXT_FORMATS[kind]
    told = interval_columns(path, request)
    layout_request = replace(request, columns=told[0] if told else None, header=request.header)
    with Source(path) as source:
        line = first_line(source.sample, source.name, text.quoted)
        header = request.columns is None or text.layout(str(path), line, layout_request).header
    lines = _lines(Path(path), packed, text.quoted, text.delimiter)
    for count, number in enumerate(lines):
        if count == row + header:
            return at(path, number)
    return str(path)


def _lines(path: Path, packed: bool, quoted: bool, delimiter: str) -> Iterator[int]:
    """The line number of every record that is not an empty line."""
    with (gzip.open(path, "rt", encoding="utf-8-sig", newline=None if not quoted else "") if packed
          else path.open(encoding="utf-8-sig", newline=None if not quoted else "")) as file:  # fmt: skip
        if not quoted:
            yield from (number for number, line in enumerate(file, start=1) if line.rstrip("\n"))
            return
        reader, line = csv.reader(file, delimiter=delimiter), 1
        for fields in reader:
            if fields:
                yield line
            line = reader.line_num + 1
