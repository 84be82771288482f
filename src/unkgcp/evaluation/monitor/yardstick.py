"""What new facts are measured by: the strangeness of a labelled fact, and that of the calibration facts.

What it is: the one place that knows where scores come from. A conformal method has a nonconformity score, here with
the sign of c - M(q), and keeps those of its calibration facts. Any other method (fpi, qr) is measured by c - M(q)
itself, and its calibration facts must be given again. What it is not: a test; it compares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle import Predictor, to_triples
from unkgcp.conformal.predictors import IntervalPredictor, Triples
from unkgcp.conformal.predictors.base import status_codes
from unkgcp.conformal.split import SplitConformal
from unkgcp.errors import InputError
from unkgcp.graph import Graph

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """Scores of the calibration facts (l,), their relations (l,) if known, and how new facts are scored.

    `hits` is how many calibration facts the intervals cover; None where ranks promise a law of their own.
    """

    method: IntervalPredictor
    confidence: float
    scores: Floats
    relations: NDArray[np.int32] | None
    hits: int | None

    def measure(self, triples: Triples, truth: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Score of each known labelled fact, and whether its interval covers the label: (n,), (n,)."""
        if truth.ndim == 2 and not self.method.needs_length:
            raise InputError(
                "the labelled facts have lower and upper, the run was fitted on single confidences; "
                "give facts with one confidence each"
            )
        error, covered = _errors(self.method, triples, truth, self.confidence)
        scores = self.method.nonconformity(triples, truth) if self.hits is None else error
        assert scores is not None
        return scores, covered


def yardstick(predictor: Predictor, confidence: float, calibration: Graph | None) -> Yardstick:
    """The yardstick of a predictor; `calibration` are its calibration facts where it does not keep their scores."""
    method = predictor.method
    kept = method.calibration_scores()
    if kept is not None and calibration is None and keeps_scores(method):
        return Yardstick(method, confidence, *kept, None)
    if calibration is None and method.needs_members:
        raise InputError(
            f"method {method.name} trained on all of its facts, which are then no measure for new ones; "
            "name labelled facts as they were at that time, on which nothing was trained (--calibration FILE)"
        )
    if calibration is None:
        raise InputError(
            f"method {method.name} keeps no scores of its calibration facts; "
            "name these facts, or calibrate the run with another method (unkgcp fit --from RUN --method cp)"
        )
    triples = to_triples(calibration, predictor.model.vocabulary)
    known = status_codes(predictor.model, triples) == 0
    triples = Triples(*(column[known] for column in triples))
    truth = calibration.truth[known]
    error, covered = _errors(method, triples, truth, confidence)
    return Yardstick(method, confidence, error, triples.relation, int(covered.sum()))


def _errors(
    method: IntervalPredictor, triples: Triples, truth: Floats, confidence: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """c - M(q) and whether the interval covers c (both ends of it, for truth (n, 2)): (n,), (n,)."""
    answer = method.interval(triples, confidence)
    low, high = (truth, truth) if truth.ndim == 1 else (truth[:, 0], truth[:, 1])
    error: Floats = (low + high) / 2 - answer.score
    return error, (answer.lower <= low) & (high <= answer.upper)


def keeps_scores(method: IntervalPredictor) -> bool:
    """Whether one threshold, the k-th smallest calibration score, makes all intervals: then coverage has its law."""
    if method.calibration_scores() is None or getattr(method, "share", None) is not None:
        return False
    if getattr(method, "groups", None) is not None:
        return False
    split = getattr(method, "calibration", None)
    about = split._calibrated() if isinstance(split, SplitConformal) else None
    if about is None:
        return True
    return about.groups is None and about.training_conditional is None and not about.weighted
