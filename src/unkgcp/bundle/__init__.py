"""A calibrated predictor: fitting, asking in Arrow batches, and the run folder on disk."""

from unkgcp.bundle.batch import answer_batch
from unkgcp.bundle.fitting import fit, recalibrate
from unkgcp.bundle.predictor import Predictor, calibrate
from unkgcp.bundle.queries import to_triples

__all__ = ["Predictor", "answer_batch", "calibrate", "fit", "recalibrate", "to_triples"]
