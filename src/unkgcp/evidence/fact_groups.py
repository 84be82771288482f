"""Training facts in the orders that features look them up in, and statistics of groups of them.

An order sorts facts by several columns of ids. A fact is stored as two numbers: the id in the first column, and a key
of 64 bits that holds the ids of all other columns. Keys are grouped by the first id and sorted within each group. The
time is proportional to the number of facts, and the memory is eight bytes a fact besides the columns made of the keys.
Large graphs are therefore sorted this way and not row by row.

>>> order = FactOrder.of([([1, 0, 1], [5, 4, 2])], [2, 6])
>>> order.first.tolist(), order.column(1).tolist()
([0, 1, 3], [4, 2, 5])

>>> values = Values.of(np.array([0.25, 0.5, 0.5]))
>>> groups = FactGroups.of([np.array([7, 7, 3])], [9], np.array([0, 1, 1]), values, 0)
>>> groups.statistics(GroupFigures.of(groups, [np.array([7, 8])]), 0.5)[:, :2].tolist()
[[2.0, 0.375], [0.0, nan]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.graph.known_facts import distinct, pieces
from unkgcp.loops import in_threads, places_in

Ints = NDArray[np.int64]
AnyInts = NDArray[np.signedinteger[Any]]


def smallest(limit: int) -> type[np.signedinteger[Any]]:
    """The smallest integer type for numbers below the limit, among the types that loops are compiled for."""
    return np.int16 if limit < 1 << 15 else np.int32 if limit < 1 << 31 else np.int64


def position_type(limit: int) -> type[np.signedinteger[Any]]:
    """The integer type for positions in long arrays: 32 bits if the limit allows it, otherwise 64."""
    return np.int32 if limit < 1 << 31 else np.int64


def begins(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of n rows differs from the row before it in any of the columns: (n,); the first row counts so."""
    new = np.zeros(len(columns[0]), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def as_one(columns: Sequence[NDArray[Any]], limits: Sequence[int]) -> Ints:
    """The ids of each row packed into one number: (n,). Numbers are ordered like the rows."""
    one = np.asarray(columns[0], np.int64)
    for column, limit in zip(columns[1:], limits[1:], strict=True):
        one = (one << _bits(limit)) | column
    return one


@dataclass(frozen=True, eq=False)
class FactOrder:
    """Rows in ascending order of their columns of ids."""

    first: Ints
    """(ids + 1,) where the rows of each id of the first column begin."""
    keys: Ints
    """(n,) the other ids of each row packed into one number, ascending within a first id."""
    limits: tuple[int, ...]
    """How many ids there are in each column."""

    @classmethod
    def of(cls, parts: Sequence[Sequence[ArrayLike]], limits: Sequence[int]) -> FactOrder:
        """The rows of all parts together, in order.

        A part has a column of ids for each limit; a column with the same id in all rows may be given as that number.
        """
        from unkgcp.evidence import group_kernels as compiled

        width = sum(_bits(limit) for limit in limits[1:])
        if width > 63:
            raise InputError(
                f"a graph with so many entities, relations and different confidences ({max(limits):,} of one of them) "
                "is too large for evidence; round the confidences"
            )
        first, longest = np.zeros(limits[0] + 1, np.int64), 0
        split = [[np.asarray(column) for column in part] for part in parts]
        for part in split:
            for rows in pieces(len(part[0])):
                compiled.count_ids(np.asarray(part[0][rows], np.int32), first)
        longest = int(first.max(initial=0))
        np.cumsum(first, out=first)
        keys, place = np.empty(int(first[-1]), np.int64), first.copy()
        for part in split:
            for rows in pieces(len(part[0])):
                others = [column[rows] if column.ndim else column for column in part[1:]]
                key = np.broadcast_to(as_one(others, limits[1:]), rows.stop - rows.start)
                compiled.place_keys(
                    np.asarray(part[0][rows], np.int32), np.ascontiguousarray(key), place, keys
                )
        compiled.sort_keys(first, keys, np.empty(longest, np.int64), width)
        return cls(first, keys, tuple(limits))

    def __len__(self) -> int:
        return len(self.keys)

    def shift(self, place: int) -> int:
        """The number of bits of a key that belong to the columns after this one."""
        return sum(_bits(limit) for limit in self.limits[place + 1 :])

    def column(self, place: int, until: int | None = None) -> AnyInts:
        """The ids of a column, not the first, in few bytes: (n,). With `until`, all columns up to it, packed."""
        until = place if until is None else until
        low, width = self.shift(until), sum(_bits(size) for size in self.limits[place : until + 1])
        out = np.empty(len(self.keys), smallest(1 << width))
        for rows in pieces(len(out)):
            out[rows] = (self.keys[rows] >> low) & ((1 << width) - 1)
        return out

    def runs(self, until: int) -> tuple[AnyInts, AnyInts]:
        """The runs of rows that are equal in all columns up to `until`.

        Returns where the runs of each first id begin (ids + 1,) and where the rows of each run begin (runs + 1,).
        """
        from unkgcp.evidence import group_kernels as compiled

        low, kind = self.shift(until), position_type(len(self.keys))
        count = compiled.count_runs(self.first, self.keys, low)
        first, starts = np.empty(len(self.first), kind), np.empty(count + 1, kind)
        compiled.find_runs(self.first, self.keys, low, first, starts)
        return first, starts

    def at(self, first: AnyInts, rows: AnyInts) -> FactOrder:
        """The order of some of the rows (m,), ascending; those of each first id begin at `first`."""
        if len(rows) == len(self.keys):
            return self
        return FactOrder(first.astype(np.int64), self.keys[rows], self.limits)


def _bits(limit: int) -> int:
    """The number of bits that ids below a limit need."""
    return max(limit - 1, 0).bit_length()


# The distinct confidences of the facts.

UNIT = 10**9


@dataclass(frozen=True, eq=False)
class Values:
    """V distinct values in ascending order; `low` and `high` are the smallest and largest float of each: (V,).

    Confidences that agree in nine decimals are one value, even if their floats differ.
    """

    units: NDArray[np.int64]
    """The values in billionths. Sums of integers do not depend on the order of the summands."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, confidence: NDArray[np.float64]) -> Values:
        floats = distinct(confidence)
        # units are ordered like the floats, so that the floats of a value are neighbours
        units, first = np.unique(to_units(floats), return_index=True)
        return cls(units, floats[first], floats[np.append(first[1:], len(floats)) - 1])

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """The values as floats: (V,)."""
        return np.asarray(self.units / UNIT)

    @cached_property
    def step(self) -> float:
        """A ten-thousandth of their range."""
        return float(self.centre[-1] - self.centre[0]) / 10_000

    @cached_property
    def whole_powers(self) -> NDArray[np.int64]:
        """The values in units, in whole steps above the smallest one, and the squares of these: (V, 3)."""
        steps = np.rint((self.centre - self.centre[0]) / (self.step or 1.0)).astype(np.int64)
        return np.stack([self.units, steps, steps**2], axis=1)

    def code(self, confidence: NDArray[np.float64]) -> AnyInts:
        """The code of each confidence, its position among the values: (n,), in few bytes; -1 where it is missing."""
        out = np.empty(len(confidence), smallest(len(self)))
        for rows in pieces(len(out)):
            units = to_units(confidence[rows])
            place = np.minimum(places_in(self.units, units), len(self.units) - 1)
            out[rows] = np.where(self.units[place] == units, place, -1)
        return out


def to_units(confidence: NDArray[np.float64]) -> NDArray[np.int64]:
    """Confidences in billionths: (n,) int64."""
    units: NDArray[np.int64] = np.rint(np.asarray(confidence, np.float64) * UNIT).astype(np.int64)
    return units


# Statistics of the confidences in groups of facts. Facts are grouped by one id or several (for example all facts of one
# head). Each group is in ascending order of confidence, so that smallest, middle and largest value and the shares of
# frequent values are lookups. A large graph may have as many groups as facts, so sums are stored for large groups only;
# the facts of a small group are summed when a query asks.


STATISTICS = ("count", "mean", "spread", "lowest", "middle", "highest", "shrunken mean")
MANY = 64  # the sums of groups with more facts are stored
SHRINK = 3.0  # facts with the mean of the whole graph that are added to a group for its shrunken mean


def found_in(first: AnyInts, minor: AnyInts, major: NDArray[Any], wanted: NDArray[Any]) -> Ints:
    """The place of each `wanted` id in minor[first[major] : first[major + 1]], -1 where it is missing: (n,)."""
    from unkgcp.evidence import group_kernels as compiled

    out = np.empty(len(major), np.int64)
    one, two = np.asarray(major, np.int64), np.asarray(wanted, np.int64)
    in_threads(len(out), lambda rows: compiled.find(first, minor, one[rows], two[rows], out[rows]))
    return out


@dataclass(frozen=True, eq=False)
class FactGroups:
    """N facts sorted by the ids that they are grouped by, and by value within a group."""

    values: Values
    frequent: Ints
    """(A,) codes of the values whose shares are asked for."""
    limits: tuple[int, ...]
    """How many ids there are in each column that facts are grouped by."""
    first: AnyInts
    """(ids + 1,) where the facts of each id of the first column begin."""
    minor: AnyInts
    """(N,) the ids in the other columns packed into one number, ascending within a first id; (0,) for one column."""
    codes: AnyInts
    """(N,) value codes, ascending within a group."""
    large: Ints
    """(L,) where the groups of more than `MANY` facts begin."""
    sums: Ints
    """(L, 3) their sums of `Values.whole_powers`: values in units, in whole steps, and squares of these."""

    @classmethod
    def of(
        cls,
        columns: Sequence[NDArray[Any]],
        limits: Sequence[int],
        codes: NDArray[Any],
        values: Values,
        frequent: int | Ints,
    ) -> FactGroups:
        """Group facts by columns of ids (N,) below `limits`; `codes` (N,) are their values.

        `frequent`: the codes of frequent values, or the number of them.
        """
        from unkgcp.evidence import group_kernels as compiled

        if isinstance(frequent, int):
            frequent = commonest(codes, len(values), frequent)
        order, last = FactOrder.of([[*columns, codes]], [*limits, len(values)]), len(columns)
        first, single = order.first.astype(position_type(len(order))), last == 1
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
        """Where the facts with these ids begin and end, (n, 2); the same place twice if there are none."""
        from unkgcp.evidence import group_kernels as compiled

        single = len(columns) == 1
        major = np.asarray(columns[0], np.int64)
        wanted = major if single else as_one(columns[1:], self.limits[1:])
        out = np.empty((len(major), 2), np.int64)

        def work(rows: slice) -> None:
            compiled.find_range(self.first, self.minor, major[rows], wanted[rows], single, out[rows])

        in_threads(len(out), work)
        return out

    def statistics(self, looked_up: GroupFigures, typical: float) -> NDArray[np.float32]:
        """Columns of `STATISTICS`: (n, 7); NaN where a group is empty. typical: the mean of all facts of the graph."""
        figures = looked_up.figures
        out = np.full((len(figures), len(STATISTICS)), np.nan, np.float32)
        size, total, first, second = figures[:, :4].T
        out[:, 0] = size
        out[:, 6] = (total / UNIT + SHRINK * typical) / (size + SHRINK)
        some = size > 0
        size, total, first, second = size[some], total[some], first[some], second[some]
        out[some, 1] = total / size / UNIT
        out[some, 2] = np.sqrt(np.maximum(second / size - (first / size) ** 2, 0)) * self.values.step
        out[some, 3:6] = self.values.centre[figures[some, 4:]]
        return out

    def shares(self, looked_up: GroupFigures) -> NDArray[np.float32]:
        """The share of each frequent value in the group: (n, A); NaN where a group is empty."""
        size = np.where(looked_up.size > 0, looked_up.size, np.nan).astype(np.float32)
        shares: NDArray[np.float32] = looked_up.counts.astype(np.float32) / size[:, None]
        return shares

    def share_of(self, looked_up: GroupFigures, code: Ints) -> NDArray[np.float32]:
        """The shares of values in the groups: (n, m) like `code`; NaN where a group is empty or the code is -1."""
        from unkgcp.evidence import group_kernels as compiled

        count = np.empty(code.shape, np.int64)

        def work(rows: slice) -> None:
            compiled.count_values(self.codes, looked_up.ranges[rows], code[rows], count[rows])

        in_threads(len(code), work)
        size = np.where((looked_up.size[:, None] > 0) & (code >= 0), looked_up.size[:, None], np.nan)
        return np.asarray(count / size, np.float32)


@dataclass(frozen=True, eq=False)
class GroupFigures:
    """The group of each of n queries, and what was counted in it."""

    ranges: Ints
    """(n, 2) where the facts of the group begin and end."""
    figures: NDArray[np.int64]
    """(n, 7) number of facts, the three sums of `FactGroups`, and lowest, middle and highest value as codes."""
    counts: NDArray[np.int64]
    """(n, A) the number of facts with each frequent value."""

    @classmethod
    def of(cls, groups: FactGroups, columns: Sequence[NDArray[Any]]) -> GroupFigures:
        """Look into the groups with these ids."""
        from unkgcp.evidence import group_kernels as compiled

        ranges = groups.find(columns)
        n = len(ranges)
        figures, counts = np.empty((n, 7), np.int64), np.empty((n, len(groups.frequent)), np.int64)
        index = (groups.codes, groups.values.whole_powers, groups.large, groups.sums, MANY)

        def work(rows: slice) -> None:
            compiled.look(*index, ranges[rows], groups.frequent, figures[rows], counts[rows])

        in_threads(n, work)
        return cls(ranges, figures, counts)

    @property
    def size(self) -> Ints:
        """The number of facts of each group: (n,)."""
        return self.figures[:, 0]


def commonest(codes: NDArray[Any], values: int, number: int) -> Ints:
    """Codes of the `number` most frequent values, in falling order of frequency, then by value: (<= number,)."""
    counts = np.bincount(codes, minlength=values)
    order = np.argsort(-counts, kind="stable")[:number]
    return order[counts[order] > 0].astype(np.int64)
