"""How far measured coverage may lie from the promised level by chance alone, exactly.

What it is: the law of split conformal prediction. For exchangeable facts without tied scores, the number of
covered facts among m, given l calibration facts, is beta-binomial with parameters k and l + 1 - k. What it is
not: a normal approximation, or a statement about predictors without the guarantee. With ties coverage can
only be larger: then the lower end still holds.

>>> low, high = coverage_band(calibration=1000, test=1000, confidence=0.9, mass=0.999)
>>> low < 0.9 < high
True
"""

from __future__ import annotations

import numpy as np

from unkgcp.conformal.ranks import rank

MASS = 0.999
"""The share of coverages that a band holds."""


def coverage_band(calibration: int, test: int, confidence: float, mass: float = MASS) -> tuple[float, float]:
    """(low, high): coverage of `test` facts lies below low, or above high, with chance (1 - mass) / 2."""
    k = rank(confidence, calibration)
    if k > calibration:
        return 1.0, 1.0
    if k < 1:
        return 0.0, 0.0
    from scipy.special import betaln, gammaln

    hits = np.arange(test + 1, dtype=np.float64)
    a, b = float(k), float(calibration + 1 - k)
    log_mass = (
        gammaln(test + 1.0)
        - gammaln(hits + 1)
        - gammaln(test - hits + 1)
        + betaln(a + hits, b + test - hits)
        - betaln(a, b)
    )
    below = np.cumsum(np.exp(log_mass))
    above = np.cumsum(np.exp(log_mass)[::-1])
    tail = (1 - mass) / 2
    low = int(np.searchsorted(below, tail, side="right"))
    high = test - int(np.searchsorted(above, tail, side="right"))
    return low / test, high / test
