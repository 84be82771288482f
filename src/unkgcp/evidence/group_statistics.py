"""Statistics of the confidences in groups of training facts, with or without one fact of the group.

Facts are grouped by an integer key (for example all facts of one head), each group in ascending order of confidence,
so that count, mean, spread, smallest, middle and largest value and the shares of frequent values are lookups. Leaving
a fact out is exact: sums are integers, and order statistics skip its place.

>>> groups = Groups.of(np.array([7, 7, 3]), np.array([0, 1, 1]), Values.of(np.array([0.25, 0.5, 0.5])), 0)
>>> groups.statistics(Asked.of(groups, np.array([7, 8])))[:, :2].tolist()
[[2.0, 0.375], [0.0, nan]]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.distribution import UNIT, Values

Ints = NDArray[np.int64]
STATISTICS = ("count", "mean", "spread", "lowest", "middle", "highest")
GRID = 64  # means, spreads and shares are told to 1/64


def coarse(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Values rounded to multiples of 1 / GRID, so that a learner cannot read a fact's own confidence out of them.

    The statistics of a training fact leave the fact itself out. Within one group, the mean without a fact is therefore
    smaller the larger the fact's own confidence is, and a learner that sees many facts of the group could work the
    confidence out from that difference. It would learn to rely on something that queries do not have. After rounding,
    the difference disappears unless the group is small.
    """
    return np.asarray(np.rint(values * GRID) / GRID, np.float32)


def begins(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a row (of n) differs from the one before it in any of the columns; the first always does: (n,)."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


@dataclass(frozen=True, eq=False)
class Groups:
    """Facts sorted by key and value. N facts, G groups, V values, A frequent values (codes into the values)."""

    values: Values
    frequent: Ints
    """(A,) codes of the values whose shares are asked for."""
    keys: Ints
    """(G,) ascending."""
    starts: Ints
    """(G + 1,)"""
    codes: Ints
    """(N,) value codes, ascending within a group."""
    sums: Ints
    """(G,) sum of the values in units."""
    moments: NDArray[np.float64]
    """(G, 2) sums of the values in whole thousandths, and of their squares: whole numbers, exact."""
    counts: NDArray[np.int32]
    """(G, A)"""
    row_group: Ints
    """(N,) group of each fact, in the order in which the facts were given."""
    row_place: Ints
    """(N,) its place in the group."""

    @classmethod
    def of(cls, keys: Ints, codes: Ints, values: Values, frequent: int | Ints) -> Groups:
        """`codes`: (N,) value code of each fact. `frequent`: codes, or how many of the commonest values."""
        if isinstance(frequent, int):
            frequent = commonest(codes, len(values), frequent)
        order = np.lexsort((codes, keys))
        ordered = keys[order]
        new = begins(ordered)
        first = np.flatnonzero(new)
        starts = np.append(first, len(ordered)).astype(np.int64)
        group = np.cumsum(new) - 1
        sorted_codes = codes[order]
        units = values.units[sorted_codes]
        sums = np.add.reduceat(units, first) if len(first) else np.zeros(0, np.int64)
        powers = values.powers[sorted_codes]
        moments = np.add.reduceat(powers, first, axis=0) if len(first) else np.zeros((0, 2))
        slot = np.full(len(values) + 1, -1)
        slot[frequent] = np.arange(len(frequent))
        member = slot[sorted_codes]
        some = member >= 0
        counts = np.bincount(
            group[some] * len(frequent) + member[some], minlength=len(first) * len(frequent)
        ).reshape(len(first), len(frequent))
        row_group, row_place = np.empty_like(order), np.empty_like(order)
        row_group[order] = group
        row_place[order] = np.arange(len(order)) - starts[group]
        return cls(
            values,
            frequent,
            ordered[first],
            starts,
            sorted_codes,
            sums,
            moments,
            counts.astype(np.int32),
            row_group,
            row_place,
        )

    def find(self, keys: Ints) -> Ints:
        """The group of each key, -1 if there is none: (n,)."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)

    def statistics(self, asked: Asked) -> NDArray[np.float32]:
        """Columns of `STATISTICS`: (n, 6); NaN where a group has nothing left."""
        total, moments, left_out = self.sums[asked.at], self.moments[asked.at], asked.left_out
        if left_out is not None:
            gone = left_out >= 0
            total = total - np.where(gone, self.values.units[asked.own], 0)
            moments = moments - np.where(gone[:, None], self.values.powers[asked.own], 0)
        out = np.full((len(asked.at), len(STATISTICS)), np.nan, np.float32)
        out[:, 0] = asked.size
        some = asked.size > 0
        n = asked.size[some]
        out[some, 1] = coarse(total[some] / n / UNIT)
        first, second = moments[some].T
        out[some, 2] = coarse(np.sqrt(np.maximum(second / n - (first / n) ** 2, 0)) / 1000)
        ranks = np.stack([np.zeros_like(n), (n - 1) // 2, n - 1], axis=1)
        if left_out is not None:
            place = np.where(left_out >= 0, left_out, np.iinfo(np.int64).max)[some]
            ranks += ranks >= place[:, None]
        out[some, 3:6] = self.values.centre[self.codes[asked.start[some, None] + ranks]]
        return out

    def shares(self, asked: Asked) -> NDArray[np.float32]:
        """Share of each frequent value in the group: (n, A); NaN where a group has nothing left."""
        counts = self.counts[asked.at].astype(np.float32)
        if asked.left_out is not None:
            counts -= (asked.own[:, None] == self.frequent) & (asked.left_out >= 0)[:, None]
        size = np.where(asked.size > 0, asked.size, np.nan).astype(np.float32)
        return coarse(counts / size[:, None])

    def share_of(self, asked: Asked, code: Ints) -> NDArray[np.float32]:
        """Share of some values a query in its group: (n, m), as code; NaN where nothing is left or code is -1."""
        wanted = asked.at[:, None] * len(self.values) + np.maximum(code, 0)
        keys = self._group_and_code
        count = np.searchsorted(keys, wanted, side="right") - np.searchsorted(keys, wanted, side="left")
        if asked.left_out is not None:
            count = count - ((asked.left_out >= 0)[:, None] & (asked.own[:, None] == code))
        size = np.where((asked.size[:, None] > 0) & (code >= 0), asked.size[:, None], np.nan)
        return coarse(count / size)

    @cached_property
    def _group_and_code(self) -> Ints:
        group = np.repeat(np.arange(len(self.keys)), np.diff(self.starts))
        return np.asarray(group * len(self.values) + self.codes)


@dataclass(frozen=True, eq=False)
class Asked:
    """Which group each query looks at, and which place in it is left out: (n,) each."""

    at: Ints
    """The group, 0 where there is none."""
    start: Ints
    size: Ints
    """Facts of the group without the one left out; 0 where there is none."""
    left_out: Ints | None
    """Its place in the group, -1 for none; None where nothing is left out of any."""
    own: Ints
    """The value of the fact left out, where there is one."""

    @classmethod
    def of(cls, groups: Groups, keys: Ints, rows: Ints | None = None) -> Asked:
        """The groups with these keys (n,). With `rows` the askers are these grouped facts: each is left out.

        A fact may ask for another key than that under which it is grouped: the facts whose tail is its head
        contain the fact itself only if it is a loop.
        """
        group = groups.find(keys)
        at = np.maximum(group, 0)
        start = groups.starts[at]
        size = np.where(group >= 0, groups.starts[at + 1] - start, 0)
        if rows is None:
            return cls(at, start, size, None, at)
        left_out = np.where(groups.row_group[rows] == group, groups.row_place[rows], -1)
        own = groups.codes[np.minimum(start + np.maximum(left_out, 0), len(groups.codes) - 1)]
        return cls(at, start, size - (left_out >= 0), left_out, own)


def commonest(codes: Ints, values: int, number: int) -> Ints:
    """Codes of the `number` most frequent values, by falling frequency, then by value: (<= number,)."""
    counts = np.bincount(codes, minlength=values)
    order = np.argsort(-counts, kind="stable")[:number]
    return order[counts[order] > 0].astype(np.int64)
