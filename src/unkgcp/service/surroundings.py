"""What the training facts say around a query: the facts that share its entities and its relation.

What it is: a look-up in the facts stored with the run, in groups from the closest (the triple itself) to the
widest (all facts of the relation), each with its size, its mean confidence and its strongest facts. What it is
not: an explanation of the model's inner workings; a model may have learned from more than this.

>>> Surroundings(predictor).around("TP53", "activation", "MDM2", limit=5)["groups"][0]["name"]     # doctest: +SKIP
'same'
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle import Predictor
from unkgcp.graph.known import Facts, KnownFacts

Rows = NDArray[np.integer[Any]] | NDArray[np.bool_]


class Surroundings:
    """Looks facts up; safe from several threads, since nothing here changes after it is made."""

    def __init__(self, predictor: Predictor, facts: KnownFacts) -> None:
        self._vocabulary, self._facts = predictor.model.vocabulary, facts
        graph = facts.graph(self._vocabulary)
        self.of_entity = np.bincount(graph.head, minlength=graph.n_entities)
        self.of_entity += np.bincount(graph.tail, minlength=graph.n_entities)
        self.of_relation = np.bincount(graph.relation, minlength=graph.n_relations)
        total = np.bincount(graph.relation, graph.confidence, graph.n_relations)
        self._mean = total / np.maximum(self.of_relation, 1)

    @property
    def size(self) -> int:
        """The number of facts."""
        return len(self._facts)

    def known(self, head: int | None, relation: int, tail: int | None) -> dict[int, float]:
        """Known completions of (head, relation, ?) or (?, relation, tail): entity id -> highest confidence."""
        facts = self._facts.of_tail(tail) if head is None else self._facts.of_head(head)  # type: ignore[arg-type]
        facts = _select(facts, facts.relation == relation)
        others = facts.head if head is None else facts.tail
        order = np.argsort(facts.confidence)
        return dict(zip(others[order].tolist(), facts.confidence[order].tolist(), strict=True))

    def around(self, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
        """Groups of facts around a query, each with at most `limit` of them; unknown labels have no facts."""
        h, t = self._vocabulary.entity_ids([head, tail]).tolist()
        r = int(self._vocabulary.relation_ids([relation])[0])
        from_head, to_tail = self._of("head", h), self._of("tail", t)
        to_head, from_tail = self._of("tail", h), self._of("head", t)
        straight = from_head.tail == t
        related = from_head.relation == r
        groups = [
            ("same", _select(from_head, straight & related)),
            ("pair", _select(from_head, straight & ~related)),
            ("reversed", _select(from_tail, from_tail.tail == h) if h != t else _select(from_tail, [])),
            ("head_relation", _select(from_head, related & ~straight)),
            ("relation_tail", _select(to_tail, (to_tail.relation == r) & (to_tail.head != h))),
        ]
        return {
            "groups": [self._group(name, facts, limit) for name, facts in groups],
            "paths": self._paths(h, t, (from_head, to_head), (from_tail, to_tail), limit),
            "head": _summary(np.concatenate([from_head.confidence, to_head.confidence])),
            "relation": self._relation(r),
            "tail": _summary(np.concatenate([from_tail.confidence, to_tail.confidence])),
        }

    def _of(self, place: str, entity: int) -> Facts:
        if entity < 0:
            nothing = np.zeros(0, np.int32)
            return Facts(nothing, nothing, nothing, np.zeros(0))
        return self._facts.of_head(entity) if place == "head" else self._facts.of_tail(entity)

    def _group(self, name: str, facts: Facts, limit: int) -> dict[str, Any]:
        order = np.argsort(-facts.confidence, kind="stable")[:limit]
        return {"name": name, **_summary(facts.confidence), "facts": self._named(_select(facts, order))}

    def _paths(
        self, h: int, t: int, of_head: tuple[Facts, Facts], of_tail: tuple[Facts, Facts], limit: int
    ) -> dict[str, Any]:
        """Entities between head and tail, with the strongest fact on either side; by the product of the two."""
        near, far = _strongest(h, of_head), _strongest(t, of_tail)
        shared, i, j = np.intersect1d(
            _other(near, h), _other(far, t), assume_unique=True, return_indices=True
        )
        inner = (shared != h) & (shared != t)
        shared, i, j = shared[inner], i[inner], j[inner]
        best = np.lexsort((shared, -near.confidence[i] * far.confidence[j]))[:limit]
        sides = self._named(_select(near, i[best])), self._named(_select(far, j[best]))
        return {"count": len(shared), "facts": [fact for pair in zip(*sides, strict=True) for fact in pair]}

    def _named(self, facts: Facts) -> list[dict[str, Any]]:
        entities, relations = self._vocabulary.entities, self._vocabulary.relations
        return [
            {
                "head": entities[h].as_py(),
                "relation": relations[r].as_py(),
                "tail": entities[t].as_py(),
                "confidence": confidence,
            }
            for h, r, t, confidence in zip(*(column.tolist() for column in facts), strict=True)
        ]

    def _relation(self, relation: int) -> dict[str, Any]:
        if relation < 0 or not self.of_relation[relation]:
            return {"count": 0, "mean": None}
        return {"count": int(self.of_relation[relation]), "mean": float(self._mean[relation])}


def _select(facts: Facts, rows: Rows | list[int]) -> Facts:
    picked = np.asarray(rows, np.intp) if isinstance(rows, list) else rows
    return Facts(facts.head[picked], facts.relation[picked], facts.tail[picked], facts.confidence[picked])


def _summary(confidence: NDArray[np.floating[Any]]) -> dict[str, Any]:
    return {"count": len(confidence), "mean": float(confidence.mean()) if len(confidence) else None}


def _other(facts: Facts, entity: int) -> NDArray[np.integer[Any]]:
    """The entity on the far side of each fact of one entity."""
    return np.where(facts.head == entity, facts.tail, facts.head)


def _strongest(entity: int, facts: tuple[Facts, Facts]) -> Facts:
    """The strongest fact of an entity with each of its neighbours, in either direction, by the neighbour's id."""
    one, two = facts
    both = Facts(
        np.concatenate([one.head, two.head]),
        np.concatenate([one.relation, two.relation]),
        np.concatenate([one.tail, two.tail]),
        np.concatenate([one.confidence, two.confidence]),
    )
    other = _other(both, entity)
    order = np.lexsort((-both.confidence, other))
    return _select(both, order[np.diff(other[order], prepend=-1) != 0])
