"""Rows to learn from: training facts asked as queries of the graph without them.

The training facts are divided into folds, and the facts of a fold are asked of the graph of all others. Folds take
facts out as queries will find them missing: single rows, so that another fact may still join the pair (a known pair),
whole pairs, so that none does (a new pair), or entities with all their facts (a new entity). How many are taken out in
which way follows from the number of calibration facts of each kind; their confidences are not looked at.

No statistic of a row knows its fact. Taking each fact out of its own statistics instead (leave-one-out) would leave
traces of the label: the mean of a group without a fact is the lower, the higher the fact's confidence is.

>>> shares = Shares(rows=0.0, pairs=1.0, entities=0.0)
>>> fold, of_entity = draw_folds(np.array([0, 0, 1, 2]), np.array([1, 2, 3, 0]), shares, 2, 0)
>>> sorted(set(fold.tolist())), of_entity.tolist()
([0, 1], [-1, -1, -1, -1])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, pair_keys
from unkgcp.graph.kinds import KNOWN_PAIR, NEW_ENTITY, Kinds

Ints = NDArray[np.int64]

FOLDS, MORE_FOLDS = 10, 20
SMALL = 20_000  # facts of a graph that is divided into more folds
MOST = 100_000  # facts that are learned from; the graph that they are asked of may be larger
OF_ENTITIES = 0.3  # the largest share of the facts that are taken out with an entity; the others stay to ask
HELD_OUT, MOST_HELD_OUT = 10, 10_000  # a tenth of the rows, at most so many, decides when learning stops


class Shares(NamedTuple):
    """How facts are taken out of the graph: single rows, whole pairs, entities with all their facts; the sum is 1."""

    rows: float
    pairs: float
    entities: float

    @classmethod
    def like(cls, train: Graph, kinds: NDArray[np.integer] | None) -> Shares:
        """Shares that give rows to learn from about the same kinds as these numbers of calibration facts (4,).

        Without numbers, as a graph is split by default: half pairs, half rows where pairs have several rows.
        """
        pairs, place, size = np.unique(
            pair_keys(train, train.n_entities), return_inverse=True, return_counts=True
        )
        joined = float((size[place] > 1).mean())  # facts whose pair another fact joins
        if kinds is None or not kinds.sum():
            return cls(0.5, 0.5, 0.0) if joined else cls(0.0, 1.0, 0.0)
        share = kinds / kinds.sum()
        rows = min(share[KNOWN_PAIR] / joined, 1.0) if joined else 0.0
        # an entity with one pair is new wherever that pair is taken out
        low, high = np.divmod(pairs, train.n_entities)
        degree = np.bincount(np.concatenate([low, high]), minlength=train.n_entities)
        lonely = float((np.minimum(degree[low], degree[high])[place] == 1).mean())
        entities = share[NEW_ENTITY] - lonely
        entities = float(entities) if entities > 0.02 + 0.5 * lonely else 0.0
        rows = float(min(rows, 1.0 - entities))
        return cls(rows, 1.0 - entities - rows, entities)


def draw_folds(
    head: NDArray[np.integer], tail: NDArray[np.integer], shares: Shares, folds: int, seed: int
) -> tuple[Ints, Ints]:
    """The fold of each fact (N,), and the fold in which an entity has no fact, -1 for most: (entities,)."""
    rng = np.random.default_rng((seed, 0xF01D))
    low, high = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail).astype(np.int64)
    pair = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_inverse=True)[1]
    count = int(pair.max(initial=-1)) + 1
    whole = rng.random(count) * (shares.rows + shares.pairs) <= shares.pairs
    fold = np.where(whole[pair], rng.integers(0, folds, count)[pair], rng.integers(0, folds, len(head)))
    entities = int(high.max(initial=-1)) + 1
    of_entity = np.full(entities, -1)
    if shares.entities:  # entities are drawn until their facts have the share
        degree, order = (
            np.bincount(np.concatenate([low, high]), minlength=entities),
            rng.permutation(entities),
        )
        drawn = order[np.cumsum(degree[order]) <= min(shares.entities, OF_ENTITIES) * len(head)]
        of_entity[drawn] = rng.integers(0, folds, len(drawn))
        first, second = of_entity[low], of_entity[high]
        fold = np.where(first >= 0, first, np.where(second >= 0, second, fold))
    return fold.astype(np.int64), of_entity


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Which training facts are asked, of which parts of the graph."""

    fold: Ints
    """(N,) the fold of each training fact."""
    of_entity: Ints
    """(entities,) the fold in which an entity has no fact, -1 where there is none."""
    rows: tuple[Ints, ...]
    """The rows that are asked of each fold, ascending."""
    part: NDArray[np.int8]
    """(N,) one of `HELD_OUT` parts of about equal size, the same for all facts of a pair."""

    @classmethod
    def of(cls, train: Graph, kinds: NDArray[np.integer] | None, seed: int) -> Rehearsal:
        n = len(train)
        folds = MORE_FOLDS if n <= SMALL else FOLDS if n <= MOST * FOLDS else -(-n // MOST)
        shares = Shares.like(train, kinds)
        fold, of_entity = draw_folds(train.head, train.tail, shares, folds, seed)
        rng = np.random.default_rng((seed, 0xE71D))
        # where many questions are about new entities, fewer of the other facts are asked
        with_entity = (of_entity[train.head] >= 0) | (of_entity[train.tail] >= 0)
        others = with_entity.sum() * (1 / shares.entities - 1) if with_entity.any() else n
        drawn = with_entity | (rng.random(n) * max(n - with_entity.sum(), 1) < others)
        folds_asked = min(folds, -(-MOST * folds // n))
        rows_of_folds = (np.flatnonzero((fold == each) & drawn) for each in range(folds_asked))
        rows = tuple(part for part in rows_of_folds if len(part))
        pair = np.unique(pair_keys(train, train.n_entities), return_inverse=True)[1]
        part = rng.permutation(int(pair.max()) + 1)[pair] % HELD_OUT
        return cls(fold, of_entity, rows, part.astype(np.int8))

    def rest(self, train: Graph, rows: Ints) -> Graph:
        """The facts that these rows, the ones of a fold, are asked of."""
        fold = self.fold[rows[0]]
        kept = (
            (self.fold != fold) & (self.of_entity[train.head] != fold) & (self.of_entity[train.tail] != fold)
        )
        return train[kept]

    def asked(self) -> Ints:
        """All rows that are asked, fold by fold: (n,)."""
        return np.concatenate(self.rows)

    def held(self) -> NDArray[np.bool_]:
        """Which of them are not learned from, but decide when learning stops: (n,)."""
        held = np.flatnonzero(self.part[self.asked()] == 0)[:MOST_HELD_OUT]
        mask = np.zeros(len(self.asked()), np.bool_)
        mask[held] = True
        return mask

    def kinds(self, train: Graph) -> NDArray[np.int8]:
        """The kind of each row that is asked, from the facts outside of its fold: (n,)."""
        n, relations = train.n_entities, train.n_relations
        codes = [Kinds.of(self.rest(train, rows), n, relations).codes(train[rows]) for rows in self.rows]
        return np.concatenate(codes)
