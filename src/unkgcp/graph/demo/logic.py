"""Soft logic of the demo world: what its rules say about triples that are not among the given facts.

Symmetric relations hold both ways, and who works for a company works where it has offices. A conclusion's
confidence is a lower bound: that of the single condition, or max(0, x + y - 1) for two. These are inferences,
not observations. `unkgcp.rules` does the same for any rules; here it comes with the data set.

>>> print(RULES)
knows(A, B) -> knows(B, A)
works_with(A, B) -> works_with(B, A)
works_for(A, B) & has_office_in(B, C) -> works_in(A, C)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unkgcp.graph.demo.drawing import COMPOSED, join
from unkgcp.graph.demo.world import RELATIONS
from unkgcp.graph.facts import Graph, concatenate, contained

LEAST = 0.5  # weaker conclusions say nothing
RULES = "\n".join(
    [
        *(f"{row.name}(A, B) -> {row.name}(B, A)" for row in RELATIONS if row.symmetric),
        *(f"{first}(A, B) & {second}(B, C) -> {name}(A, C)" for name, (first, second) in COMPOSED.items()),
    ]
)


def infer(facts: Graph) -> Graph:
    """Conclusions from the facts that are not among them: every triple once, with its strongest bound."""
    found = concatenate([*_turned(facts), *_composed(facts)])
    # 0.6 + 0.9 - 1 is meant to be 0.5
    found = found.with_confidence(np.round(found.confidence, 3))
    found = found[np.lexsort((-found.confidence, found.keys))]
    first = np.diff(found.keys, prepend=-1) > 0
    return found[first & (found.confidence >= LEAST) & ~contained(found.keys, np.sort(facts.keys))]


def _turned(facts: Graph) -> Iterator[Graph]:
    for row in RELATIONS:
        if row.symmetric:
            part = _of(facts, row.name)
            yield Graph(part.tail, part.relation, part.head, part.confidence, facts.vocabulary)


def _composed(facts: Graph) -> Iterator[Graph]:
    for name, (first, second) in COMPOSED.items():
        left, right = _of(facts, first), _of(facts, second)
        # joined by row number, so that the confidences come along
        at, _, to = join(
            (np.arange(len(left)), left.tail.astype(np.int64)),
            (right.head.astype(np.int64), np.arange(len(right))),
        )
        bound = np.maximum(0.0, left.confidence[at] + right.confidence[to] - 1)
        relation = np.repeat(facts.vocabulary.relation_ids([name]), len(at))
        yield Graph(left.head[at], relation, right.tail[to], bound, facts.vocabulary)


def _of(facts: Graph, name: str) -> Graph:
    return facts[facts.relation == facts.vocabulary.relation_ids([name])[0]]
