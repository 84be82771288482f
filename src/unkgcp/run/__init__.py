"""A calibrated predictor: fitting, asking in Arrow batches, and the run folder on disk.

Names are imported on first use: whoever loads a run needs nothing of what fits one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.run.answers import answer_batch
    from unkgcp.run.calibration import calibrate
    from unkgcp.run.fitting import fit, fit_folds, recalibrate
    from unkgcp.run.predictor import Predictor

__getattr__, __dir__ = lazy(
    __name__,
    {
        "run.answers": ("answer_batch",),
        "run.calibration": ("calibrate",),
        "run.fitting": ("fit", "fit_folds", "recalibrate"),
        "run.predictor": ("Predictor",),
    },
)

__all__ = ["Predictor", "answer_batch", "calibrate", "fit", "fit_folds", "recalibrate"]
