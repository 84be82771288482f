"""When to load the compiled kernels: numba takes a second, longer the first time, and is not needed.

Without it everything works on NumPy alone, with the same numbers.
"""

from __future__ import annotations

import sys
from types import ModuleType

WORTH_LOADING = 10_000_000
"""Rows of one call from which on loading the kernels pays; once loaded they are used for fewer too."""


def loaded_kernels() -> ModuleType | None:
    """The kernels if they are there already."""
    return sys.modules.get("unkgcp.conformal.residual_kernels")


def kernels_for(rows: int) -> ModuleType | None:
    """The kernels if they are there, or if so many rows are worth loading them and they can be."""
    if rows < WORTH_LOADING:
        return loaded_kernels()
    try:
        from unkgcp.conformal import residual_kernels
    except ImportError:  # no numba
        return None
    return residual_kernels
