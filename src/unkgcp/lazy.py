"""Public names that are imported on first use, so that one part of the package can be had without the others.

>>> lookup, names = lazy("unkgcp", {"errors": ("InputError",)})
>>> lookup("InputError").__module__, names()
('unkgcp.errors', ['InputError'])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from unkgcp.errors import missing


def lazy(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `names` are those of each module, which is named from `unkgcp` on."""
    module_of = {name: f"unkgcp.{module}" for module, defined in names.items() for name in defined}

    def lookup(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            raise missing(error) from None

    return lookup, lambda: sorted(module_of)
