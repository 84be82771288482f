"""Values that other facts of the same two entities carry, and how far each may be believed.

A query (h, r, t) sees the facts between h and t in both directions, its partners. How often does a fact of relation r
carry the very confidence of a fact of relation r' between the same two entities, in the same or in the opposite
direction? That rate, counted over the training facts, is the belief in a partner; a value is believed as much as its
best partner. The rates are features; a learner decides what they are worth.

Leaving a fact out is exact here too: it vanishes as a partner, and so do the agreements it took part in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.group_statistics import Ints, begins, coarse

Floats = NDArray[np.float32]

SLOTS = 3
PRIOR = 2.0  # agreements of a rarely seen pair of relations are mixed with this many average ones


class Candidates(NamedTuple):
    """The most believed values of the pair: (n, SLOTS) each; code -1 and belief NaN where there is none."""

    code: Ints
    belief: Floats
    """Rate of agreement of the best partner with this value."""
    seen: Floats
    """How many agreements and disagreements that rate rests on."""
    support: Floats
    """Facts of the pair with this value."""
    repeats: Floats
    """Facts of the very same triple with this value."""
    partner: Floats
    """Relation of the best partner, as an id."""
    turned: Floats
    """1 where the best partner runs in the opposite direction."""
    distinct: Floats
    """(n,) number of different values of the pair."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Facts of each unordered pair of entities, those equal in value, relation and direction counted together."""

    n_entities: int
    n_relations: int
    keys: Ints
    """(P,) key of each pair, ascending."""
    starts: Ints
    """(P + 1,) entries of each pair."""
    code: Ints
    """(E,) value of each entry, ascending within a pair."""
    relation: Ints
    """(E,)"""
    downward: NDArray[np.bool_]
    """(E,) whether the head's id is the larger one."""
    count: Ints
    """(E,) facts."""
    entry_of_row: Ints
    """(N,) entry of each fact."""

    @classmethod
    def of(
        cls, head: Ints, relation: Ints, tail: Ints, code: Ints, n_entities: int, n_relations: int
    ) -> Pairs:
        pair, downward = _pair(head, tail, n_entities)
        order = np.lexsort((downward, relation, code, pair))
        columns = [np.asarray(column[order], np.int64) for column in (pair, code, relation, downward)]
        new = begins(*columns)
        first = np.flatnonzero(new)
        entry = np.empty_like(order)
        entry[order] = np.cumsum(new) - 1
        pairs, codes, relations, downwards = (column[first] for column in columns)
        keys, starts = np.unique(pairs, return_index=True)
        count = np.diff(np.append(first, len(order)))
        return cls(
            n_entities,
            n_relations,
            keys,
            np.append(starts, len(first)).astype(np.int64),
            codes,
            relations,
            downwards.astype(np.bool_),
            count,
            entry,
        )

    @cached_property
    def _agreements(self) -> tuple[Ints, Ints]:
        """Cells (C,), ascending, and agreements (C, 2) in each.

        A cell is (relation, partner's relation, turned) as one integer. Counted are the ordered pairs of different
        facts between the same two entities that agree in value, and all of them.
        """
        member = np.repeat(np.arange(len(self.keys)), np.diff(self.starts))
        size = np.diff(self.starts)[member]
        asked = np.repeat(np.arange(len(member)), size)
        other = _ranges(self.starts[member], size)
        cell = self._cell(self.relation[asked], self.downward[asked], other)
        pairs = self.count[asked] * (self.count[other] - (asked == other))
        agree = np.where(self.code[asked] == self.code[other], pairs, 0)
        cells, place = np.unique(cell[pairs > 0], return_inverse=True)
        table = np.zeros((len(cells), 2), np.int64)
        np.add.at(table[:, 0], place, agree[pairs > 0])
        np.add.at(table[:, 1], place, pairs[pairs > 0])
        return cells, table

    def _cell(self, relation: Ints, downward: NDArray[np.bool_], other: Ints) -> Ints:
        turned = downward != self.downward[other]
        return np.asarray((relation * self.n_relations + self.relation[other]) * 2 + turned, np.int64)

    def candidates(self, head: Ints, relation: Ints, tail: Ints, rows: Ints | None = None) -> Candidates:
        """For queries (n,), or, with `rows`, for these training facts, each without itself."""
        n = len(head)
        pair, downward = _pair(head, tail, self.n_entities)
        place = np.minimum(np.searchsorted(self.keys, pair), len(self.keys) - 1)
        found = self.keys[place] == pair
        size = np.where(found, self.starts[place + 1] - self.starts[place], 0)
        query = np.repeat(np.arange(n), size)
        entry = _ranges(self.starts[place][found], size[found])
        count = self.count[entry]
        if rows is not None:
            count = count - (entry == self.entry_of_row[rows][query])
            query, entry, count = query[count > 0], entry[count > 0], count[count > 0]
        cell = self._cell(relation[query], downward[query], entry)
        table = self._table(cell)
        total = np.broadcast_to(self._total, (n, 2))
        if rows is not None:
            own = self.code[self.entry_of_row[rows]]
            table, total = self._without(relation, own, query, entry, count, cell, table, total)
        rate = (total[:, 0] + 1.0) / (total[:, 1] + 2.0)
        belief = coarse((table[:, 0] + PRIOR * rate[query]) / (table[:, 1] + PRIOR))
        same = (self.relation[entry] == relation[query]) & (self.downward[entry] == downward[query])
        return self._best(n, query, entry, count, belief, table[:, 1], same, downward)

    @cached_property
    def _total(self) -> NDArray[np.int64]:
        """(2,) over all cells."""
        return np.asarray(self._agreements[1].sum(axis=0))

    def _table(self, cell: Ints) -> NDArray[np.int64]:
        cells, agreements = self._agreements
        if not len(cells):
            return np.zeros((len(cell), 2), np.int64)
        at = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
        return np.where((cells[at] == cell)[:, None], agreements[at], 0)

    def _without(
        self,
        relation: Ints,
        own: Ints,
        query: Ints,
        entry: Ints,
        count: Ints,
        cell: Ints,
        table: NDArray[np.int64],
        total: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tables without what each asked fact itself added to them."""
        n = len(relation)
        agree = np.where(self.code[entry] == own[query], count, 0)
        added = np.stack([agree, count], axis=1)
        everything = np.zeros((n, 2), np.int64)
        np.add.at(everything, query, added)
        # in a cell of equal relations a fact counts twice with each partner, as the first and as the second
        both = np.where(self.relation[entry] == relation[query], 2, 1)[:, None]
        order = np.lexsort((cell, query))
        new = begins(query[order], cell[order])
        within = np.empty_like(order)
        within[order] = np.cumsum(new) - 1
        sums = np.zeros((int(new.sum()), 2), np.int64)
        np.add.at(sums, within, added * both)
        return table - sums[within], total - 2 * everything

    def _best(
        self,
        n: int,
        query: Ints,
        entry: Ints,
        count: Ints,
        belief: Floats,
        seen: Ints,
        same: NDArray[np.bool_],
        downward: NDArray[np.bool_],
    ) -> Candidates:
        """Entries joined by value, values in falling order of belief, then support, then value."""
        out = {name: np.full((n, SLOTS), np.nan, np.float32) for name in Candidates._fields[1:-1]}
        code = np.full((n, SLOTS), -1, np.int64)
        distinct = np.zeros(n, np.float32)
        if len(query):
            value = self.code[entry]
            # the best partner of a value stands first
            order = np.lexsort((entry, -belief, value, query))
            first = np.flatnonzero(begins(query[order], value[order]))
            best = order[first]
            support = np.add.reduceat(count[order], first)
            repeats = np.add.reduceat((count * same)[order], first)
            q = query[best]
            distinct[:] = np.bincount(q, minlength=n)
            ranking = np.lexsort((-value[best], -support, -belief[best], q))
            q = q[ranking]
            starts = np.flatnonzero(begins(q))
            slot = np.arange(len(q)) - np.repeat(starts, np.diff(np.append(starts, len(q))))
            kept = slot < SLOTS
            at = (q[kept], slot[kept])
            chosen = best[ranking][kept]
            partner = entry[chosen]
            code[at] = value[chosen]
            out["belief"][at] = belief[chosen]
            out["seen"][at] = seen[chosen]
            out["support"][at] = support[ranking][kept]
            out["repeats"][at] = repeats[ranking][kept]
            out["partner"][at] = self.relation[partner]
            out["turned"][at] = self.downward[partner] != downward[q[kept]]
        return Candidates(code, **out, distinct=distinct)


def _pair(head: Ints, tail: Ints, n_entities: int) -> tuple[Ints, NDArray[np.bool_]]:
    low, high = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail).astype(np.int64)
    return low * n_entities + high, head > tail


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """start, start + 1, ... of each range, one after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - sizes, sizes) + np.repeat(starts, sizes)
