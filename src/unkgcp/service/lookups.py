"""What the service looks up in a run: labels by what was typed, and training facts around a query."""

from __future__ import annotations

from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, Vocabulary

RowNumbers = NDArray[np.intp]


class LabelSearch:
    """Finds labels by their first letters, or by any letters within, whatever their case; quick among millions."""

    def __init__(self, labels: pa.StringArray) -> None:
        lower = _plain(labels)
        order = pc.array_sort_indices(lower)
        self._order: NDArray[np.int64] = order.to_numpy().astype(np.int64)
        self._lower = lower.take(order)

    def find(self, text: str, limit: int, anywhere: bool = False) -> tuple[NDArray[np.int64], bool]:
        """Ids of labels that begin with the text, in alphabetical order, and whether there are more than `limit`.

        `anywhere` adds those that contain the text later on.
        """
        key = _plain(pa.array([text], pa.string()))[0]
        positions = np.flatnonzero(begins := pc.starts_with(self._lower, key.as_py()))
        if anywhere and len(positions) <= limit:
            within = pc.and_not(pc.match_substring(self._lower, key.as_py()), begins)
            positions = np.concatenate([positions, np.flatnonzero(within)])
        return self._order[positions[:limit]], len(positions) > limit


def _plain(labels: pa.StringArray) -> pa.StringArray:
    """Labels without the differences that typing does not make: case and the way an accent is written."""
    # not Arrow's own NFKC: up to version 19 at least it leaves accents apart from their letters
    composed = [normalize("NFKC", label) for label in labels.to_pylist()]
    return pc.utf8_lower(pa.array(composed, pa.string()))


class Surroundings:
    """Finds the training facts that share entities and relation with a query, by looking through all of them."""

    def __init__(self, ids: Graph, vocabulary: Vocabulary) -> None:
        """`vocabulary` has the labels of these ids."""
        self.facts = facts = Graph(ids.head, ids.relation, ids.tail, ids.confidence, vocabulary)
        both = np.concatenate([facts.head, facts.tail])
        self.counts = {
            "entities": np.bincount(both, minlength=facts.n_entities),
            "relations": np.bincount(facts.relation, minlength=facts.n_relations),
        }

    def known(self, head: str | None, relation: str, tail: str | None) -> dict[str, float]:
        """Completions of (head, relation, ?) or (?, relation, tail) by training facts: label -> confidence."""
        facts, vocabulary = self.facts, self.facts.vocabulary
        (anchor,), (related,) = (
            vocabulary.entity_ids([head or tail or ""]),
            vocabulary.relation_ids([relation]),
        )
        at_head, at_tail = facts.head == anchor, facts.tail == anchor
        matching = (
            at_head | at_tail if vocabulary.symmetric[related] else at_tail if head is None else at_head
        )
        rows = np.flatnonzero(matching & (facts.relation == related))
        rows = rows[np.argsort(facts.confidence[rows])]
        labels = vocabulary.entities.take(np.where(at_head, facts.tail, facts.head)[rows]).to_pylist()
        return dict(zip(labels, facts.confidence[rows].tolist(), strict=True))

    def around(self, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
        """Groups of facts around a query, each with at most `limit` of them; unknown labels have no facts."""
        h, r, t = self._ids(head, relation, tail)
        from_head, to_head, from_tail, to_tail = self._touching(h, t)
        related, symmetric = self.facts.relation == r, self.facts.vocabulary.symmetric[r]
        same = related & (from_head & to_tail | symmetric & from_tail & to_head)
        groups = {
            "same": same,
            "pair": from_head & to_tail & ~related,
            "reversed": from_tail & to_head & ~same & (h != t),
            "head_relation": related & (from_head | symmetric & to_head) & ~same,
            "relation_tail": related & (to_tail | symmetric & from_tail) & ~same,
        }
        listed = [self._group(name, np.flatnonzero(mask), limit) for name, mask in groups.items()]
        return {
            "groups": [*listed, self._paths(h, t, limit)],
            "head": self._summary(from_head | to_head),
            "relation": self._summary(related),
            "tail": self._summary(to_tail | from_tail),
        }

    def closest(self, head: str, relation: str, tail: str) -> RowNumbers:
        """Rows of the facts around a triple: first those between its two entities, then those of its relation with one
        of them in the same place, then all others of either; of each kind the most confident first."""
        h, r, t = self._ids(head, relation, tail)
        from_head, to_head, from_tail, to_tail = self._touching(h, t)
        between = from_head & to_tail | from_tail & to_head
        same = (self.facts.relation == r) & (from_head | to_tail)
        rows = np.flatnonzero(from_head | to_head | from_tail | to_tail)
        return rows[np.lexsort((-self.facts.confidence[rows], ~same[rows], ~between[rows]))]

    def _ids(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        h, t = self.facts.vocabulary.entity_ids([head, tail]).tolist()
        return h, int(self.facts.vocabulary.relation_ids([relation])[0]), t

    def _touching(self, head: int, tail: int) -> list[NDArray[np.bool_]]:
        """Whether each fact is from the head, to the head, from the tail, to the tail."""
        return [end == entity for entity in (head, tail) for end in (self.facts.head, self.facts.tail)]

    def named(self, rows: RowNumbers) -> list[dict[str, Any]]:
        """Facts as JSON has them: labels in the place of ids."""
        return list(self.facts[rows].table().to_pylist())

    def examples(self) -> list[list[str]]:
        """Up to three facts of entities that have many, to begin with; self-loops last."""
        degree, facts = self.counts["entities"], self.facts
        least = np.minimum(degree[facts.head], degree[facts.tail])
        busy = np.argsort(-least * (facts.head != facts.tail), kind="stable")
        rows = np.array(list(dict.fromkeys(busy[[0, len(busy) // 50, len(busy) // 5]].tolist())), np.intp)
        return [[fact[name] for name in ("head", "relation", "tail")] for fact in self.named(rows)]

    def _summary(self, mask: NDArray[np.bool_] | RowNumbers) -> dict[str, Any]:
        confidence = self.facts.confidence[mask]
        return {"count": len(confidence), "mean": float(confidence.mean()) if len(confidence) else None}

    def _group(self, name: str, rows: RowNumbers, limit: int) -> dict[str, Any]:
        strongest = rows[np.argsort(-self.facts.confidence[rows], kind="stable")[:limit]]
        return {"name": name, **self._summary(rows), "facts": self.named(strongest)}

    def _paths(self, h: int, t: int, limit: int) -> dict[str, Any]:
        """Entities between head and tail, with the strongest fact on either side; by the product of the two."""
        (near, near_rows), (far, far_rows) = self._neighbours(h), self._neighbours(t)
        shared, i, j = np.intersect1d(near, far, assume_unique=True, return_indices=True)
        inner = (shared != h) & (shared != t)
        shared, near_rows, far_rows = shared[inner], near_rows[i[inner]], far_rows[j[inner]]
        confidence = self.facts.confidence
        best = np.lexsort((shared, -confidence[near_rows] * confidence[far_rows]))[:limit]
        pairs = np.stack([near_rows[best], far_rows[best]], axis=1)
        return {"name": "paths", "count": len(shared), "mean": None, "facts": self.named(pairs.ravel())}

    def _neighbours(self, entity: int) -> tuple[NDArray[Any], RowNumbers]:
        """The neighbours of an entity in order of their ids, and the row of its strongest fact with each."""
        facts = self.facts
        rows = np.flatnonzero((facts.head == entity) | (facts.tail == entity))
        other = np.where(facts.head[rows] == entity, facts.tail[rows], facts.head[rows])
        order = np.lexsort((-facts.confidence[rows], other))
        first = order[np.diff(other[order], prepend=-1) != 0]
        return other[first], rows[first]
