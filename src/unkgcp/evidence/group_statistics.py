"""Statistics of the confidences in groups of training facts, with or without one fact of the group.

Facts are grouped by one id or several (for example all facts of one head), each group in ascending order of confidence,
so that smallest, middle and largest value and the shares of frequent values are lookups. Leaving a fact out is exact:
sums are integers, and order statistics skip its place. A large graph has as many groups as facts; so nothing is kept
for a group, whose facts are found by their ids and summed up when it is asked for, unless it is large.

>>> values = Values.of(np.array([0.25, 0.5, 0.5]))
>>> groups = Groups.of([np.array([7, 7, 3])], [9], np.array([0, 1, 1]), values, 0)
>>> groups.statistics(Asked.of(groups, [np.array([7, 8])]))[:, :2].tolist()
[[2.0, 0.375], [0.0, nan]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.distribution import UNIT, Values
from unkgcp.evidence.fact_order import AnyInts, FactOrder, Ints, as_one, places
from unkgcp.parallel import in_threads

STATISTICS = ("count", "mean", "spread", "lowest", "middle", "highest")
GRID = 64  # means, spreads and shares are told to 1/64
MANY = 64  # facts of a group above which its sums are stored


def coarse(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Values rounded to multiples of 1 / GRID, so that a learner cannot read a fact's own confidence out of them.

    The statistics of a training fact leave the fact itself out. Within one group, the mean without a fact is therefore
    smaller the larger the fact's own confidence is, and a learner that sees many facts of the group could work the
    confidence out from that difference. It would learn to rely on something that queries do not have. After rounding,
    the difference disappears unless the group is small.
    """
    return np.asarray(np.rint(values * GRID) / GRID, np.float32)


def found_in(first: AnyInts, minor: AnyInts, major: NDArray[Any], wanted: NDArray[Any]) -> Ints:
    """The place of each (major, wanted) among minor[first[major] : first[major + 1]], -1 where it is none: (n,)."""
    from unkgcp.evidence import group_kernels

    compiled: Any = group_kernels
    out = np.empty(len(major), np.int64)
    one, two = np.asarray(major, np.int64), np.asarray(wanted, np.int64)
    in_threads(len(out), lambda rows: compiled.find(first, minor, one[rows], two[rows], out[rows]))
    return out


@dataclass(frozen=True, eq=False)
class Groups:
    """Facts by one id or several, and by value. N facts, G groups, V values, A frequent values (codes of values)."""

    ARRAYS: ClassVar = ("first", "minor", "codes", "large", "sums")

    values: Values
    frequent: Ints
    """(A,) codes of the values whose shares are asked for."""
    limits: tuple[int, ...]
    """How many ids there are in each column that facts are grouped by."""
    first: AnyInts
    """(ids + 1,) where the facts of each id of the first column begin."""
    minor: AnyInts
    """(N,) the ids of a fact in the other columns as one number, upwards within an id of the first; none, (0,), where
    there are no others."""
    codes: AnyInts
    """(N,) value codes, ascending within a group."""
    large: Ints
    """(L,) where groups of more than `MANY` facts begin."""
    sums: Ints
    """(L, 3) sums of the values in units, in whole thousandths, and of the squares of these."""

    @classmethod
    def of(
        cls,
        columns: Sequence[NDArray[Any]],
        limits: Sequence[int],
        codes: NDArray[Any],
        values: Values,
        frequent: int | Ints,
    ) -> Groups:
        """`columns`: ids (N,) below `limits`; `codes`: (N,) value of each fact; `frequent`: codes, or how many."""
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
        if isinstance(frequent, int):
            frequent = commonest(codes, len(values), frequent)
        order, last = FactOrder.of([[*columns, codes]], [*limits, len(values)]), len(columns)
        first, single = order.first.astype(places(len(order))), last == 1
        minor = np.zeros(0, np.int32) if single else order.column(1, last - 1)
        sorted_codes = order.column(last)
        del order
        index = (first, minor, single, MANY)
        ranges = np.empty((compiled.large_groups(*index, np.empty((0, 2), np.int64)), 2), np.int64)
        compiled.large_groups(*index, ranges)
        sums = np.zeros((len(ranges), 3), np.int64)
        compiled.sum_up(ranges, sorted_codes, values.whole_powers, sums)
        large = np.ascontiguousarray(ranges[:, 0])
        return cls(values, frequent, tuple(limits), first, minor, sorted_codes, large, sums)

    def find(self, columns: Sequence[NDArray[Any]]) -> Ints:
        """Where the facts with these ids in the columns begin and end, the same place if there are none: (n, 2)."""
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
        single = len(columns) == 1
        major = np.asarray(columns[0], np.int64)
        wanted = major if single else as_one(columns[1:], self.limits[1:])
        out = np.empty((len(major), 2), np.int64)

        def work(rows: slice) -> None:
            compiled.find_range(self.first, self.minor, major[rows], wanted[rows], single, out[rows])

        in_threads(len(out), work)
        return out

    def statistics(self, asked: Asked) -> NDArray[np.float32]:
        """Columns of `STATISTICS`: (n, 6); NaN where a group has nothing left."""
        held = asked.held
        out = np.full((len(held), len(STATISTICS)), np.nan, np.float32)
        out[:, 0] = held[:, 0]
        some = held[:, 0] > 0
        n, total, first, second = held[some, :4].T
        out[some, 1] = coarse(total / n / UNIT)
        out[some, 2] = coarse(np.sqrt(np.maximum(second / n - (first / n) ** 2, 0)) / 1000)
        out[some, 3:6] = self.values.centre[held[some, 4:]]
        return out

    def shares(self, asked: Asked) -> NDArray[np.float32]:
        """Share of each frequent value in the group: (n, A); NaN where a group has nothing left."""
        size = np.where(asked.size > 0, asked.size, np.nan).astype(np.float32)
        return coarse(asked.counts.astype(np.float32) / size[:, None])

    def share_of(self, asked: Asked, code: Ints) -> NDArray[np.float32]:
        """Share of some values a query in its group: (n, m), as code; NaN where nothing is left or code is -1."""
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
        count = np.empty(code.shape, np.int64)

        def work(rows: slice) -> None:
            compiled.count_values(self.codes, asked.ranges[rows], asked.own[rows], code[rows], count[rows])

        in_threads(len(code), work)
        size = np.where((asked.size[:, None] > 0) & (code >= 0), asked.size[:, None], np.nan)
        return coarse(count / size)


@dataclass(frozen=True, eq=False)
class Asked:
    """Which facts each query looks at, and what it finds there: (n,) each."""

    ranges: Ints
    """(n, 2) where its facts begin and end."""
    own: Ints
    """The value of the fact left out, -1 where none is."""
    held: NDArray[np.int64]
    """(n, 7) number of facts, the three sums of `Groups`, and lowest, middle and highest value as codes."""
    counts: NDArray[np.int64]
    """(n, A) facts of each frequent value."""

    @classmethod
    def of(cls, groups: Groups, columns: Sequence[NDArray[Any]], own: Ints | None = None) -> Asked:
        """The groups with these ids. `own` (n,): the value of a fact of the group that is to be left out, or -1."""
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
        ranges = groups.find(columns)
        n = len(ranges)
        own = np.full(n, -1, np.int64) if own is None else own
        held, counts = np.empty((n, 7), np.int64), np.empty((n, len(groups.frequent)), np.int64)
        index = (groups.codes, groups.values.whole_powers, groups.large, groups.sums, MANY)

        def work(rows: slice) -> None:
            compiled.look(*index, ranges[rows], own[rows], groups.frequent, held[rows], counts[rows])

        in_threads(n, work)
        return cls(ranges, own, held, counts)

    @property
    def size(self) -> Ints:
        """Facts of the group without the one left out; 0 where there is none."""
        return self.held[:, 0]


def commonest(codes: NDArray[Any], values: int, number: int) -> Ints:
    """Codes of the `number` most frequent values, by falling frequency, then by value: (<= number,)."""
    counts = np.bincount(codes, minlength=values)
    order = np.argsort(-counts, kind="stable")[:number]
    return order[counts[order] > 0].astype(np.int64)
