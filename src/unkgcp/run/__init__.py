"""A calibrated predictor: fitting, asking in Arrow batches, and the run folder on disk."""

from __future__ import annotations

from unkgcp.run.answers import answer_batch
from unkgcp.run.fitting import fit, recalibrate
from unkgcp.run.folds import fit_folds
from unkgcp.run.predictor import Predictor, calibrate

__all__ = ["Predictor", "answer_batch", "calibrate", "fit", "fit_folds", "recalibrate"]
