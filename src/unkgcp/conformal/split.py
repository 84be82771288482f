"""Split conformal prediction over arrays: bring predictions of any model, get intervals that hold.

Calibration sorts the nonconformity scores of labelled predictions once; after that any level is a rank. Knows
nothing of graphs or models, and needs neither torch nor a training set.

>>> rng = np.random.default_rng(0)
>>> prediction, truth = rng.random(99), rng.random(99)
>>> cal = SplitConformal(bounds=(0, 1)).calibrate(prediction, truth)
>>> cal.interval(prediction[:2], confidence=[0.8, 0.9]).shape
(2, 2, 2)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import arrays
from unkgcp.conformal.chunks import run_chunks
from unkgcp.conformal.groups import MIN_GROUP, FallbackWarning, group_codes, labels
from unkgcp.conformal.ranking import Ranking, rank_groups, rank_scores
from unkgcp.conformal.ranks import Confidence, exact_levels
from unkgcp.conformal.scores import Residual, ScaledResidual, Score, make_score

Floats = NDArray[np.floating[Any]]
Levels = Confidence | Iterable[Confidence]


@dataclass(frozen=True)
class Calibration:
    """What calibration leaves behind: the scores in order, how they were made and for which groups."""

    score: Score
    ranking: Ranking
    dtype: np.dtype[Any]
    """float32 if everything at calibration was; the precision of labels, scores and interval ends."""
    groups: NDArray[Any] | None = None
    """Sorted labels of the groups with a threshold of their own, or None without groups."""
    heaviest: float | None = None
    """The largest calibration weight, or None without weights."""


@dataclass(frozen=True)
class _Query:
    prediction: Floats
    scale: Floats | None
    group: NDArray[Any] | None
    weight: NDArray[np.float64] | None
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.prediction)


class SplitConformal:
    """Intervals that contain the true label with probability `confidence`, whatever the model.

    Guarantee: if calibration points and query are exchangeable (in particular i.i.d.) and the model, the scale
    and the groups were fixed without the calibration labels, the label of a query is inside its interval with
    probability at least `confidence`, over calibration set and query together; at most 1 / (l + 1) more when
    scores have no ties. With groups the promise holds within each group that has its own threshold.

    score: a name ("residual", "scaled", "entropy"), a `Score`, or None for the residual, divided by the scale
        where one is given.
    bounds: the range of labels, to which intervals are cut, or None. Without bounds a level too high for the
        number of calibration points gives infinite ends; with bounds it gives the bounds.
    training_conditional: delta in (0, 1); then, for all but a share delta of calibration sets, the coverage
        given the calibration set is at least `confidence`.
    min_group: groups with fewer calibration points are answered with the pooled threshold.
    """

    def __init__(
        self,
        score: str | Score | None = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        training_conditional: float | None = None,
        min_group: int = MIN_GROUP,
    ) -> None:
        self.score = make_score(score) if isinstance(score, str) else score
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        self.bounds = (float(low), float(high))
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"bounds must be a smaller and a larger number, not {bounds}")
        if training_conditional is not None and not 0 < training_conditional < 1:
            raise ValueError(f"training_conditional must be above 0 and below 1, not {training_conditional}")
        if min_group < 1:
            raise ValueError(f"min_group must be at least 1, not {min_group}")
        self.training_conditional = training_conditional
        self.min_group = min_group
        self._calibration: Calibration | None = None

    def calibrate(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> SplitConformal:
        """Learn the order of the nonconformity scores of l labelled predictions; all arguments are (l,).

        Calling it again replaces the calibration. Returns self.
        """
        score = self.score or (Residual() if scale is None else ScaledResidual())
        columns = self._columns(score, prediction, scale, group, weight)
        size = len(columns)
        if size == 0:
            raise ValueError("prediction is empty, calibration needs at least one point")
        if columns.weight is not None and self.training_conditional is not None:
            raise ValueError("training_conditional has no meaning with weights; leave one of them out")
        label = arrays.column("truth", truth, size)
        dtype = np.result_type(columns.dtype, label.dtype)
        scores = np.empty(size, dtype)

        def work(start: int, stop: int) -> None:
            given, unit = self._chunk(score, columns, dtype, start, stop)
            scores[start:stop] = score.score(given, self._labels(label, dtype, start, stop), unit)

        run_chunks(size, work)
        heaviest = None
        if columns.weight is not None:
            arrays.check_non_negative("weight", columns.weight, 0)
            heaviest = float(columns.weight.max())
            if heaviest == 0:
                raise ValueError("weight is zero everywhere")
        known: NDArray[Any] | None = None
        if columns.group is None:
            ranking = rank_scores(scores, columns.weight)
        else:
            found, sizes = np.unique(columns.group, return_counts=True)
            known = found[sizes >= self.min_group]
            ranking = rank_groups(scores, group_codes(known, columns.group), len(known), columns.weight)
        self._calibration = Calibration(score, ranking, dtype, known, heaviest)
        return self

    def interval(
        self,
        prediction: ArrayLike,
        scale: ArrayLike | None = None,
        group: ArrayLike | None = None,
        confidence: Levels = 0.9,
        weight: ArrayLike | None = None,
    ) -> Floats:
        """Lower and upper ends of n queries: (n, 2) for one level, (n, 2, levels) for several.

        A label y is inside, lower <= y <= upper, exactly when its p-value exceeds 1 - confidence. An empty set
        has lower > upper: at confidence 0 (inf, -inf), and where a prediction is so far outside the bounds that
        no label within them qualifies. Confidence 1 is the whole range.
        """
        levels, single = exact_levels(confidence)
        calibration, query = self._query(prediction, scale, group, weight)
        limits = (query.dtype.type(self.bounds[0]), query.dtype.type(self.bounds[1]))
        ends = np.empty((len(query), 2, len(levels)), query.dtype)
        answer = _Thresholds(self, calibration, query, levels)

        def work(start: int, stop: int) -> None:
            given, unit = self._chunk(calibration.score, query, query.dtype, start, stop)
            for index, threshold in enumerate(answer.chunk(start, stop)):
                lower, upper = ends[start:stop, 0, index], ends[start:stop, 1, index]
                if levels[index] == 0:
                    lower[:], upper[:] = np.inf, -np.inf
                elif threshold.ndim == 0 and threshold == np.inf:
                    lower[:], upper[:] = limits
                else:
                    lower[:], upper[:] = calibration.score.bounds(given, threshold, unit, limits)

        run_chunks(len(query), work)
        answer.warn()
        return ends[:, :, 0] if single else ends

    def covers(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: ArrayLike | None = None,
        confidence: Levels = 0.9,
        weight: ArrayLike | None = None,
    ) -> NDArray[np.bool_]:
        """Whether each label is inside its interval: (n,) for one level, (n, levels) for several."""
        levels, single = exact_levels(confidence)
        calibration, query = self._query(prediction, scale, group, weight)
        label = arrays.column("truth", truth, len(query))
        inside = np.empty((len(query), len(levels)), np.bool_)
        answer = _Thresholds(self, calibration, query, levels)

        def work(start: int, stop: int) -> None:
            value = self._scores(calibration, query, label, start, stop)
            for index, threshold in enumerate(answer.chunk(start, stop)):
                inside[start:stop, index] = value <= threshold if levels[index] else False

        run_chunks(len(query), work)
        answer.warn()
        return inside[:, 0] if single else inside

    def p_value(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """(1 + #{s_i >= s}) / (l + 1) of each label among the calibration scores of its group: (n,).

        With weights the share of weight instead of the share of points. To compare with 1 - confidence exactly
        use `covers`, or `unkgcp.conformal.p_exceeds`: 1 - 0.9 is not 0.1 in floats.
        """
        calibration, query = self._query(prediction, scale, group, weight)
        label = arrays.column("truth", truth, len(query))
        p_values = np.empty(len(query), np.float64)
        answer = _Thresholds(self, calibration, query, [])

        def work(start: int, stop: int) -> None:
            value = self._scores(calibration, query, label, start, stop)
            codes, own = answer.codes(start, stop), answer.weight(start, stop)
            p_values[start:stop] = calibration.ranking.p_values(value, codes, own)

        run_chunks(len(query), work)
        answer.warn()
        return p_values

    def threshold(self, confidence: Levels = 0.9) -> Any:
        """The pooled threshold(s): the k-th smallest score, inf where the whole range is the answer.

        A float for one level, (levels,) for several; -inf at confidence 0. Weighted calibrations have one
        threshold a query instead.
        """
        levels, single = exact_levels(confidence)
        calibration = self._calibrated()
        if calibration.heaviest is not None:
            raise ValueError("with weights the threshold depends on the query's weight; ask for the interval")
        thresholds = calibration.ranking.thresholds(levels, self.training_conditional)[-1]
        return float(thresholds[0]) if single else thresholds

    def fallback(self, group: ArrayLike) -> NDArray[np.bool_]:
        """Which queries are answered with the pooled threshold, their group being too small or unknown: (n,)."""
        known = self._calibrated().groups
        if known is None:
            raise ValueError("there was no group at calibration")
        return group_codes(known, labels(group, len(np.asarray(group)))) < 0

    @property
    def size(self) -> int:
        """The number l of calibration points."""
        return int(self._calibrated().ranking.sizes[-1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to one .npz file, without pickle."""
        from unkgcp.conformal.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SplitConformal:
        """Read what `save` wrote; a damaged or foreign file is an `InputError`."""
        from unkgcp.conformal.storage import load

        return load(path)

    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            raise RuntimeError("call calibrate before asking for intervals")
        return self._calibration

    def _columns(
        self,
        score: Score,
        prediction: ArrayLike,
        scale: ArrayLike | None,
        group: ArrayLike | None,
        weight: ArrayLike | None,
    ) -> _Query:
        given = arrays.column("prediction", prediction, ndim=score.prediction_ndim)
        size = len(given)
        if score.takes_scale != (scale is not None):
            needs = "needs a scale for every query" if score.takes_scale else "takes no scale"
            raise ValueError(f"the {score.name} score {needs}")
        unit = None if scale is None else arrays.column("scale", scale, size)
        group = None if group is None else labels(group, size)
        own = None if weight is None else arrays.column("weight", weight, size).astype(np.float64, copy=False)
        # a bound that float32 cannot hold would be rounded away from the range of the labels
        exact = all(np.isinf(bound) or float(np.float32(bound)) == bound for bound in self.bounds)
        dtype = np.result_type(
            given, *(() if unit is None else (unit,)), arrays.FLOAT32 if exact else arrays.FLOAT64
        )
        return _Query(given, unit, group, own, dtype)

    def _query(
        self,
        prediction: ArrayLike,
        scale: ArrayLike | None,
        group: ArrayLike | None,
        weight: ArrayLike | None,
    ) -> tuple[Calibration, _Query]:
        calibration = self._calibrated()
        columns = self._columns(calibration.score, prediction, scale, group, weight)
        if group is not None and calibration.groups is None:
            raise ValueError("group is given, but there was no group at calibration")
        if weight is not None and calibration.heaviest is None:
            raise ValueError("weight is given, but there was no weight at calibration")
        dtype = np.result_type(columns.dtype, calibration.dtype)
        return calibration, _Query(columns.prediction, columns.scale, columns.group, columns.weight, dtype)

    def _chunk(
        self, score: Score, query: _Query, dtype: np.dtype[Any], start: int, stop: int
    ) -> tuple[Floats, Floats | None]:
        """Checked prediction and prepared scale of some rows, contiguous: same bits alone as among others."""
        given = np.ascontiguousarray(query.prediction[start:stop], dtype)
        arrays.check_finite("prediction", given, start)
        unit = None
        if query.scale is not None:
            unit = np.ascontiguousarray(query.scale[start:stop], dtype)
            arrays.check_positive("scale", unit, start)
        return given, score.prepare(given, unit)

    def _labels(self, label: Floats, dtype: np.dtype[Any], start: int, stop: int) -> Floats:
        chunk = label[start:stop]
        arrays.check_within("truth", chunk, start, *self.bounds)
        return np.ascontiguousarray(chunk, dtype)

    def _scores(
        self, calibration: Calibration, query: _Query, label: Floats, start: int, stop: int
    ) -> Floats:
        given, unit = self._chunk(calibration.score, query, query.dtype, start, stop)
        chunk = label[start:stop]
        arrays.check_within("truth", chunk, start, *self.bounds)
        near = np.ascontiguousarray(chunk, query.dtype)
        value = calibration.score.score(given, near, unit)
        if label.dtype.itemsize > query.dtype.itemsize:
            # a label between two floats of the interval's precision is inside exactly when both of them are
            towards = np.where(near < chunk, np.inf, -np.inf).astype(query.dtype)
            other = np.where(near == chunk, near, np.nextafter(near, towards))
            value = np.maximum(value, calibration.score.score(given, other, unit))
        return value


class _Thresholds:
    """The thresholds that answer one call, chunk by chunk, and how many rows fell back to the pooled one."""

    def __init__(
        self, cal: SplitConformal, calibration: Calibration, query: _Query, levels: list[Fraction]
    ) -> None:
        self.calibration, self.query, self.levels = calibration, query, levels
        self.fallen: list[int] = []  # one count a chunk: appending is safe from several threads
        if calibration.heaviest is None:
            table = calibration.ranking.thresholds(levels, cal.training_conditional)
            self.table = table.astype(query.dtype)

    def codes(self, start: int, stop: int) -> NDArray[np.intp] | None:
        """The segment of each row, -1 for the pooled one; None if that is all there is."""
        if self.query.group is None or self.calibration.groups is None:
            return None
        codes = group_codes(self.calibration.groups, self.query.group[start:stop])
        self.fallen.append(int(np.count_nonzero(codes < 0)))
        return codes

    def weight(self, start: int, stop: int) -> NDArray[np.float64] | None:
        """The weight of each row; the largest calibration weight, the cautious choice, where none is given."""
        if self.calibration.heaviest is None:
            return None
        if self.query.weight is None:
            return np.full(stop - start, self.calibration.heaviest)
        chunk = self.query.weight[start:stop]
        arrays.check_non_negative("weight", chunk, start)
        return chunk

    def chunk(self, start: int, stop: int) -> list[Any]:
        """For each level one threshold, or an array of one a row."""
        codes, weight = self.codes(start, stop), self.weight(start, stop)
        if weight is not None:
            ranking = self.calibration.ranking
            rows = [ranking.weighted_thresholds(level, weight, codes) for level in self.levels]
            return [row.astype(self.query.dtype, copy=False) for row in rows]
        if codes is None:
            return list(self.table[-1])
        return list(self.table[codes].T)

    def warn(self) -> None:
        missing = self.calibration.groups is not None and self.query.group is None
        fallen = len(self.query) if missing else sum(self.fallen)
        if fallen:
            warnings.warn(
                f"{fallen:,} of {len(self.query):,} queries are in groups without enough calibration points "
                "and got the pooled threshold, which holds on average over all groups",
                FallbackWarning,
                stacklevel=3,
            )
