"""Queries in whatever form a caller has them in Python, as the ids of one vocabulary.

Queries in files are read by `unkgcp.tabular.query_files`.

>>> to_triples([("a", "likes", "b")], Vocabulary.of(["a", "b"], ["likes"])).tail.tolist()
[1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, Triples, Vocabulary

Queries: TypeAlias = (
    Graph | Triples | pa.Table | pa.RecordBatch | Sequence[tuple[str, str, str]] | NDArray[np.integer]
)


def as_queries(queries: Any) -> Queries:
    """Queries as one of the forms below: frames of pandas and polars become Arrow tables, other iterables lists."""
    if isinstance(queries, Graph | Triples | pa.Table | pa.RecordBatch):
        return queries
    if isinstance(queries, np.ndarray):
        if queries.dtype.kind in "UO" and queries.ndim == 2:
            return [tuple(row) for row in queries.tolist()]
        return queries
    columns = list(getattr(queries, "columns", ()))
    if columns and hasattr(queries, "__getitem__"):
        names = [name for name in Triples._fields if name in columns]
        return pa.table({name: _label_columns(queries[name]) for name in names})
    return list(queries)


def _label_columns(column: Any) -> pa.Array:
    """A column of pandas or polars."""
    if hasattr(column, "to_arrow"):
        return column.to_arrow().cast(pa.string())
    return pa.array(column, pa.string(), from_pandas=True)


def to_triples(queries: Queries, vocabulary: Vocabulary) -> Triples:
    """Ids of queries: label triples, an Arrow table with columns head, relation and tail, a graph, or ids.

    Ids may come as `Triples` or as an integer array of shape (n, 3).
    """
    if isinstance(queries, Triples):
        return queries
    if isinstance(queries, Graph):
        return _translate(queries, vocabulary)
    if isinstance(queries, pa.Table | pa.RecordBatch):
        missing = [name for name in Triples._fields if name not in queries.schema.names]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}; it needs head, relation and tail")
        head, relation, tail = (queries.column(name) for name in Triples._fields)
        return Triples(*vocabulary.triple_ids(head, relation, tail))
    if isinstance(queries, np.ndarray):
        if queries.ndim != 2 or queries.shape[1] != 3 or queries.dtype.kind not in "iu":
            raise ValueError(f"ids must be an integer array (n, 3), got {queries.dtype} {queries.shape}")
        inside = (queries >= 0) & (queries <= np.iinfo(np.int32).max)
        # converted first, since arrays of unsigned integers cannot hold -1
        known = np.where(inside, queries.astype(np.int32), -1)
        return Triples(*(np.ascontiguousarray(known[:, place]) for place in range(3)))
    return _from_sequence(queries, vocabulary)


def labels_of(queries: Queries) -> pa.Table | pa.RecordBatch | None:
    """Columns head, relation and tail of queries that came as labels; None for ids and graphs."""
    if isinstance(queries, pa.Table | pa.RecordBatch):
        return queries.select(list(Triples._fields))
    if isinstance(queries, Graph | Triples | np.ndarray):
        return None
    return pa.table(
        {
            name: pa.array([query[place] for query in queries], pa.string())
            for place, name in enumerate(Triples._fields)
        }
    )


def _from_sequence(queries: Sequence[tuple[str, str, str]], vocabulary: Vocabulary) -> Triples:
    for place, query in enumerate(queries):
        if isinstance(query, str) or len(query) != 3 or not all(isinstance(label, str) for label in query):
            raise ValueError(f"query {place} is {query!r}; expected three labels (head, relation, tail)")
    head, relation, tail = (pa.array([query[place] for query in queries], pa.string()) for place in range(3))
    return Triples(*vocabulary.triple_ids(head, relation, tail))


def _translate(graph: Graph, vocabulary: Vocabulary) -> Triples:
    if graph.vocabulary == vocabulary:
        return Triples(graph.head, graph.relation, graph.tail)
    entity = vocabulary.entity_ids(graph.vocabulary.entities)
    relation = vocabulary.relation_ids(graph.vocabulary.relations)
    return Triples(entity[graph.head], relation[graph.relation], entity[graph.tail])


def adopted(facts: Graph, vocabulary: Vocabulary) -> Graph:
    """The facts in the ids of a vocabulary that has grown by their new labels, in the order of their appearance.

    >>> old = Vocabulary.of(["a", "b"], ["likes"])
    >>> ids = np.array([0, 1], np.int32)
    >>> facts = Graph(ids, np.zeros(2, np.int32), ids[::-1], np.ones(2), Vocabulary.of(["c", "b"], ["likes"]))
    >>> found = adopted(facts, old)
    >>> found.head.tolist(), found.vocabulary.entities.to_pylist()
    ([2, 1], ['a', 'b', 'c'])
    """
    own = facts.vocabulary
    entity, entities = _numbered(
        vocabulary.entity_ids(own.entities),
        np.stack([facts.head, facts.tail], axis=1).ravel(),
        len(vocabulary.entities),
    )
    relation, relations = _numbered(
        vocabulary.relation_ids(own.relations), facts.relation, len(vocabulary.relations)
    )
    if len(entities) or len(relations):
        vocabulary = Vocabulary(
            pa.concat_arrays([vocabulary.entities, own.entities.take(pa.array(entities))]),
            pa.concat_arrays([vocabulary.relations, own.relations.take(pa.array(relations))]),
        )
    columns = (entity[facts.head], relation[facts.relation], entity[facts.tail])
    return Graph(*columns, facts.confidence, vocabulary, facts.ends)


def _numbered(
    ids: NDArray[np.int32], used: NDArray[np.int32], size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ids of labels where those that are used and have none (-1) get numbers from `size` on; and these labels."""
    labels, first = np.unique(used, return_index=True)
    new = labels[np.argsort(first)]
    new = new[ids[new] < 0]
    found = ids.copy()
    found[new] = size + np.arange(len(new), dtype=np.int32)
    return found, new


def spelt(column: pa.Array) -> pa.StringArray:
    """A column of labels as plain strings."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
