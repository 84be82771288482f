"""Interval methods over triples: `fpi`, `qr`, `cp` and `unkgcp`, found by name and asked in one way.

>>> create("unkgcp").calibrate(model, facts).interval(queries, confidence=0.9)     # doctest: +SKIP

A new method is a file here with a class under `@register`; one contract test holds for all of them.
"""

from unkgcp.conformal.predictors.base import (
    STATUSES,
    IntervalPredictor,
    Intervals,
    Levels,
    Scorer,
    Triples,
)
from unkgcp.conformal.predictors.conformal import AbsoluteResidual, EntropyNormalised
from unkgcp.conformal.predictors.cross import CrossConformalIntervals
from unkgcp.conformal.predictors.evidence import EvidenceIntervals
from unkgcp.conformal.predictors.fpi import FisherIntervals
from unkgcp.conformal.predictors.qr import QuantileRegression
from unkgcp.conformal.predictors.registry import PREDICTORS, create, predictor_class, register
from unkgcp.conformal.predictors.shortest import ShortestIntervals
from unkgcp.conformal.predictors.valued import Joint, MeanLength

__all__ = [
    "PREDICTORS",
    "STATUSES",
    "AbsoluteResidual",
    "CrossConformalIntervals",
    "EntropyNormalised",
    "EvidenceIntervals",
    "FisherIntervals",
    "IntervalPredictor",
    "Intervals",
    "Joint",
    "Levels",
    "MeanLength",
    "QuantileRegression",
    "Scorer",
    "ShortestIntervals",
    "Triples",
    "create",
    "predictor_class",
    "register",
]
