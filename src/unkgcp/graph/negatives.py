"""Corrupted facts: triples that are probably no facts, made by changing a fact.

Filtered with the given known facts alone (in practice: the training facts), so that nothing about calibration or
test facts leaks. These are negatives for calibration and evaluation; training draws its own on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, contained, triple_keys

ROUNDS = 100
KINDS = ("uniform", "same-type", "frequent", "relation", "near", "reversed")
JOINED = "joined"  # to learn from, not to calibrate with: see `corrupt`
DIRECTED = (
    0.02  # of its known facts are known in the opposite direction too: at most so many if a relation has one
)


class Drawn(NamedTuple):
    """Candidates, (n,) each, and which of them are of no use whether known or not."""

    head: NDArray[np.int32]
    relation: NDArray[np.int32]
    tail: NDArray[np.int32]
    useless: NDArray[np.bool_]


Draw = Callable[[np.random.Generator, Graph], Drawn]


def corrupt(facts: Graph, known: Graph, *, seed: int, per_fact: int = 1, kind: str = "uniform") -> Graph:
    """`per_fact` corruptions of each fact, confidence 0, none of them among `known`: (n * per_fact,) rows.

    Head or tail is replaced with probability one half each, by an entity drawn uniformly from all (`uniform`), from
    those that stand on that side of the relation in a known fact (`same-type`: a film for a film), from all as often as
    they stand in known facts (`frequent`), or from those two known facts away from the end that stays (`near`). Or
    another relation is taken, as often as it stands in known facts (`relation`), or head and tail change places, for
    relations that have a direction (`reversed`). `joined` is like `near` with one fact between the two. Entities that
    one fact joins are often joined by others: on PPI5k half of such corruptions are facts that are not known, which a
    learner can live with and a promise cannot.

    Rows of one fact stand together, in the order of `facts`. A fact every corruption of which is known (after 100
    draws) keeps its last draw out: such rows are dropped, which happens in nearly complete graphs, with relations of
    one entity, in graphs of one relation and where nothing has a direction.
    """
    if kind not in (*KINDS, JOINED):
        raise ValueError(f"negatives are of kind {kind!r} but must be one of {', '.join(KINDS)}")
    rng, draw = np.random.default_rng(seed), _draw(kind, known)
    rows = facts[np.repeat(np.arange(len(facts)), per_fact)]
    head, relation, tail = rows.head.copy(), rows.relation.copy(), rows.tail.copy()
    keys = np.unique(known.keys)
    open_rows = np.arange(len(rows))
    for _ in range(ROUNDS):
        if len(open_rows) == 0:
            break
        found = draw(rng, rows[open_rows])
        head[open_rows], relation[open_rows], tail[open_rows] = found[:3]
        candidate = triple_keys(*found[:3], facts.n_entities, facts.n_relations)
        open_rows = open_rows[found.useless | contained(candidate, keys)]
    kept = np.ones(len(rows), dtype=bool)
    kept[open_rows] = False
    return replace(
        facts,
        head=head[kept],
        relation=relation[kept],
        tail=tail[kept],
        confidence=np.zeros(int(kept.sum())),
        ends=None,
    )


def _draw(kind: str, known: Graph) -> Draw:
    """How candidates of a kind are drawn for facts."""
    if kind == "relation":
        return _other_relation(known)
    if kind == "reversed":
        return _turned(known)
    mentions = np.concatenate([known.head, known.tail])[: None if kind == "frequent" else 0]
    sides = _Sides(known) if kind == "same-type" else None
    steps = _Steps(known, 2 if kind == "near" else 1) if kind in ("near", JOINED) else None

    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        n = len(facts)
        drawn = rng.integers(facts.n_entities, size=n, dtype=np.int32)
        at_head = rng.random(n) < 0.5
        stays = np.where(at_head, facts.tail, facts.head)
        if sides is not None:
            drawn = sides.draw(rng, facts.relation, at_head, drawn)
        elif steps is not None:
            drawn = steps.draw(rng, stays, drawn)
        elif len(mentions):
            drawn = mentions[rng.integers(len(mentions), size=n)]
        useless = drawn == np.where(at_head, facts.head, facts.tail)
        if steps is not None:
            useless |= drawn == stays  # two steps forth and back, or a loop
        return Drawn(
            np.where(at_head, drawn, facts.head),
            facts.relation,
            np.where(at_head, facts.tail, drawn),
            useless,
        )

    return draw


def _other_relation(known: Graph) -> Draw:
    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        relation = facts.relation
        if len(known):
            relation = known.relation[rng.integers(len(known), size=len(facts))]
        return Drawn(facts.head, relation, facts.tail, relation == facts.relation)

    return draw


def _turned(known: Graph) -> Draw:
    """Only of relations with a direction: where facts go both ways, one that is not known is likely to be a fact."""
    apart = known[known.head != known.tail]
    sizes = (known.n_entities, known.n_relations)
    both = contained(triple_keys(apart.tail, apart.relation, apart.head, *sizes), np.unique(apart.keys))
    count = np.bincount(apart.relation, minlength=known.n_relations)
    directed = np.bincount(apart.relation[both], minlength=known.n_relations) <= DIRECTED * count
    directed &= count > 0

    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        useless = (facts.head == facts.tail) | ~directed[facts.relation]
        return Drawn(facts.tail, facts.relation, facts.head, useless)

    return draw


class _Steps:
    """Steps along known facts, each in either direction."""

    def __init__(self, known: Graph, length: int) -> None:
        self.length = length
        entity, other = np.concatenate([known.head, known.tail]), np.concatenate([known.tail, known.head])
        order = np.argsort(entity, kind="stable")
        self.other = other[order]
        self.starts = np.searchsorted(entity[order], np.arange(known.n_entities + 1))

    def draw(
        self, rng: np.random.Generator, entity: NDArray[np.int32], otherwise: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Where the steps from each entity lead, `otherwise` where it has no known fact: (n,)."""
        if not len(self.other):
            return otherwise
        at = entity
        for _ in range(self.length):
            size = self.starts[at + 1] - self.starts[at]
            place = self.starts[at] + (rng.random(len(at)) * size).astype(np.int64)
            at = np.where(size > 0, self.other[np.minimum(place, len(self.other) - 1)], otherwise)
        return at


class _Sides:
    """The distinct entities on each side of every relation: of relation r at 2 r (heads) and 2 r + 1 (tails)."""

    def __init__(self, known: Graph) -> None:
        side = np.concatenate([2 * known.relation.astype(np.int64), 2 * known.relation.astype(np.int64) + 1])
        entity = np.concatenate([known.head, known.tail])
        base = max(known.n_entities, 1)
        distinct = np.unique(side * base + entity)
        self.entities = np.append(distinct % base, 0).astype(np.int32)  # one more, so that there is one
        self.starts = np.searchsorted(distinct // base, np.arange(2 * known.n_relations + 1))

    def draw(
        self,
        rng: np.random.Generator,
        relation: NDArray[np.int32],
        at_head: NDArray[np.bool_],
        otherwise: NDArray[np.int32],
    ) -> NDArray[np.int32]:
        """An entity for each row, `otherwise` where the relation has no known fact: (n,)."""
        side = 2 * relation.astype(np.int64) + ~at_head
        size = self.starts[side + 1] - self.starts[side]
        place = self.starts[side] + (rng.random(len(side)) * size).astype(np.int64)
        return np.where(size > 0, self.entities[place], otherwise)
