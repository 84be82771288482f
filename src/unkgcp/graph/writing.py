"""Writing facts as TSV, CSV or Parquet, plain or gzip, as the file's name says.

What was written is read back as the same facts: labels character by character, confidences bit by bit. What a
format cannot hold (a tab in a TSV label) is refused before anything is written.

>>> write(graph, "facts.parquet")       # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.tabular.formats import ending
from unkgcp.tabular.writer import Style, write_file

ROWS = 1 << 18
FACTS = Style(csv="always", parquet=lambda _: {"compression": "zstd"})


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """All facts in their order, with a header. The name ends in .tsv, .csv or .parquet, perhaps with .gz behind."""
    _check_labels(graph, check_path(path), path)
    with write_file(os.fspath(path), FACTS) as write_batch:
        for batch in _batches(graph):
            write_batch(batch)


def check_path(path: str | os.PathLike[str]) -> str:
    """The format that the name of a file to write asks for; refused where there is none or it is a folder."""
    kind = ending(os.fspath(path))
    if kind is None:
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
