"""The entropy-normalised residual: the paper's adaptive nonconformity measure (UnKGCP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unkgcp.conformal.loading import loaded_kernels
from unkgcp.conformal.scores.base import Floats, register
from unkgcp.conformal.scores.scaled import ScaledResidual

CLIP = 1e-6


@register
@dataclass(frozen=True)
class EntropyResidual(ScaledResidual):
    """s = |M - truth| / H(M), where H is the entropy of the predicted confidence M in natural units.

    M is mapped to slope M + offset (the reference experiments on CN15k use 0.5 M + 0.5) and clipped to
    [1e-6, 1 - 1e-6] before the entropy; the residual uses M as it is. The clip keeps H above 1.4e-5, so that
    no score is infinite.

    >>> EntropyResidual().prepare(np.array([0.5]))
    array([0.69314718])
    """

    name: ClassVar[str] = "entropy"
    takes_scale: ClassVar[bool] = False

    slope: float = 1.0
    offset: float = 0.0

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """H(M) = -M log M - (1 - M) log(1 - M): (n,)."""
        plain = (self.slope, self.offset) == (1.0, 0.0)
        kernels: Any = loaded_kernels() if plain and prediction.dtype == np.float64 else None
        if kernels is not None:  # fewer passes around the logarithms, the same floats
            mass, rest = np.empty_like(prediction), np.empty_like(prediction)
            kernels.split_mass(prediction, CLIP, 1 - CLIP, mass, rest)
            kernels.minus_products(mass, np.log(mass), rest, np.log(rest))
            return mass
        if plain:
            mass = np.clip(prediction, CLIP, 1 - CLIP)
        else:
            mass = prediction * prediction.dtype.type(self.slope)
            mass += prediction.dtype.type(self.offset)
            np.clip(mass, CLIP, 1 - CLIP, out=mass)
        rest = 1 - mass
        mass *= np.log(mass)
        rest *= np.log(rest)
        mass += rest
        return np.negative(mass, out=mass)
