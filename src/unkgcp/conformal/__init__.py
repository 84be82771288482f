"""Conformal prediction over arrays: ranks, nonconformity scores and calibration. It knows nothing of graphs or models.

>>> from unkgcp.conformal import SplitConformal
>>> cal = SplitConformal(bounds=(0, 1)).calibrate([0.2, 0.5, 0.9], [0.3, 0.4, 0.9])
>>> cal.interval([0.5], confidence=0.5).shape
(1, 2)

Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unkgcp.conformal.query_chunks import MissingWeightWarning, SmallGroupWarning
    from unkgcp.conformal.ranks import exact, p_exceeds, rank, training_conditional_rank
    from unkgcp.conformal.scores import (
        EntropyResidual,
        Residual,
        ScaledResidual,
        Score,
        make_score,
        register,
    )
    from unkgcp.conformal.shortest import Shortest
    from unkgcp.conformal.split import SmallCalibrationWarning, SplitConformal

_WHERE = {
    "EntropyResidual": "scores",
    "MissingWeightWarning": "query_chunks",
    "Residual": "scores",
    "ScaledResidual": "scores",
    "Score": "scores",
    "Shortest": "shortest",
    "SmallCalibrationWarning": "split",
    "SmallGroupWarning": "query_chunks",
    "SplitConformal": "split",
    "exact": "ranks",
    "make_score": "scores",
    "p_exceeds": "ranks",
    "rank": "ranks",
    "register": "scores",
    "training_conditional_rank": "ranks",
}

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp.conformal' has no attribute {name!r}")
    return getattr(import_module(f"unkgcp.conformal.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
