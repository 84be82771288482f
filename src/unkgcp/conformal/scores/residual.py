"""The absolute residual |prediction - truth|: one interval width for all queries (the paper's CP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unkgcp.conformal.inverse import outermost
from unkgcp.conformal.scores.base import Floats, Limits, Threshold, register


@register
@dataclass(frozen=True)
class Residual:
    """s = |prediction - truth|; the set at threshold q is [prediction - q, prediction + q].

    >>> Residual().score(np.array([0.5]), np.array([0.75]))
    array([0.25])
    """

    name: ClassVar[str] = "residual"
    takes_scale: ClassVar[bool] = False
    prediction_ndim: ClassVar[int] = 1

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats | None:
        return None

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        residual = np.subtract(prediction, truth)
        return np.abs(residual, out=residual)

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        return ends_within(prediction, threshold, limits)


def ends_within(prediction: Floats, radius: Threshold, limits: Limits) -> tuple[Floats, Floats]:
    """Smallest and largest float whose rounded distance from the prediction is at most `radius`."""
    # distances up to half a spacing beyond the radius round to it, and where the end is much closer to zero
    # than the prediction that is many floats: the guess goes there at once
    slack = half_spacing(radius)
    below = np.subtract(prediction, radius)
    above = np.add(prediction, radius)
    lower = outermost(
        lambda y, rows: prediction[rows] - y, radius, np.subtract(below, slack, out=below), -1, limits[0]
    )
    upper = outermost(
        lambda y, rows: y - prediction[rows], radius, np.add(above, slack, out=above), 1, limits[1]
    )
    return lower, upper


def half_spacing(values: Threshold) -> Threshold:
    """Half the distance from each float to the next larger one; zero where that is too small for a float."""
    dtype = values.dtype
    bits = np.dtype(f"u{dtype.itemsize}")
    exponent = np.array(np.inf, dtype).view(bits)
    power: Floats = (np.asarray(values).view(bits) & exponent).view(dtype)
    return power * np.finfo(dtype).epsneg
