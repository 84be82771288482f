"""The distribution of a query's confidence over [0, 1], and the interval that grows through it.

`Cells` divide the range [0, 1]. A value, one of the distinct confidences of the training facts, that many facts share
is a cell of width 0, an atom. The range between atoms is cut at quantiles of the other facts into coarse cells with
about equally many facts. Atoms and coarse cells are the classes that a learner tells apart. A coarse cell is cut
further into pieces, over which its mass is spread like the training facts. Cuts lie between values, never on a value. A
`Distribution` has a mass for every class, and for the suggested values of each query.

The interval of a query starts as one cell: the heaviest cell of the shortest run of cells that holds half of the mass.
It grows step by step, each time by the stretch with the most mass per width on either side, until it is the whole
range. The nonconformity of a label is the mass of the interval just before it reaches the label; inside a cell it rises
evenly. So there is one interval for every threshold, and intervals grow with the threshold.

Intervals may be allowed to be empty. Then the score of the first cell is the mass outside of it instead of 0, and all
other scores are 1 larger. As the threshold rises, queries with a heavy first cell get an interval first, doubtful
queries later, and only then do intervals grow.

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

ATOM_SHARE, COARSE, FINE = (
    0.01,
    12,
    96,
)  # the share of facts that makes an atom; the number of coarse cells and pieces
LARGEST = 40  # the largest number of atoms


@dataclass(frozen=True, eq=False)
class Cells:
    """S pieces in ascending order that cover [0, 1], of atoms and of coarse cells, which are the classes."""

    low: Floats
    high: Floats
    """(S,) ends of the pieces; those of an atom are the smallest and largest float of its value, mostly equal."""
    class_of_piece: Ints
    """(S,) the class that each piece belongs to."""
    share: Floats
    """(S,) the share of each piece in the mass of its class."""
    class_of_value: Ints
    """(V,) the class of each value of the training facts."""
    classes: int
    """The number of classes; atoms come first, in ascending order."""

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
        """The same cells for other values; one that is not among the values `before` gets the class that it lies in."""
        piece = np.minimum(np.searchsorted(self.high, values.centre), len(self.high) - 1)
        own = before.code(values.low)
        kinds = np.where(own >= 0, self.class_of_value[own], self.class_of_piece[piece])
        return replace(self, class_of_value=kinds)

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], values: int) -> Cells:
        """The cells from stored arrays, for so many values; ValueError if the arrays do not fit together."""
        columns = {field.name: np.array(arrays[field.name]) for field in fields(cls)}
        classes = columns["classes"]
        if classes.shape != () or classes.dtype.kind not in "iu" or not 0 < classes <= LARGEST + COARSE:
            raise ValueError("the cells of the evidence have no sensible number of classes")
        cells = cls(**{**columns, "classes": int(classes)})  # type: ignore[arg-type]
        cells._check(values)
        return cells

    def _check(self, values: int) -> None:
        pieces = len(self.low) if self.low.ndim == 1 else 0
        codes = (self.class_of_piece, self.class_of_value)
        good = (
            0 < pieces <= 2 * LARGEST + 1 + COARSE + FINE
            and all(array.shape == (pieces,) for array in (self.high, self.share, self.class_of_piece))
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
    """Points between values that divide the facts, by their counts, into at most `parts` parts of about equal size."""
    used = np.flatnonzero(counts)
    if len(used) < 2:
        return np.zeros(0)
    below = np.cumsum(counts[used])
    wanted = below[-1] * np.arange(1, parts) / parts
    place = np.unique(np.searchsorted(below, wanted))
    place = place[place < len(used) - 1]
    return np.asarray((centre[used[place]] + centre[used[place + 1]]) / 2)


def _pieces(atom_low: Floats, atom_high: Floats, edges: Floats) -> tuple[Floats, Floats, Ints]:
    """Atoms, and the gaps between them cut at the edges: low end, high end, and number of the atom or -1."""
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
    """The share of every piece in its class, by the facts that fall into it; each piece gets half a fact more."""
    open_pieces = np.flatnonzero(atom < 0)
    weight = np.where(atom < 0, 0.5, 1.0)
    used = np.flatnonzero(others)
    if len(open_pieces) and len(used):
        at = np.searchsorted(low[open_pieces], centre[used], side="right") - 1
        np.add.at(weight, open_pieces[np.maximum(at, 0)], others[used])
    total = np.bincount(class_of_piece, weights=weight)
    return np.asarray(weight / total[class_of_piece])


class Modes(NamedTuple):
    """The middles and masses of two cells of each query's distribution, (n,) each."""

    value: Floats
    """The middle of the first cell; it is inside every interval that is not empty."""
    belief: Floats
    other: Floats
    """The middle of the heaviest of the other cells, NaN where there is none."""
    other_belief: Floats


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distributions of n queries: a mass for each of K classes, and for the suggested values (slots) of a query."""

    cells: Cells
    class_mass: Floats
    """(n, K)"""
    slot_low: Floats
    slot_high: Floats
    """(n, slots) the smallest and largest float of each suggested value."""
    slot_mass: Floats
    """(n, slots) the mass of each suggested value, 0 where there is none."""

    def __len__(self) -> int:
        return len(self.class_mass)

    def scores(self, label: Floats, empty: bool = False) -> Floats:
        """Nonconformity of one label in [0, 1] for each query, up to 1, or up to 2 if intervals may be empty: (n,)."""
        out = np.empty(len(self))
        self._run("scores", np.ascontiguousarray(label, np.float64), out, settings=(empty,))
        return out

    def bounds(self, threshold: Floats, empty: bool = False, tail: Floats | None = None) -> Floats:
        """Smallest and largest label with a score of at most each threshold, NaN if there is none: (n, 2, levels).

        threshold: (n, levels), not negative unless intervals may be empty. The ends are exact: for every float y in
        [0, 1], lower <= y <= upper holds exactly when its score is at most the threshold. tail: (levels,); with it the
        ends are moved outwards where more than this mass of the distribution lies beyond one of them.
        """
        ends = np.empty((len(self), 2, threshold.shape[1]))
        tails = np.ones(threshold.shape[1]) if tail is None else np.asarray(tail, np.float64)
        thresholds = np.ascontiguousarray(threshold, np.float64)
        self._run("bounds", thresholds, ends, settings=(empty, tails))
        return ends

    def mass_inside(self, part: Callable[[Floats, Floats], Floats]) -> Floats:
        """The mass of the confidences in some range: (n,).

        `part(low, high)` gives the share of each stretch from low to high that is in the range, in the same shape.
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
        """The value from which the interval grows, and the likeliest of the other values, with their masses."""
        return Modes(*self._summary[:, 2:].T)

    @cached_property
    def _summary(self) -> Floats:
        """Mean, median and modes, computed in one pass over the cells: (n, 6)."""
        out = np.empty((len(self), 6))
        self._run("summary", out)
        return out

    def _run(self, kernel: str, *more: NDArray[Any], settings: tuple[Any, ...] = ()) -> None:
        """Call a compiled loop of `tree_kernels` with cells, masses, further arrays of rows, and settings."""
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
