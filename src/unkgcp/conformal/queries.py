"""One call's arrays: checked as a whole when they arrive, and value by value as each chunk is worked on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import arrays
from unkgcp.conformal.groups import labels
from unkgcp.conformal.scores import Score

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Queries:
    """Predictions and what comes with them, (n,) each; `dtype` is the precision everything is computed in."""

    score: Score
    bounds: tuple[float, float]
    prediction: Floats
    scale: Floats | None
    group: NDArray[Any] | None
    weight: NDArray[np.float64] | None
    dtype: np.dtype[Any]
    kind: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.prediction)

    def at_least(self, dtype: np.dtype[Any]) -> Queries:
        """The same in a precision no lower than `dtype`."""
        return replace(self, dtype=np.result_type(self.dtype, dtype))

    def check(self, start: int, stop: int) -> None:
        """ValueError if a value of these rows cannot be used; it names the first one."""
        arrays.check_finite("prediction", self.prediction[start:stop], start)
        if self.scale is not None:
            arrays.check_positive("scale", self.scale[start:stop], start)

    def rows(self, start: int, stop: int) -> tuple[Floats, Floats | None]:
        """Prediction and prepared scale of some rows, contiguous: the same bits alone as among others."""
        prediction = np.ascontiguousarray(self.prediction[start:stop], self.dtype)
        scale = None if self.scale is None else np.ascontiguousarray(self.scale[start:stop], self.dtype)
        if self.kind is not None:
            places: NDArray[np.intp] = self.score.places(self.kind[start:stop])  # type: ignore[attr-defined]
            scale = places.astype(self.dtype)
        return prediction, self.score.prepare(prediction, scale)

    def scores(self, truth: Floats, start: int, stop: int) -> Floats:
        """Nonconformity of the labels of some rows, everything checked: (n,)."""
        self.check(start, stop)
        prediction, scale = self.rows(start, stop)
        labels = truth[start:stop]
        arrays.check_within("truth", labels, start, *self.bounds)
        near = np.ascontiguousarray(labels, self.dtype)
        value = self.score.score(prediction, near, scale)
        if truth.dtype.itemsize > self.dtype.itemsize:
            # a label between two floats of the interval's precision is inside exactly when both of them are
            towards = np.where(near < labels, np.inf, -np.inf).astype(self.dtype)
            other = np.where(near == labels, near, np.nextafter(near, towards))
            value = np.maximum(value, self.score.score(prediction, other, scale))
        return value


def read_queries(
    score: Score,
    bounds: tuple[float, float],
    prediction: ArrayLike,
    scale: ArrayLike | None,
    group: ArrayLike | None,
    weight: ArrayLike | None,
    kind: ArrayLike | None = None,
) -> Queries:
    """Arrays of a caller as `Queries`; a ValueError names the one that does not fit."""
    given = arrays.column("prediction", prediction, ndim=score.prediction_ndim)
    size = len(given)
    if score.takes_scale != (scale is not None):
        needs = "needs a scale for every query" if score.takes_scale else "takes no scale"
        raise ValueError(f"the {score.name} score {needs}")
    unit = None if scale is None else arrays.column("scale", scale, size)
    wanted = getattr(score, "kinds", None) is not None
    if wanted and kind is None:
        raise ValueError("kind is missing: the score was learned from predictions with a kind")
    # a bound that float32 cannot hold would be rounded, and with it the range of the labels
    small = all(float(np.float32(bound)) == bound for bound in bounds)
    dtypes = [given.dtype, arrays.FLOAT32 if small else arrays.FLOAT64]
    return Queries(
        score,
        bounds,
        given,
        unit,
        None if group is None else labels(group, size),
        None if weight is None else arrays.column("weight", weight, size).astype(np.float64, copy=False),
        np.result_type(*dtypes, *([] if unit is None else [unit.dtype])),
        labels(kind, size, "kind") if wanted and kind is not None else None,
    )
