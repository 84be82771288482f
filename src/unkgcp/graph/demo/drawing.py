"""Which triples of the demo world are facts: drawn by popularity and community, and along its two rules.

It draws triples only; their confidences come from the oracle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.demo.world import COMMUNITIES, KINDS, RELATIONS, Relation, World

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]

COMPOSED = {"works_in": ("works_for", "has_office_in")}
AT_HOME = 0.95  # how often head and tail are of one community
ECHOED = 0.9  # how often a relation that echoes another one takes its pair from there
MUTUAL = 0.8  # how often both directions of a symmetric relation are stated
REPEATED = 0.015  # how many facts are stated a second time


def draw_pairs(world: World, generator: np.random.Generator) -> dict[str, Pairs]:
    """Distinct (head, tail) pairs of every relation."""
    drawn: dict[str, Pairs] = {}
    for row in RELATIONS:
        if row.name in COMPOSED:
            first, second = COMPOSED[row.name]
            head, _, tail = join(drawn[first], drawn[second])
            chosen = generator.permutation(_distinct(head, tail, len(world.community)))[: row.facts]
            drawn[row.name] = head[chosen], tail[chosen]
        else:
            drawn[row.name] = _draw(row, drawn.get(row.echoes), world, generator)
    return drawn


def arrange(pairs: dict[str, Pairs], generator: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Head, relation and tail ids of all facts in random order, some triples twice: each (n,)."""
    head = np.concatenate([heads for heads, _ in pairs.values()])
    tail = np.concatenate([tails for _, tails in pairs.values()])
    relation = np.repeat(np.arange(len(pairs)), [len(heads) for heads, _ in pairs.values()])
    again = generator.choice(len(head), size=int(REPEATED * len(head)), replace=False)
    order = generator.permutation(np.concatenate([np.arange(len(head)), again]))
    return head[order], relation[order], tail[order]


def join(first: Pairs, second: Pairs) -> tuple[Ints, Ints, Ints]:
    """All (a, b, c) with (a, b) in the first and (b, c) in the second: each (n,)."""
    order = np.argsort(second[0], kind="stable")
    middle, end = second[0][order], second[1][order]
    start = np.searchsorted(middle, first[1], side="left")
    count = np.searchsorted(middle, first[1], side="right") - start
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first[0], count), np.repeat(first[1], count), end[np.repeat(start, count) + within]


def _draw(row: Relation, echoed: Pairs | None, world: World, generator: np.random.Generator) -> Pairs:
    """Distinct pairs of one relation, popular entities more often, both directions of a symmetric one."""
    wanted = round(row.facts / (1 + MUTUAL)) if row.symmetric else row.facts
    head = tail = np.empty(0, dtype=np.int64)
    if echoed is not None:
        chosen = generator.permutation(len(echoed[0]))[: round(ECHOED * wanted)]
        head, tail = echoed[0][chosen], echoed[1][chosen]
    while len(head) < wanted:
        new_head, new_tail = _candidates(row, world, 2 * wanted, generator)
        head, tail = np.concatenate([head, new_head]), np.concatenate([tail, new_tail])
        # a symmetric pair counts once, whichever way round it was drawn
        low, high = (np.minimum(head, tail), np.maximum(head, tail)) if row.symmetric else (head, tail)
        kept = _distinct(low, high, len(world.community))
        head, tail = head[kept], tail[kept]
    head, tail = head[:wanted], tail[:wanted]
    back = row.facts - wanted
    return np.concatenate([head, tail[:back]]), np.concatenate([tail, head[:back]])


def _candidates(row: Relation, world: World, count: int, generator: np.random.Generator) -> Pairs:
    heads, tails = world.members(row.domain), world.members(row.range)
    head = heads.start + generator.choice(KINDS[row.domain], size=count, p=world.popularity[heads])
    # tails sorted by community: a community is then an interval of the cumulated popularity
    order = np.argsort(world.community[tails], kind="stable")
    total = np.concatenate([[0.0], np.cumsum(world.popularity[tails][order])])
    border = total[np.searchsorted(world.community[tails][order], np.arange(COMMUNITIES + 1))]
    home = world.community[head]
    stays = generator.random(count) < AT_HOME
    low = np.where(stays, border[home], 0.0)
    high = np.where(stays, border[home + 1], total[-1])
    aim = low + generator.random(count) * (high - low)
    found = np.minimum(np.searchsorted(total, aim, side="right") - 1, len(order) - 1)
    tail = tails.start + order[found]
    different = head != tail
    return head[different], tail[different]


def _distinct(head: Ints, tail: Ints, n_entities: int) -> Ints:
    """Positions of the first occurrence of every pair, in order."""
    return np.sort(np.unique(head * n_entities + tail, return_index=True)[1])
