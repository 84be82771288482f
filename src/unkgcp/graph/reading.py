"""Reading facts: TSV, CSV, Parquet and RDF, and the files of STRING, ConceptNet and NELL, plain or gzip.

Files are streamed: memory holds the columns of integers and confidences, the vocabulary, and a few blocks of the
file. Confidences are not touched unless a scale says so, and no row is dropped: repeated triples and self-loops
are facts too.

>>> graph = read("facts.tsv")                                                       # doctest: +SKIP
>>> graph = read("links.csv", columns=("a", "kind", "b", "w"), scale=Scale("minmax"))   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

import numpy as np

from unkgcp.errors import InputError, at
from unkgcp.graph.facts import Graph
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.tabular.columns import Columns, Options, Request
from unkgcp.tabular.fact_columns import FactColumns, Labels, read_columns
from unkgcp.tabular.formats import interval_columns, is_file, layout_of
from unkgcp.tabular.layout import records
from unkgcp.tabular.source import Origin, Source


def read(path: Origin, *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]) -> Graph:
    """The facts of a file, here or elsewhere (`https://`, `s3://`, ...), of `-` (standard input) or of an open stream.

    vocabulary    labels that keep the ids they have there; new ones follow
    format        one of `unkgcp.tabular.formats.NAMES`: tsv, csv, parquet, turtle, ...; recognised if not given
    header        whether the first line names the columns; recognised if not given
    columns       head, relation, tail and confidence by name, or by position counted from 0; five for confidences
                  that are intervals, whose ends are the columns lower and upper
    scale         how numbers become confidences; if not given they are confidences already, except in files of
                  STRING (of 1000) and ConceptNet (the paper's logarithmic scale)
    language      ConceptNet only: keep the assertions within one language, `en` for instance
    skip_missing  leave out rows whose confidence is empty or NaN; they are an error otherwise
    default_confidence     the number that such rows have instead
    prefixes               RDF: names for the beginnings of IRIs, {"wd": "http://www.wikidata.org/entity/"}
    confidence_predicates  RDF: IRIs of the predicates that tell a confidence; recognised by their names if not given

    Ids follow the first appearance of a label, row by row, head before tail.
    """
    return read_parts({"": path}, vocabulary=vocabulary, **options)[""]


def read_parts(
    paths: Mapping[str, Origin], *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]
) -> dict[str, Graph]:
    """Several files over one vocabulary, in the given order; a given scale sees them as one. See `read`."""
    request = Request(**options)
    intervals = interval_columns(paths, request)
    if any(intervals.values()):
        return _read_intervals(paths, intervals, request, vocabulary)
    known = None if vocabulary is None else (vocabulary.entities, vocabulary.relations)
    return _graphs(*read_columns(paths, request, known), vocabulary)


def _graphs(
    columns: Mapping[str, FactColumns], labels: Labels, vocabulary: Vocabulary | None
) -> dict[str, Graph]:
    """All parts over the given vocabulary, or over a new one if they have more labels."""
    if vocabulary is None or (*map(len, labels),) != (len(vocabulary.entities), len(vocabulary.relations)):
        vocabulary = Vocabulary(*labels)
    return {part: Graph(*found, vocabulary) for part, found in columns.items()}


# Confidences that are intervals: files with the columns lower and upper instead of one confidence. Such a file is
# read twice, once for each end.


def _read_intervals(
    paths: Mapping[str, Origin],
    columns: Mapping[str, tuple[Columns, Columns] | None],
    request: Request,
    vocabulary: Vocabulary | None,
) -> dict[str, Graph]:
    """All parts with their ends, over one vocabulary."""
    found: dict[str, Graph] = {}
    header = request.header if request.columns is not None else True
    for part, path in paths.items():
        ends = []
        for chosen in _checked(path, columns[part], request):
            one = replace(request, columns=chosen, header=header)
            known = None if vocabulary is None else (vocabulary.entities, vocabulary.relations)
            ends.append(_graphs(*read_columns({part: path}, one, known), vocabulary)[part])
            vocabulary = ends[-1].vocabulary
        lower, upper = (graph.confidence for graph in ends)
        wrong = np.flatnonzero(lower > upper)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"{_place(path, one, row)} has the lower end {lower[row]:g} above the upper end {upper[row]:g}: "
                "correct it, or name the columns in their order with --columns"
            )
        found[part] = ends[0].with_ends(np.stack([lower, upper], axis=1))
    assert vocabulary is not None
    return {part: replace(graph, vocabulary=vocabulary) for part, graph in found.items()}


def _checked(
    path: Origin, columns: tuple[Columns, Columns] | None, request: Request
) -> tuple[Columns, Columns]:
    """The columns of a part, where nothing speaks against reading intervals from it."""
    if not is_file(path):
        raise InputError("interval-valued confidences are read from a file, not from standard input")
    if columns is None:
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
    return columns


def _place(path: Origin, request: Request, row: int) -> str:
    """Where the row (from 0) stands: file and line. Slow, and only for an error that is certain."""
    with Source(path) as source:
        layout = layout_of(source, request)
        if isinstance(layout, str):
            return f"{path}, row {row + 1}"
        with source.on_disk().open(encoding="utf-8-sig", newline="") as text:
            found = records(text, layout.format.delimiter, layout.format.quoted)
            lines = [line for count, (line, _) in enumerate(found) if count == row + layout.header]
    return at(source.name, *lines)
