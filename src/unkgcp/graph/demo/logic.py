"""Soft logic of the demo world: what its rules say about triples that are not among the given facts.

Symmetric relations hold both ways, and who works for a company works where it has offices. A conclusion's
confidence is a lower bound: that of the single condition, or max(0, x + y - 1) for two. These are inferences,
not observations. `unkgcp.rules` does the same for any rules; here it comes with the data set.

>>> print(RULES)
knows(A, B) -> knows(B, A)
competes_with(A, B) -> competes_with(B, A)
near(A, B) -> near(B, A)
works_for(A, B) & has_office_in(B, C) -> works_in(A, C)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.demo.drawing import COMPOSED, join
from unkgcp.graph.demo.world import RELATIONS
from unkgcp.graph.facts import Graph, triple_keys

LEAST = 0.5  # weaker conclusions say nothing
RULES = "\n".join(
    [
        *(f"{row.name}(A, B) -> {row.name}(B, A)" for row in RELATIONS if row.symmetric),
        *(f"{first}(A, B) & {second}(B, C) -> {name}(A, C)" for name, (first, second) in COMPOSED.items()),
    ]
)


def infer(facts: Graph) -> Graph:
    """Conclusions from the facts that are not among them: every triple once, with its strongest bound."""
    names = [row.name for row in RELATIONS]
    index = dict(zip(names, facts.vocabulary.relation_ids(names).tolist(), strict=True))
    found: list[tuple[NDArray[np.int64], int, NDArray[np.int64], NDArray[np.float64]]] = []
    for row in RELATIONS:
        if row.symmetric:
            part = facts[facts.relation == index[row.name]]
            found.append(
                (part.tail.astype(np.int64), index[row.name], part.head.astype(np.int64), part.confidence)
            )
    for name, (first, second) in COMPOSED.items():
        left, right = facts[facts.relation == index[first]], facts[facts.relation == index[second]]
        # joined by row number, so that the confidences come along
        at, _, to = join(
            (np.arange(len(left)), left.tail.astype(np.int64)),
            (right.head.astype(np.int64), np.arange(len(right))),
        )
        bound = np.maximum(0.0, left.confidence[at] + right.confidence[to] - 1)
        found.append((left.head[at].astype(np.int64), index[name], right.tail[to].astype(np.int64), bound))
    head = np.concatenate([heads for heads, _, _, _ in found]).astype(np.int32)
    tail = np.concatenate([tails for _, _, tails, _ in found]).astype(np.int32)
    relation = np.repeat([r for _, r, _, _ in found], [len(heads) for heads, _, _, _ in found]).astype(
        np.int32
    )
    # 0.6 + 0.9 - 1 is meant to be 0.5
    bound = np.round(np.concatenate([bounds for _, _, _, bounds in found]), 3)
    keys = triple_keys(head, relation, tail, facts.n_entities, facts.n_relations)
    strongest = np.lexsort((-bound, keys))
    strongest = strongest[np.concatenate([[True], np.diff(keys[strongest]) > 0])[: len(keys)]]
    strongest = strongest[(bound[strongest] >= LEAST) & ~np.isin(keys[strongest], facts.keys)]
    return Graph(head[strongest], relation[strongest], tail[strongest], bound[strongest], facts.vocabulary)
