"""The "shortest" score: narrow intervals learned from labelled predictions alone, without a model or a graph.

`Shortest` is the recipe, `LearnedShortest` the score that it learns, and `ShapeTable` what such a score has learned:
how labels lie for each prediction, and the interval that grows there.

The table is made by counting. Labels are cut into cells: a frequent value (an atom) is a cell of width 0, and the other
labels are cut into cells of about equal mass. Predictions are cut into nodes. The mass of every cell is smoothed over
neighbouring nodes. At each node an interval grows from the densest cell, always to the side where a unit of width adds
the most mass. The masses need not be right: the ranks of other points make up for their errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.arrays import Floats
from unkgcp.conformal.ranking import bisected, group_codes
from unkgcp.conformal.ranks import rank
from unkgcp.conformal.scores import LearnedScore, Recipe, Residual, Threshold, register_score
from unkgcp.files import Field, check_fields

ATOM = 0.005
"""The share of labels from which on a single value is a cell of its own."""
NEIGHBOURS = 50
"""The points on either side of a node that are counted for it, at least."""
PRIOR = 20
"""The number of points for which the masses of all predictions count where they are mixed with those of a kind."""
OUTSIDE = 2.0
"""The score of a label beyond all labels that were learned from; larger than any mass."""
FIELDS = (
    Field("offset", np.int64, ("segments+1",), 0),
    Field("boundary", np.float64, ("nodes",), finite=False),
    Field("lower", np.float64, ("cells",)),
    Field("upper", np.float64, ("cells",)),
    Field("value", np.float64, ("nodes", "cells")),
)
_BLOCKS = 10  # blocks of neighbouring predictions for each node, in which points are counted before smoothing
_HAIR = 1e-3  # added to widths, so that the density of cells without width is finite
MAX_KINDS = 200
"""The largest number of kinds with nodes of their own; it limits time and memory."""


@register_score
@dataclass(frozen=True)
class Shortest(Recipe):
    """s = the mass at which an interval that grows from the likeliest label first contains the truth.

    How labels lie for each prediction is learned from a random `share` of the calibration points, drawn with `seed` by
    position alone; the other points are ranked. The guarantee stays exact, because for the ranked points the score is a
    function that was fixed beforehand. With fewer than `smallest` points there is too little to learn from, and all
    points are ranked by the absolute residual. Only the number of points decides between the two.

    >>> recipe = Shortest()
    >>> rng = np.random.default_rng(0)
    >>> recipe.learn(rng.random(500), rng.choice([0.2, 0.7], 500)).score(np.array([0.5]), np.array([0.9]))
    array([2.])
    """

    name: ClassVar[str] = "shortest"

    share: float = 0.5
    seed: int = 0
    cells: int = 100
    nodes: int = 100
    smoothing: float = 0.05
    smallest: int = 800
    own: int = 20
    neighbours: int = NEIGHBOURS

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, not {self.share}")
        if min(self.cells, self.nodes, self.smallest, self.own, self.neighbours) < 1 or self.smoothing <= 0:
            raise ValueError("all parameters of the shortest score must be positive")

    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` calibration points are learned from: (size,); None if they are too few."""
        if size < max(self.smallest, 2):
            return None
        order = np.random.default_rng(self.seed).permutation(size)
        return np.asarray(order < min(max(1, round(self.share * size)), size - 1))

    def learn(self, prediction: Floats, truth: Floats, kind: NDArray[Any] | None = None) -> LearnedShortest:
        """The score that is learned from labelled predictions: (n,) each, at least one.

        Kinds of predictions (the relation, say) with at least `own` points get nodes of their own if that makes
        intervals narrower, which is tried by learning from one half of the points and measuring on the other.
        """
        if kind is None:
            return self._learn(prediction, truth, None)
        kinds, sizes = np.unique(kind, return_counts=True)
        large = np.argsort(-sizes, kind="stable")[:MAX_KINDS]
        kinds = kinds[np.sort(large[sizes[large] >= self.own])]
        codes = group_codes(kinds, kind)
        if len(kinds) and not self._narrower(prediction, truth, codes):
            kinds, codes = kinds[:0], np.full(len(kind), -1, np.intp)
        return replace(self._learn(prediction, truth, codes), kinds=kinds)

    def _learn(self, prediction: Floats, truth: Floats, codes: NDArray[np.intp] | None) -> LearnedShortest:
        look = (self.cells, self.nodes, self.smoothing)
        return LearnedShortest(learn_table(prediction, truth, *look, codes, self.neighbours))

    def _narrower(self, prediction: Floats, truth: Floats, codes: NDArray[np.intp]) -> bool:
        """Whether nodes of their own make intervals narrower at 90 %, learned from every other point."""
        teach, try_out = slice(0, None, 2), slice(1, None, 2)
        if len(prediction) < 4:
            return False
        widths = []
        for kind_codes in (None, codes):
            part = None if kind_codes is None else kind_codes[teach]
            score = self._learn(prediction[teach], truth[teach], part)
            rest = prediction[try_out]
            # a kind without a point in the first half uses the nodes of all predictions
            segments = len(score.table.offset) - 1
            place = (
                None
                if kind_codes is None
                else np.where(kind_codes[try_out] + 1 < segments, kind_codes[try_out] + 1, 0)
            )
            node = score.prepare(rest, None if place is None else place.astype(rest.dtype))
            strange = score.score(rest, truth[try_out], node)
            threshold = np.sort(strange)[min(rank("0.9", len(rest)), len(rest)) - 1]
            lower, upper = score.bounds(rest, threshold, node, (float(truth.min()), float(truth.max())))
            widths.append(float((upper - lower).mean()))
        return widths[1] < widths[0]

    def fallback(self) -> Residual:
        """The score that is used where there are too few points to learn from."""
        return Residual()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedShortest:
        """The score that `LearnedShortest.arrays` stored; ValueError if the arrays are no such score."""
        kinds = arrays.get("kinds")
        table = ShapeTable(**{field.name: arrays[field.name] for field in FIELDS})
        sizes = check_fields(vars(table), FIELDS)
        if table.offset[0] != 0 or table.offset[-1] != sizes["nodes"] or (np.diff(table.offset) < 1).any():
            raise ValueError("the learned shapes do not fit together")
        if (0 if kinds is None else len(kinds)) != sizes["segments"] - 1:
            raise ValueError("the kinds of the learned shapes are missing")
        return LearnedShortest(table, kinds)


@dataclass(frozen=True, eq=False)
class LearnedShortest(LearnedScore):
    """The score of a learned table. Scores and ends are looked up in it, so that nothing is rounded.

    kinds: the sorted labels of the kinds that have nodes of their own, possibly none; None if predictions come without
    a kind.
    """

    name: ClassVar[str] = "shortest"

    table: ShapeTable
    kinds: NDArray[Any] | None = None

    @cached_property
    def _steps(self) -> tuple[Floats, Floats, Floats]:
        """Values and ends of the intervals of each node, (G, K + 2) each: no cell, then one cell more at a time in the
        order of their values, then everything."""
        table = self.table
        order = np.argsort(table.value, axis=1, kind="stable")
        every = np.ones((len(table.value), 1))
        lower = np.minimum.accumulate(table.lower[order], axis=1)
        upper = np.maximum.accumulate(table.upper[order], axis=1)
        value = np.take_along_axis(table.value, order, 1)
        return (
            np.hstack([-np.inf * every, value, OUTSIDE * every]),
            np.hstack([np.inf * every, lower, -np.inf * every]),
            np.hstack([-np.inf * every, upper, np.inf * every]),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The table and the kinds as plain arrays."""
        columns = vars(self.table)
        return {**columns} if self.kinds is None else {**columns, "kinds": self.kinds}

    def kind_codes(self, kind: NDArray[Any]) -> NDArray[np.intp]:
        """The segment of each kind, 0 for a kind without nodes of its own: (n,); `prepare` takes it as scale."""
        assert self.kinds is not None
        return group_codes(self.kinds, kind) + 1 if len(self.kinds) else np.zeros(len(kind), np.intp)

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """The node of each prediction: (n,), whole numbers; `scale` is the segment, 0 if not given."""
        table = self.table
        segment = np.zeros(len(prediction), np.intp) if scale is None else scale.astype(np.intp)
        first, size = table.offset[segment], np.diff(table.offset)[segment]
        # the last node of a segment has no upper boundary
        node = first + bisected(size - 1, lambda place: table.boundary[first + place] < prediction)
        return node.astype(np.float64)

    def estimate(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        node = (self.prepare(prediction) if scale is None else scale).astype(np.intp)
        table, last = self.table, len(self.table.lower) - 1
        # the last cell that begins at the label or below, and the first that ends at the label or above; a label
        # between two cells is inside when the interval contains both
        below = np.searchsorted(table.lower, truth, side="right") - 1
        above = np.searchsorted(table.upper, truth, side="left")
        value = np.maximum(
            table.value[node, np.maximum(below, 0)], table.value[node, np.minimum(above, last)]
        )
        return np.where((below < 0) | (above > last), OUTSIDE, value)

    def ends(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None = None
    ) -> tuple[Floats, Floats]:
        node = (self.prepare(prediction) if scale is None else scale).astype(np.intp)
        value, lower, upper = self._steps
        inner = np.full(len(node), value.shape[1] - 1)
        step = bisected(inner, lambda place: value[node, np.minimum(place + 1, inner)] <= threshold)
        return lower[node, step], upper[node, step]


@dataclass(frozen=True, eq=False)
class ShapeTable:
    """K cells and G nodes in S segments.

    offset: (S + 1,) int64, segment s has the nodes offset[s] to offset[s + 1]; segment 0 is for all predictions, each
    further one for the predictions of one kind. boundary: (G,) the largest prediction that a node answers, inf for the
    last node of a segment. lower, upper: (K,) ends of the cells in ascending order; both belong to the cell. value:
    (G, K) the mass at which a cell enters the interval of a node, the mean of the mass before and after; it falls
    towards one cell of each row and rises from there.
    """

    offset: NDArray[np.int64]
    boundary: Floats
    lower: Floats
    upper: Floats
    value: Floats


def learn_table(
    prediction: Floats,
    truth: Floats,
    cells: int,
    nodes: int,
    smoothing: float,
    kind: NDArray[np.intp] | None = None,
    neighbours: int = NEIGHBOURS,
) -> ShapeTable:
    """The table of labelled predictions, (n,) each; kinds are numbers from 0 on, -1 for those without a segment.

    `cells`, and `nodes` for each segment, are upper limits. `smoothing` is the share of all points on either side of a
    node that count for it, nearer ones more, but at least `neighbours` of them. The masses of a kind are mixed with
    those of all points.

    >>> rng = np.random.default_rng(0)
    >>> table = learn_table(rng.random(500), rng.choice([0.2, 0.7], 500), cells=50, nodes=5, smoothing=0.2)
    >>> table.lower, table.value.shape
    (array([0.2, 0.7]), (5, 2))
    """
    look = (nodes, smoothing, neighbours)
    lower, upper = cut_labels(truth.astype(np.float64), cells)
    guess, cell = prediction.astype(np.float64), np.searchsorted(lower, truth, side="right") - 1
    node, count = counts_by_node(guess, cell, len(lower), *look)
    # the distribution of all labels counts as one more point; it orders the cells that no neighbour has
    everywhere = np.bincount(cell, minlength=len(lower)) / len(cell)
    mass = _normalised(count + everywhere)
    boundaries, masses = [_boundary(node)], [mass]
    for part in range(0 if kind is None else int(kind.max(initial=-1)) + 1):
        rows = np.flatnonzero(kind == part)
        node, count = counts_by_node(guess[rows], cell[rows], len(lower), *look)
        prior = mass[np.searchsorted(boundaries[0][:-1], node)]
        boundaries.append(_boundary(node))
        masses.append(_normalised(count + PRIOR * prior))
    value = grow(np.concatenate(masses), lower, upper)
    offset = np.cumsum([0, *map(len, boundaries)], dtype=np.int64)
    return ShapeTable(offset, np.concatenate(boundaries), lower, upper, value)


def cut_labels(truth: Floats, cells: int) -> tuple[Floats, Floats]:
    """Lower and upper ends of the cells: (K,) each. A frequent value is a cell of its own, rare values share cells."""
    label, count = np.unique(truth, return_counts=True)
    atom = count >= max(2.0, ATOM * len(truth))
    # a new cell begins where the running count of rare labels passes a multiple of the size of a cell
    rare = np.where(atom, 0, count)
    slot = (np.cumsum(rare) - rare) * cells // len(truth)
    run = np.cumsum(atom) * 2 + atom  # differs between an atom and its neighbours
    first = np.ones(len(label), np.bool_)
    first[1:] = atom[1:] | (np.diff(run) != 0) | (np.diff(slot) != 0)
    starts = np.flatnonzero(first)
    return label[starts], label[np.append(starts[1:], len(label)) - 1]


def counts_by_node(
    prediction: Floats, cell: NDArray[np.intp], cells: int, nodes: int, smoothing: float, neighbours: int
) -> tuple[Floats, Floats]:
    """The predictions of at most `nodes` nodes (G,), and the weighted number of points in each cell (G, cells).

    Distance is measured in points in between, not in prediction, so that nodes are dense where predictions are. Equal
    predictions have the same place. There are no more than five nodes for every `neighbours` points.
    """
    size = len(prediction)
    nodes = max(1, min(nodes, 5 * size // neighbours))
    smoothing = max(smoothing, min(1.0, neighbours / size))
    values, member, count = np.unique(prediction, return_inverse=True, return_counts=True)
    positions = np.cumsum(count) - (count + 1) / 2
    position = positions[member]
    centre = np.unique(np.sort(position)[((np.arange(nodes) + 0.5) * size / nodes).astype(np.intp)])
    blocks = min(size, _BLOCKS * nodes)
    block = (position * blocks / size).astype(np.intp)
    counts = np.bincount(block * cells + cell, minlength=blocks * cells).reshape(blocks, cells)
    middle = (np.arange(blocks) + 0.5) * size / blocks
    weight = np.maximum(0.0, 1 - np.abs(centre[:, None] - middle) / (smoothing * size))
    return values[np.searchsorted(positions, centre)], weight @ counts


def _boundary(node: Floats) -> Floats:
    return np.append((node[1:] + node[:-1]) / 2, np.inf)


def _normalised(mass: Floats) -> Floats:
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


def grow(mass: Floats, lower: Floats, upper: Floats) -> Floats:
    """The value of each cell at each node, where one interval for each node grows from its densest cell: (G, K).

    A step takes the stretch of cells, to the left or to the right, with the most mass for its width; a stretch may
    reach a frequent value behind a gap. Cells taken in one step share their value, the mean of the mass before and
    after the step, which never falls from step to step. The first cell has value 0, so that no set is empty.
    """
    nodes, cells = mass.shape
    column = np.arange(cells)
    total = np.concatenate([np.zeros((nodes, 1)), np.cumsum(mass, axis=1)], axis=1)
    left = right = np.argmax(mass / (upper - lower + _HAIR), axis=1)[:, None]
    value = np.full((nodes, cells), np.nan)
    held = np.take_along_axis(mass, left, 1)
    np.put_along_axis(value, left, 0.0, 1)
    while True:
        gain_left = np.take_along_axis(total, left, 1) - total[:, :-1]
        gain_left /= np.maximum(lower[left] - lower, 0) + _HAIR
        gain_right = total[:, 1:] - np.take_along_axis(total, right + 1, 1)
        gain_right /= np.maximum(upper - upper[right], 0) + _HAIR
        gain = np.where(column < left, gain_left, np.where(column > right, gain_right, -1.0))
        best = np.argmax(gain, axis=1)[:, None]
        more = np.take_along_axis(gain, best, 1) >= 0
        if not more.any():
            return value
        left, right = (
            np.where(more, np.minimum(left, best), left),
            np.where(more, np.maximum(right, best), right),
        )
        before, held = held, np.take_along_axis(total, right + 1, 1) - np.take_along_axis(total, left, 1)
        taken = np.isnan(value) & (left <= column) & (column <= right)
        value = np.where(taken, (before + held) / 2, value)
