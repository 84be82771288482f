"""Interval methods over triples, found by name and asked in one way: `create("unkgcp")`, `create("cp")`, ...

>>> create("unkgcp").calibrate(model, facts).interval(queries, confidence=0.9)     # doctest: +SKIP

A new method is a file here whose class stands under `@register`, and its name in `registry.MODULES`; one contract test
holds for all of them. A method is imported when it is first asked for.
"""

from __future__ import annotations

from unkgcp.methods.intervals import STATUSES, Intervals, Levels
from unkgcp.methods.method import IntervalPredictor, Scorer
from unkgcp.methods.registry import PREDICTORS, create, predictor_class, register

__all__ = [
    "PREDICTORS",
    "STATUSES",
    "IntervalPredictor",
    "Intervals",
    "Levels",
    "Scorer",
    "create",
    "predictor_class",
    "register",
]
