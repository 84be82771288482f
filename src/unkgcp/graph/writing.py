"""Writing facts as TSV, CSV, Parquet or RDF, plain or gzip, as the file's name says.

What was written is read back as the same facts: labels character by character, confidences bit by bit. What a
format cannot hold (a tab in a TSV label) is refused before anything is written.

>>> write(graph, "facts.parquet")       # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.tabular.formats import ending
from unkgcp.tabular.writer import FORMATS, Style, write_file

ROWS = 1 << 18
FACTS = Style(csv="always", parquet=lambda _: {"compression": "zstd"})


def write(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    prefixes: Mapping[str, str] | None = None,
) -> None:
    """All facts in their order. The name ends in .tsv, .csv, .parquet, .ttl or .nt, perhaps with .gz behind.

    `format` says how to write it where the name does not: one of `unkgcp.tabular.writer.FORMATS`. `prefixes` are those
    that the graph was read with from RDF, so that its labels become the IRIs that they were.
    """
    _check_labels(graph, check_path(path, format), path)
    with write_file(os.fspath(path), replace(FACTS, format=format, prefixes=prefixes)) as write_batch:
        for batch in _batches(graph):
            write_batch(batch)


def check_path(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format of a file to write, chosen or by its name; refused where there is none or it is a folder."""
    if format is not None and format not in FORMATS:
        raise InputError(f"the output format {format!r} is none of {', '.join(FORMATS)}")
    kind = format or ending(os.fspath(path))
    if kind is None or kind == "nquads":
        raise InputError(
            f"{path} names no format to write: end it in .tsv, .csv, .parquet, .ttl or .nt, or one of them and .gz"
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
