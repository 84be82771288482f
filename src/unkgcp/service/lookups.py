"""What the service looks up in a run: ids of labels, labels by what was typed, training facts around a query.

Each of these is made once, when the service starts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.graph.facts import Vocabulary
from unkgcp.graph.known_facts import Facts, KnownFacts
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.label_index import Ids

MOST_KNOWN = 1_000_000
SEPARATOR = b"\xff"
Rows = NDArray[np.integer[Any]] | NDArray[np.bool_]


class Lookup:
    """Ids of labels, -1 for an unknown one. `find` is asked for labels that were not asked for before.

    For batches of a few triples remembering is faster than the index of the vocabulary.
    """

    def __init__(self, find: Callable[[Sequence[str]], Ids]) -> None:
        self._find = find
        self._known: dict[str, int] = {}

    def ids(self, labels: Sequence[str]) -> Ids:
        """(n,) int32."""
        ids = np.fromiter(map(self._known.get, labels, repeat(-1)), np.int32, len(labels))
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            new = [labels[place] for place in missing.tolist()]
            ids[missing] = found = self._find(new)
            if len(self._known) < MOST_KNOWN:
                self._known.update(
                    (label, one) for label, one in zip(new, found.tolist(), strict=True) if one >= 0
                )
        return ids


class Found(NamedTuple):
    """Ids of labels, the best first, and whether there are more than those."""

    ids: NDArray[np.int64]
    more: bool


class LabelSearch:
    """Finds labels by their first letters, or by any letters within, whatever their case; quick among millions."""

    def __init__(self, labels: pa.StringArray) -> None:
        lower = _plain(labels)
        order = pc.array_sort_indices(lower)
        self._order: NDArray[np.int64] = order.to_numpy().astype(np.int64)
        self._lower = lower.take(order)
        # all labels in one text, separated by a byte that UTF-8 never has, so that one search finds the first few
        self._text: bytes = SEPARATOR.join(self._lower.cast(pa.binary()).to_pylist())
        lengths = np.asarray(pc.binary_length(self._lower), np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths + 1)])

    def find(self, text: str, limit: int, anywhere: bool = False) -> Found:
        """Labels that begin with the text, in alphabetical order; `anywhere` adds those that contain it later on."""
        wanted: str = _plain(pa.array([text], pa.string()))[0].as_py()
        start, stop = self._range(wanted)
        places = np.arange(start, min(stop, start + limit + 1))
        if anywhere and wanted and len(places) <= limit:
            later = self._holding(wanted.encode(), (start, stop), limit + 1 - len(places))
            places = np.concatenate([places, np.array(later, np.int64)])
        return Found(self._order[places[:limit]], len(places) > limit)

    def _holding(self, wanted: bytes, but: tuple[int, int], limit: int) -> list[int]:
        """The first places of labels that hold the text, except a range that is known already."""
        found: list[int] = []
        at = 0
        while len(found) < limit and (at := self._text.find(wanted, at)) >= 0:
            place = int(np.searchsorted(self._starts, at, side="right")) - 1
            after = place + 1
            if but[0] <= place < but[1]:
                after = but[1]
            else:
                found.append(place)
            at = int(self._starts[after])
        return found

    def _range(self, wanted: str) -> tuple[int, int]:
        """First and last place (exclusive) of labels that begin with the text."""
        key = wanted.encode()
        # that byte is above all others in UTF-8: the second key comes after all labels that begin with the first
        start, stop = (
            bisect_left(range(len(self._lower)), end, key=lambda place: self._lower[place].as_py().encode())
            for end in (key, key + SEPARATOR)
        )
        return start, stop


def _plain(labels: pa.StringArray) -> pa.StringArray:
    """Labels without the differences that typing does not make: case and the way an accent is written."""
    # not Arrow's own NFKC: up to version 19 at least it leaves accents apart from their letters
    composed = [normalize("NFKC", label) for label in labels.to_pylist()]
    return pc.utf8_lower(pa.array(composed, pa.string()))


class Surroundings:
    """Finds the training facts that share entities and relation with a query.

    Several threads may ask, since nothing here changes after it is made.
    """

    def __init__(self, predictor: Predictor, facts: KnownFacts) -> None:
        self._vocabulary, self._facts = predictor.model.vocabulary, facts
        graph = facts.graph(self._vocabulary)
        as_head, as_tail = (np.bincount(ids, minlength=graph.n_entities) for ids in (graph.head, graph.tail))
        relations = np.bincount(graph.relation, minlength=graph.n_relations)
        self.counts = {"entities": as_head + as_tail, "relations": relations}  # facts of each label
        total = np.bincount(graph.relation, graph.confidence, graph.n_relations)
        self._mean = total / np.maximum(relations, 1)

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
            ("reversed", _select(from_tail, (from_tail.tail == h) & (h != t))),
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
        return {
            "name": name,
            **_summary(facts.confidence),
            "facts": with_labels(_select(facts, order), self._vocabulary),
        }

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
        sides = [with_labels(_select(*side), self._vocabulary) for side in ((near, i[best]), (far, j[best]))]
        return {"count": len(shared), "facts": [fact for pair in zip(*sides, strict=True) for fact in pair]}

    def _relation(self, relation: int) -> dict[str, Any]:
        count = 0 if relation < 0 else int(self.counts["relations"][relation])
        return {"count": count, "mean": float(self._mean[relation]) if count else None}


def with_labels(facts: Facts, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Facts as JSON has them: labels in the place of ids."""
    entities, relations = vocabulary.entities, vocabulary.relations
    labels = [entities.take(facts.head), relations.take(facts.relation), entities.take(facts.tail)]
    rows = zip(*(column.to_pylist() for column in labels), facts.confidence.tolist(), strict=True)
    return [dict(zip(Facts._fields, row, strict=True)) for row in rows]


def _select(facts: Facts, rows: Rows) -> Facts:
    return Facts._make(column[rows] for column in facts)


def _summary(confidence: NDArray[np.floating[Any]]) -> dict[str, Any]:
    return {"count": len(confidence), "mean": float(confidence.mean()) if len(confidence) else None}


def _other(facts: Facts, entity: int) -> NDArray[np.integer[Any]]:
    """The entity on the far side of each fact of one entity."""
    return np.where(facts.head == entity, facts.tail, facts.head)


def _strongest(entity: int, facts: tuple[Facts, Facts]) -> Facts:
    """The strongest fact of an entity with each of its neighbours, in either direction, by the neighbour's id."""
    both = Facts._make(np.concatenate([one, two]) for one, two in zip(facts[0], facts[1], strict=True))
    other = _other(both, entity)
    order = np.lexsort((-both.confidence, other))
    return _select(both, order[np.diff(other[order], prepend=-1) != 0])
