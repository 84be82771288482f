"""The residual in units of a given scale: wide intervals where the caller expects large errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unkgcp.conformal.inverse import outermost
from unkgcp.conformal.scores.base import Floats, Limits, Threshold, register
from unkgcp.conformal.scores.residual import ends_within, rounding_slack


@register
@dataclass(frozen=True)
class ScaledResidual:
    """s = |prediction - truth| / scale; the set at threshold q is prediction -+ q scale.

    Any positive scale keeps the guarantee, as long as it was chosen without the calibration labels.

    >>> ScaledResidual().score(np.array([0.5]), np.array([0.75]), np.array([0.5]))
    array([0.5])
    """

    name: ClassVar[str] = "scaled"
    takes_scale: ClassVar[bool] = True
    prediction_ndim: ClassVar[int] = 1
    centred: ClassVar[bool] = True

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        if scale is None:
            raise ValueError(f"the {self.name} score needs a scale for every query")
        return scale

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        residual = np.subtract(prediction, truth)
        np.abs(residual, out=residual)
        return np.divide(residual, self.prepare(prediction) if scale is None else scale, out=residual)

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        unit = self.prepare(prediction) if scale is None else scale
        guess = unit * threshold
        guess += unit * rounding_slack(threshold)
        radius = outermost(lambda r, rows: r / unit[rows], threshold, guess, 1, np.inf, positive=True)
        return ends_within(prediction, radius, limits)
