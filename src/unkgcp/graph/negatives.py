"""Corrupted facts: triples that are probably no facts, made by replacing the head or the tail of a fact.

Filtered with the given known facts alone (in practice: the training facts), so that nothing about calibration or
test facts leaks. These are negatives for calibration and evaluation; training draws its own on the device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, contained, triple_keys

ROUNDS = 100
KINDS = ("uniform", "same-type", "frequent")


def corrupt(facts: Graph, known: Graph, *, seed: int, per_fact: int = 1, kind: str = "uniform") -> Graph:
    """`per_fact` corruptions of each fact, confidence 0, none of them among `known`: (n * per_fact,) rows.

    Head or tail is replaced with probability one half each, by an entity drawn uniformly from all (`uniform`), from
    those that stand on that side of the relation in a known fact (`same-type`: a film for a film), or from all as
    often as they stand in known facts (`frequent`); the last two are harder to tell from a fact. Rows of one fact
    stand together, in the order of `facts`. A fact every corruption of which is known (after 100 draws) keeps its last
    draw out: such rows are dropped, which can only happen in nearly complete graphs and with relations of one entity.
    """
    rng = np.random.default_rng(seed)
    if kind not in KINDS:
        raise ValueError(f"negatives are of kind {kind!r} but must be one of {', '.join(KINDS)}")
    sides = _Sides(known) if kind == "same-type" else None
    mentions = np.concatenate([known.head, known.tail])[: None if kind == "frequent" else 0]
    relation = np.repeat(facts.relation, per_fact)
    original_head = np.repeat(facts.head, per_fact)
    original_tail = np.repeat(facts.tail, per_fact)
    head, tail = original_head.copy(), original_tail.copy()
    keys = np.unique(known.keys)
    open_rows = np.arange(len(relation))
    for _ in range(ROUNDS):
        if len(open_rows) == 0:
            break
        uniform = rng.integers(facts.n_entities, size=len(open_rows), dtype=np.int32)
        at_head = rng.random(len(open_rows)) < 0.5
        drawn = uniform
        if sides is not None:
            drawn = sides.draw(rng, relation[open_rows], at_head, uniform)
        elif len(mentions):
            drawn = mentions[rng.integers(len(mentions), size=len(open_rows))]
        head[open_rows] = np.where(at_head, drawn, original_head[open_rows])
        tail[open_rows] = np.where(at_head, original_tail[open_rows], drawn)
        candidate = triple_keys(
            head[open_rows], relation[open_rows], tail[open_rows], facts.n_entities, facts.n_relations
        )
        unchanged = drawn == np.where(at_head, original_head[open_rows], original_tail[open_rows])
        open_rows = open_rows[unchanged | contained(candidate, keys)]
    kept = np.ones(len(relation), dtype=bool)
    kept[open_rows] = False
    return replace(
        facts,
        head=head[kept],
        relation=relation[kept],
        tail=tail[kept],
        confidence=np.zeros(int(kept.sum())),
        ends=None,
    )


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
