"""How likely so few covered facts are by chance alone: exact p-values for one look at the coverage.

What it is: the lower tail of the law of the number of covered facts. For split conformal prediction that law is
beta-binomial with parameters k and l + 1 - k (with ties coverage can only be larger, so the p-value errs on the
safe side). For a method without ranks, the covered ones among calibration and new facts together are shared out by
chance: hypergeometric. What it is not: valid if one looks again and again and stops when one likes; for that there
is the martingale.

>>> round(beta_binomial_p_value(hits=80, facts=100, calibration=1000, confidence=0.9), 4)
0.0029
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, rank

Floats = NDArray[np.float64]


def beta_binomial_p_value(hits: int, facts: int, calibration: int, confidence: Confidence) -> float:
    """P(covered <= hits) among `facts` new ones, for l = `calibration` scores at the level `confidence`."""
    k = rank(confidence, calibration)
    if hits >= facts or k > calibration or k < 1:
        return 1.0
    from scipy.special import betaln, gammaln

    covered = np.arange(hits + 1, dtype=np.float64)
    log_mass = (
        gammaln(facts + 1.0)
        - gammaln(covered + 1)
        - gammaln(facts - covered + 1)
        + betaln(k + covered, calibration + 1 - k + facts - covered)
        - betaln(k, calibration + 1 - k)
    )
    return _sum(log_mass)


def hypergeometric_p_value(hits: int, facts: int, calibration_hits: int, calibration: int) -> float:
    """P(covered <= hits) among `facts` drawn from calibration and new facts together."""
    covered_in_all, least = hits + calibration_hits, max(0, hits + calibration_hits - calibration)
    if hits >= min(facts, covered_in_all):
        return 1.0
    from scipy.special import gammaln

    def log_choose(n: float, k: Floats) -> Floats:
        return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    covered = np.arange(least, hits + 1, dtype=np.float64)
    log_mass = (
        log_choose(facts, covered)
        + log_choose(calibration, covered_in_all - covered)
        - log_choose(facts + calibration, np.array(float(covered_in_all)))
    )
    return _sum(log_mass)


def _sum(log_mass: Floats) -> float:
    top = float(log_mass.max())
    return float(min(1.0, np.exp(top) * np.exp(log_mass - top).sum()))
