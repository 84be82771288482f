"""A calibrated predictor: fitting, asking in Arrow batches, and the run folder on disk.

Names are imported on first use: whoever loads a run needs nothing of what fits one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unkgcp.run.answers import answer_batch
    from unkgcp.run.calibration import calibrate
    from unkgcp.run.fitting import fit, fit_folds, recalibrate
    from unkgcp.run.predictor import Predictor

_WHERE = {
    "Predictor": "predictor",
    "answer_batch": "answers",
    "calibrate": "calibration",
    "fit": "fitting",
    "fit_folds": "fitting",
    "recalibrate": "fitting",
}

__all__ = ["Predictor", "answer_batch", "calibrate", "fit", "fit_folds", "recalibrate"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp.run' has no attribute {name!r}")
    return getattr(import_module(f"unkgcp.run.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
