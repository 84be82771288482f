"""Joins of integer columns that keep, for every result, the best truth value only.

A body such as `likes(A, B) & likes(B, C)` is a chain of joins. `Bindings` hold the values of the variables
that are still needed, one row a binding, with the Lukasiewicz truth of the atoms joined so far. That truth
never rises when an atom is added, so a row that can no longer reach the wanted `floor` is never made: the
join looks up, for each row, the range of partners that are true enough, and expands that range only.

It is not a database: everything is in memory, in pieces of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
Truth = NDArray[np.float64]

PIECE = 4_000_000
"""Rows of a join that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """Values of variables, one row a binding: columns of shape (n,), and their truth, shape (n,)."""

    columns: Mapping[str, Column]
    truth: Truth

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Bindings:
        return Bindings({name: column[rows] for name, column in self.columns.items()}, self.truth[rows])


class Index:
    """The pairs of one atom, ready to be joined on the variables in `on`: by key, then best truth first."""

    def __init__(self, atom: Bindings, on: Sequence[str], n: int) -> None:
        self.on, self.n = tuple(on), n
        self.groups, group = np.unique(self._key(atom), return_inverse=True)
        self.levels, level = np.unique(-atom.truth, return_inverse=True)  # ascending, so best first
        position = group * len(self.levels) + level
        order = np.argsort(position, kind="stable")
        self.position, self.atom = position[order], atom[order]

    def ranges(self, left: Bindings, floor: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each row of `left`: first and number of the pairs that keep its truth at `floor` or above."""
        key = self._key(left)
        group = np.searchsorted(self.groups, key)
        known = self.groups[np.minimum(group, len(self.groups) - 1)] == key
        good_levels = np.searchsorted(self.levels, left.truth - 1.0 - floor, side="right")
        begin = group * len(self.levels)
        start = np.searchsorted(self.position, begin)
        return start, np.where(known, np.searchsorted(self.position, begin + good_levels) - start, 0)

    def _key(self, bindings: Bindings) -> Column:
        return _row_key([bindings.columns[name] for name in self.on], self.n)


def join(left: Bindings, atom: Bindings, n: int, floor: float) -> Iterator[Bindings]:
    """Pieces of `left` joined with `atom` on the variables they share; truth is t + c - 1, at least `floor`.

    `n` bounds every value of every column.
    """
    if not len(atom):
        return
    index = Index(atom, [name for name in atom.columns if name in left.columns], n)
    start, count = index.ranges(left, floor)
    ends = np.cumsum(count)
    first = 0
    while first < len(left):
        done = ends[first - 1] if first else 0
        # at least one row; one row alone never has more partners than the relation has facts
        last = max(first + 1, int(np.searchsorted(ends, done + PIECE, side="right")))
        size = int(ends[last - 1] - done)
        if size:
            counts = count[first:last]
            rows = np.repeat(np.arange(first, last), counts)
            within = np.arange(size) - np.repeat(ends[first:last] - counts - done, counts)
            partner = start[rows] + within
            columns = {name: column[rows] for name, column in left.columns.items()}
            fresh = {
                name: column[partner] for name, column in index.atom.columns.items() if name not in columns
            }
            yield Bindings(columns | fresh, left.truth[rows] + index.atom.truth[partner] - 1.0)
        first = last


def best(pieces: Iterable[Bindings], keep: Sequence[str], n: int, limit: int) -> Bindings:
    """One row for each distinct binding of the variables in `keep`, with the highest truth of all pieces.

    Raises `OverflowError` when more than `limit` rows are left.
    """
    merged = Bindings({name: np.empty(0, np.int64) for name in keep}, np.empty(0))
    waiting: list[Bindings] = []
    size = 0
    for piece in pieces:
        reduced = _highest(Bindings({name: piece.columns[name] for name in keep}, piece.truth), n)
        waiting.append(reduced)
        size += len(reduced)
        # merge when the pieces have grown as large as what is merged: every row is sorted a few times only
        if size > max(len(merged), PIECE):
            merged, waiting, size = _highest(_stack([merged, *waiting]), n), [], 0
            if len(merged) > limit:
                raise OverflowError(len(merged))
    merged = _highest(_stack([merged, *waiting]), n)
    if len(merged) > limit:
        raise OverflowError(len(merged))
    return merged


def _stack(parts: Sequence[Bindings]) -> Bindings:
    names = parts[0].columns
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    return Bindings(columns, np.concatenate([part.truth for part in parts]))


def _highest(bindings: Bindings, n: int) -> Bindings:
    """Equal bindings merged into one with the highest truth, ordered by their values."""
    if not len(bindings):
        return bindings
    key = _row_key(list(bindings.columns.values()), n)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    truth = np.maximum.reduceat(bindings.truth[order], first)
    return Bindings({name: column[order[first]] for name, column in bindings.columns.items()}, truth)


def _row_key(columns: Sequence[Column], n: int) -> Column:
    """One integer for each row, equal exactly for equal rows and ordered like them."""
    key, span = columns[0], n
    for column in columns[1:]:
        if span * n >= 2**62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max(initial=0)) + 1
        key, span = key * n + column, span * n
    return key
