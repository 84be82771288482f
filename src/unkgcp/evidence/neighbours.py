"""What the neighbourhood of two entities says of a fact between them.

For a query (h, r, t) there are three kinds of numbers. How closely h and t are joined otherwise: the entities that
stand beside both, counted, and weighted so that a rare neighbour says more than one that stands beside everything
(Adamic and Adar). Which confidences lie on these ways, and those of (h, r, z) and (z, r, t) on them. And what the facts
(z, r, t) of entities z like h say, and the facts (h, r, z) of entities z like t, where entities are alike that have
neighbours in common. No number rests on a fact between h and t but the two degrees, so a training fact is left out by
correcting these. A query looks at the facts of its two entities and at some of their partners, not at the whole graph.

>>> Neighbours.of(train).features(triples).shape                     # doctest: +SKIP
(n, 30)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import AnyInts, FactOrder, Ints, places, smallest
from unkgcp.graph.facts import Graph
from unkgcp.graph.known import distinct, places_among
from unkgcp.loops import in_threads

NAMES = (
    "neighbours: shared",
    "neighbours: shared, rare ones more",
    "neighbours: shared, of all",
    "neighbours: shared, of the fewer",
    "neighbours: head to tail",
    "neighbours: tail to head",
    "neighbours: from both",
    "neighbours: to both",
    "neighbours: of the head",
    "neighbours: of the tail",
    "between: head's side",
    "between: tail's side",
    "between: product",
    "between: surest way",
    *(
        f"{side}: {what}"
        for side in ("tails beside the tail", "heads beside the head")
        for what in ("count", "mean", "largest", "mean, rare ones more")
    ),
    *(
        f"{side}: {what}"
        for side in ("heads like the head", "tails like the tail")
        for what in ("mean", "likeness", "most alike", "of the most alike")
    ),
)
FEWEST = 256  # rows worth a thread


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Facts by entity and neighbour, and by entity and relation; each stands on both sides. No entity is its own.

    The arrays are in the order in which the compiled loops take them.
    """

    ARRAYS: ClassVar = (
        "first", "other", "facts", "sort", "confidence", "starts", "kind", "partner", "said", "values", "weight",
    )  # fmt: skip

    first: AnyInts
    """(entities + 1,) entries of each entity."""
    other: AnyInts
    """(P,) the neighbour of each entry, upwards within an entity."""
    facts: AnyInts
    """(P + 1,) facts of each entry."""
    sort: AnyInts
    """Twice the relation, and 1 more where the entity is the head."""
    confidence: AnyInts
    """(2 N,) each; the place of the confidence among the values."""
    starts: AnyInts
    """(entities + 1,) facts of each entity."""
    kind: AnyInts
    """(2 N,) the same as `sort`; upwards within an entity."""
    partner: AnyInts
    """(2 N,) the other entity, upwards within a kind."""
    said: AnyInts
    """(2 N,) confidence, as a place among the values."""
    values: NDArray[np.float64]
    """(V,) all different confidences, upwards."""
    weight: NDArray[np.float64]
    """(entities,) how strongly a neighbour that two entities share joins them: the more neighbours it has, the less."""

    @classmethod
    def of(cls, train: Graph) -> Neighbours:
        values = distinct(train.confidence)
        said = places_among(values, train.confidence, smallest(len(values)))
        head, relation, tail = train.head, train.relation, train.tail
        if train.self_loops:
            apart = head != tail
            head, relation, tail, said = head[apart], relation[apart], tail[apart], said[apart]
        n, relations = train.n_entities, train.n_relations
        # as the head of a fact, and as its tail
        order = FactOrder.of(
            [(head, tail, relation, 1, said), (tail, head, relation, 0, said)],
            [n, n, relations, 2, len(values)],
        )
        first, facts = order.runs(1)
        other = order.at(first, facts[:-1]).column(1)
        sort, confidence = order.column(2, 3), order.column(4)
        starts = order.first.astype(places(len(order)))
        del order
        order = FactOrder.of(
            [(head, relation, 1, tail, said), (tail, relation, 0, head, said)],
            [n, relations, 2, n, len(values)],
        )
        return cls(
            first,
            other,
            facts,
            sort,
            confidence,
            starts,
            order.column(1, 2),
            order.column(3),
            order.column(4),
            values,
            1 / np.log1p(np.maximum(np.diff(first), 1)),
        )

    def features(self, head: Ints, relation: Ints, tail: Ints, left_out: bool = False) -> NDArray[np.float32]:
        """Columns of `NAMES` (n, 30), NaN where there is nothing to tell.

        `left_out`: the triples are training facts, each of which is to be told what it would be without it.
        """
        from unkgcp.evidence import neighbour_kernels as kernels

        table = np.empty((len(head), len(NAMES)), np.float32)
        asked = [np.ascontiguousarray(ids, np.int64) for ids in (head, relation, tail)]
        held = [getattr(self, name) for name in self.ARRAYS]
        compiled: Any = kernels.neighbours

        def work(rows: slice) -> None:
            compiled(*held, *(ids[rows] for ids in asked), left_out, table[rows])

        in_threads(len(table), work, FEWEST)
        return table
