"""Split conformal prediction over arrays: intervals with a guarantee around the predictions of any model.

Calibration computes the nonconformity score of every labelled prediction (`scores`) and puts the scores in order, group
by group (`ranking`). After that a level is a rank (`ranks`), a rank is a threshold, and the interval of a query holds
the labels whose score is within the threshold of its group.

>>> rng = np.random.default_rng(0)
>>> prediction, truth = rng.random(99), rng.random(99)
>>> cal = SplitConformal(bounds=(0, 1)).calibrate(prediction, truth)
>>> cal.interval(prediction[:2], confidence=[0.8, 0.9]).shape
(2, 2, 2)
>>> cal
SplitConformal(score='residual', bounds=(0.0, 1.0)), calibrated on 99 points
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import storage
from unkgcp.conformal.arrays import (
    Floats,
    Group,
    check,
    check_names,
    column,
    group_columns,
    group_labels,
    labels_within,
)
from unkgcp.conformal.ranking import GroupRankings
from unkgcp.conformal.ranks import Confidence, exact_levels
from unkgcp.conformal.scores import (
    LearnedScore,
    Recipe,
    Residual,
    ScaledResidual,
    Score,
    make_score,
    score_parameters,
)
from unkgcp.errors import InputError
from unkgcp.files import atomic_path, joined, read_container, reading, under, write_container
from unkgcp.loops import run_chunks

Levels = Confidence | Iterable[Confidence]
FORMAT = "unkgcp split conformal 4"


class NotCalibratedError(ValueError, AttributeError):
    """`calibrate` was not called yet. (scikit-learn's NotFittedError has the same two bases.)"""


class SmallCalibrationWarning(UserWarning):
    """There are too few calibration points to learn a score from; a simpler score is used."""


class SmallGroupWarning(UserWarning):
    """Some queries got the whole range, because their groups have too few calibration points for the level."""


@dataclass(frozen=True)
class Queries:
    """Predictions and what belongs to them, (n,) each; `groups` has a column for each partition."""

    prediction: Floats
    scale: Floats | None
    groups: dict[str, NDArray[Any]] | None
    kind: NDArray[Any] | None
    weight: Floats | None

    @classmethod
    def read(
        cls,
        prediction: ArrayLike,
        scale: ArrayLike | None,
        group: Group | None,
        kind: ArrayLike | None,
        weight: ArrayLike | None,
    ) -> Queries:
        """Arrays of a caller; a ValueError names an array, or a value, that cannot be used."""
        centre = column("prediction", prediction)
        size = len(centre)
        check("prediction", centre)
        unit, heaviness = (
            None if values is None else column(name, values, size)
            for name, values in (("scale", scale), ("weight", weight))
        )
        if unit is not None:
            check("scale", unit, lambda some: np.isfinite(some) & (some > 0), "expected a positive number")
        if heaviness is not None:
            check(
                "weight",
                heaviness,
                lambda some: np.isfinite(some) & (some >= 0),
                "expected no negative number",
            )
        kinds = None if kind is None else group_labels(kind, size, "kind")
        return cls(centre, unit, group_columns(group, size), kinds, heaviness)

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, rows: Any) -> Queries:
        groups = None if self.groups is None else {name: labels[rows] for name, labels in self.groups.items()}
        scale, kind, weight = (
            None if array is None else array[rows] for array in (self.scale, self.kind, self.weight)
        )
        return Queries(self.prediction[rows], scale, groups, kind, weight)


class SplitConformal:
    """Intervals that contain the true label with probability at least `confidence`, whatever the model.

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

    The columns of a call are the same everywhere: `scale`, for a score that needs one; `group`, the labels of one
    partition or a dict of such columns by name; `kind`, for a score that is learned, labels (the relation, say) that
    may tell more about the truth than the prediction does; `weight`. What calibration had, queries need, too.
    """

    def __init__(
        self,
        score: str | Score | Recipe | None = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        training_conditional: float | None = None,
    ) -> None:
        self.score = make_score(score) if isinstance(score, str) else score
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        if not low < high:
            raise ValueError(f"bounds must be a smaller and a larger number, not {bounds}")
        if training_conditional is not None and not 0 < training_conditional < 1:
            raise ValueError(f"training_conditional must be above 0 and below 1, not {training_conditional}")
        self.bounds, self.training_conditional = (float(low), float(high)), training_conditional
        self._score: Score | None = None
        self._rankings: GroupRankings | None = None

    def calibrate(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        kind: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> SplitConformal:
        """Put the nonconformity scores of l labelled predictions in order; all arguments are (l,).

        Calling it again replaces the calibration. Returns self.
        """
        points = Queries.read(prediction, scale, group, kind, weight)
        label = labels_within(self.bounds, truth, len(points))
        if not len(points):
            raise ValueError("prediction is empty, calibration needs at least one point")
        if weight is not None and self.training_conditional is not None:
            raise ValueError("training_conditional has no meaning with weights; leave one of them out")
        heaviest = None if points.weight is None else points.weight.max()
        if heaviest == 0:
            raise ValueError("weight is zero everywhere")
        if heaviest is not None and not np.finfo(float).tiny <= heaviest <= np.finfo(float).max / (
            len(points) + 1
        ):
            raise ValueError(
                "weight may add up to infinity, or has few digits; divide it by its largest value"
            )
        score = self.score or (Residual() if scale is None else ScaledResidual())
        _check_takes(score, points, score)
        if isinstance(score, Recipe):
            score, ranked = _learned(score, points, label)
            points, label = points[ranked], label[ranked]
        scores = np.empty(len(points))

        def fill(start: int, stop: int) -> None:
            part = points[start:stop]
            scores[start:stop] = score.score(part.prediction, label[start:stop], _unit(score, part))

        run_chunks(len(points), fill)
        self._score, self._rankings = score, GroupRankings.of(scores, points.groups, points.weight)
        return self

    def interval(
        self,
        prediction: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        kind: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        confidence: Levels = 0.9,
    ) -> Floats:
        """Lower and upper ends of n queries: (n, 2) for one level, (n, 2, levels) for several.

        A label y is inside, lower <= y <= upper, exactly when its p-value exceeds 1 - confidence. An empty
        set has lower > upper: (inf, -inf) at confidence 0, and where a prediction is so far outside the
        bounds that no label within them qualifies. Confidence 1 is the whole range, but for a query of weight 0.
        """
        levels, single = exact_levels(confidence)
        score, rankings, queries = self._ask(prediction, scale, group, kind, weight)
        # each column of ends is contiguous in memory, because it is computed, and mostly used, as a whole
        ends = np.empty((len(levels), 2, len(queries))).transpose(2, 1, 0)
        below_one = [level for level in levels if level < 1]
        wide: list[int] = []  # for each chunk the queries with the whole range at the highest level below 1

        def fill(start: int, stop: int) -> None:
            part = queries[start:stop]
            unit, segments = _unit(score, part), rankings.segments(part.groups or {})
            thresholds = rankings.thresholds(levels, segments, part.weight, self.training_conditional)
            for index, threshold in enumerate(thresholds):
                lower, upper = score.bounds(part.prediction, threshold, unit, self.bounds)
                ends[start:stop, 0, index], ends[start:stop, 1, index] = lower, upper
            if below_one and rankings.grouped:
                infinite = thresholds[levels.index(max(below_one))] == np.inf
                wide.append(int(np.count_nonzero(infinite)))

        run_chunks(len(queries), fill)
        if count := sum(wide):
            few = "too little weight at calibration" if rankings.weighted else "too few calibration points"
            _warn_of_groups(
                count,
                queries,
                f"with {few} for confidence {float(max(below_one)):g}: their set is the whole range",
            )
        return ends[:, :, 0] if single else ends

    def covers(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        kind: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        confidence: Levels = 0.9,
    ) -> NDArray[np.bool_]:
        """Whether each label is inside its interval: (n,) for one level, (n, levels) for several."""
        ends = self.interval(
            prediction, scale=scale, group=group, kind=kind, weight=weight, confidence=confidence
        )
        label = labels_within(self.bounds, truth, len(ends)).reshape(-1, *[1] * (ends.ndim - 2))
        return np.asarray((ends[:, 0] <= label) & (label <= ends[:, 1]))

    def p_value(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        group: Group | None = None,
        kind: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> Floats:
        """(1 + #{i: the interval at s_i contains the label}) / (l + 1), counted in the label's group: (n,).

        With several columns of groups it is the largest of the label's p-values in them. With weights it is a share of
        weight instead of a share of points. To compare it with 1 - confidence exactly use `covers`, or
        `unkgcp.conformal.p_exceeds`: in floats 1 - 0.9 is not 0.1.
        """
        score, rankings, queries = self._ask(prediction, scale, group, kind, weight)
        scores, segments = (
            self._comparable_scores(score, queries, truth),
            rankings.segments(queries.groups or {}),
        )
        strangers = np.any([codes < 0 for codes in segments if codes is not None], axis=0)
        if count := int(np.count_nonzero(strangers)):
            _warn_of_groups(count, queries, "without calibration points: their p-value is 1")
        return rankings.p_values(scores, segments, queries.weight)

    def scores(
        self,
        prediction: ArrayLike,
        truth: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> Floats:
        """Nonconformity of each label, computed as at calibration: (n,)."""
        queries = Queries.read(prediction, scale, None, kind, None)
        score = self._calibrated[0]
        _check_takes(score, queries, self.score)
        label = labels_within(self.bounds, truth, len(queries))
        return score.score(queries.prediction, label, _unit(score, queries))

    def _comparable_scores(self, score: Score, queries: Queries, truth: ArrayLike) -> Floats:
        """The score of each label, or the smallest calibration score whose interval already contains the label.

        Rounding makes intervals wider by some units in the last place, so that a label with a score just above a
        calibration score may lie in the interval at it. It then counts as tied, as the interval has it.
        """
        label, ordered = labels_within(self.bounds, truth, len(queries)), self.calibration_scores
        scores = np.empty(len(queries))

        def fill(start: int, stop: int) -> None:
            part, wanted = queries[start:stop], label[start:stop]
            unit = _unit(score, part)
            value = score.score(part.prediction, wanted, unit)
            below = np.searchsorted(ordered, value)
            rows = np.flatnonzero(below)
            while len(rows):
                next_lower = ordered[below[rows] - 1]
                units = None if unit is None else unit[rows]
                lower, upper = score.bounds(part.prediction[rows], next_lower, units, self.bounds)
                inside = (lower <= wanted[rows]) & (wanted[rows] <= upper)
                rows = rows[inside]
                value[rows] = next_lower[inside]
                below[rows] = np.searchsorted(ordered, value[rows])
                rows = rows[below[rows] > 0]
            scores[start:stop] = value

        run_chunks(len(queries), fill)
        return scores

    def threshold(self, confidence: Levels = 0.9) -> Any:
        """The k-th smallest calibration score, inf where the answer is the whole range.

        A float for one level, (levels,) for several; -inf at confidence 0. With groups or weights queries have
        different thresholds, so that this is a ValueError.
        """
        levels, single = exact_levels(confidence)
        for what, varies in (("group", self.grouped), ("weight", self.weighted)):
            if varies:
                raise ValueError(
                    f"with {what}s the threshold depends on the query's {what}; ask for the interval"
                )
        thresholds = np.array(self.rankings.tables(levels, self.training_conditional)[0][-1])
        return float(thresholds[0]) if single else thresholds

    def group_size(self, group: Group) -> NDArray[np.int64]:
        """Calibration points in the group of each query, in the smallest one if it has several groups: (n,)."""
        columns = group_columns(group) or {}
        if not self.grouped:
            raise ValueError("there was no group at calibration")
        check_names(self.rankings.partitions, columns)
        return self.rankings.sizes(columns)

    @property
    def calibration_scores(self) -> Floats:
        """The scores of all calibration points in ascending order: (l,)."""
        return self.rankings.scores

    @property
    def rankings(self) -> GroupRankings:
        """The scores of the calibration points in the groups of each column."""
        return self._calibrated[1]

    @property
    def grouped(self) -> bool:
        """Whether there were groups at calibration."""
        return self.rankings.grouped

    @property
    def weighted(self) -> bool:
        """Whether there were weights at calibration."""
        return self.rankings.weighted

    @property
    def group_sizes(self) -> dict[Any, Any]:
        """The number of calibration points of each group; a dict of such dicts by name if there are several columns."""
        sizes = self.rankings.group_sizes()
        return sizes.get("", sizes)

    @property
    def learned(self) -> bool:
        """Whether the score was learned from a part of the calibration points; it was not if they were too few."""
        return isinstance(self._calibrated[0], LearnedScore)

    @property
    def size(self) -> int:
        """The number l of calibration points that are ranked, without those from which the score was learned."""
        return len(self.rankings.first.ranking.scores)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to one safetensors file, whole or not at all."""
        arrays = self.arrays()
        with atomic_path(path) as temporary:
            write_container(temporary, FORMAT, arrays, None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SplitConformal:
        """Read what `save` wrote; a damaged or foreign file is an `InputError`."""
        if not os.path.lexists(path):
            raise InputError(f"there is no calibration file {path}")
        container = read_container(path, FORMAT, "calibrate again")
        with reading(path, "calibrate again"):
            return cls.from_arrays(container.arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The calibration as plain arrays by name, for a larger file."""
        score, rankings = self._calibrated
        named = self.score if isinstance(self.score, Recipe) else score
        about = {
            "format": FORMAT,
            "score": named.name,
            "parameters": score_parameters(named),
            "given": self.score is not None,
            "learned": self.learned,
            "bounds": self.bounds,
            "training_conditional": self.training_conditional,
            "partitions": list(rankings.partitions),
        }
        shapes = score.arrays() if isinstance(score, LearnedScore) else {}
        return {
            "about": np.array(json.dumps(about)),
            **storage.to_arrays(rankings),
            **joined({"learned": shapes}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SplitConformal:
        """The calibrator that `arrays` stored; ValueError if the arrays are no calibration."""
        try:
            about = json.loads(str(arrays["about"]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}, expected {FORMAT!r}")
            score = named = make_score(about["score"], **about["parameters"])
            if isinstance(score, Recipe):
                score = score.restore(under("learned/", arrays)) if about["learned"] else score.fallback()
            made = cls(named if about["given"] else None, about["bounds"], about["training_conditional"])
            made._score, made._rankings = score, storage.from_arrays(about["partitions"], arrays)
            return made
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{error} is missing or out of place") from error

    @property
    def _calibrated(self) -> tuple[Score, GroupRankings]:
        if self._score is None or self._rankings is None:
            raise NotCalibratedError("call calibrate before asking for intervals")
        return self._score, self._rankings

    def __sklearn_is_fitted__(self) -> bool:
        return self._rankings is not None

    def __repr__(self) -> str:
        score, state = self._score or self.score, "not calibrated"
        delta = self.training_conditional
        settings = f"score={score.name if score else None!r}, bounds={self.bounds}"
        settings += "" if delta is None else f", training_conditional={delta}"
        if self._rankings is not None:
            sizes = [f"{len(each):,} groups" for each in self._rankings.group_sizes().values() if each]
            state = f"calibrated on {self.size:,} points" + (f" in {' and '.join(sizes)}" if sizes else "")
        return f"SplitConformal({settings}), {state}"

    def _ask(
        self,
        prediction: ArrayLike,
        scale: ArrayLike | None,
        group: Group | None,
        kind: ArrayLike | None,
        weight: ArrayLike | None,
    ) -> tuple[Score, GroupRankings, Queries]:
        """The calibration and the queries of one call, which must have the columns that the calibration had."""
        score, rankings = self._calibrated
        queries = Queries.read(prediction, scale, group, kind, weight)
        _check_takes(score, queries, self.score)
        for name, values, needed in (
            ("group", queries.groups, self.grouped),
            ("weight", queries.weight, self.weighted),
        ):
            if values is not None and not needed:
                raise ValueError(f"{name} is given, but there was no {name} at calibration")
            if values is None and needed:
                raise ValueError(
                    f"{name} is missing: there were {name}s at calibration, so every query needs its own"
                )
        if queries.groups is not None:
            check_names(rankings.partitions, queries.groups)
        return score, rankings, queries


def _unit(score: Score, queries: Queries) -> Floats | None:
    """What the score takes as scale: the prepared scale of each query, or the place of its kind."""
    scale = queries.scale
    if isinstance(score, LearnedScore) and score.kinds is not None and queries.kind is not None:
        scale = score.kind_codes(queries.kind).astype(np.float64)
    return score.prepare(queries.prediction, scale)


def _check_takes(score: Score | Recipe, queries: Queries, requested: Score | Recipe | None) -> None:
    """ValueError unless the queries have the columns that the score needs, and no other; `requested` was asked for."""
    takes_scale = not isinstance(score, Recipe) and score.takes_scale
    if takes_scale != (queries.scale is not None):
        needs = "needs a scale for every query" if takes_scale else "takes no scale"
        raise ValueError(f"the {score.name} score {needs}")
    if queries.kind is not None and not isinstance(requested, Recipe | LearnedScore):
        raise ValueError(f"the {score.name} score takes no kind; it is not learned")
    if isinstance(score, LearnedScore) and score.kinds is not None and queries.kind is None:
        raise ValueError("kind is missing: the score was learned from predictions with a kind")


def _learned(recipe: Recipe, points: Queries, label: Floats) -> tuple[Score, NDArray[Any] | slice]:
    """The score that a part of the points teaches, and the rows of the others."""
    learning = recipe.learning_rows(len(points))
    if learning is None:
        warnings.warn(
            f"{len(points):,} calibration points are too few to learn the {recipe.name} score from; "
            f"the {recipe.fallback().name} score is used instead",
            SmallCalibrationWarning,
            stacklevel=3,
        )
        return recipe.fallback(), slice(None)
    teachers = points[learning]
    return recipe.learn(teachers.prediction, label[learning], teachers.kind), ~learning


def _warn_of_groups(count: int, queries: Queries, what: str) -> None:
    warnings.warn(
        f"{count:,} of {len(queries):,} queries are in groups {what}", SmallGroupWarning, stacklevel=3
    )
