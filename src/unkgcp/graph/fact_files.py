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
from typing import Unpack

import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary
from unkgcp.tabular.columns import Options, Request
from unkgcp.tabular.fact_batches import LONGEST_LABEL, acceptable
from unkgcp.tabular.fact_columns import read_columns
from unkgcp.tabular.source import Origin


def read_parts(
    paths: Mapping[str, Origin], *, vocabulary: Vocabulary | None = None, **options: Unpack[Options]
) -> dict[str, Graph]:
    """Several files over one vocabulary, in the given order; a given scale sees them as one. See `unkgcp.read`."""
    words = None if vocabulary is None else (vocabulary.entities, vocabulary.relations)
    columns, labels = read_columns(paths, Request(**options), words)
    # labels that are new need a new vocabulary
    if vocabulary is None or (*map(len, labels),) != (len(vocabulary.entities), len(vocabulary.relations)):
        vocabulary = Vocabulary(*labels)
    return {part: Graph.of(*of_part, vocabulary) for part, of_part in columns.items()}


# Writing.


ROWS = 1 << 18


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """All facts in their order. The name ends in .tsv, .csv or .parquet, the first two perhaps with .gz behind."""
    from unkgcp.tabular.writer import open_output

    for labels in (graph.vocabulary.entities, graph.vocabulary.relations):
        if not acceptable(labels):
            raise InputError(
                f"{path} cannot be written: a label of the graph is empty, longer than {LONGEST_LABEL >> 10} KiB or "
                "holds a NUL byte, which no reader would accept"
            )
    with open_output(os.fspath(path)) as write_batch:
        for batch in _batches(graph):
            write_batch(batch)


def _batches(graph: Graph) -> Iterator[pa.RecordBatch]:
    """Some rows at a time, at least one batch so that there is a header."""
    for start in range(0, max(len(graph), 1), ROWS):
        table = graph[start : start + ROWS].table()
        yield pa.record_batch([column.combine_chunks() for column in table.columns], table.column_names)
