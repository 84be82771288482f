"""Calibration points that first teach a score: which of them do, and what is left to rank.

The points that teach and the points that are ranked are told apart by their position and a seed, never by their
values. So, given those that taught, the score is fixed, and the others are exchangeable with a query as before.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import arrays
from unkgcp.conformal.groups import labels
from unkgcp.conformal.scores import Recipe, Score

Bounds = tuple[float, float]


class SmallCalibrationWarning(UserWarning):
    """There are too few calibration points to learn a score from; a plainer one is used."""


@dataclass(frozen=True)
class Points:
    """Calibration points that are left to rank, each column (l,) or None."""

    prediction: NDArray[Any]
    truth: NDArray[Any]
    group: NDArray[Any] | None
    weight: NDArray[Any] | None
    kind: NDArray[Any] | None


def learn_score(
    recipe: Recipe,
    bounds: Bounds,
    prediction: ArrayLike,
    truth: ArrayLike,
    group: ArrayLike | None,
    weight: ArrayLike | None,
    kind: ArrayLike | None = None,
) -> tuple[Score, Points]:
    """The score that a part of the points teaches, and the other points; ValueError names a bad value."""
    given = arrays.column("prediction", prediction)
    size = len(given)
    label = arrays.column("truth", truth, size)
    # every value is checked before any is used, so that messages name its place among all points
    arrays.check_finite("prediction", given, 0)
    arrays.check_within("truth", label, 0, *bounds)
    members = None if group is None else labels(group, size)
    kinds = None if kind is None else labels(kind, size, "kind")
    weights = None if weight is None else arrays.column("weight", weight, size)
    if weights is not None:
        arrays.check_non_negative("weight", weights, 0)
    learning = recipe.learning_rows(size)
    if learning is None:
        score = recipe.fallback()
        warnings.warn(
            f"{size:,} calibration points are too few to learn the {recipe.name} score from; "
            f"the {score.name} score is used instead",
            SmallCalibrationWarning,
            stacklevel=3,
        )
        return score, Points(given, label, members, weights, kinds)
    left = np.flatnonzero(~learning)

    def rest(column: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if column is None else column[left]

    score = recipe.learn(given[learning], label[learning], None if kinds is None else kinds[learning])
    return score, Points(given[left], label[left], rest(members), rest(weights), rest(kinds))
