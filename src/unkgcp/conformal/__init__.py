"""Conformal prediction over arrays: ranks, nonconformity scores and calibration, without graphs or models.

>>> from unkgcp.conformal import SplitConformal
>>> cal = SplitConformal(bounds=(0, 1)).calibrate([0.2, 0.5, 0.9], [0.3, 0.4, 0.9])
>>> cal.interval([0.5], confidence=0.5).shape
(1, 2)
"""

from __future__ import annotations

from unkgcp.conformal.exact_groups import exact_group_thresholds
from unkgcp.conformal.ranks import exact, p_exceeds, rank, training_conditional_rank
from unkgcp.conformal.scores import (
    EntropyResidual,
    Residual,
    ScaledResidual,
    Score,
    make_score,
    register_score,
)
from unkgcp.conformal.selection import Selection, select
from unkgcp.conformal.shortest import Shortest
from unkgcp.conformal.split import (
    NotCalibratedError,
    SmallCalibrationWarning,
    SmallGroupWarning,
    SplitConformal,
)
from unkgcp.conformal.units import one_row_per_unit

__all__ = [
    "EntropyResidual",
    "NotCalibratedError",
    "Residual",
    "ScaledResidual",
    "Score",
    "Selection",
    "Shortest",
    "SmallCalibrationWarning",
    "SmallGroupWarning",
    "SplitConformal",
    "exact",
    "exact_group_thresholds",
    "make_score",
    "one_row_per_unit",
    "p_exceeds",
    "rank",
    "register_score",
    "select",
    "training_conditional_rank",
]
