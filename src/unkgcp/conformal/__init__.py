"""Conformal prediction: ranks, nonconformity scores and calibrators over arrays, and predictors over triples.

>>> from unkgcp.conformal import SplitConformal
>>> cal = SplitConformal(bounds=(0, 1)).calibrate([0.2, 0.5, 0.9], [0.3, 0.4, 0.9])
>>> cal.interval([0.5], confidence=0.5).shape
(1, 2)
"""

from __future__ import annotations

from unkgcp.conformal.calls import MissingWeightWarning
from unkgcp.conformal.groups import SmallGroupWarning
from unkgcp.conformal.ranks import exact, p_exceeds, rank, training_conditional_rank
from unkgcp.conformal.scores import EntropyResidual, Residual, ScaledResidual, Score, make_score, register
from unkgcp.conformal.shortest import Shortest, SmallCalibrationWarning
from unkgcp.conformal.split import SplitConformal

__all__ = [
    "EntropyResidual",
    "MissingWeightWarning",
    "Residual",
    "ScaledResidual",
    "Score",
    "Shortest",
    "SmallCalibrationWarning",
    "SmallGroupWarning",
    "SplitConformal",
    "exact",
    "make_score",
    "p_exceeds",
    "rank",
    "register",
    "training_conditional_rank",
]
