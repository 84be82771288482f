"""Interval methods by name, so that a method is one file and one decorator.

>>> create("fpi").name
'fpi'
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any, TypeVar

from unkgcp.errors import InputError
from unkgcp.methods.method import IntervalPredictor

PREDICTORS: dict[str, type[IntervalPredictor]] = {}

Method = TypeVar("Method", bound=type[IntervalPredictor])


def register(method: Method) -> Method:
    """Class decorator: make the method known under its `name`."""
    if method.name in PREDICTORS:
        raise ValueError(f"an interval method named {method.name!r} is registered already")
    PREDICTORS[method.name] = method
    return method


def predictor_class(name: str) -> type[IntervalPredictor]:
    """The class registered under this name."""
    if name not in PREDICTORS:
        raise InputError(f"there is no interval method {name!r}; choose one of {', '.join(PREDICTORS)}")
    return PREDICTORS[name]


def create(name: str, **options: Any) -> IntervalPredictor:
    """An uncalibrated predictor; an unknown option is refused with the nearest known one."""
    method = predictor_class(name)
    known = list(inspect.signature(method).parameters)
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]!r}" if near else f"it takes {', '.join(known) or 'none'}"
            raise InputError(f"method {name!r} has no option {option!r}; {hint}")
    return method(**options)
