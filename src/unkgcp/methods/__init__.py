"""Interval methods over triples, found by name and asked in one way: `create("unkgcp")`, `create("cp")`, ...

>>> create("unkgcp").calibrate(model, facts).interval(queries, confidence=0.9)     # doctest: +SKIP

A new method is a file here whose class stands under `@register`, and its name in `MODULES`; one contract test holds for
all of them. A method is imported when it is first asked for.

>>> create("fpi").name
'fpi'
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.methods.intervals import STATUSES, Intervals, Levels
from unkgcp.methods.method import IntervalPredictor, Scorer

__all__ = [
    "MODULES",
    "STATUSES",
    "IntervalPredictor",
    "Intervals",
    "Levels",
    "Scorer",
    "check_promise",
    "create",
    "predictor_class",
    "register",
]

MODULES = {
    "fpi": "baselines",
    "qr": "baselines",
    "cv+": "cv_plus",
    "evidence": "evidence_method",
    "joint": "interval_valued",
    "mean-length": "interval_valued",
    "cp": "split_methods",
    "unkgcp": "split_methods",
    "shortest": "split_methods",
}
"""The module of this package in which each method is registered."""

POPULATIONS = ("asserted", "open")

Method = TypeVar("Method", bound=type[IntervalPredictor])


_CLASSES: dict[str, type[IntervalPredictor]] = {}


def register(method: Method) -> Method:
    """Class decorator: make the method known under its `name`, which must be new."""
    if method.name in _CLASSES:
        raise ValueError(f"an interval method named {method.name!r} is registered already")
    _CLASSES[method.name] = method
    return method


def predictor_class(name: str) -> type[IntervalPredictor]:
    """The class registered under this name."""
    if name not in _CLASSES and name in MODULES:
        import_module(f"unkgcp.methods.{MODULES[name]}")
    if name not in _CLASSES:
        names = ", ".join(MODULES | _CLASSES)
        raise InputError(f"there is no interval method {name!r}; choose one of {names}")
    return _CLASSES[name]


def check_promise(
    method: type[IntervalPredictor],
    per: str | None,
    population: str,
    kinds: Sequence[str],
) -> None:
    """InputError if there are no such groups, population or kinds of non-facts, or if the method cannot promise this.

    The arguments are those of `unkgcp.calibrate`.
    """
    from unkgcp.graph.negatives import ALL_KINDS
    from unkgcp.methods.partitions import partition_names

    if partition_names(per) and not method.takes_groups:
        raise InputError(
            f"method {method.name!r} has no promise per {per}; choose cp, unkgcp, shortest or evidence"
        )
    if population not in POPULATIONS:
        raise InputError(f"population is {population!r} but must be one of {', '.join(POPULATIONS)}")
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise InputError(f"there are no {kind!r} negatives; choose among {', '.join(ALL_KINDS)}")


def create(name: str, **options: Any) -> IntervalPredictor:
    """An uncalibrated predictor; an unknown option is refused with the nearest known one."""
    method = predictor_class(name)
    parameters = list(inspect.signature(method).parameters)
    for option in options:
        if option not in parameters:
            near = difflib.get_close_matches(option, parameters, 1)
            hint = f"did you mean {near[0]!r}" if near else f"it takes {', '.join(parameters) or 'none'}"
            raise InputError(f"method {name!r} has no option {option!r}; {hint}")
    return method(**options)


def restore(
    name: str,
    options: Mapping[str, Any],
    models: Mapping[str, Scorer],
    arrays: Mapping[str, NDArray[Any]],
) -> IntervalPredictor:
    """The calibrated method of a run, from its settings, all its models by name, and what calibration learned."""
    made = create(name, **{**options, **predictor_class(name).made_of(models)})
    return made.restore(models["model"], arrays)
