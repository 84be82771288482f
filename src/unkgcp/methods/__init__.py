"""Interval methods over triples: `fpi`, `qr`, `cp` and `unkgcp`, found by name and asked in one way.

>>> create("unkgcp").calibrate(model, facts).interval(queries, confidence=0.9)     # doctest: +SKIP

A new method is a file here with a class under `@register`; one contract test holds for all of them.
"""

from __future__ import annotations

from unkgcp.graph.facts import Triples
from unkgcp.methods.baselines import FisherIntervals, QuantileRegression
from unkgcp.methods.cv_plus import CrossConformalIntervals
from unkgcp.methods.evidence_method import EvidenceIntervals
from unkgcp.methods.interval_valued import Joint, MeanLength
from unkgcp.methods.intervals import STATUSES, Intervals, Levels
from unkgcp.methods.method import IntervalPredictor, Scorer
from unkgcp.methods.registry import PREDICTORS, create, predictor_class, register
from unkgcp.methods.split_methods import AbsoluteResidual, EntropyNormalised, ShortestIntervals

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
