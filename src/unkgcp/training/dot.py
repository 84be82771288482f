"""The compiled loop behind `distmult.scores`. Importing it imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# the order of a sum is left to the compiler, so that it can add several numbers at once; nothing else is
quick: Any = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "nsz"}}


@njit(**quick)  # type: ignore[untyped-decorator]
def products(entity: Any, relation: Any, head: Any, middle: Any, tail: Any, out: Any) -> None:
    """Fill `out` (n,) with the sum over the dimensions of h r t; ids must be within the tables."""
    for i in range(len(out)):
        h, r, t = head[i], middle[i], tail[i]
        total = np.float32(0)
        for k in range(entity.shape[1]):
            total += entity[h, k] * relation[r, k] * entity[t, k]
        out[i] = total
