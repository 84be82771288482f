"""A calibrated predictor: fitting, asking in Arrow batches, and the run folder on disk."""

from unkgcp.bundle.answers import answer_batch
from unkgcp.bundle.fitting import fit, recalibrate
from unkgcp.bundle.folding import fit_folds
from unkgcp.bundle.predictor import Predictor, calibrate
from unkgcp.bundle.queries import to_triples

__all__ = ["Predictor", "answer_batch", "calibrate", "fit", "fit_folds", "recalibrate", "to_triples"]
