"""Suggested values: the confidences of other facts of the same two entities, and how far each may be believed.

The partners of a query (h, r, t) are the facts between h and t, in both directions. How often does a fact of relation r
have exactly the confidence of a fact of relation r' between the same two entities, in the same or in the opposite
direction? This rate of agreement, counted over the training facts, is the belief in a partner of relation r'. The
belief in a value is that in its best partner. The rates are features; a learner decides what they are worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import AnyInts, FactOrder, Ints, begins, found_in, position_type
from unkgcp.loops import places_in

Floats = NDArray[np.float32]

SLOTS = 3  # suggested values of a query
PRIOR = 2.0  # a rate is mixed with the average rate, which counts as this many agreements and disagreements
MOST = 4096  # entries of a pair that a query looks at, spread evenly over all of them
ROOM = 1 << 20  # entries that are looked at together, which bounds memory


class Candidates(NamedTuple):
    """The values of the pair with the highest belief: (n, SLOTS) each; code -1 and NaN where there are fewer."""

    code: Ints
    belief: Floats
    """The rate of agreement of the best partner with this value."""
    seen: Floats
    """The number of agreements and disagreements behind that rate."""
    support: Floats
    """The number of facts of the pair with this value."""
    repeats: Floats
    """The number of facts of the same triple with this value."""
    partner: Floats
    """The id of the relation of the best partner."""
    turned: Floats
    """1 where the best partner has the opposite direction."""
    distinct: Floats
    """(n,) the number of different values of the pair."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The facts of each unordered pair of entities; facts equal in value, relation and direction are one entry."""

    n_relations: int
    first: AnyInts
    """(entities + 1,) where the pairs begin whose smaller id is each entity."""
    larger: AnyInts
    """(P,) the larger id of each pair, ascending within the smaller."""
    starts: AnyInts
    """(P + 1,) where the entries of each pair begin."""
    code: AnyInts
    """(E,) the value of each entry, ascending within a pair."""
    relation: AnyInts
    """(E,) the relation of each entry, ascending within a value."""
    downward: NDArray[np.bool_]
    """(E,) whether the head has the larger id."""
    count: NDArray[np.unsignedinteger[Any]]
    """(E,) the number of facts of each entry."""

    @classmethod
    def of(
        cls,
        head: NDArray[Any],
        relation: NDArray[Any],
        tail: NDArray[Any],
        code: NDArray[Any],
        n_entities: int,
        n_relations: int,
    ) -> Pairs:
        order = FactOrder.of(
            [(*_pair(head, tail)[:2], code, relation, head > tail)],
            [n_entities, n_entities, int(code.max(initial=0)) + 1, n_relations, 2],
        )
        # facts that are equal in everything are one entry
        first, starts = order.runs(4)
        count = np.diff(starts)
        entries = order.at(first, starts[:-1])
        del order, starts
        pairs, starts = entries.runs(1)
        return cls(
            n_relations,
            pairs,
            entries.at(pairs, starts[:-1]).column(1),
            starts,
            entries.column(2),
            entries.column(3),
            entries.column(4).astype(bool),
            count.astype(np.min_scalar_type(int(count.max(initial=0)))),
        )

    @cached_property
    def _agreements(self) -> tuple[Ints, Ints]:
        """Cells (C,), ascending, and two counts of pairs of facts in each (C, 2).

        A cell is (relation, partner's relation, turned) packed into one integer. Over ordered pairs of different facts
        between the same two entities, the first count is that of pairs with the same value, the second that of all
        pairs. Facts of one relation and direction are counted together, so that two entities with many facts of few
        relations take little time.
        """
        sizes = np.diff(self.starts)
        pair = np.repeat(np.arange(len(sizes), dtype=position_type(len(sizes))), sizes)
        several = (sizes > 1)[pair] | (self.count > 1)  # a fact without a partner counts nowhere
        entry = np.flatnonzero(several)
        pair, code = pair[entry], self.code[entry]
        kind = self.relation[entry].astype(np.int64) * 2 + self.downward[entry]
        count = self.count[entry].astype(np.int64)
        tables = _Cells(self.n_relations)
        # the entries of one value of a pair are neighbours, and each is one relation and direction
        tables.add(np.flatnonzero(begins(pair, code)), kind, count, 0)
        order = np.lexsort((kind, pair))
        pair, kind, count = pair[order], kind[order], count[order]
        joined = np.flatnonzero(begins(pair, kind))
        count = np.add.reduceat(count, joined) if len(joined) else count
        tables.add(np.flatnonzero(begins(pair[joined])), kind[joined], count, 1)
        return tables.cells, tables.sums

    def candidates(self, head: NDArray[Any], relation: NDArray[Any], tail: NDArray[Any]) -> Candidates:
        """The candidates of queries (n,). Of a pair with more than `MOST` entries only so many are looked at, spread
        evenly over all of them."""
        relation = np.asarray(relation, np.int64)
        low, high, downward = _pair(head, tail)
        place = found_in(self.first, self.larger, low, high)
        begin = np.where(place >= 0, self.starts[place], 0).astype(np.int64)
        size = np.where(place >= 0, self.starts[place + 1] - self.starts[place], 0).astype(np.int64)
        looked = np.cumsum(np.minimum(size, MOST))
        cuts = np.unique(looked // ROOM, return_index=True)[1].tolist() or [0]
        chunks = []
        for start, stop in pairwise([*cuts, len(size)]):
            part = slice(start, stop)
            chunks.append(self._candidates(relation[part], downward[part], begin[part], size[part]))
        if len(chunks) == 1:
            return chunks[0]
        return Candidates(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))

    def _candidates(self, relation: Ints, downward: NDArray[np.bool_], begin: Ints, size: Ints) -> Candidates:
        n = len(relation)
        taken = np.minimum(size, MOST)
        query = np.repeat(np.arange(n), taken)
        entry = begin[query] + _ranges(np.zeros(n, np.int64), taken) * size[query] // taken[query]
        turned = downward[query] != self.downward[entry]
        table = self._table((relation[query] * self.n_relations + self.relation[entry]) * 2 + turned)
        agree, both = self._agreements[1].sum(axis=0)
        rate = (agree + 1.0) / (both + 2.0)
        belief = ((table[:, 0] + PRIOR * rate) / (table[:, 1] + PRIOR)).astype(np.float32)
        same = (self.relation[entry] == relation[query]) & (self.downward[entry] == downward[query])
        count = self.count[entry].astype(np.int64)
        return self._best(n, query, entry, count, belief, table[:, 1], same, downward)

    def _table(self, cell: Ints) -> NDArray[np.int64]:
        """The two counts of each cell: (n, 2); 0 where a cell does not occur."""
        cells, agreements = self._agreements
        if not len(cells):
            return np.zeros((len(cell), 2), np.int64)
        at = np.minimum(places_in(cells, cell), len(cells) - 1)
        return np.where((cells[at] == cell)[:, None], agreements[at], 0)

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
        """The candidates: entries joined by value, in falling order of belief, then support, then value."""
        out = {name: np.full((n, SLOTS), np.nan, np.float32) for name in Candidates._fields[1:-1]}
        code = np.full((n, SLOTS), -1, np.int64)
        distinct = np.zeros(n, np.float32)
        if len(query):
            value = self.code[entry]
            # the best partner of a value comes first
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


class _Cells:
    """Counts by cell, added up part by part."""

    def __init__(self, n_relations: int) -> None:
        self.n_relations = n_relations
        self.cells, self.sums = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)

    def add(self, starts: Ints, kind: Ints, count: Ints, column: int) -> None:
        """Add the ordered pairs of facts within each group to a column of the sums; groups begin at `starts`.

        An entry has one kind (relation and direction) and a count of facts.
        """
        sizes = np.diff(np.append(starts, len(kind)))
        steps = np.cumsum(sizes**2)
        cuts = np.unique(steps // ROOM, return_index=True)[1]
        for begin, end in pairwise([*cuts.tolist(), len(starts)]):  # no turn without groups
            size, start = sizes[begin:end], starts[begin:end]
            asked = np.repeat(_ranges(start, size), np.repeat(size, size))
            other = _ranges(np.repeat(start, size), np.repeat(size, size))
            turned = (kind[asked] ^ kind[other]) & 1
            cell = ((kind[asked] >> 1) * self.n_relations + (kind[other] >> 1)) * 2 + turned
            pairs = count[asked] * (count[other] - (asked == other))
            added = np.zeros((len(pairs), 2), np.int64)
            added[:, column] = pairs
            self._take(cell[pairs > 0], added[pairs > 0])

    def _take(self, cell: Ints, added: NDArray[np.int64]) -> None:
        cells, place = np.unique(np.concatenate([self.cells, cell]), return_inverse=True)
        sums = np.zeros((len(cells), 2), np.int64)
        np.add.at(sums, place, np.concatenate([self.sums, added]))
        self.cells, self.sums = cells, sums


def _pair(head: NDArray[Any], tail: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """The smaller and the larger id, and whether the head has the larger one."""
    return np.minimum(head, tail), np.maximum(head, tail), head > tail


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers start, start + 1, ... of each range, one range after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - sizes, sizes) + np.repeat(starts, sizes)
