"""Training facts in the orders that features look them up in.

A fact becomes two numbers: the id that comes first in an order, and a key of 64 bits in which all other ids stand one
behind the other. Keys are put behind those of the same first id, and sorted there. That takes time as there are facts,
and eight bytes a fact beside the columns that are made of the keys; large graphs are therefore never sorted by rows.

>>> order = FactOrder.of([([1, 0, 1], [5, 4, 2])], [2, 6])
>>> order.first.tolist(), order.column(1).tolist()
([0, 1, 3], [4, 2, 5])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.graph.known import pieces

Ints = NDArray[np.int64]
AnyInts = NDArray[np.signedinteger[Any]]


def smallest(limit: int) -> type[np.signedinteger[Any]]:
    """The smallest kind of whole number, of those that compiled loops are made for, that holds all below the limit."""
    return np.int16 if limit < 1 << 15 else np.int32 if limit < 1 << 31 else np.int64


def places(limit: int) -> type[np.signedinteger[Any]]:
    """The same for places in long arrays, of which there are many arrays: 32 or 64 bits."""
    return np.int32 if limit < 1 << 31 else np.int64


def begins(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a row (of n) differs from the one before it in any of the columns; the first always does: (n,)."""
    new = np.zeros(len(columns[0]), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def as_one(columns: Sequence[NDArray[Any]], limits: Sequence[int]) -> Ints:
    """One number for each row, in the order of the columns and equal exactly where all of them are: (n,)."""
    one = np.asarray(columns[0], np.int64)
    for column, limit in zip(columns[1:], limits[1:], strict=True):
        one = (one << _bits(limit)) | column
    return one


@dataclass(frozen=True, eq=False)
class FactOrder:
    """Rows upwards by their first id, then by the others."""

    first: Ints
    """(ids + 1,) where the rows of each first id begin."""
    keys: Ints
    """(n,) the other ids of each row, upwards within a first id."""
    limits: tuple[int, ...]
    """How many ids there are in each column."""

    @classmethod
    def of(cls, parts: Sequence[Sequence[ArrayLike]], limits: Sequence[int]) -> FactOrder:
        """The rows of all parts together.

        A part has a column of ids for each limit; one that has the same id in all rows may be that number.
        """
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
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
        """How many bits of a key belong to the columns behind this one."""
        return sum(_bits(limit) for limit in self.limits[place + 1 :])

    def column(self, place: int, until: int | None = None) -> AnyInts:
        """The ids of a column, not the first, in few bytes: (n,); of those from `place` to `until` as `as_one` does."""
        until = place if until is None else until
        low, width = self.shift(until), sum(_bits(size) for size in self.limits[place : until + 1])
        out = np.empty(len(self.keys), smallest(1 << width))
        for rows in pieces(len(out)):
            out[rows] = (self.keys[rows] >> low) & ((1 << width) - 1)
        return out

    def runs(self, until: int) -> tuple[AnyInts, AnyInts]:
        """Rows that are equal in all columns up to this one belong together.

        Returns where those of each first id begin (ids + 1,) and where the rows of each begin (runs + 1,).
        """
        from unkgcp.evidence import group_kernels

        compiled: Any = group_kernels
        low, kind = self.shift(until), places(len(self.keys))
        count = compiled.count_runs(self.first, self.keys, low)
        first, starts = np.empty(len(self.first), kind), np.empty(count + 1, kind)
        compiled.find_runs(self.first, self.keys, low, first, starts)
        return first, starts

    def at(self, first: AnyInts, rows: AnyInts) -> FactOrder:
        """Some of the rows (m,), upwards, of which those of each first id begin at `first`."""
        if len(rows) == len(self.keys):
            return self
        return FactOrder(first.astype(np.int64), self.keys[rows], self.limits)


def _bits(limit: int) -> int:
    """Bits of the ids below a limit."""
    return max(limit - 1, 0).bit_length()
