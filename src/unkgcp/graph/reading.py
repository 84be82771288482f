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
from unkgcp.graph.building import GraphBuilder
from unkgcp.graph.facts import Graph
from unkgcp.graph.formats import PARQUET, TEXT_FORMATS, first_line, recognise
from unkgcp.graph.formats.batch import Batch, Batches, Malformed, acceptable
from unkgcp.graph.formats.blocks import text_batches
from unkgcp.graph.formats.columns import ROLES, Columns
from unkgcp.graph.formats.parquet import parquet_batches
from unkgcp.graph.formats.source import Origin, Source
from unkgcp.graph.scaling import Scale
from unkgcp.graph.vocabulary import Vocabulary

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What a caller may say of a file; all of it may be left out.

    format        tsv, csv, parquet, string-links, string-actions, conceptnet or nell; recognised if not given
    header        whether the first line names the columns; recognised if not given
    columns       head, relation, tail and confidence by name, or by position counted from 0
    language      ConceptNet only: keep the assertions within one language, `en` for instance
    """

    format: str | None
    header: bool | None
    columns: Columns | None
    language: str | None


def read(
    path: Origin,
    *,
    scale: Scale | None = None,
    vocabulary: Vocabulary | None = None,
    skip_missing: bool = False,
    **options: Unpack[Options],
) -> Graph:
    """The facts of a file, of `-` (standard input) or of an open binary stream.

    scale         how numbers become confidences; if not given they are confidences already, except in files of
                  STRING (of 1000) and ConceptNet (the paper's logarithmic scale)
    vocabulary    labels that keep the ids they have there; new ones follow
    skip_missing  leave out rows whose confidence is empty or NaN; they are an error otherwise
    options       format, header, columns, language: see `Options`

    Ids follow the first appearance of a label, row by row, head before tail.
    """
    return read_parts({"": path}, scale=scale, vocabulary=vocabulary, skip_missing=skip_missing, **options)[
        ""
    ]


def read_parts(
    paths: Mapping[str, Origin],
    *,
    scale: Scale | None = None,
    vocabulary: Vocabulary | None = None,
    skip_missing: bool = False,
    **options: Unpack[Options],
) -> dict[str, Graph]:
    """Several files over one vocabulary, in the given order; a given scale sees them as one. See `read`."""
    builder = GraphBuilder(vocabulary)
    columns, confidences = {}, []
    for part, path in paths.items():
        with Source(path) as source:
            own_scale, batches = _opened(source, scale, True, options)
            prepare = partial(builder.prepare, scale=own_scale, skip_missing=skip_missing)
            for prepared, error in batches(prepare):
                try:
                    builder.add(prepared)
                except Malformed:
                    raise error() from None
            columns[part] = builder.columns()
            if not len(columns[part][0]):
                raise InputError(f"{source.name} holds no facts: give a file with at least one fact")
        confidences.append(columns[part][3] if scale is not None else own_scale(columns[part][3]))
    if scale is not None:
        confidences = scale.together(confidences)
    whole = builder.vocabulary()
    return {
        part: Graph(head, relation, tail, confidence, whole)
        for (part, (head, relation, tail, _)), confidence in zip(columns.items(), confidences, strict=True)
    }


def open_batches(path: Origin, **options: Unpack[Options]) -> Iterator[pa.RecordBatch]:
    """Triples in the order of the file, batch by batch: columns head, relation and tail, all strings.

    For queries, so a confidence column may be there or not; it is not looked at. Options as in `read`.

    >>> for batch in open_batches("queries.tsv"):       # doctest: +SKIP
    ...     batch.column("head")
    """
    with Source(path) as source:
        _, batches = _opened(source, None, False, options)
        for batch, _ in batches(_strings):
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
    source: Source, scale: Scale | None, with_confidence: bool, options: Options
) -> tuple[Scale, Callable[[Callable[[Batch], T]], Batches[T]]]:
    """The scale of a file, and its batches for what is to be done with each."""
    kind = recognise(source, options.get("format"))
    columns, header, language = options.get("columns"), options.get("header"), options.get("language")
    if kind == PARQUET:
        if language is not None:
            raise InputError(
                f"{source.name} is read as Parquet, which knows no languages: leave the language out"
            )
        scale = scale or Scale()
        batches = partial(
            parquet_batches, source, columns=columns, with_confidence=with_confidence, scale=scale
        )
        return scale, batches
    text = TEXT_FORMATS[kind]
    layout = text.layout(
        source.name,
        first_line(source.sample, source.name, text.quoted),
        header=header,
        columns=columns,
        with_confidence=with_confidence,
        scale=scale,
        language=language,
    )
    return layout.scale, partial(text_batches, source, layout)
