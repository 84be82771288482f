"""Writing facts as TSV, CSV or Parquet, plain or gzip, as the file's name says.

What was written is read back as the same facts: labels character by character, confidences bit by bit. What a
format cannot hold (a tab in a TSV label) is refused before anything is written.

>>> write(graph, "facts.parquet")       # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.files import atomic_path
from unkgcp.graph.facts import Graph
from unkgcp.graph.reading import ENDS
from unkgcp.tabular.columns import ROLES
from unkgcp.tabular.formats import PARQUET, ending
from unkgcp.tabular.writer import lines

ROWS = 1 << 18

_LABELS = [(role, pa.string()) for role in ROLES[:3]]
_SCHEMA = pa.schema([*_LABELS, (ROLES[3], pa.float64())])
_INTERVALS = pa.schema([*_LABELS, *((end, pa.float64()) for end in ENDS)])


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """All facts in their order, with a header. The name ends in .tsv, .csv or .parquet, perhaps with .gz behind."""
    kind = check_path(path)
    _check_labels(graph, kind, path)
    writer = {"tsv": _write_tsv, "csv": _write_csv, PARQUET: _write_parquet}[kind]
    with atomic_path(path) as temporary, _sink(temporary) as sink:
        writer(graph, sink)


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


@contextmanager
def _sink(path: Path) -> Iterator[pa.NativeFile]:
    with pa.OSFile(str(path), "wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with pa.CompressedOutputStream(file, "gzip") as packed:
            yield packed


def _tables(graph: Graph) -> Iterator[pa.Table]:
    for start in range(0, len(graph), ROWS):
        yield graph[start : start + ROWS].table().cast(_schema(graph))


def _schema(graph: Graph) -> pa.Schema:
    return _SCHEMA if graph.ends is None else _INTERVALS


def _write_tsv(graph: Graph, sink: pa.NativeFile) -> None:
    sink.write("\t".join(_schema(graph).names).encode() + b"\n")
    for table in _tables(graph):
        sink.write(lines([column.combine_chunks() for column in table.columns], "\t"))


def _write_csv(graph: Graph, sink: pa.NativeFile) -> None:
    with csv.CSVWriter(sink, _schema(graph)) as writer:
        for table in _tables(graph):
            writer.write_table(table)


def _write_parquet(graph: Graph, sink: pa.NativeFile) -> None:
    with pq.ParquetWriter(sink, _schema(graph), compression="zstd") as writer:
        for table in _tables(graph):
            writer.write_table(table)


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
