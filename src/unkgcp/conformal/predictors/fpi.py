"""Fisher prediction intervals, the paper's classical baseline: one interval for every query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.predictors.base import Floats, IntervalPredictor, Triples
from unkgcp.conformal.predictors.registry import register
from unkgcp.graph import Graph


@register
class FisherIntervals(IntervalPredictor):
    """mean +- t s sqrt(l / (l - 1)), cut to [0, 1]; t is Student's quantile with l - 1 degrees of freedom.

    As in the paper's appendix, mean and s are those of the model's *predictions* on the l calibration facts,
    not of their labels, and the interval is the same for every query. One calibration fact has no spread: the
    interval is then the whole range.

    Guarantee: none for the labels. Assumption: labels are distributed like the predictions, normally and with
    one variance; real confidences are not, and coverage then lies anywhere.
    """

    name: ClassVar[str] = "fpi"
    guarantee: ClassVar[str] = "none: it presumes normal confidences distributed like the predictions"

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        self.mean = float(score.mean())
        self.spread = float(score.std(ddof=1)) if len(score) > 1 else math.inf

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        ends = np.empty((len(score), 2, len(levels)))
        for column, level in enumerate(levels):
            half = self._half_width(float(level))
            ends[:, 0, column] = min(max(self.mean - half, 0.0), 1.0)
            ends[:, 1, column] = max(min(self.mean + half, 1.0), 0.0)
        return ends

    def _half_width(self, level: float) -> float:
        if level >= 1 or not math.isfinite(self.spread):
            return math.inf
        from scipy.special import stdtrit

        degrees = self.size - 1
        return float(stdtrit(degrees, (1 + level) / 2)) * self.spread * math.sqrt(self.size / degrees)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": np.array(self.mean), "spread": np.array(self.spread)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if set(arrays) != {"mean", "spread"} or any(array.shape != () for array in arrays.values()):
            raise ValueError(f"expected the numbers mean and spread, found {', '.join(arrays) or 'nothing'}")
        self.mean, self.spread = float(arrays["mean"]), float(arrays["spread"])
