"""The table that the shortest score learns: how labels lie beside each prediction, and the interval that grows there.

It is made by plain counting. Labels are cut into cells (a frequent value is a cell of width 0, the rest are cells of
about equal mass), predictions into nodes; the mass of every cell is smoothed over neighbouring nodes, and from the
densest cell of a node an interval grows to where a unit of width brings most mass. The masses may be as wrong as they
like; ranks of other points repair them.

>>> rng = np.random.default_rng(0)
>>> table = learn_table(rng.random(500), rng.choice([0.2, 0.7], 500), cells=50, nodes=5, smoothing=0.2)
>>> table.lower, table.value.shape
(array([0.2, 0.7]), (5, 2))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Array = NDArray[np.float64]

ATOM = 0.005
"""The share of labels from which on a single value is a cell of its own."""
NEIGHBOURS = 50
"""Points on either side that a node looks at, or all there are."""
PRIOR = 20
"""How many points of its own a kind of predictions needs to outweigh what all of them say."""
OUTSIDE = 2.0
"""The score of a label beyond all those learned from; larger than any mass."""
COLUMNS = ("offset", "boundary", "lower", "upper", "value")
_BLOCKS = 10  # blocks of neighbouring predictions a node: how finely the smoothing looks at their order
_HAIR = 1e-3  # added to widths, so that the mass of cells without width can be compared


@dataclass(frozen=True, eq=False)
class Table:
    """K cells and G nodes in S segments: what was learned, all in float64 but for `offset`.

    offset: (S + 1,) int64, segment s has the nodes offset[s] to offset[s + 1]; segment 0 is for all predictions alike,
    each further one for predictions of one kind. boundary: (G,) the prediction up to which a node answers, inf for the
    last of a segment. lower, upper: (K,) ends of the cells, upwards, both inside. value: (G, K) the mass with which a
    cell enters the interval of a node, between before and after; it falls towards one cell of each row and rises from
    it, and float32 holds it exactly.
    """

    offset: NDArray[np.int64]
    boundary: Array
    lower: Array
    upper: Array
    value: Array

    def check(self) -> None:
        """ValueError unless its sets are intervals that grow with the threshold."""
        offset, boundary, lower, upper, value = (getattr(self, name) for name in COLUMNS)
        if (
            any(array.dtype != np.float64 for array in (boundary, lower, upper, value))
            or offset.dtype != np.int64
        ):
            raise ValueError("the learned shapes are not numbers")
        if any(array.ndim != 1 for array in (offset, boundary, lower)) or lower.shape != upper.shape:
            raise ValueError("the learned shapes are broken")
        if not len(lower) or len(offset) < 2 or offset[0] != 0 or (np.diff(offset) < 1).any():
            raise ValueError("the learned shapes are broken")
        if offset[-1] != len(boundary) or value.shape != (len(boundary), len(lower)):
            raise ValueError("the learned shapes do not fit together")
        falls = ~(boundary[1:] >= boundary[:-1])
        falls[offset[1:-1] - 1] = False
        if falls.any() or (boundary[offset[1:] - 1] != np.inf).any() or np.isnan(boundary).any():
            raise ValueError("the nodes of the learned shapes are not in order")
        if not (np.isfinite(lower).all() and np.isfinite(upper).all() and np.isfinite(value).all()):
            raise ValueError("the learned shapes are not finite")
        if (lower > upper).any() or (lower[1:] <= upper[:-1]).any():
            raise ValueError("the cells of the learned shapes are not in order")
        rise = np.maximum.accumulate(np.diff(value, axis=1) > 0, axis=1)
        if ((np.diff(value, axis=1) < 0) & rise).any() or (value >= OUTSIDE).any():
            raise ValueError("the learned shapes do not grow from one place")
        if (value.astype(np.float32) != value).any():
            raise ValueError("the learned shapes have too many digits")


def learn_table(
    prediction: Floats,
    truth: Floats,
    cells: int,
    nodes: int,
    smoothing: float,
    kind: NDArray[np.intp] | None = None,
    neighbours: int = NEIGHBOURS,
) -> Table:
    """The table of labelled predictions, (n,) each; `kind` counts from 0, and -1 has no segment of its own.

    `cells` and `nodes` (a segment) are upper limits; `smoothing` is the share of all points on either side of a node
    that count for it, the nearer the more, but at least `neighbours` of them. What a kind's own points say is mixed
    with what all points say.
    """
    look = (nodes, smoothing, neighbours)
    lower, upper = cut_labels(truth.astype(np.float64), cells)
    guess, cell = prediction.astype(np.float64), np.searchsorted(lower, truth, side="right") - 1
    node, count = counts_by_node(guess, cell, len(lower), *look)
    # one point's worth of the distribution of all labels settles the order of cells that no neighbour has
    everywhere = np.bincount(cell, minlength=len(lower)) / len(cell)
    mass = _normalised(count + everywhere)
    boundaries, masses = [_boundary(node)], [mass]
    for part in range(0 if kind is None else int(kind.max(initial=-1)) + 1):
        rows = np.flatnonzero(kind == part)
        node, count = counts_by_node(guess[rows], cell[rows], len(lower), *look)
        prior = mass[np.searchsorted(boundaries[0][:-1], node)]
        boundaries.append(_boundary(node))
        masses.append(_normalised(count + PRIOR * prior))
    value = grow(np.concatenate(masses), lower, upper).astype(np.float32).astype(np.float64)
    offset = np.cumsum([0, *map(len, boundaries)], dtype=np.int64)
    return Table(offset, np.concatenate(boundaries), lower, upper, value)


def cut_labels(truth: Array, cells: int) -> tuple[Array, Array]:
    """Lower and upper ends of the cells: (K,) each. Each frequent value is one, rare ones share theirs."""
    label, count = np.unique(truth, return_counts=True)
    atom = count >= max(2.0, ATOM * len(truth))
    # rare labels between two atoms are cut where their running count passes a multiple of the quota
    rare = np.where(atom, 0, count)
    slot = (np.cumsum(rare) - rare) * cells // len(truth)
    run = np.cumsum(atom) * 2 + atom  # differs between an atom and what is beside it
    first = np.ones(len(label), np.bool_)
    first[1:] = atom[1:] | (np.diff(run) != 0) | (np.diff(slot) != 0)
    starts = np.flatnonzero(first)
    return label[starts], label[np.append(starts[1:], len(label)) - 1]


def counts_by_node(
    prediction: Array, cell: NDArray[np.intp], cells: int, nodes: int, smoothing: float, neighbours: int
) -> tuple[Array, Array]:
    """The predictions of at most `nodes` nodes (G,), and the weighted number of points in each cell (G, cells).

    Distance is counted in points, not in prediction: nodes are close where predictions are. Equal predictions share
    their place. There are no more than five nodes for every `neighbours` points.
    """
    size = len(prediction)
    nodes = max(1, min(nodes, 5 * size // neighbours))
    smoothing = max(smoothing, min(1.0, neighbours / size))
    known, member, count = np.unique(prediction, return_inverse=True, return_counts=True)
    places = np.cumsum(count) - (count + 1) / 2
    place = places[member]
    centre = np.unique(np.sort(place)[((np.arange(nodes) + 0.5) * size / nodes).astype(np.intp)])
    blocks = min(size, _BLOCKS * nodes)
    block = (place * blocks / size).astype(np.intp)
    counts = np.bincount(block * cells + cell, minlength=blocks * cells).reshape(blocks, cells)
    middle = (np.arange(blocks) + 0.5) * size / blocks
    weight = np.maximum(0.0, 1 - np.abs(centre[:, None] - middle) / (smoothing * size))
    return known[np.searchsorted(places, centre)], weight @ counts


def _boundary(node: Array) -> Array:
    return np.append((node[1:] + node[:-1]) / 2, np.inf)


def _normalised(mass: Array) -> Array:
    shares: Array = mass / mass.sum(axis=1, keepdims=True)
    return shares


def grow(mass: Array, lower: Array, upper: Array) -> Array:
    """The value of each cell at each node, when one interval a node grows from its densest cell: (G, K).

    A step takes the stretch of cells, to the left or to the right, that brings most mass for its width, so that a
    frequent value behind an empty gap is seen in time. Cells taken in one step share their value, the mean of the
    mass before and after; it cannot fall from step to step. The first cell has value 0: no set is empty.
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
