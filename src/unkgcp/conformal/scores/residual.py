"""The absolute residual |prediction - truth|: one interval width for all queries (the paper's CP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
    centred: ClassVar[bool] = True

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
    slack, positive = rounding_slack(radius), limits[0] >= 0
    below = prediction - radius
    below -= slack
    lower = outermost(lambda y, rows: prediction[rows] - y, radius, below, -1, limits[0], positive)
    above = prediction + radius
    above += slack
    upper = outermost(lambda y, rows: y - prediction[rows], radius, above, 1, limits[1], positive)
    return lower, upper


def rounding_slack(values: Any) -> Any:
    """How far beyond each float the numbers reach that still round to it: half a spacing.

    A trifle more for even floats, because the number halfway to the next one rounds to the even of the two.
    With this in a guess it is the right float or its neighbour, even where the end is much closer to zero
    than the prediction, so that half a spacing of the radius is many floats there.
    """
    mask, even, half = _SLACK[values.dtype]
    bits = values.view(mask.dtype) & mask
    bits ^= even
    return bits.view(values.dtype) * half


# the bits of exponent and parity, the bit of parity, and half the spacing of the floats from 1 on
_SLACK: dict[np.dtype[Any], tuple[Any, Any, Any]] = {
    np.dtype(np.float32): (np.uint32(0x7F80_0001), np.uint32(1), np.float32(2**-24)),
    np.dtype(np.float64): (np.uint64(0x7FF0_0000_0000_0001), np.uint64(1), np.float64(2**-53)),
}
