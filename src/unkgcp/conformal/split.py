"""Split conformal prediction over arrays: intervals with a guarantee around the predictions of any model.

Calibration sorts the nonconformity scores of labelled predictions once. After that every level is the lookup of a rank.

>>> rng = np.random.default_rng(0)
>>> prediction, truth = rng.random(99), rng.random(99)
>>> cal = SplitConformal(bounds=(0, 1)).calibrate(prediction, truth)
>>> cal.interval(prediction[:2], confidence=[0.8, 0.9]).shape
(2, 2, 2)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import storage
from unkgcp.conformal.query_chunks import Answers, Engine, Queries, column, learn_score, read_queries
from unkgcp.conformal.ranking import Group, GroupRankings, Standing, check_names, group_columns
from unkgcp.conformal.ranks import Confidence, exact_levels
from unkgcp.conformal.scores import Floats, LearnedScore, Recipe, Residual, ScaledResidual, Score, make_score
from unkgcp.conformal.storage import Calibration, check_settings

Levels = Confidence | Iterable[Confidence]


class SplitConformal:
    """Intervals that contain the true label with probability `confidence`, whatever the model.

    Guarantee: if calibration points and query are exchangeable (in particular i.i.d.) and the model, the
    scale and the groups were fixed without the calibration labels, the label of a query is inside its
    interval with probability at least `confidence`, over calibration set and query together; at most
    1 / (l + 1) more when scores have no ties. With groups the promise holds in every group: a query is compared
    with the calibration points of its own group alone, and gets the whole range if there are too few of them for
    the level. Points may be put into groups in several ways at once: the largest of the thresholds then answers, and
    the promise holds in every group of every partition. With weights it holds for queries of another distribution, if
    the weight of each point and of each query is proportional to the ratio of the two densities there.

    score: a name ("residual", "scaled", "entropy", "shortest"), a `Score`, or None for the residual, divided by
        the scale where one is given. "shortest" (`Shortest`) is learned from a part of the calibration points
        and calibrated on the others; with few points it is the residual, and a `SmallCalibrationWarning` says so.
    bounds: the range of labels, to which intervals are cut, or None. Without bounds a level too high for the
        number of calibration points gives infinite ends; with bounds it gives the bounds.
    training_conditional: delta in (0, 1); then, for all but a share delta of calibration sets of independent
        points, the coverage given the calibration set is at least `confidence`. With groups that holds for one
        group at a time: each group fails for a share delta of calibration sets, but not the same ones. For G
        groups at once choose delta / G.
    """

    def __init__(
        self,
        score: str | Score | Recipe | None = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        training_conditional: float | None = None,
    ) -> None:
        self.score = make_score(score) if isinstance(score, str) else score
        self.bounds = check_settings(bounds, training_conditional)
        self.training_conditional = training_conditional
        self._calibration: Calibration | None = None

    def calibrate(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        weight: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> SplitConformal:
        """Sort the nonconformity scores of l labelled predictions; all arguments are (l,).

        `group` asks for a promise in every group, `weight` for a promise about queries of another distribution;
        queries then need a group or a weight, too. A list or array of labels is one column of groups. Several ways to
        put the same points into groups are a dict of such columns by name. `kind` is for a score that is learned:
        labels (the relation, say) that may tell more about the truth than the prediction does. Kinds do not change the
        promise, which is one on average over all queries.

        Calling it again replaces the calibration. Returns self.
        """
        score = self.score or (Residual() if scale is None else ScaledResidual())
        if isinstance(score, Recipe):
            if scale is not None:
                raise ValueError(f"the {score.name} score takes no scale")
            score, points = learn_score(score, self.bounds, prediction, truth, group, weight, kind)
            prediction, truth, group, weight, kind = points
        elif kind is not None:
            raise ValueError(f"the {score.name} score takes no kind; it is not learned")
        queries = read_queries(score, self.bounds, prediction, scale, group, weight, kind)
        if len(queries) == 0:
            raise ValueError("prediction is empty, calibration needs at least one point")
        if weight is not None and self.training_conditional is not None:
            raise ValueError("training_conditional has no meaning with weights; leave one of them out")
        label = column("truth", truth, len(queries))
        queries = queries.at_least(label.dtype)
        heaviest = queries.heaviest()
        scores = np.empty(len(queries), queries.dtype)
        engine = Engine(queries, len(queries))

        def work(start: int, stop: int) -> None:
            engine.fill_scores(label, start, stop, scores[start:stop])

        engine.each_chunk(work)
        rankings = GroupRankings.of(scores, queries.groups, queries.weight)
        self._calibration = Calibration(
            self.score, self.bounds, self.training_conditional, score, rankings, heaviest
        )
        return self

    def interval(
        self,
        prediction: ArrayLike,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        confidence: Levels = 0.9,
        weight: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> Floats:
        """Lower and upper ends of n queries: (n, 2) for one level, (n, 2, levels) for several.

        A label y is inside, lower <= y <= upper, exactly when its p-value exceeds 1 - confidence. An empty
        set has lower > upper: (inf, -inf) at confidence 0, and where a prediction is so far outside the
        bounds that no label within them qualifies. Confidence 1 is the whole range. The ends are float32 if
        everything was at calibration and is now, float64 otherwise.
        """
        levels, single = exact_levels(confidence)
        calibration, queries = self._queries(prediction, scale, group, weight, kind)
        # each column of ends is contiguous in memory, because it is computed, and mostly used, as a whole
        ends = np.empty((len(levels), 2, len(queries)), queries.dtype).transpose(2, 1, 0)
        answers = Answers(calibration, queries, levels)
        engine = Engine(queries, len(queries) * len(levels))

        def work(start: int, stop: int) -> None:
            rows = engine.rows(start, stop)
            for index, threshold in enumerate(answers.thresholds(start, stop)):
                lower, upper = ends[start:stop, 0, index], ends[start:stop, 1, index]
                if levels[index] == 0:
                    queries.check(start, stop)
                    lower[:], upper[:] = np.inf, -np.inf
                elif threshold.ndim == 0 and threshold == np.inf:
                    queries.check(start, stop)
                    lower[:], upper[:] = self.bounds
                else:
                    engine.fill_ends(rows, threshold, start, stop, lower, upper)

        engine.each_chunk(work)
        answers.warn()
        return ends[:, :, 0] if single else ends

    def covers(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        confidence: Levels = 0.9,
        weight: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> NDArray[np.bool_]:
        """Whether each label is inside its interval: (n,) for one level, (n, levels) for several."""
        levels, single = exact_levels(confidence)
        calibration, queries = self._queries(prediction, scale, group, weight, kind)
        label = column("truth", truth, len(queries))
        inside = np.empty((len(queries), len(levels)), np.bool_)
        answers = Answers(calibration, queries, levels)
        engine = Engine(queries, len(queries))

        def work(start: int, stop: int) -> None:
            value = engine.scores(label, start, stop)
            for index, threshold in enumerate(answers.thresholds(start, stop)):
                inside[start:stop, index] = value <= threshold

        engine.each_chunk(work)
        answers.warn()
        return inside[:, 0] if single else inside

    def p_value(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        weight: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """(1 + #{s_i >= s}) / (l + 1) of each label among the calibration scores of its group: (n,).

        With several columns of groups it is the largest of the label's p-values in them. With weights it is a share of
        weight instead of a share of points. To compare it with 1 - confidence exactly use `covers`, or
        `unkgcp.conformal.p_exceeds`: in floats 1 - 0.9 is not 0.1.
        """
        calibration, queries = self._queries(prediction, scale, group, weight, kind)
        label = column("truth", truth, len(queries))
        p_values = np.empty(len(queries), np.float64)
        answers = Answers(calibration, queries, [])
        engine = Engine(queries, len(queries))

        def work(start: int, stop: int) -> None:
            p_values[start:stop] = answers.p_values(engine.scores(label, start, stop), start, stop)

        engine.each_chunk(work)
        answers.warn()
        return p_values

    def scores(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> Floats:
        """Nonconformity of each label, computed as at calibration: (n,)."""
        _, queries = self._queries(prediction, scale, None, None, kind)
        label = column("truth", truth, len(queries))
        return Engine(queries, 0).scores(label, 0, len(queries))

    def standing(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        kind: ArrayLike | None = None,
    ) -> Standing:
        """How many calibration scores of its group lie below each label's score, equal it, and are there: (n,) each.

        With several columns of groups the counts are those of the group in which the label's p-value is largest: the
        label is inside at a level exactly when fewer scores of that group lie below it than the rank of the level.
        """
        calibration, queries = self._queries(prediction, scale, group, None, kind)
        if calibration.weighted:
            raise ValueError("with weights the place of a score is no count; ask for the p-value")
        places = Answers(calibration, queries, []).places(0, len(queries))
        return calibration.rankings.standing(self.scores(prediction, truth, scale, kind), places)

    def threshold(self, confidence: Levels = 0.9) -> Any:
        """The k-th smallest calibration score, inf where the answer is the whole range.

        A float for one level, (levels,) for several; -inf at confidence 0. With groups or weights queries have
        different thresholds, so that this is a ValueError.
        """
        levels, single = exact_levels(confidence)
        calibration = self._calibrated()
        if calibration.grouped:
            raise ValueError("with groups the threshold depends on the query's group; ask for the interval")
        if calibration.weighted:
            raise ValueError("with weights the threshold depends on the query's weight; ask for the interval")
        thresholds = calibration.ranking.thresholds(levels, self.training_conditional)[-1]
        return float(thresholds[0]) if single else thresholds

    def group_size(self, group: Group) -> NDArray[np.int64]:
        """Calibration points in the group of each query, in the smallest one if it has several groups: (n,)."""
        calibration, columns = self._calibrated(), group_columns(group) or {}
        if not calibration.grouped:
            raise ValueError("there was no group at calibration")
        check_names(calibration.rankings.partitions, columns)
        return calibration.rankings.sizes(columns)

    def pooled(self) -> SplitConformal:
        """The same calibration points without their groups: one threshold, and a promise on average over all only."""
        calibration = self._calibrated()
        if not calibration.grouped:
            return self
        if calibration.weighted:
            raise ValueError("with weights the groups cannot be put together again; calibrate without groups")
        return SplitConformal._of(replace(calibration, rankings=calibration.rankings.pooled()))

    @property
    def calibration_scores(self) -> Floats:
        """The scores of all calibration points in ascending order: (l,)."""
        return self._calibrated().ranking.pooled().scores

    @property
    def rankings(self) -> GroupRankings:
        """The scores of the calibration points in the groups of each column."""
        return self._calibrated().rankings

    @property
    def grouped(self) -> bool:
        """Whether there were groups at calibration."""
        return self._calibrated().grouped

    @property
    def weighted(self) -> bool:
        """Whether there were weights at calibration."""
        return self._calibrated().weighted

    @property
    def group_sizes(self) -> dict[Any, Any]:
        """The number of calibration points of each group; a dict of such dicts by name if there are several columns."""
        sizes = self._calibrated().rankings.group_sizes()
        return sizes.get("", sizes)

    @property
    def learned(self) -> bool:
        """Whether the score was learned from a part of the calibration points; it was not if they were too few."""
        return self._calibrated().learned

    @property
    def takes_kind(self) -> bool:
        """Whether queries need a kind, because the score was learned with kinds."""
        score = self._calibrated().score
        return isinstance(score, LearnedScore) and score.kinds is not None

    @property
    def size(self) -> int:
        """The number l of calibration points that are ranked, without those from which the score was learned."""
        return int(self._calibrated().ranking.offsets[-1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to one .npz file, without pickle."""
        storage.save(self._calibrated(), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SplitConformal:
        """Read what `save` wrote; a damaged or foreign file is an `InputError`."""
        return cls._of(storage.load(path))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The calibration as plain arrays by name, for a larger file."""
        return storage.to_arrays(self._calibrated())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SplitConformal:
        """The calibrator that `arrays` stored; ValueError if the arrays are no calibration."""
        return cls._of(storage.from_arrays(arrays))

    @classmethod
    def _of(cls, calibration: Calibration) -> SplitConformal:
        made = cls(calibration.given, calibration.bounds, calibration.training_conditional)
        made._calibration = calibration
        return made

    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            raise RuntimeError("call calibrate before asking for intervals")
        return self._calibration

    def _queries(
        self,
        prediction: ArrayLike,
        scale: ArrayLike | None,
        group: Group | None,
        weight: ArrayLike | None,
        kind: ArrayLike | None,
    ) -> tuple[Calibration, Queries]:
        calibration = self._calibrated()
        if kind is not None and not isinstance(self.score, Recipe):
            raise ValueError(f"the {calibration.score.name} score takes no kind; it is not learned")
        queries = read_queries(calibration.score, self.bounds, prediction, scale, group, weight, kind)
        if group is not None and not calibration.grouped:
            raise ValueError("group is given, but there was no group at calibration")
        if weight is not None and not calibration.weighted:
            raise ValueError("weight is given, but there was no weight at calibration")
        return calibration, queries.at_least(calibration.ranking.dtype)
