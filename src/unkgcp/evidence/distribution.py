"""The distribution of a query's confidence over [0, 1], and its central intervals.

`Cells` divide the range [0, 1]. A value, one of the distinct confidences of the training facts, that many facts share
is a cell of width 0, an atom. The range between atoms is cut at quantiles of the other facts into coarse cells with
about equally many facts. Atoms and coarse cells are the classes that a learner tells apart. A coarse cell is cut
further into pieces, over which its mass is divided as the law of the query says: a location, a scale and the shape of
standardised errors. Beyond the smallest and the largest confidence of the training facts there is no mass, so that
confidences may live in any part of [0, 1]. A `Distribution` has a mass for every class and for the suggested values of
each query.

The interval of a query at the mass t leaves out a mass of (1 - t) / 2 on either side, or less where an atom stands
there: with F the distribution function, it holds all y with F(y) >= (1 - t) / 2 and F(y-) <= (1 + t) / 2. The
nonconformity of a label is the central mass that just excludes it, max(0, 1 - 2 F(y), 2 F(y-) - 1). So there is one
interval for every threshold, intervals grow with the threshold, and the median is in all of them.

Masses of a distribution that was learned are a little off. `actual` says how much mass central intervals really held on
training facts that were not learned from (at atoms a label counts as if it lay anywhere in the atom's mass); scores and
thresholds are in these units.

>>> cells = Cells.of(Values.of(np.array([0.2, 0.5, 0.9])), np.array([0, 1, 1, 1, 2]), atom_share=0.5, coarse=2)
>>> cells.low.round(2).tolist(), cells.high.round(2).tolist(), cells.class_of_piece.tolist()
([0.0, 0.2, 0.5, 0.5, 0.55, 0.9], [0.2, 0.5, 0.5, 0.55, 0.9, 1.0], [1, 1, 0, 1, 2, 2])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import Values
from unkgcp.loops import in_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ATOM_SHARE, COARSE, FINE = 0.01, 12, 192
"""The share of facts that makes an atom; the number of coarse cells and of pieces."""
LARGEST = 40  # the largest number of atoms
GRID = 1e9  # ends are rounded outwards to nine decimals, like all confidences
BEYOND = (
    1e-3  # of the range of the confidences, by which mass reaches beyond the smallest and the largest one
)
STEPS = 200  # central masses at which `actual` is known


@dataclass(frozen=True, eq=False)
class Cells:
    """S pieces in ascending order that cover [0, 1], of atoms and of coarse cells, which are the classes."""

    low: Floats
    high: Floats
    """(S,) ends of the pieces; those of an atom are equal."""
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
        seen = centre[counts > 0]
        beyond = max(BEYOND * float(seen[-1] - seen[0]), 1 / GRID)
        ends = np.array([seen[0] - beyond, seen[-1] + beyond])
        edges = np.union1d(np.union1d(cuts, _cuts(centre, others, fine)), ends)
        low, high, atom = _pieces(values.centre[atoms], edges)
        class_of_piece = np.where(atom >= 0, atom, len(atoms) + np.searchsorted(cuts, (low + high) / 2))
        class_of_value = len(atoms) + np.searchsorted(cuts, centre)
        class_of_value[atoms] = np.arange(len(atoms))
        inside = (low >= ends[0]) & (high <= ends[1])
        share = _shares(low, atom, inside, class_of_piece, centre, others)
        return cls(low, high, class_of_piece, share, class_of_value, len(atoms) + len(cuts) + 1)

    def over(self, before: Values, values: Values) -> Cells:
        """The same cells for other values; one that is not among the values `before` gets the class that it lies in."""
        piece = np.minimum(np.searchsorted(self.high, values.centre), len(self.high) - 1)
        earlier_code = before.code(values.low)
        kinds = np.where(earlier_code >= 0, self.class_of_value[earlier_code], self.class_of_piece[piece])
        return replace(self, class_of_value=kinds)

    def check(self, values: int) -> None:
        """ValueError unless the arrays fit together and to so many values."""
        pieces = len(self.low) if self.low.ndim == 1 else 0
        codes = (self.class_of_piece, self.class_of_value)
        good = (
            0 < self.classes <= LARGEST + COARSE
            and 0 < pieces <= 2 * LARGEST + 3 + COARSE + FINE
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

    @property
    def atoms(self) -> int:
        """How many of the classes are atoms."""
        return int((self.low == self.high).sum())

    def joined(self) -> Cells:
        """The same atoms, and all other values in one class."""
        top = self.atoms
        return replace(
            self,
            class_of_piece=np.minimum(self.class_of_piece, top),
            class_of_value=np.minimum(self.class_of_value, top),
            share=_normalised(self.share, np.minimum(self.class_of_piece, top)),
            classes=min(self.classes, top + 1),
        )


def _normalised(weight: Floats, group: Ints) -> Floats:
    """Weights that sum to one in every group: (n,)."""
    return np.asarray(weight / np.bincount(group, weights=weight)[group])


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


def _pieces(atoms: Floats, edges: Floats) -> tuple[Floats, Floats, Ints]:
    """Atoms, and the gaps between them cut at the edges: low end, high end, and number of the atom or -1."""
    rows: list[tuple[float, float, int]] = []
    begin = 0.0
    for atom in range(len(atoms) + 1):
        last = atom == len(atoms)
        end = 1.0 if last else float(atoms[atom])
        points = [begin, *edges[(edges > begin) & (edges < end)].tolist(), end]
        rows += [(a, b, -1) for a, b in pairwise(points) if a < b]
        if not last:
            rows.append((end, end, atom))
            begin = end
    low, high, number = (np.array(column) for column in zip(*rows, strict=True))
    return low, high, number.astype(np.int64)


def _shares(
    low: Floats, atom: Ints, inside: NDArray[np.bool_], class_of_piece: Ints, centre: Floats, others: Ints
) -> Floats:
    """The share of every piece in its class, by the facts that fall into it.

    Each piece `inside` the range of the confidences gets half a fact more, the others nothing.
    """
    open_pieces = np.flatnonzero(atom < 0)
    weight = np.where(atom < 0, np.where(inside, 0.5, 0.0), 1.0)
    used = np.flatnonzero(others)
    if len(open_pieces) and len(used):
        at = np.searchsorted(low[open_pieces], centre[used], side="right") - 1
        np.add.at(weight, open_pieces[np.maximum(at, 0)], others[used])
    return _normalised(weight, class_of_piece)


class Centre(NamedTuple):
    """What a distribution says in a few numbers, (n,) each."""

    mean: Floats
    median: Floats
    """It is inside every interval."""
    belief: Floats
    """The mass of the median, NaN where it is no atom."""
    other: Floats
    """The heaviest other atom, NaN where there is none."""
    other_belief: Floats


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distributions of n queries."""

    cells: Cells
    shape: Floats
    """(groups, J) quantiles of standardised errors; (1, 0) where masses are divided alike for all queries."""
    class_mass: Floats
    """(n, K) the mass of each class."""
    location: Floats
    scale: Floats
    group: Ints
    """(n,) the row of `shape` for each query."""
    slot_value: Floats
    slot_mass: Floats
    """(n, slots) the suggested values and their masses, 0 where there is none."""
    actual: Floats
    """(STEPS + 1,) from 0 to 1, how much mass the central intervals of the mass 0, 1 / STEPS, ... really held."""

    def __len__(self) -> int:
        return len(self.class_mass)

    def scores(self, label: Floats) -> Floats:
        """Nonconformity of one label in [0, 1] for each query, from 0 to 1: (n,)."""
        out = np.empty(len(self))
        self._run("scores", _read_only(np.asarray(label, np.float64)), out)
        return np.interp(out, _MASSES, self.actual)

    def placed_scores(self, label: Floats, rng: np.random.Generator) -> Floats:
        """Scores of labels that each take a random place in the mass of the value they equal: (n,).

        They are as large as `scores` where no value has a mass of its own, and never smaller.
        """
        n, median = len(label), self.centre.median
        below, above = np.empty(n), np.empty(n)
        self._run("scores", _read_only(np.nextafter(label, -1.0)), below)
        self._run("scores", _read_only(np.nextafter(label, 2.0)), above)
        # the mass up to just below a label, and up to just above it
        low = 0.5 * (1.0 + np.where(label <= median, -below, below))
        high = 0.5 * (1.0 + np.where(label < median, -above, above))
        return np.interp(np.abs(2.0 * (low + rng.random(n) * (high - low)) - 1.0), _MASSES, self.actual)

    def bounds(self, threshold: Floats) -> Floats:
        """Smallest and largest label with a score of at most each threshold (n, levels): (n, 2, levels).

        Ends are rounded outwards to nine decimals. A threshold of infinity gives the whole range.
        """
        ends = np.empty((len(self), 2, threshold.shape[1]))
        mass = np.interp(np.clip(threshold, 0.0, 1.0), self.actual, _MASSES)
        self._run("bounds", _read_only(mass), ends)
        whole = threshold == np.inf
        # a float of nine decimals may lie a little below them
        ends[:, 0] = np.where(whole, 0.0, np.floor(ends[:, 0] * GRID + 1e-4) / GRID)
        ends[:, 1] = np.where(whole, 1.0, np.minimum(np.ceil(ends[:, 1] * GRID - 1e-4) / GRID, 1.0))
        return ends

    def width(self, mass: float) -> Floats:
        """The width of the central interval of this mass: (n,)."""
        lower, upper = self.bounds(np.full((len(self), 1), mass))[:, :, 0].T
        return np.asarray(upper - lower)

    def mass_inside(self, part: Callable[[Floats, Floats], Floats]) -> Floats:
        """The mass of the confidences in some range: (n,).

        `part(low, high)` gives the share of each stretch from low to high that is in the range, in the same shape.
        """
        low, high, mass = self.stretches()
        inside: Floats = (mass * part(low, high)).sum(axis=1)
        return inside

    def stretches(self) -> tuple[Floats, Floats, Floats]:
        """Lower ends, upper ends and masses of all pieces and suggested values of each query: (n, S + slots) each."""
        cells, mass = self.cells, np.empty((len(self), len(self.cells.low)))
        self._run("pieces", mass, slots=False)
        n = len(self)
        low, high = (
            np.concatenate([np.tile(ends, (n, 1)), self.slot_value], axis=1)
            for ends in (cells.low, cells.high)
        )
        return low, high, np.concatenate([mass, self.slot_mass], axis=1)

    @cached_property
    def centre(self) -> Centre:
        """Mean, median and likely values; the median is rounded to nine decimals."""
        out = np.empty((len(self), 5))
        self._run("summary", out)
        out[:, 1] = np.rint(out[:, 1] * GRID) / GRID
        return Centre(*out.T)

    def _run(
        self, kernel: str, *more: NDArray[Any], slots: bool = True, whole: tuple[NDArray[Any], ...] = ()
    ) -> None:
        """Call a compiled loop of `law_kernels` with cells, columns of the queries, further arrays of rows, and arrays
        that are the same for all rows."""
        from unkgcp.evidence import law_kernels

        cells, compiled = self.cells, getattr(law_kernels, kernel)
        columns: list[NDArray[Any]] = [self.class_mass, self.location, self.scale, self.group]
        columns += [self.slot_value, self.slot_mass] if slots else []
        columns = [_read_only(column) for column in columns]
        fixed = [
            _read_only(one) for one in (cells.low, cells.high, cells.class_of_piece, cells.share, self.shape)
        ]

        def work(rows: slice) -> None:
            compiled(
                *fixed, *(column[rows] for column in columns), *(column[rows] for column in more), *whole
            )

        in_threads(len(self), work)

    def blended(self, by_errors: float) -> Distribution:
        """The same with so much of the masses of coarse cells as location and scale say."""
        cells, top = self.cells, self.cells.atoms
        rest = self.class_mass[:, top:].sum(axis=1, keepdims=True)
        joined = replace(
            self, cells=cells.joined(), class_mass=np.concatenate([self.class_mass[:, :top], rest], axis=1)
        )
        of_class = np.empty_like(self.class_mass)
        joined._run("classes", of_class, slots=False, whole=(_read_only(cells.class_of_piece),))
        return replace(self, class_mass=(1 - by_errors) * self.class_mass + by_errors * of_class)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as all are given to compiled loops, which would be compiled again for those that can be written to."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


_MASSES = np.linspace(0.0, 1.0, STEPS + 1)
IDENTITY = _MASSES
"""`actual` of a distribution whose masses are right."""
DOUBTED = 200.0  # facts with right masses that are added to those that `actual` is measured on


def actual_masses(distribution: Distribution, label: Floats, seed: int) -> Floats:
    """What central intervals really hold, from the labels (n,) of facts that were not learned from: (STEPS + 1,)."""
    plain = replace(distribution, actual=IDENTITY)
    n, rng = len(label), np.random.default_rng((seed, 0x917))
    drawn = np.sort(plain.placed_scores(label, rng))
    held = np.searchsorted(drawn, _MASSES, side="right") / max(n, 1)
    blended = (n * held + DOUBTED * _MASSES) / (n + DOUBTED)
    blended[0], blended[-1] = 0.0, 1.0
    return np.asarray(np.maximum.accumulate(blended))
