"""Files of facts as columns of ids and confidences, with the labels behind the ids.

Threads parse the blocks of a file, whose labels become ids one block after the other; memory holds ids only. Ids follow
the first appearance of a label, row by row and head before tail, however a file is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import values
from unkgcp.tabular.columns import Request, Scale, rounded
from unkgcp.tabular.delimited import text_batches
from unkgcp.tabular.formats import PARQUET, FactLayout, layout_of
from unkgcp.tabular.label_index import Ids, LabelPlaces
from unkgcp.tabular.parquet import parquet_batches, table_batches
from unkgcp.tabular.source import Origin, Source

Labels = tuple[pa.StringArray, pa.StringArray]  # of entities and of relations
ReadColumns = tuple[Ids, Ids, Ids, NDArray[np.float64]]
"""Head, relation, tail and confidence (n,), or its lower and upper ends (n, 2)."""


def read_columns(
    paths: Mapping[str, Origin], request: Request, known: Labels | None = None
) -> tuple[dict[str, ReadColumns], Labels]:
    """The columns of every part in the given order, and the labels that their ids stand for.

    `known` labels keep the ids they have there; new ones follow. A scale that was asked for sees all parts as one.
    """
    collector = Collector(known)
    columns: dict[str, ReadColumns] = {}
    for part, path in paths.items():
        with Source(path) as source:
            layout = layout_of(source, request)
            scale = layout.scale if isinstance(layout, FactLayout) else request.scale or Scale()
            for batch in _batches(source, layout, request):
                collector.add(batch)
            head, relation, tail, numbers = collector.columns()
            if not len(numbers):
                raise InputError(f"{source.name} holds no facts: give a file with at least one fact")
            if columns and numbers.ndim != next(iter(columns.values()))[3].ndim:
                one, two = ("one confidence a fact", "lower and upper")[:: 3 - 2 * numbers.ndim]
                raise InputError(
                    f"{source.name} has {one} where other parts have {two}: give all parts alike"
                )
        columns[part] = head, relation, tail, numbers if request.scale else rounded(scale(numbers))
    if request.scale:
        scaled = request.scale.together([of_part[3] for of_part in columns.values()])
        columns = {
            part: (*of_part[:3], rounded(confidence))
            for (part, of_part), confidence in zip(columns.items(), scaled, strict=True)
        }
    return columns, collector.labels


def table_columns(table: pa.Table, name: str, request: Request) -> tuple[ReadColumns, Labels]:
    """The columns of a table in memory, which errors call `name`, and the labels that their ids stand for."""
    collector, scale = Collector(), request.scale or Scale()
    for batch in table_batches(table, name, request):
        collector.add(batch)
    head, relation, tail, numbers = collector.columns()
    if not len(numbers):
        raise InputError(f"{name} holds no facts: give it at least one")
    return (head, relation, tail, rounded(scale(numbers))), collector.labels


def _batches(source: Source, layout: FactLayout | str, request: Request) -> Iterator[pa.RecordBatch]:
    if isinstance(layout, FactLayout):
        return text_batches(source, layout, layout.batch)
    if layout == PARQUET:
        return parquet_batches(source, request)
    from unkgcp.tabular.rdf import fact_batches

    return fact_batches(source, layout, request)


class Collector:
    """Collects the facts of one file after the other, with one numbering of their labels."""

    def __init__(self, known: Labels | None = None) -> None:
        nothing = pa.array([], pa.string())
        self._entities, self._relations = map(LabelPlaces, known or (nothing, nothing))
        self._blocks: list[tuple[Any, ...]] = []  # head, relation, tail, and confidences or their ends

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next batch of the file."""
        head, tail = self._entities.enter([batch.column("head"), batch.column("tail")])
        (relation,) = self._relations.enter([batch.column("relation")])
        confidence = [values(column) for column in batch.columns[3:]]
        self._blocks.append(
            (head, relation, tail, confidence[0] if len(confidence) == 1 else np.stack(confidence, axis=1))
        )

    def columns(self) -> ReadColumns:
        """The columns of all facts since the last call, confidences as they stand in the file."""
        ids, nothing = np.empty(0, np.int32), np.empty(0)
        blocks, self._blocks = self._blocks or [(ids, ids, ids, nothing)], []
        head, relation, tail, confidence = map(np.concatenate, zip(*blocks, strict=True))
        return head, relation, tail, confidence

    @property
    def labels(self) -> Labels:
        """All labels so far."""
        return self._entities.labels, self._relations.labels
