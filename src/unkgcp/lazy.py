"""Imports that wait: public names, so that one part of the package can be had without the others, and modules of the
user's, which a run may name but not import.

>>> lookup, names = lazy("unkgcp", {"errors": ("InputError",)})
>>> lookup("InputError").__module__, names()
('unkgcp.errors', ['InputError'])
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from unkgcp.errors import InputError, missing

IMPORTS = "UNKGCP_IMPORT"
"""The environment variable that names modules, separated by commas, whose backbones and scores a run may use."""


def lazy(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `names` are those of each module, which is named from `unkgcp` on."""
    module_of = {name: f"unkgcp.{module}" for module, defined in names.items() for name in defined}

    def lookup(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(needed(module_of[name]), name)

    return lookup, lambda: sorted(module_of)


def needed(module: str) -> Any:
    """A module that needs a library of our extras; without it the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error) from None


def library(name: str, purpose: str) -> Any:
    """A library that people have or have not; without it an InputError says that `purpose` needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"{purpose} needs {name}: pip install {name}") from None


def import_from_here(module: str) -> Any:
    """A module of the user's, which is looked for in the current folder too."""
    sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    finally:
        sys.path.remove(os.getcwd())


def import_allowed(module: str, what: str, how: str) -> None:
    """Import a module of the user's that a run needs; ModuleNotFoundError unless $UNKGCP_IMPORT names it.

    what: the thing that is needed of it. how: the call that would have made it known.
    """
    if module not in os.environ.get(IMPORTS, "").split(","):
        raise ModuleNotFoundError(
            f"this needs {what} of the module {module}: in Python, import {module} and call {how} first; "
            f"on the command line, set {IMPORTS}={module}",
            name=module,
        )
    import_from_here(module)
