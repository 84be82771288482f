"""Corrupted facts: triples that are probably no facts, made by replacing the head or the tail of a fact.

Filtered with the given known facts alone (in practice: the training facts), so that nothing about calibration or
test facts leaks. These are negatives for calibration and evaluation; training draws its own on the device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unkgcp.graph.facts import Graph, contained, triple_keys

ROUNDS = 100


def corrupt(facts: Graph, known: Graph, *, seed: int, per_fact: int = 1) -> Graph:
    """`per_fact` corruptions of each fact, confidence 0, none of them among `known`: (n * per_fact,) rows.

    Head or tail is replaced with probability one half each, by an entity drawn uniformly. Rows of one fact stand
    together, in the order of `facts`. A fact every corruption of which is known (after 100 draws) keeps its last
    draw out: such rows are dropped, which can only happen in nearly complete graphs.
    """
    rng = np.random.default_rng(seed)
    relation = np.repeat(facts.relation, per_fact)
    original_head = np.repeat(facts.head, per_fact)
    original_tail = np.repeat(facts.tail, per_fact)
    head, tail = original_head.copy(), original_tail.copy()
    keys = np.unique(known.keys)
    open_rows = np.arange(len(relation))
    for _ in range(ROUNDS):
        if len(open_rows) == 0:
            break
        drawn = rng.integers(facts.n_entities, size=len(open_rows), dtype=np.int32)
        at_head = rng.random(len(open_rows)) < 0.5
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
    )
