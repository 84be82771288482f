"""Conformal prediction over arrays: ranks, nonconformity scores and calibration, without graphs or models.

>>> from unkgcp.conformal import SplitConformal
>>> cal = SplitConformal(bounds=(0, 1)).calibrate([0.2, 0.5, 0.9], [0.3, 0.4, 0.9])
>>> cal.interval([0.5], confidence=0.5).shape
(1, 2)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unkgcp.conformal.query_chunks import MissingWeightWarning, SmallCalibrationWarning, SmallGroupWarning
from unkgcp.conformal.ranks import exact, p_exceeds, rank, training_conditional_rank
from unkgcp.conformal.scores import EntropyResidual, Residual, ScaledResidual, Score, make_score, register
from unkgcp.conformal.split import SplitConformal

if TYPE_CHECKING:
    from unkgcp.conformal.selection import Selection, select
    from unkgcp.conformal.shortest import Shortest

__all__ = [
    "EntropyResidual",
    "MissingWeightWarning",
    "Residual",
    "ScaledResidual",
    "Score",
    "Selection",
    "Shortest",
    "SmallCalibrationWarning",
    "SmallGroupWarning",
    "SplitConformal",
    "exact",
    "make_score",
    "p_exceeds",
    "rank",
    "register",
    "select",
    "training_conditional_rank",
]


_WHERE = {"Selection": "selection", "Shortest": "shortest", "select": "selection"}
"""The modules of names that few users need; they are imported when asked for."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp.conformal' has no attribute {name!r}")
    return getattr(import_module(f"unkgcp.conformal.{_WHERE[name]}"), name)
