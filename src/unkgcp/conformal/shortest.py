"""The shortest interval that a prediction allows, learned from labelled predictions alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import bisected, group_codes
from unkgcp.conformal.ranks import rank
from unkgcp.conformal.scores import Floats, LearnedScore, Limits, Recipe, Residual, Threshold, register
from unkgcp.conformal.shortest_table import COLUMNS, NEIGHBOURS, OUTSIDE, Table, learn_table

MOST_KINDS = 200
"""Kinds of predictions with shapes of their own; a limit to time and memory."""


@register
@dataclass(frozen=True)
class Shortest(Recipe):
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
    own: int = 20
    neighbours: int = NEIGHBOURS

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, not {self.share}")
        if min(self.cells, self.nodes, self.smallest, self.own, self.neighbours) < 1 or self.smoothing <= 0:
            raise ValueError("all parameters of the shortest score must be positive")

    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` calibration points are learned from: (size,); None if there are too few for it."""
        if size < max(self.smallest, 2):
            return None
        order = np.random.default_rng(self.seed).permutation(size)
        return np.asarray(order < min(max(1, round(self.share * size)), size - 1))

    def learn(self, prediction: Floats, truth: Floats, kind: NDArray[Any] | None = None) -> LearnedShortest:
        """The score that labelled predictions teach: (n,) each, at least one.

        Kinds of predictions (the relation, say) with at least `own` points get shapes of their own, if that makes
        intervals narrower: tried out with one half of these points on the other.
        """
        if kind is None:
            return self._learn(prediction, truth, None)
        known, sizes = np.unique(kind, return_counts=True)
        large = np.argsort(-sizes, kind="stable")[:MOST_KINDS]
        known = known[np.sort(large[sizes[large] >= self.own])]
        codes = group_codes(known, kind)
        if len(known) and not self._narrower(prediction, truth, codes):
            known, codes = known[:0], np.full(len(kind), -1, np.intp)
        return replace(self._learn(prediction, truth, codes), kinds=known)

    def _learn(self, prediction: Floats, truth: Floats, codes: NDArray[np.intp] | None) -> LearnedShortest:
        look = (self.cells, self.nodes, self.smoothing)
        return LearnedShortest(learn_table(prediction, truth, *look, codes, self.neighbours))

    def _narrower(self, prediction: Floats, truth: Floats, codes: NDArray[np.intp]) -> bool:
        """Whether shapes of their own make intervals narrower at 90 %, learned from every other point."""
        teach, try_out = slice(0, None, 2), slice(1, None, 2)
        if len(prediction) < 4:
            return False
        widths = []
        for given in (None, codes):
            part = None if given is None else given[teach]
            score = self._learn(prediction[teach], truth[teach], part)
            rest = prediction[try_out]
            # a kind that the half has no point of is answered like all predictions
            segments = len(score.table.offset) - 1
            place = None if given is None else np.where(given[try_out] + 1 < segments, given[try_out] + 1, 0)
            node = score.prepare(rest, None if place is None else place.astype(rest.dtype))
            strange = score.score(rest, truth[try_out], node)
            threshold = np.sort(strange)[min(rank("0.9", len(rest)), len(rest)) - 1]
            lower, upper = score.bounds(rest, threshold, node, (float(truth.min()), float(truth.max())))
            widths.append(float((upper - lower).mean()))
        return widths[1] < widths[0]

    def fallback(self) -> Residual:
        """The score used when there is too little to learn from."""
        return Residual()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedShortest:
        """What `LearnedShortest.arrays` took apart; ValueError if it is not such a thing."""
        table = Table(**{name: arrays[name] for name in COLUMNS})
        table.check()
        kinds = arrays.get("kinds")
        segments = len(table.offset) - 1
        if kinds is None:
            if segments != 1:
                raise ValueError("the kinds of the learned shapes are missing")
        elif (
            kinds.shape != (segments - 1,) or kinds.dtype.kind not in "iuU" or (kinds[1:] <= kinds[:-1]).any()
        ):
            raise ValueError("the kinds of the learned shapes do not fit")
        return LearnedShortest(table, kinds)


@dataclass(frozen=True, eq=False)
class LearnedShortest(LearnedScore):
    """The score of a learned table. All its answers are looked up, so nothing is ever rounded.

    kinds: sorted labels of the kinds of predictions with shapes of their own, perhaps none of them; None if
    predictions come without a kind.
    """

    name: ClassVar[str] = "shortest"
    takes_scale: ClassVar[bool] = False
    centred: ClassVar[bool] = False

    table: Table
    kinds: NDArray[Any] | None = None
    # the steps of each node: from no label at all over the cells in their order to every label
    _step: NDArray[np.float64] = field(init=False, repr=False)
    _lower: NDArray[np.float64] = field(init=False, repr=False)
    _upper: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = self.table
        order = np.argsort(table.value, axis=1, kind="stable")
        ones = np.ones((len(table.value), 1))
        lower = np.minimum.accumulate(table.lower[order], axis=1)
        upper = np.maximum.accumulate(table.upper[order], axis=1)
        steps = {
            "_step": np.hstack([np.take_along_axis(table.value, order, 1), OUTSIDE * ones]),
            "_lower": np.hstack([np.inf * ones, lower, -np.inf * ones]),
            "_upper": np.hstack([-np.inf * ones, upper, np.inf * ones]),
        }
        for name, array in steps.items():
            object.__setattr__(self, name, array)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, as plain arrays."""
        columns = {name: getattr(self.table, name) for name in COLUMNS}
        return columns if self.kinds is None else {**columns, "kinds": self.kinds}

    def places(self, kind: NDArray[Any]) -> NDArray[np.intp]:
        """The segment of each kind, 0 for one without shapes of its own: (n,); `prepare` takes it as scale."""
        assert self.kinds is not None
        return group_codes(self.kinds, kind) + 1 if len(self.kinds) else np.zeros(len(kind), np.intp)

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """The node of each prediction: (n,), whole numbers; `scale` is the segment, 0 if not given."""
        table = self.table
        if scale is None:
            return np.searchsorted(table.boundary[: table.offset[1] - 1], prediction).astype(prediction.dtype)
        segment = scale.astype(np.intp)
        first, others = table.offset[segment], np.diff(table.offset)[segment] - 1  # the last node has no end
        node = first + bisected(others, lambda place: table.boundary[first + place] < prediction)
        return node.astype(prediction.dtype)

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
            last = self._step.shape[1] - 1
            steps = np.full(len(node), last + 1, np.int64)
            step = bisected(steps, lambda place: self._step[node, np.minimum(place, last)] <= threshold)
        lower = np.maximum(self._lower[node, step], limits[0])
        upper = np.minimum(self._upper[node, step], limits[1])
        empty = step == 0
        lower[empty], upper[empty] = np.inf, -np.inf
        return _inwards(lower, prediction.dtype, np.inf), _inwards(upper, prediction.dtype, -np.inf)


def _inwards(ends: NDArray[np.float64], dtype: np.dtype[Any], towards: float) -> Floats:
    """Ends in the precision of the queries; one it cannot hold moves inwards, past no label of that precision."""
    rounded: Floats = ends.astype(dtype)
    off = (rounded < ends) if towards > 0 else (rounded > ends)
    return np.where(off, np.nextafter(rounded, dtype.type(towards)), rounded)
