"""Facts and queries as people hold them in Python: data frames, Arrow tables, NetworkX graphs, rows, arrays of ids.

`graph_from`, which `unkgcp.read` calls, makes a graph of facts; `to_triples` makes ids of queries. (Facts and queries
in files are read by `unkgcp.graph.fact_files` and `unkgcp.tabular.query_files`.) Columns are guessed by their names, as
those of files are (`unkgcp.tabular.columns`), or named. pandas, polars and NetworkX are not imported: whoever gives
such an object has it already. The ways back are methods of `Graph`: `table`, `to_pandas`, `to_polars`, `to_networkx`.

>>> graph_from([("TP53", "binds", "MDM2", 0.9)]).confidence.tolist()
[0.9]
>>> to_triples([("a", "likes", "b")], Vocabulary.of(["a", "b"], ["likes"])).tail.tolist()
[1]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Triples, Vocabulary
from unkgcp.tabular.columns import INTERVAL, ROLES, Options, Request, may_be_named
from unkgcp.tabular.label_index import as_labels

TABLE, NETWORK, ROWS = "the table", "the NetworkX graph", "the list of facts"


def graph_from(data: Any, *, relation: str | None = None, **options: Unpack[Options]) -> Graph:
    """The graph of facts that stand in a Python object; options as in `unkgcp.read`.

    data      one of
              - a data frame (pandas, polars, or anything else that hands out Arrow), an Arrow table or record batch, or
                a dictionary of columns. `columns` names those of head, relation, tail and confidence (or of lower and
                upper), where their names do not tell;
              - a NetworkX graph: each edge is a fact from its first node to its second. The relation is the edge's
                attribute of that name (or `predicate`, ...), or its key in a multigraph; the confidence is the
                attribute `confidence` (or `weight`, ...). `columns=("relation", "confidence")` names the two, and a
                relation `key` is the key. An undirected edge is one fact, from the node that NetworkX lists first;
              - rows: tuples (head, relation, tail, confidence), or (..., lower, upper), or dictionaries.
    relation  the one relation of all facts, for data that has none

    Labels are text or integers. Ids follow the first appearance of a label, row by row, head before tail.
    """
    if isinstance(data, Graph):
        return data
    if options.get("format") is not None or options.get("header") is not None:
        raise InputError("format and header are for files: leave them out")
    if _comes_from(data, "networkx") and hasattr(data, "edges") and hasattr(data, "is_multigraph"):
        table, name = _edges(data, relation, options.pop("columns", None)), NETWORK
    elif (table := _table(data)) is not None:
        name = TABLE
    elif isinstance(data, Iterable):
        table, name = _rows(data, relation is not None, ROWS), ROWS
    else:
        raise InputError(
            f"a graph cannot be made of {type(data).__name__}: give a data frame, an Arrow table, a NetworkX graph or "
            "rows"
        )
    if relation is not None:
        if "relation" in table.column_names:
            raise InputError("there is a column 'relation' already: leave relation out")
        table = table.append_column("relation", pa.array([relation] * len(table), pa.string()))
    from unkgcp.tabular.fact_columns import table_columns  # late, because queries do not need it

    columns, labels = table_columns(table, name, Request(**options))
    return Graph.of(*columns, Vocabulary(*labels))


# Tables.


def _table(data: Any) -> pa.Table | None:
    """The columns of anything that has columns; None for rows."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _of_columns(data, TABLE)
    try:
        if _comes_from(data, "pandas"):
            # an index without a name only numbers the rows; one with a name is a column
            named = [name for name in data.index.names if name is not None]
            return pa.Table.from_pandas(data.reset_index() if named else data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{TABLE} has a column that is no plain column ({_reason_of(error)}): convert it"
        ) from None
    return None


def _of_columns(columns: Mapping[Any, Any], what: str) -> pa.Table:
    table = {}
    for name, values in columns.items():
        try:
            is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
            table[str(name)] = values if is_arrow else as_labels(values, None)
        except InputError:
            raise
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            plain = list(values)
            row = next((row for row, value in enumerate(plain) if type(value) is not type(plain[0])), 0)
            raise InputError(
                f"{what}, row {row + 1} has {plain[row]!r} as its {name}, not of one kind with the others "
                f"({_reason_of(error)}): give text or integers as labels and a number as confidence"
            ) from None
    if len(lengths := {len(column) for column in table.values()}) > 1:
        raise InputError(
            f"{what} has columns of {min(lengths):,} and of {max(lengths):,} rows: make them alike"
        )
    return pa.table(table)


# Rows.


def _rows(data: Iterable[Any], relation_given: bool, what: str) -> pa.Table:
    rows = list(data)
    if not rows:
        raise InputError(f"{what} holds no facts: give it at least one")
    if all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
    else:
        names = _row_names(rows, relation_given)
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return _of_columns(columns, what)


def _row_names(rows: Sequence[Any], relation_given: bool) -> list[str]:
    """The names of the fields of a row; all rows must be as long as the first."""
    every = {len(INTERVAL): INTERVAL, len(ROLES): ROLES}
    if relation_given:
        every = {
            size - 1: tuple(name for name in names if name != "relation") for size, names in every.items()
        }
    for place, row in enumerate(rows):
        plain = not isinstance(row, str | bytes | Mapping) and hasattr(row, "__len__")
        if not plain or len(row) not in every or len(row) != len(rows[0]):
            shown = " or ".join(f"({', '.join(names)})" for names in reversed(every.values()))
            raise InputError(f"{ROWS}, row {place + 1} is {str(row)[:60]!r}, expected {shown}: correct it")
    return list(every[len(rows[0])])


# NetworkX.


def _edges(network: Any, relation: str | None, columns: Sequence[int | str] | None) -> pa.Table:
    """The edges in the order in which NetworkX lists them, with the attributes that tell relation and confidence."""
    labels, keyed = _node_labels(network), bool(network.is_multigraph())
    edges = list(network.edges(data=True, **({"keys": True} if keyed else {})))
    attributes = [({"key": edge[2]} if keyed else {}) | edge[-1] for edge in edges]
    present = list(dict.fromkeys(str(name) for data in attributes for name in data))
    relation_role = () if relation is not None else ("relation",)
    if columns is not None:
        if len(columns) != len(relation_role) + 1:
            raise InputError(
                f"columns of a NetworkX graph name {len(relation_role) + 1} attributes: relation, confidence"
            )
        named = dict(zip((*relation_role, "confidence"), map(str, columns), strict=True))
    else:
        named = {name: name for name in present if may_be_named(name, (*relation_role, "confidence"))}
        named |= {name: name for name in ("lower", "upper") if name in present}
        if edges and relation_role and not any(may_be_named(name, relation_role) for name in named):
            if not (keyed and all(isinstance(data["key"], str) for data in attributes)):
                raise InputError(
                    f"edges of {NETWORK} have no attribute called relation, nor keys that are text: name the attribute "
                    "with columns, or give one relation to all with relation"
                )
            named["relation"] = "key"
    rows = [
        {"head": labels[edge[0]], "tail": labels[edge[1]]}
        | {role: data.get(name) for role, name in named.items()}
        for edge, data in zip(edges, attributes, strict=True)
    ]
    return _rows(rows, relation is not None, NETWORK)


def _node_labels(network: Any) -> dict[Any, str]:
    """The label of each node, which is the node as text; two nodes must not have the same."""
    of_label: dict[str, Any] = {}
    for node in network.nodes:
        if (other := of_label.setdefault(str(node), node)) is not node:
            raise InputError(
                f"{NETWORK} has the nodes {other!r} and {node!r}, which read alike as labels: rename one"
            )
    return {node: label for label, node in of_label.items()}


def _comes_from(data: Any, library: str) -> bool:
    """Whether the class of an object, or one that it is derived from, is a library's; the library is not imported."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(data).__mro__)


def _reason_of(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")


# Queries.

Queries: TypeAlias = (
    Graph | Triples | pa.Table | pa.RecordBatch | Sequence[tuple[str, str, str]] | NDArray[np.integer]
)


def as_queries(queries: Any) -> Graph | Triples | pa.Table | pa.RecordBatch | NDArray[np.integer]:
    """Queries as a graph, ids, or an Arrow table of labels, which is made of frames and rows."""
    if isinstance(queries, Graph | Triples | pa.Table | pa.RecordBatch):
        return queries
    if isinstance(queries, np.ndarray) and queries.dtype.kind not in "UO":
        return queries
    if hasattr(queries, "columns"):  # only those of the triples, since others may hold anything
        queries = queries[[name for name in Triples._fields if name in queries.columns]]
    if (table := _table(queries)) is not None:
        return pa.table([column.cast(pa.string()) for column in table.columns], table.column_names)
    rows = list(queries)
    for place, query in enumerate(rows):
        if isinstance(query, str) or len(query) != 3 or not all(isinstance(label, str) for label in query):
            raise ValueError(f"query {place} is {query!r}; expected three labels (head, relation, tail)")
    return pa.table([as_labels([row[place] for row in rows]) for place in range(3)], list(Triples._fields))


def to_triples(queries: Queries, vocabulary: Vocabulary) -> Triples:
    """Ids of queries: label triples, a table with columns head, relation and tail, a graph, or ids.

    Ids may come as `Triples` or as an integer array of shape (n, 3). The ends of triples of a symmetric relation are
    put in canonical order, so that both directions get one answer.
    """
    triples = as_queries(queries)
    if isinstance(triples, Triples):
        return Triples(*vocabulary.canonical(*triples))
    if isinstance(triples, Graph):
        facts = triples.over(vocabulary)
        return Triples(facts.head, facts.relation, facts.tail)
    if isinstance(triples, pa.Table | pa.RecordBatch):
        missing = [name for name in Triples._fields if name not in triples.schema.names]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}; it needs head, relation and tail")
        return Triples(*vocabulary.triple_ids(*(triples.column(name) for name in Triples._fields)))
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.kind not in "iu":
        raise ValueError(f"ids must be an integer array (n, 3), got {triples.dtype} {triples.shape}")
    inside = (triples >= 0) & (triples <= np.iinfo(np.int32).max)
    # converted first, since arrays of unsigned integers cannot hold -1
    ids = np.where(inside, triples.astype(np.int32), -1)
    return Triples(*vocabulary.canonical(*np.ascontiguousarray(ids.T)))


def labels_of(queries: Queries, vocabulary: Vocabulary | None = None) -> pa.Table | pa.RecordBatch | None:
    """Columns head, relation and tail of queries, null for an id that the vocabulary lacks; None without one."""
    triples = as_queries(queries)
    if isinstance(triples, Graph):
        triples = triples.table()
    if isinstance(triples, pa.Table | pa.RecordBatch):
        return triples.select(list(Triples._fields))
    if vocabulary is None:
        return None
    words = (vocabulary.entities, vocabulary.relations, vocabulary.entities)
    columns = triples if isinstance(triples, Triples) else triples.T
    labels = [
        all_labels.take(pa.array(ids, mask=(ids < 0) | (ids >= len(all_labels))))
        for all_labels, ids in zip(words, columns, strict=True)
    ]
    return pa.table(labels, list(Triples._fields))


def spelt(column: pa.Array) -> pa.StringArray:
    """A column of labels as plain strings."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
