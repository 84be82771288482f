"""Confidences that are intervals: files with the columns lower and upper instead of one confidence.

What it is: such a file is recognised by a header that names `lower` and `upper` and no confidence, or by five named
columns, and read as two files, one a column, by the readers there are; then the ends are put together. What it is
not: a reader of its own, so it needs a file it can read twice.

>>> read("facts.tsv", columns=("h", "r", "t", "low", "high")).ends.shape     # doctest: +SKIP
(1000, 2)
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from unkgcp.errors import InputError, at
from unkgcp.graph.facts import Graph
from unkgcp.graph.formats import PARQUET, TEXT_FORMATS, first_line, recognise
from unkgcp.graph.formats.columns import Columns, interval_positions
from unkgcp.graph.formats.request import Request
from unkgcp.graph.formats.source import Origin, Source
from unkgcp.graph.vocabulary import Vocabulary

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
