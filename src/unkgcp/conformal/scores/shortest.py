"""The shortest interval that a prediction allows, learned from labelled predictions alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.scores.base import Floats, Limits, Threshold, register
from unkgcp.conformal.scores.residual import Residual
from unkgcp.conformal.scores.shapes import Table, learn_table

OUTSIDE = 2.0
"""The score of a label beyond all those learned from; larger than any mass."""


@register
@dataclass(frozen=True)
class Shortest:
    """s = the mass at which an interval that grows from the likeliest label first contains the truth.

    How labels lie beside a prediction is learned from a random `share` of the calibration points, drawn with `seed`
    by their position; the others are ranked. That is why the guarantee stays exact: for those the score is a
    function fixed beforehand. With fewer than `smallest` points there is too little to learn from, and the absolute
    residual of all of them is used. Which way is taken depends on the number of points alone.

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

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, not {self.share}")
        if min(self.cells, self.nodes, self.smallest) < 1 or self.smoothing <= 0:
            raise ValueError("cells, nodes, smallest and smoothing must be positive")

    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` calibration points are learned from: (size,); None if there are too few for it."""
        if size < max(self.smallest, 2):
            return None
        order = np.random.default_rng(self.seed).permutation(size)
        return np.asarray(order < min(max(1, round(self.share * size)), size - 1))

    def learn(self, prediction: Floats, truth: Floats) -> LearnedShortest:
        """The score that labelled predictions teach: (n,) each, at least one."""
        nodes = max(1, min(self.nodes, len(prediction) // 10))
        # at least fifty points on either side of a node, or all there are
        smoothing = max(self.smoothing, min(1.0, 50 / len(prediction)))
        return LearnedShortest(learn_table(prediction, truth, self.cells, nodes, smoothing))

    def fallback(self) -> Residual:
        """The score used when there is too little to learn from."""
        return Residual()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedShortest:
        """What `LearnedShortest.arrays` took apart; ValueError if it is not such a thing."""
        return LearnedShortest(_checked(Table(**{name: arrays[name] for name in _COLUMNS})))


_COLUMNS = ("boundary", "lower", "upper", "value")


class LearnedShortest:
    """The score of a learned table. All its answers are looked up, so nothing is ever rounded."""

    name: ClassVar[str] = "shortest"
    takes_scale: ClassVar[bool] = False
    prediction_ndim: ClassVar[int] = 1
    centred: ClassVar[bool] = False

    def __init__(self, table: Table) -> None:
        self.table = table
        nodes = len(table.value)
        order = np.argsort(table.value, axis=1, kind="stable")
        ones = np.ones((nodes, 1))
        # the steps of each node: from no label at all over the cells in their order to every label
        self._step = np.hstack([np.take_along_axis(table.value, order, 1), OUTSIDE * ones])
        lower = np.minimum.accumulate(table.lower[order], axis=1)
        upper = np.maximum.accumulate(table.upper[order], axis=1)
        self._lower = np.hstack([np.inf * ones, lower, -np.inf * ones])
        self._upper = np.hstack([-np.inf * ones, upper, np.inf * ones])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, as plain arrays."""
        return {name: getattr(self.table, name) for name in _COLUMNS}

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """The node of each prediction: (n,), whole numbers."""
        return np.searchsorted(self.table.boundary, prediction).astype(prediction.dtype)

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        node = (self.prepare(prediction) if scale is None else scale).astype(np.intp)
        table, last = self.table, len(self.table.lower) - 1
        # the last cell that starts at the label or before, and the first that ends there or after; between two
        # cells a label is reached when the interval reaches across
        below = np.searchsorted(table.lower, truth, side="right") - 1
        above = np.searchsorted(table.upper, truth, side="left")
        value = np.maximum(
            table.value[node, np.maximum(below, 0)], table.value[node, np.minimum(above, last)]
        )
        return np.where((below < 0) | (above > last), OUTSIDE, value).astype(prediction.dtype)

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        node = (self.prepare(prediction) if scale is None else scale).astype(np.intp)
        if threshold.ndim == 0:
            step = np.count_nonzero(self._step <= threshold, axis=1)[node]
        else:
            step = self._steps_within(node, threshold)
        lower = np.maximum(self._lower[node, step], limits[0])
        upper = np.minimum(self._upper[node, step], limits[1])
        empty = step == 0
        lower[empty], upper[empty] = np.inf, -np.inf
        return _inwards(lower, prediction.dtype, np.inf), _inwards(upper, prediction.dtype, -np.inf)

    def _steps_within(self, node: NDArray[np.intp], threshold: Threshold) -> NDArray[np.intp]:
        """How many steps of each node are within its threshold, by bisection: (n,)."""
        low = np.zeros(len(node), np.intp)
        high = np.full(len(node), self._step.shape[1], np.intp)
        for _ in range(self._step.shape[1].bit_length()):
            middle = (low + high) // 2
            within = (low < high) & (self._step[node, np.minimum(middle, high - 1)] <= threshold)
            low = np.where(within, middle + 1, low)
            high = np.where(within, high, np.maximum(middle, low))
        return low


def _inwards(ends: NDArray[np.float64], dtype: np.dtype[Any], towards: float) -> Floats:
    """Ends in the precision of the queries; one it cannot hold moves inwards, past no label of that precision."""
    rounded: Floats = ends.astype(dtype)
    off = (rounded < ends) if towards > 0 else (rounded > ends)
    return np.where(off, np.nextafter(rounded, dtype.type(towards)), rounded)


def _checked(table: Table) -> Table:
    """The table, if its sets are intervals that grow with the threshold."""
    boundary, lower, upper, value = (getattr(table, name) for name in _COLUMNS)
    if any(
        array.dtype != np.float64 or not np.isfinite(array).all() for array in (boundary, lower, upper, value)
    ):
        raise ValueError("the learned shapes are not finite numbers")
    if boundary.ndim != 1 or lower.ndim != 1 or not len(lower) or lower.shape != upper.shape:
        raise ValueError("the learned shapes are broken")
    if value.shape != (len(boundary) + 1, len(lower)) or (np.diff(boundary) < 0).any():
        raise ValueError("the learned shapes do not fit together")
    if (lower > upper).any() or (lower[1:] <= upper[:-1]).any():
        raise ValueError("the cells of the learned shapes are not in order")
    rise = np.maximum.accumulate(np.diff(value, axis=1) > 0, axis=1)
    if ((np.diff(value, axis=1) < 0) & rise).any() or (value >= OUTSIDE).any():
        raise ValueError("the learned shapes do not grow from one place")
    if (value.astype(np.float32) != value).any():
        raise ValueError("the learned shapes have too many digits")
    return table
