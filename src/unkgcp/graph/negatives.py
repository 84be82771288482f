"""Corrupted facts: triples that are probably no facts, made by changing a fact.

None of them is among the given known facts (in practice the training facts); other facts are not looked at, so that
nothing about calibration or test facts leaks. They are for calibration and evaluation; training draws its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, contained, distinct_keys, triple_keys

ROUNDS = 100
"""How often a corruption is drawn again before the row is left out."""
KINDS = ("uniform", "same-type", "frequent", "relation", "near", "reversed")
"""The kinds that the open world calibrates with unless others are asked for."""
JOINED = "joined"
"""A further kind, which is calibrated with only if it is asked for: many of these are facts (see `corrupt`)."""
ALL_KINDS = (*KINDS, JOINED)
DIRECTED = 0.02
"""A relation has a direction if at most this share of its known facts is also known with head and tail exchanged."""


class Drawn(NamedTuple):
    """Candidates, (n,) each, and which of them cannot be used even if they are not known."""

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
    relations that have a direction (`reversed`). `joined` is like `near`, but one known fact away.
    Entities that one fact joins are often joined by another one: on PPI5k half of these corruptions are facts that are
    not known, and a threshold calibrated on them lies among those of facts.

    Rows of one fact stand together, in the order of `facts`. A row is left out if each of 100 draws gave a known fact
    or the fact itself. That happens in nearly complete graphs, with relations of one entity, in graphs of one relation
    and where no relation has a direction.
    """
    if kind not in ALL_KINDS:
        raise ValueError(f"negatives are of kind {kind!r} but must be one of {', '.join(ALL_KINDS)}")
    rng, draw = np.random.default_rng(seed), _draw(kind, known)
    rows = facts[np.repeat(np.arange(len(facts)), per_fact)]
    head, relation, tail = rows.head.copy(), rows.relation.copy(), rows.tail.copy()
    keys = np.sort(known.keys)
    open_rows = np.arange(len(rows))
    for _ in range(ROUNDS):
        if len(open_rows) == 0:
            break
        drawn = draw(rng, rows[open_rows])
        ids = facts.vocabulary.canonical(*drawn[:3])
        head[open_rows], relation[open_rows], tail[open_rows] = ids
        candidate = triple_keys(*ids, facts.n_entities, facts.n_relations)
        open_rows = open_rows[drawn.useless | contained(candidate, keys)]
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
    sides = _sides(known) if kind == "same-type" else None
    neighbours = _neighbours(known) if kind in ("near", JOINED) else None

    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        n = len(facts)
        drawn = rng.integers(facts.n_entities, size=n, dtype=np.int32)
        at_head = rng.random(n) < 0.5
        stays = np.where(at_head, facts.tail, facts.head)
        if sides is not None:
            drawn = sides.draw(rng, 2 * facts.relation.astype(np.int64) + ~at_head, drawn)
        elif neighbours is not None:
            place = stays
            for _ in range(2 if kind == "near" else 1):
                place = neighbours.draw(rng, place, drawn)
            drawn = place
        elif len(mentions):
            drawn = mentions[rng.integers(len(mentions), size=n)]
        useless = drawn == np.where(at_head, facts.head, facts.tail)
        if neighbours is not None:
            useless |= drawn == stays  # one step there and one back, or a loop
        return Drawn(
            np.where(at_head, drawn, facts.head),
            facts.relation,
            np.where(at_head, facts.tail, drawn),
            useless,
        )

    return draw


def _other_relation(known: Graph) -> Draw:
    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        relation = known.relation[rng.integers(len(known), size=len(facts))] if len(known) else facts.relation
        return Drawn(facts.head, relation, facts.tail, relation == facts.relation)

    return draw


def _turned(known: Graph) -> Draw:
    """Head and tail exchanged, for relations with a direction: without one, the result is likely to be a fact."""
    apart = known[known.head != known.tail]
    sizes = (known.n_entities, known.n_relations)
    both = contained(triple_keys(apart.tail, apart.relation, apart.head, *sizes), np.sort(apart.keys))
    count = np.bincount(apart.relation, minlength=known.n_relations)
    directed = np.bincount(apart.relation[both], minlength=known.n_relations) <= DIRECTED * count
    directed &= (count > 0) & ~known.vocabulary.symmetric

    def draw(rng: np.random.Generator, facts: Graph) -> Drawn:
        useless = (facts.head == facts.tail) | ~directed[facts.relation]
        return Drawn(facts.tail, facts.relation, facts.head, useless)

    return draw


class _Groups:
    """Entities in groups that are numbered from 0 to n - 1."""

    def __init__(self, group: NDArray[np.integer], entity: NDArray[np.int32], n: int) -> None:
        order = np.argsort(group, kind="stable")
        self.entities = entity[order]
        self.starts = np.searchsorted(group[order], np.arange(n + 1))

    def draw(
        self, rng: np.random.Generator, group: NDArray[np.integer], otherwise: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """An entity of the group of each row, `otherwise` where the group is empty: (n,)."""
        if not len(self.entities):
            return otherwise
        size = self.starts[group + 1] - self.starts[group]
        place = self.starts[group] + (rng.random(len(group)) * size).astype(np.int64)
        return np.where(size > 0, self.entities[np.minimum(place, len(self.entities) - 1)], otherwise)


def _neighbours(known: Graph) -> _Groups:
    """The other ends of the known facts of each entity, in either direction."""
    entity, other = np.concatenate([known.head, known.tail]), np.concatenate([known.tail, known.head])
    return _Groups(entity, other, known.n_entities)


def _sides(known: Graph) -> _Groups:
    """The distinct entities on each side of every relation r: heads in group 2 r, tails in group 2 r + 1."""
    relation = 2 * known.relation.astype(np.int64)
    base = max(known.n_entities, 1)
    heads, tails = relation * base + known.head, (relation + 1) * base + known.tail
    distinct = distinct_keys(np.concatenate([heads, tails]))
    return _Groups(distinct // base, (distinct % base).astype(np.int32), 2 * known.n_relations)
