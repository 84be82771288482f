"""Facts from files and to files: TSV, CSV, Parquet, RDF, and the formats of STRING, ConceptNet and NELL, plain
or packed.

Files are streamed: memory holds the columns of ids and confidences, the vocabulary, and a few blocks of the file.
Confidences are rounded to nine decimals and otherwise change only if a scale is given; no row is dropped: repeated
triples and self-loops are facts too. A graph that was written is read back as the same facts. A label that a format
cannot hold (a tab in TSV) is refused before anything is written.

>>> graphs = read_parts({"train": "train.tsv", "test": "test.tsv"})    # doctest: +SKIP
>>> write(graphs["train"], "facts.parquet")                            # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary
from unkgcp.tabular.columns import Columns, Options, Request
from unkgcp.tabular.delimited import place_of_row
from unkgcp.tabular.fact_columns import FactColumns, Labels, read_columns
from unkgcp.tabular.formats import ending, interval_columns, layout_of
from unkgcp.tabular.source import Origin, Source, is_file


def read_parts(
    paths: Mapping[str, Origin], *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]
) -> dict[str, Graph]:
    """Several files over one vocabulary, in the given order; a given scale sees them as one. See `unkgcp.read`."""
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


# Confidences that are intervals: files whose first line names the columns lower and upper instead of one confidence.
# Such a file is read twice, once for each end.


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
    """The columns of a part; InputError if intervals cannot be read from it."""
    if not is_file(path):
        raise InputError("interval-valued confidences are read from a file, not from standard input")
    if columns is None:
        raise InputError(
            f"{path} has one confidence a fact where other parts have lower and upper: give all parts alike"
        )
    if request.skip_missing:
        raise InputError("skip_missing does not go with the columns lower and upper: remove such lines")
    scale = request.scale
    if scale is not None and scale.kind != "none" and (scale.floor is None or scale.cap is None):
        raise InputError(
            "a scale for the columns lower and upper needs LOW,HIGH as its scale, so that both are mapped alike"
        )
    return columns


def _place(path: Origin, request: Request, row: int) -> str:
    """The file and line of a row (from 0). Slow, and only for an error."""
    with Source(path) as source:
        layout = layout_of(source, request)
        if isinstance(layout, str):
            return f"{source.name}, row {row + 1}"
        return place_of_row(source.on_disk(), layout, row)


# Writing.


ROWS = 1 << 18


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """All facts in their order. The name ends in .tsv, .csv or .parquet, the first two perhaps with .gz behind."""
    from unkgcp.tabular.writer import Style, write_file

    _check_labels(graph, check_path(path), path)
    with write_file(
        os.fspath(path), Style("never", "always", lambda _: {"compression": "zstd"})
    ) as write_batch:
        for batch in _batches(graph):
            write_batch(batch)


def check_path(path: str | os.PathLike[str]) -> str:
    """The format of a file to write, by its name; refused where there is none or it is a folder."""
    kind = ending(os.fspath(path))
    if kind not in ("tsv", "csv", "parquet"):
        raise InputError(
            f"{path} names no format to write: end it in .tsv, .csv or .parquet, or one of them and .gz"
        )
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder: give the name of a file")
    return kind


def _batches(graph: Graph) -> Iterator[pa.RecordBatch]:
    """Some rows at a time, at least one batch so that there is a header."""
    for start in range(0, max(len(graph), 1), ROWS):
        table = graph[start : start + ROWS].table()
        yield pa.record_batch([column.combine_chunks() for column in table.columns], table.column_names)


def _check_labels(graph: Graph, kind: str, path: str | os.PathLike[str]) -> None:
    for labels in (graph.vocabulary.entities, graph.vocabulary.relations):
        if pc.any(pc.equal(pc.binary_length(labels), 0)).as_py():
            raise InputError(
                f"{path} cannot be written: the graph has an empty label, which no reader would accept"
            )
        if pc.any(pc.match_substring(labels, "\0")).as_py():
            raise InputError(
                f"{path} cannot be written: a label holds a NUL byte, which no reader would accept"
            )
        hidden = labels.filter(pc.match_substring_regex(labels, "[\t\n\r]")) if kind == "tsv" else labels[:0]
        if len(hidden):
            raise InputError(
                f"{path} cannot be written: the label {hidden[0].as_py()!r} holds a tab or a line end, "
                "which TSV cannot: write .csv or .parquet"
            )
