"""The queries of one call, and how a calibration answers them, one chunk of rows at a time.

`Queries` hold the arrays of the call. Shapes are checked when they arrive, values when their chunk is worked on.
`Engine` computes scores and interval ends of rows, with compiled code for large calls and with NumPy otherwise.
`Answers` looks up the threshold or the p-value of each row in the calibration.

With groups (Mondrian conformal prediction) a query is compared with the calibration points of its own group alone. A
group with too few points for a level, or with none, is answered with the whole range, so that the promise holds in
every group, and therefore on average over all. A threshold borrowed from other groups would break both promises:
large groups use their own thresholds, so nothing would make up for the labels that small groups miss. Where points are
put into groups in several ways, the largest threshold answers (`ranking`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.ranking import Group, Places, check_names, group_columns, labels, largest
from unkgcp.conformal.scores import Floats, LearnedScore, Limits, Recipe, Score, loaded_kernels
from unkgcp.conformal.storage import Calibration
from unkgcp.loops import ROWS, run_chunks

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
# Rows in a chunk of compiled code, if NumPy makes temporary arrays for it and if not. Float64 arrays of 15 * 1024 rows
# stay below 128 KiB, the size from which on the allocator asks the operating system for every array.
_WITH_TEMPORARIES = 15 * 1024
_WITHOUT = 8 * ROWS
WORTH_LOADING = 10_000_000
"""Rows of a call from which on loading numba and the kernels pays; kernels that are loaded serve small calls too."""
WORTH_ADDING = 1 << 17
"""The same limit where numba is loaded already, since the kernels alone load quickly."""


class MissingWeightWarning(UserWarning):
    """Queries have no weight, but the calibration points had."""


class SmallCalibrationWarning(UserWarning):
    """There are too few calibration points to learn a score from; a simpler score is used."""


class SmallGroupWarning(UserWarning):
    """Some queries got the whole range, because their groups have too few calibration points for the level."""


@dataclass(frozen=True)
class Queries:
    """Predictions and their other columns, (n,) each; `groups` has one for each partition.

    `dtype` is the precision in which everything is computed.
    """

    score: Score
    bounds: Limits
    prediction: Floats
    scale: Floats | None
    groups: dict[str, NDArray[Any]] | None
    weight: NDArray[np.float64] | None
    dtype: np.dtype[Any]
    kind: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.prediction)

    def at_least(self, dtype: np.dtype[Any]) -> Queries:
        """The same queries, computed in a precision no lower than `dtype`."""
        return replace(self, dtype=np.result_type(self.dtype, dtype))

    def heaviest(self) -> float | None:
        """The largest weight, None without weights; ValueError if weights are unusable or their sum may overflow."""
        if self.weight is None:
            return None
        check_non_negative("weight", self.weight, 0)
        heaviest = float(self.weight.max())
        if heaviest == 0:
            raise ValueError("weight is zero everywhere")
        if heaviest > np.finfo(np.float64).max / (len(self) + 1):
            raise ValueError("weight may add up to infinity; divide it by its largest value")
        return heaviest

    def check(self, start: int, stop: int) -> None:
        """ValueError if a value of these rows cannot be used; it names the first one."""
        check_finite("prediction", self.prediction[start:stop], start)
        if self.scale is not None:
            check_non_negative("scale", self.scale[start:stop], start, positive=True)

    def rows(self, start: int, stop: int) -> tuple[Floats, Floats | None]:
        """Prediction and prepared scale of some rows, contiguous: a query gets the same bits alone as among others."""
        prediction = np.ascontiguousarray(self.prediction[start:stop], self.dtype)
        scale = None if self.scale is None else np.ascontiguousarray(self.scale[start:stop], self.dtype)
        if self.kind is not None and isinstance(self.score, LearnedScore):
            scale = self.score.places(self.kind[start:stop]).astype(self.dtype)
        return prediction, self.score.prepare(prediction, scale)

    def scores(self, truth: Floats, start: int, stop: int) -> Floats:
        """Nonconformity of the labels of some rows, after all values were checked: (n,)."""
        self.check(start, stop)
        prediction, scale = self.rows(start, stop)
        labels = truth[start:stop]
        check_within("truth", labels, start, *self.bounds)
        near = np.ascontiguousarray(labels, self.dtype)
        value = self.score.score(prediction, near, scale)
        if truth.dtype.itemsize > self.dtype.itemsize:
            # the label lies between two floats of the lower precision; it is inside exactly when both of them are
            towards = np.where(near < labels, np.inf, -np.inf).astype(self.dtype)
            other = np.where(near == labels, near, np.nextafter(near, towards))
            value = np.maximum(value, self.score.score(prediction, other, scale))
        return value


def read_queries(
    score: Score,
    bounds: Limits,
    prediction: ArrayLike,
    scale: ArrayLike | None,
    group: Group | None,
    weight: ArrayLike | None,
    kind: ArrayLike | None = None,
) -> Queries:
    """Arrays of a caller as `Queries`; a ValueError names an array that cannot be used."""
    given = column("prediction", prediction)
    size = len(given)
    if score.takes_scale != (scale is not None):
        needs = "needs a scale for every query" if score.takes_scale else "takes no scale"
        raise ValueError(f"the {score.name} score {needs}")
    unit = None if scale is None else column("scale", scale, size)
    wanted = isinstance(score, LearnedScore) and score.kinds is not None
    if wanted and kind is None:
        raise ValueError("kind is missing: the score was learned from predictions with a kind")
    # float32 is used only if it holds the bounds exactly: rounding them would change the range of labels
    small = all(float(np.float32(bound)) == bound for bound in bounds)
    dtypes = [given.dtype, FLOAT32 if small else FLOAT64]
    return Queries(
        score,
        bounds,
        given,
        unit,
        group_columns(group, size),
        None if weight is None else column("weight", weight, size).astype(np.float64, copy=False),
        np.result_type(*dtypes, *([] if unit is None else [unit.dtype])),
        labels(kind, size, "kind") if wanted and kind is not None else None,
    )


def learn_score(
    recipe: Recipe,
    bounds: Limits,
    prediction: ArrayLike,
    truth: ArrayLike,
    group: Group | None,
    weight: ArrayLike | None,
    kind: ArrayLike | None = None,
) -> tuple[Score, tuple[Any, ...]]:
    """The score learned from a part of the points, and the columns of the others; a ValueError names a bad value."""
    given = column("prediction", prediction)
    size = len(given)
    label = column("truth", truth, size)
    # all values are checked before the points are divided, so that messages name the place among all points
    check_finite("prediction", given, 0)
    check_within("truth", label, 0, *bounds)
    members = group_columns(group, size)
    kinds = None if kind is None else labels(kind, size, "kind")
    weights = None if weight is None else column("weight", weight, size)
    if weights is not None:
        check_non_negative("weight", weights, 0)
    points: tuple[Any, ...] = (given, label, members, weights, kinds)
    learning = recipe.learning_rows(size)
    if learning is None:
        score = recipe.fallback()
        warnings.warn(
            f"{size:,} calibration points are too few to learn the {recipe.name} score from; "
            f"the {score.name} score is used instead",
            SmallCalibrationWarning,
            stacklevel=3,
        )
        return score, points
    left = np.flatnonzero(~learning)
    score = recipe.learn(given[learning], label[learning], None if kinds is None else kinds[learning])
    ranked = None if members is None else {name: column[left] for name, column in members.items()}
    weights, kinds = (None if values is None else values[left] for values in (weights, kinds))
    return score, (given[left], label[left], ranked, weights, kinds)


def kernels_for(rows: int) -> ModuleType | None:
    """The compiled kernels if they are loaded, or if so many rows make loading them worth it; None without numba."""
    if rows < (WORTH_ADDING if "numba" in sys.modules else WORTH_LOADING):
        return loaded_kernels()
    try:
        from unkgcp.conformal import residual_kernels
    except ImportError:
        return None
    return residual_kernels


class Engine:
    """Computes scores and ends of `queries`; compiled code is used for residuals in float64 if `work` rows are many."""

    def __init__(self, queries: Queries, work: int) -> None:
        self.queries = queries
        fits = queries.score.centred and queries.dtype == np.float64
        self.kernels: Any = kernels_for(work) if fits else None
        self.chunk = ROWS
        if self.kernels is not None:
            self.chunk = _WITHOUT if queries.score.takes_scale else _WITH_TEMPORARIES

    def each_chunk(self, work: Callable[[int, int], None]) -> None:
        """Call `work(start, stop)` for all rows: once if they are few, otherwise chunk by chunk in threads."""
        size = len(self.queries)
        if size > self.chunk:
            run_chunks(size, work, self.chunk)
        elif size:
            with np.errstate(all="ignore"):
                work(0, size)

    def rows(self, start: int, stop: int) -> tuple[Floats, Floats | None]:
        """Prediction and prepared scale of some rows. They are checked here unless a kernel will check them."""
        if self.kernels is None:
            self.queries.check(start, stop)
        return self.queries.rows(start, stop)

    def fill_ends(
        self,
        rows: tuple[Floats, Floats | None],
        threshold: Any,
        start: int,
        stop: int,
        lower: Floats,
        upper: Floats,
    ) -> None:
        """Write the ends for `rows(start, stop)` into `lower` and `upper`, at one threshold or one for each row."""
        prediction, scale = rows
        if self.kernels is not None:
            unit = np.ones_like(prediction) if scale is None else scale
            fill = self.kernels.ends_at_each if threshold.ndim else self.kernels.ends_at_one
            if fill(prediction, unit, threshold, *self.queries.bounds, lower, upper):
                return
            self.queries.check(start, stop)
        lower[:], upper[:] = self.queries.score.bounds(prediction, threshold, scale, self.queries.bounds)

    def fill_scores(self, truth: Floats, start: int, stop: int, out: Floats) -> None:
        """Write the nonconformity of the labels of some rows into `out`."""
        if self.kernels is not None and truth.dtype.itemsize <= self.queries.dtype.itemsize:
            prediction, scale = self.queries.rows(start, stop)
            unit = np.ones_like(prediction) if scale is None else scale
            label = np.ascontiguousarray(truth[start:stop], self.queries.dtype)
            if self.kernels.scores(prediction, unit, label, *self.queries.bounds, out):
                return
        out[:] = self.queries.scores(truth, start, stop)

    def scores(self, truth: Floats, start: int, stop: int) -> Floats:
        """Nonconformity of the labels of some rows: (n,)."""
        out = np.empty(stop - start, self.queries.dtype)
        self.fill_scores(truth, start, stop, out)
        return out


class Answers:
    """Thresholds and p-values for the queries of one call, and the number of queries whose group is too small."""

    def __init__(self, calibration: Calibration, queries: Queries, levels: Sequence[Fraction]) -> None:
        if calibration.grouped:
            if queries.groups is None:
                raise ValueError(
                    "group is missing: there were groups at calibration, so every query needs its own"
                )
            check_names(calibration.rankings.partitions, queries.groups)
        if calibration.weighted and queries.weight is None:
            warnings.warn(
                "the queries have no weight; each counts as the heaviest calibration point, and the promise holds "
                "for queries that are no heavier",
                MissingWeightWarning,
                stacklevel=4,
            )
        self.calibration, self.queries, self.levels = calibration, queries, levels
        self.wide: list[int] = []  # for each chunk the queries in too small groups; threads may append
        below = [level for level in levels if level < 1]
        self.highest = levels.index(max(below)) if below else None
        if not calibration.weighted:
            tables = calibration.rankings.tables(levels, calibration.training_conditional)
            self.tables = [table.astype(queries.dtype, copy=False) for table in tables]
        plain = not calibration.weighted and not calibration.grouped
        self.common = largest(self.tables, [None]) if plain else None  # thresholds that all queries share

    def thresholds(self, start: int, stop: int) -> list[Any]:
        """For each level one threshold for all queries, or one for each row."""
        if self.common is not None:
            return self.common
        places, weight = self.places(start, stop), self._weight(start, stop)
        if weight is not None:
            rankings = self.calibration.rankings
            rows = [rankings.weighted_thresholds(level, weight, places) for level in self.levels]
            rows = [row.astype(self.queries.dtype, copy=False) for row in rows]
        else:
            rows = largest(self.tables, places)
        if self.calibration.grouped and self.highest is not None:
            self.wide.append(int(np.count_nonzero(rows[self.highest] == np.inf)))
        return rows

    def p_values(self, scores: Floats, start: int, stop: int) -> NDArray[np.float64]:
        """The p-value of each row, whose score is given: (n,)."""
        places = self.places(start, stop)
        missing = [codes < 0 for codes in places if codes is not None]
        if missing:
            self.wide.append(int(np.count_nonzero(np.logical_or.reduce(missing))))
        return self.calibration.rankings.p_values(scores, places, self._weight(start, stop))

    def warn(self) -> None:
        """Warn of the queries that got the whole range, or the p-value 1, because their group is too small."""
        count = sum(self.wide)
        if not count:
            return
        said = "without calibration points: their p-value is 1"
        if self.highest is not None:
            level = float(self.levels[self.highest])
            weighted = self.calibration.weighted
            few = "too little weight at calibration" if weighted else "too few calibration points"
            said = f"with {few} for confidence {level:g}: their set is the whole range"
        said = f"{count:,} of {len(self.queries):,} queries are in groups {said}"
        warnings.warn(said, SmallGroupWarning, stacklevel=3)

    def places(self, start: int, stop: int) -> Places:
        """For each partition the segment of each row, see `GroupRankings.places`."""
        columns = self.queries.groups or {}
        some = {name: column[start:stop] for name, column in columns.items()}
        return self.calibration.rankings.places(some)

    def _weight(self, start: int, stop: int) -> NDArray[np.float64] | None:
        if self.calibration.heaviest is None:
            return None
        if self.queries.weight is None:
            return np.full(stop - start, self.calibration.heaviest)
        weight = self.queries.weight[start:stop]
        check_non_negative("weight", weight, start)
        return weight


# Checks of the caller's arrays. A ValueError says what is wrong and where.


def column(name: str, values: ArrayLike, size: int | None = None, ndim: int = 1) -> Floats:
    """`values` as an array of `size` rows: float32 if it is that or float16, float64 otherwise."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        try:
            array = array.astype(FLOAT64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} holds values that are not numbers") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}, expected real numbers")
    if array.ndim != ndim:
        expected = "(n,)" if ndim == 1 else "(n, d)"
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if size is not None and len(array) != size:
        raise ValueError(f"{name} has {len(array)} rows, but prediction has {size}")
    small = array.dtype.kind == "f" and array.dtype.itemsize <= FLOAT32.itemsize
    return array.astype(FLOAT32 if small else FLOAT64, copy=False)


def check_finite(name: str, chunk: Floats, start: int) -> None:
    """ValueError unless all values are finite; `start` is the position of the chunk in its array."""
    good = np.isfinite(chunk)
    if not good.all():
        place = np.unravel_index(int(np.argmin(good)), good.shape)
        raise ValueError(f"{_where(name, place, start)} is {chunk[place]}, expected a finite number")


def check_non_negative(name: str, chunk: Floats, start: int, positive: bool = False) -> None:
    """ValueError unless all values are finite and at least 0, or above 0 if they must be positive."""
    check_finite(name, chunk, start)
    if len(chunk) and not (chunk.min() > 0 if positive else chunk.min() >= 0):
        place = (int(np.argmax(chunk <= 0 if positive else chunk < 0)),)
        expected = "a positive number" if positive else "no negative number"
        raise ValueError(f"{_where(name, place, start)} is {chunk[place]}, expected {expected}")


def check_within(name: str, chunk: Floats, start: int, low: float, high: float) -> None:
    """ValueError unless all values are finite and from low to high."""
    check_finite(name, chunk, start)
    if len(chunk) and not (chunk.min() >= low and chunk.max() <= high):
        place = (int(np.argmax((chunk < low) | (chunk > high))),)
        raise ValueError(
            f"{_where(name, place, start)} is {chunk[place]}, outside the bounds ({low:g}, {high:g}); "
            "set bounds= to the range of the labels, or to None"
        )


def _where(name: str, place: tuple[Any, ...], start: int) -> str:
    indices = ", ".join(str(int(index) + (start if axis == 0 else 0)) for axis, index in enumerate(place))
    return f"{name}[{indices}]"
