"""An uncertain graph: facts as integer columns with a confidence each.

It is not a set: repeated triples and self-loops are kept, in the order in which they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.graph.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:
    from unkgcp.graph.splitting import Splits

Rows = slice | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Facts with confidences. Every column has shape (n,) and is read-only.

    Slicing and selecting rows gives a graph with the same vocabulary: `graph[:10]`, `graph[mask]`. Where confidences
    are intervals, `ends` (n, 2) holds their lower and upper ends, and `confidence` is the middle between them.
    """

    head: Ids
    relation: Ids
    tail: Ids
    confidence: NDArray[np.float64]
    vocabulary: Vocabulary
    ends: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n = len(self.head)
        if self.ends is not None and self.ends.shape != (n, 2):
            raise ValueError(f"ends have shape {self.ends.shape}, expected ({n}, 2)")
        for name in ("head", "relation", "tail", "confidence"):
            column = getattr(self, name)
            if column.shape != (n,):
                raise ValueError(f"column {name} has shape {column.shape}, expected ({n},)")
            if column.flags.writeable:
                column = column.view()
                column.flags.writeable = False
                object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.head)

    def __getitem__(self, rows: Rows) -> Graph:
        return replace(
            self,
            head=self.head[rows],
            relation=self.relation[rows],
            tail=self.tail[rows],
            confidence=self.confidence[rows],
            ends=None if self.ends is None else self.ends[rows],
        )

    def __repr__(self) -> str:
        return f"Graph({len(self):,} facts, {self.n_entities:,} entities, {self.n_relations:,} relations)"

    @property
    def n_entities(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def n_relations(self) -> int:
        return len(self.vocabulary.relations)

    @property
    def keys(self) -> NDArray[np.int64]:
        """One integer a triple, equal exactly for equal triples of the same vocabulary: (n,) int64."""
        return triple_keys(self.head, self.relation, self.tail, self.n_entities, self.n_relations)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The confidences (n,), or lower and upper ends (n, 2) where they are intervals."""
        return self.confidence if self.ends is None else self.ends

    @property
    def repeats(self) -> int:
        """Rows whose triple stands in an earlier row already: all rows less the distinct triples."""
        ordered = np.sort(self.keys)
        return int(np.count_nonzero(ordered[1:] == ordered[:-1]))

    @property
    def self_loops(self) -> int:
        """Rows whose head is their tail."""
        return int(np.count_nonzero(self.head == self.tail))

    def with_confidence(self, confidence: NDArray[np.float64]) -> Graph:
        return replace(self, confidence=confidence, ends=None)

    def with_ends(self, ends: NDArray[np.float64]) -> Graph:
        """The same triples with intervals as confidences, (n, 2): lower and upper."""
        return replace(self, confidence=ends.mean(axis=1), ends=ends)

    def table(self) -> pa.Table:
        """Columns head, relation, tail (strings) and confidence, or lower and upper where it is an interval."""
        entities, relations = self.vocabulary.entities, self.vocabulary.relations
        columns = {
            "head": entities.take(pa.array(self.head)),
            "relation": relations.take(pa.array(self.relation)),
            "tail": entities.take(pa.array(self.tail)),
        }
        if self.ends is None:
            return pa.table({**columns, "confidence": pa.array(self.confidence)})
        lower, upper = (pa.array(np.ascontiguousarray(self.ends[:, end])) for end in (0, 1))
        return pa.table({**columns, "lower": lower, "upper": upper})

    def split(
        self,
        calibration: float = 0.07,
        test: float = 0.08,
        *,
        validation: float = 0.0,
        seed: int = 0,
        keep_repeats_together: bool = False,
    ) -> Splits:
        """Random parts of this graph; see `unkgcp.graph.splitting.split`."""
        from unkgcp.graph.splitting import split

        return split(
            self,
            calibration=calibration,
            test=test,
            validation=validation,
            seed=seed,
            keep_repeats_together=keep_repeats_together,
        )


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """The facts of several graphs over one vocabulary, one after the other."""
    first = graphs[0]
    if any(graph.vocabulary != first.vocabulary for graph in graphs[1:]):
        raise ValueError("graphs over different vocabularies cannot be joined; read them together")
    return Graph(
        np.concatenate([graph.head for graph in graphs]),
        np.concatenate([graph.relation for graph in graphs]),
        np.concatenate([graph.tail for graph in graphs]),
        np.concatenate([graph.confidence for graph in graphs]),
        first.vocabulary,
        _joined_ends(graphs),
    )


def _joined_ends(graphs: Sequence[Graph]) -> NDArray[np.float64] | None:
    """The ends of all graphs; a single number beside intervals is an interval without length."""
    if all(graph.ends is None for graph in graphs):
        return None
    points = [np.stack([graph.confidence, graph.confidence], axis=1) for graph in graphs]
    both = zip(graphs, points, strict=True)
    return np.concatenate([point if graph.ends is None else graph.ends for graph, point in both])


def triple_keys(head: Ids, relation: Ids, tail: Ids, n_entities: int, n_relations: int) -> NDArray[np.int64]:
    """(head * relations + relation) * entities + tail as int64; the product must fit."""
    if n_entities**2 * max(n_relations, 1) >= 2**63:
        raise ValueError(
            f"{n_entities} entities and {n_relations} relations are too many for 64-bit triple keys"
        )
    return (head.astype(np.int64) * n_relations + relation) * n_entities + tail


def contained(keys: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the keys occur in a sorted array: (n,) bool."""
    if len(ordered) == 0:
        return np.zeros(len(keys), dtype=np.bool_)
    position = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[position] == keys
    return found
