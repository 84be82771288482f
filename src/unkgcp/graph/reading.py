"""Reading facts: TSV, CSV and Parquet, and the files of STRING, ConceptNet and NELL, plain or gzip.

Files are streamed: memory holds the columns of integers and confidences, the vocabulary, and a few blocks of the
file. Confidences are not touched unless a scale says so, and no row is dropped: repeated triples and self-loops
are facts too.

>>> graph = read("facts.tsv")                                                       # doctest: +SKIP
>>> graph = read("links.csv", columns=("a", "kind", "b", "w"), scale=Scale("minmax"))   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypedDict, TypeVar, Unpack

import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.building import AnyPrepared, GraphBuilder
from unkgcp.graph.facts import Graph
from unkgcp.graph.formats import PARQUET, TEXT_FORMATS, first_line, recognise
from unkgcp.graph.formats.batch import Batch, Batches, Malformed, acceptable
from unkgcp.graph.formats.blocks import text_batches
from unkgcp.graph.formats.columns import ROLES, Columns
from unkgcp.graph.formats.parquet import parquet_batches
from unkgcp.graph.formats.plain import Plain
from unkgcp.graph.formats.request import Request
from unkgcp.graph.formats.source import Origin, Source
from unkgcp.graph.intervals import read_intervals
from unkgcp.graph.scaling import Scale
from unkgcp.graph.vocabulary import Vocabulary

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What may be said of a file: see `unkgcp.graph.formats.request.Request`."""

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
