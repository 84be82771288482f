"""Whether the compiled kernels are worth their start: numba takes a second to load, more the first time.

Without numba everything works, with the same numbers, on NumPy alone.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.scores import Score

Floats = NDArray[np.floating[Any]]

WORTH_LOADING = 10_000_000
"""Intervals of one call from which on loading the kernels pays; once loaded they are used for fewer too."""
_MODULE = "unkgcp.conformal.kernels"


class CompiledScore:
    """A score whose `bounds` runs compiled code where it can: residuals in float64, for large calls."""

    def __init__(self, score: Score, dtype: np.dtype[Any], intervals: int) -> None:
        self.score = score
        self.kernels: Any = None
        if score.centred and dtype == np.float64 and (intervals >= WORTH_LOADING or _MODULE in sys.modules):
            self.kernels = _load()

    def bounds(
        self, prediction: Floats, threshold: Any, scale: Floats | None, limits: tuple[float, float]
    ) -> tuple[Floats, Floats]:
        """As `Score.bounds`, to the last bit."""
        if self.kernels is not None:
            lower, upper = np.empty_like(prediction), np.empty_like(prediction)
            unit = np.ones_like(prediction) if scale is None else scale
            fill = self.kernels.ends_at_each if threshold.ndim else self.kernels.ends_at_one
            if fill(prediction, unit, threshold, *limits, lower, upper):
                return lower, upper
        return self.score.bounds(prediction, threshold, scale, limits)


def _load() -> Any:
    try:
        from unkgcp.conformal import kernels
    except (ImportError, RuntimeError):  # no numba, or nowhere to keep what it compiles
        return None
    return kernels
