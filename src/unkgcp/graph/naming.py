"""Ids and names: the tables that some data sets bring along, and graphs brought over one vocabulary.

Some data sets call their entities by number and list the names in `entity_id.csv` and `relation_id.csv`; some
use numbers in one file and names in another. This module translates; it never changes which facts there are.

>>> read_names(Path("data/cn15k")).entities["0"]
'pricing'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.graph.vocabulary import Vocabulary

TABLES = ("entity_id.csv", "relation_id.csv")


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The name behind every id."""

    entities: dict[str, str]
    relations: dict[str, str]


def read_names(folder: Path) -> Names | None:
    """The tables of a folder, if both are there."""
    entities, relations = (folder / table for table in TABLES)
    if not (entities.is_file() and relations.is_file()):
        return None
    return Names(_table(entities), _table(relations))


def _table(path: Path) -> dict[str, str]:
    """A CSV with a header line and two columns, id and name."""
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=["id", "name"], skip_rows=1),
            convert_options=csv.ConvertOptions(column_types={"id": pa.string(), "name": pa.string()}),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(f"{path} is no table of ids and names ({error}); it needs two columns") from None
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def named(graph: Graph, names: Names) -> Graph:
    """The same facts with names in place of ids; a label without a name stays."""
    entities = [names.entities.get(label, label) for label in graph.vocabulary.entities.to_pylist()]
    relations = [names.relations.get(label, label) for label in graph.vocabulary.relations.to_pylist()]
    return replace(graph, vocabulary=Vocabulary.of(entities, relations))


def over_one_vocabulary(graphs: Sequence[Graph]) -> list[Graph]:
    """The same facts over the first graph's vocabulary, followed by labels that only later graphs have."""
    vocabulary = Vocabulary(
        _union([graph.vocabulary.entities for graph in graphs]),
        _union([graph.vocabulary.relations for graph in graphs]),
    )
    result = []
    for graph in graphs:
        entity = vocabulary.entity_ids(graph.vocabulary.entities)
        relation = vocabulary.relation_ids(graph.vocabulary.relations)
        columns = entity[graph.head], relation[graph.relation], entity[graph.tail]
        result.append(Graph(*columns, graph.confidence, vocabulary, graph.ends))
    return result


def _union(labels: Sequence[pa.StringArray]) -> pa.StringArray:
    return pc.unique(pa.chunked_array(labels, pa.string()))
