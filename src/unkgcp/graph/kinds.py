"""The kind of a query: what the training facts know of its entities, its pair and its relation.

A query about two entities that a training fact joins is another question than one about two entities that no fact joins
yet, and both differ from one about an entity that has just appeared. The kind follows from the ids of a query and the
training facts alone, never from a confidence, so that queries can be compared with calibration facts of their own kind.

>>> from unkgcp.graph.facts import Graph, Triples
>>> train = Triples(*np.array([[0, 1], [0, 0], [1, 2]], np.int32))
>>> queries = Triples(*np.array([[1, 0, 0, 0], [0, 0, 0, 1], [0, 2, 9, 1]], np.int32))
>>> [KINDS[code] for code in Kinds.of(train, entities=4, relations=2).codes(queries)]
['known pair', 'new pair', 'new entity', 'new relation']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, HasTriples, Splits, contained, distinct_keys, pair_keys

KINDS = ("known pair", "new pair", "new entity", "new relation")
"""Known pair: a training fact joins the two entities, in either direction. New pair: both entities have training facts,
none joins them. New entity: the head, the tail or both have no training fact. New relation: the entities are known, the
relation has no training fact."""
KNOWN_PAIR, NEW_PAIR, NEW_ENTITY, NEW_RELATION = range(4)


@dataclass(frozen=True, eq=False)
class Kinds:
    """What is needed of the training facts to tell the kind of any query."""

    train: HasTriples
    seen_entities: NDArray[np.bool_]
    """(entities,) whether an entity has a training fact."""
    seen_relations: NDArray[np.bool_]
    """(relations,)"""

    @classmethod
    def of(cls, train: HasTriples, entities: int, relations: int) -> Kinds:
        seen_entities, seen_relations = np.zeros(entities, np.bool_), np.zeros(relations, np.bool_)
        seen_entities[train.head] = seen_entities[train.tail] = True
        seen_relations[train.relation] = True
        return cls(train, seen_entities, seen_relations)

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """The pairs of training facts, sorted; made when the first query asks."""
        return np.sort(pair_keys(self.train, len(self.seen_entities)))

    def codes(self, triples: HasTriples) -> NDArray[np.int8]:
        """Position in `KINDS` of each query: (n,). An id outside of the vocabulary is a new entity or relation."""
        entity = known_ids(self.seen_entities, triples.head) & known_ids(self.seen_entities, triples.tail)
        relation = known_ids(self.seen_relations, triples.relation)
        joined = contained(pair_keys(triples, len(self.seen_entities)), self.pairs)
        codes = np.where(joined, KNOWN_PAIR, NEW_PAIR)
        return np.where(entity, np.where(relation, codes, NEW_RELATION), NEW_ENTITY).astype(np.int8)


def known_ids(seen: NDArray[np.bool_], ids: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which ids are in the vocabulary and have a training fact: (n,)."""
    if not len(seen) or not len(ids):
        return np.zeros(len(ids), np.bool_)
    inside = ids.min() >= 0 and ids.max() < len(seen)
    # a look at all that is seen is quicker than one at each
    if inside and len(ids) > len(seen) // 16 and seen.all():
        return np.ones(len(ids), np.bool_)
    known = seen.take(ids, mode="clip")
    return known if inside else known & (ids >= 0) & (ids < len(seen))


FEWEST = 9  # calibration facts of a kind, at 90 %
PLURALS = ("known pairs", "new pairs", "new entities", "new relations")


def describe_kinds(splits: Splits, split_here: bool = False) -> str:
    """Which kinds the calibration facts are of, and for which nothing is promised at 90 %, in a sentence.

    split_here: whether this package drew them, so that it can draw others.
    """
    train, facts = splits.train, splits.calibration
    counts = count_kinds(train, facts)
    shares = [
        # rounded down, so that only all of them are 100 %
        f"{int(1000 * counts[code] / len(facts)) / 10 or 'under 0.1'} % about {PLURALS[code]}".replace(
            ".0 %", " %"
        )
        for code in np.argsort(-counts, kind="stable")
        if counts[code]
    ]
    sentence = f"of the {len(facts):,} calibration facts {joined_by_and(shares)}"
    # a few new pairs are those that a split by rows left out whole by chance, not what people ask about
    least = {KNOWN_PAIR: FEWEST, NEW_PAIR: max(FEWEST, len(facts) / 10), NEW_ENTITY: FEWEST}
    lacking = [code for code, count in least.items() if counts[code] < count]
    if not lacking:
        return sentence
    sentence += f": nothing is promised for {joined_by_and([PLURALS[code] for code in lacking])}"
    # a pair can be held out as a new one if both its entities are in other pairs
    pairs = distinct_keys(pair_keys(train, train.n_entities))
    ends = np.stack(np.divmod(pairs, max(train.n_entities, 1)))
    pairs_can_be_new = np.sum(np.bincount(ends.ravel())[ends].min(axis=0) > 1) >= FEWEST
    if lacking == [KNOWN_PAIR] or not (pairs_can_be_new or NEW_ENTITY in lacking):
        return sentence
    units = "pairs,entities,rows" if pairs_can_be_new else "entities,rows"
    return (
        f"{sentence}; for these fit {'it' if split_here else 'one file of all facts'} with --hold-out {units}"
    )


def joined_by_and(words: Sequence[str]) -> str:
    """The parts in one list: a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def count_kinds(train: Graph, triples: HasTriples) -> NDArray[np.int64]:
    """How many triples are of each of `KINDS`, beside these training facts: (kinds,)."""
    codes = Kinds.of(train, train.n_entities, train.n_relations).codes(triples)
    return np.bincount(codes, minlength=len(KINDS)).astype(np.int64)
