"""The distribution of a query's confidence over [0, 1], and the interval that grows through it.

`Cells` cut the range [0, 1]: a value (one of the distinct confidences of the training facts) that many facts share
is a cell of its own, of width 0 (an atom); the other facts are cut by quantiles into coarse cells that hold equally
many of them. These are the classes a learner tells apart. A coarse cell is cut further into pieces, over which its mass
is spread as the training facts are. Cuts lie between values, never on one. A `Distribution` is a mass for every class.

The interval of a query starts as one cell: the heaviest of the shortest run of cells that holds half of the mass. It
grows step by step, each time by the stretch with the most mass per width on either side, until it is the whole range.
The nonconformity of a label is the mass of the interval just before it takes the label in; inside a cell it rises
evenly. So there is one interval for every threshold, and each lies within the next.

Intervals may be allowed to be empty. Then the first cell has a score too: the mass that it does not have. All other
scores are 1 more. As the threshold rises, first the queries whose first cell is heavy get an interval, later the
doubtful ones, and only then do intervals grow.

>>> cells = Cells.of(Values.of(np.array([0.2, 0.5, 0.9])), np.array([0, 1, 1, 1, 2]), atom_share=0.5, coarse=2)
>>> cells.low.tolist(), cells.high.tolist(), cells.class_of_piece.tolist()
([0.0, 0.5, 0.5, 0.55], [0.5, 0.5, 0.55, 1.0], [1, 0, 1, 2])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import Values
from unkgcp.loops import in_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ATOM_SHARE, COARSE, FINE = 0.01, 12, 96
LARGEST = 40  # atoms


@dataclass(frozen=True, eq=False)
class Cells:
    """S pieces in ascending order, which together are [0, 1]; K = A + C classes."""

    low: Floats
    high: Floats
    """(S,) ends of the pieces; an atom's are the floats seen for its value, mostly equal."""
    class_of_piece: Ints
    """(S,)"""
    share: Floats
    """(S,) share of the piece in the mass of its class."""
    class_of_value: Ints
    """(V,) class of each value of the training facts."""
    classes: int

    @classmethod
    def of(
        cls,
        values: Values,
        codes: Ints,
        atom_share: float = ATOM_SHARE,
        coarse: int = COARSE,
        fine: int = FINE,
    ) -> Cells:
        """Cells for facts with these value codes (n,)."""
        counts = np.bincount(codes, minlength=len(values))
        order = np.argsort(-counts, kind="stable")[:LARGEST]
        atoms = np.sort(order[counts[order] >= max(atom_share * len(codes), 1)])
        centre = values.centre
        others = counts.copy()
        others[atoms] = 0
        cuts = _cuts(centre, others, coarse)
        edges = np.union1d(cuts, _cuts(centre, others, fine))
        low, high, atom = _pieces(values.low[atoms], values.high[atoms], edges)
        class_of_piece = np.where(atom >= 0, atom, len(atoms) + np.searchsorted(cuts, (low + high) / 2))
        class_of_value = len(atoms) + np.searchsorted(cuts, centre)
        class_of_value[atoms] = np.arange(len(atoms))
        share = _shares(low, atom, class_of_piece, centre, others)
        return cls(low, high, class_of_piece, share, class_of_value, len(atoms) + len(cuts) + 1)

    def over(self, before: Values, values: Values) -> Cells:
        """The same cells where facts have other values than `before`: a new one is of the class it lies in."""
        piece = np.minimum(np.searchsorted(self.high, values.centre), len(self.high) - 1)
        own = before.code(values.low)
        kinds = np.where(own >= 0, self.class_of_value[own], self.class_of_piece[piece])
        return replace(self, class_of_value=kinds)

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], values: int) -> Cells:
        """The cells from plain arrays, for so many values; ValueError if they do not fit together."""
        columns = {field.name: np.array(arrays[field.name]) for field in fields(cls)}
        classes = columns["classes"]
        if classes.shape != () or classes.dtype.kind not in "iu" or not 0 < classes <= LARGEST + COARSE:
            raise ValueError("the cells of the evidence have no sensible number of classes")
        cells = cls(**{**columns, "classes": int(classes)})  # type: ignore[arg-type]
        cells._check(values)
        return cells

    def _check(self, values: int) -> None:
        pieces = len(self.low) if self.low.ndim == 1 else 0
        shapes = {"low": pieces, "high": pieces, "share": pieces, "class_of_piece": pieces}
        codes = (self.class_of_piece, self.class_of_value)
        good = (
            0 < pieces <= 2 * LARGEST + 1 + COARSE + FINE
            and all(getattr(self, name).shape == (size,) for name, size in shapes.items())
            and self.class_of_value.shape == (values,)
            and all(column.dtype == np.float64 for column in (self.low, self.high, self.share))
            and all(column.dtype == np.int64 for column in codes)
            and all(bool(((code >= 0) & (code < self.classes)).all()) for code in codes)
            and self.low[0] == 0
            and self.high[-1] == 1
            and bool((self.low[1:] == self.high[:-1]).all() and (self.low <= self.high).all())
            and bool((self.share >= 0).all())
        )
        if not good:
            raise ValueError("the cells of the evidence do not fit together")


def _cuts(centre: Floats, counts: Ints, parts: int) -> Floats:
    """Points between values that cut the counted facts into at most `parts` parts of about equal size."""
    used = np.flatnonzero(counts)
    if len(used) < 2:
        return np.zeros(0)
    below = np.cumsum(counts[used])
    wanted = below[-1] * np.arange(1, parts) / parts
    place = np.unique(np.searchsorted(below, wanted))
    place = place[place < len(used) - 1]
    return np.asarray((centre[used[place]] + centre[used[place + 1]]) / 2)


def _pieces(atom_low: Floats, atom_high: Floats, edges: Floats) -> tuple[Floats, Floats, Ints]:
    """(low, high, number of the atom or -1): the gaps between atoms, cut at the edges, and the atoms."""
    rows: list[tuple[float, float, int]] = []
    begin = 0.0
    for atom in range(len(atom_low) + 1):
        last = atom == len(atom_low)
        end = 1.0 if last else float(atom_low[atom])
        points = [begin, *edges[(edges > begin) & (edges < end)].tolist(), end]
        rows += [(a, b, -1) for a, b in pairwise(points) if a < b]
        if not last:
            rows.append((end, float(atom_high[atom]), atom))
            begin = float(atom_high[atom])
    low, high, number = (np.array(column) for column in zip(*rows, strict=True))
    return low, high, number.astype(np.int64)


def _shares(low: Floats, atom: Ints, class_of_piece: Ints, centre: Floats, others: Ints) -> Floats:
    """Share of every piece in its class, by the facts that fall into it and half a one more."""
    open_pieces = np.flatnonzero(atom < 0)
    weight = np.where(atom < 0, 0.5, 1.0)
    used = np.flatnonzero(others)
    if len(open_pieces) and len(used):
        at = np.searchsorted(low[open_pieces], centre[used], side="right") - 1
        np.add.at(weight, open_pieces[np.maximum(at, 0)], others[used])
    total = np.bincount(class_of_piece, weights=weight)
    return np.asarray(weight / total[class_of_piece])


class Modes(NamedTuple):
    """Middle and mass of two cells of each query's distribution, (n,) each."""

    value: Floats
    """The middle of the first cell, which is inside every interval."""
    belief: Floats
    other: Floats
    """The middle of the heaviest cell beside the first one, NaN where there is none."""
    other_belief: Floats


@dataclass(frozen=True, eq=False)
class Distribution:
    """n queries over K classes of cells and a few values of their own (slots)."""

    cells: Cells
    class_mass: Floats
    """(n, K)"""
    slot_low: Floats
    slot_high: Floats
    """(n, slots) the floats that stand for each suggested value."""
    slot_mass: Floats
    """(n, slots), 0 where there is no suggestion."""

    def __len__(self) -> int:
        return len(self.class_mass)

    def scores(self, label: Floats, empty: bool = False) -> Floats:
        """Nonconformity of a label in [0, 1] a query, from 0 to 1, or to 2 if intervals may be empty: (n,)."""
        out = np.empty(len(self))
        self._run("scores", np.ascontiguousarray(label, np.float64), out, settings=(empty,))
        return out

    def bounds(self, threshold: Floats, empty: bool = False, tail: Floats | None = None) -> Floats:
        """Smallest and largest label with a score of at most each threshold, NaN if there is none: (n, 2, levels).

        threshold: (n, levels), not negative unless intervals may be empty. Exact: for every float y in [0, 1],
        lower <= y <= upper holds exactly when `scores` gives y at most the threshold. tail: (levels,); then the ends
        are moved outwards, if need be, until no more than this mass of the distribution lies beyond either of them.
        """
        ends = np.empty((len(self), 2, threshold.shape[1]))
        tails = np.ones(threshold.shape[1]) if tail is None else np.asarray(tail, np.float64)
        thresholds = np.ascontiguousarray(threshold, np.float64)
        self._run("bounds", thresholds, ends, settings=(empty, tails))
        return ends

    def mass_inside(self, part: Callable[[Floats, Floats], Floats]) -> Floats:
        """The mass of the confidences in some range: (n,).

        `part` says of stretches from low to high, in the shape of both, which part of each is in the range.
        """
        cells = self.cells
        weight = np.bincount(
            cells.class_of_piece, weights=cells.share * part(cells.low, cells.high), minlength=cells.classes
        )
        slots = self.slot_mass * part(self.slot_low, self.slot_high)
        # summed class by class, since a matrix product may round the same query differently in another batch
        mass = np.zeros(len(self))
        for column in (*(self.class_mass * weight).T, *slots.T):
            mass += column
        return mass

    def mean(self) -> Floats:
        """The mean, which has the smallest expected squared error: (n,)."""
        return self._summary[:, 0]

    def median(self) -> Floats:
        """The median, which has the smallest expected absolute error: (n,)."""
        return self._summary[:, 1]

    def modes(self) -> Modes:
        """The value from which the interval grows and the value that is likeliest beside it, with their masses."""
        return Modes(*self._summary[:, 2:].T)

    @cached_property
    def _summary(self) -> Floats:
        """Mean, median and modes, which are found in one pass over the cells: (n, 6)."""
        out = np.empty((len(self), 6))
        self._run("summary", out)
        return out

    def _run(self, kernel: str, *more: NDArray[Any], settings: tuple[Any, ...] = ()) -> None:
        from unkgcp.evidence import tree_kernels

        cells = self.cells
        columns = (self.class_mass, self.slot_low, self.slot_high, self.slot_mass)
        own = [np.ascontiguousarray(column, np.float64) for column in columns]
        compiled: Any = getattr(tree_kernels, kernel)

        def work(rows: slice) -> None:
            compiled(
                cells.low,
                cells.high,
                cells.class_of_piece,
                cells.share,
                *(column[rows] for column in own),
                *(column[rows] for column in more),
                *settings,
            )

        in_threads(len(self), work)
