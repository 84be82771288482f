"""Groups (Mondrian conformal prediction): a promise for every group instead of only on average over all.

Each group of at least `min_group` calibration points has its own threshold. A smaller or unknown group is
answered with the pooled threshold, and the answer says so: a `FallbackWarning`, and `SplitConformal.fallback`
for the rows. Which groups are large enough is settled at calibration, once for all levels; otherwise an
interval could shrink as the level grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_GROUP = 19
"""The smallest group whose 95 % interval is not the whole range: ceil(0.95 (19 + 1)) = 19."""


class FallbackWarning(UserWarning):
    """Some queries are in groups without enough calibration points and got the pooled threshold."""


def labels(values: ArrayLike, size: int | None = None, name: str = "group") -> NDArray[Any]:
    """Group labels as an array of strings or integers: (n,); `name` is what errors call it."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected (n,)")
    if size is not None and len(array) != size:
        raise ValueError(f"{name} has {len(array)} rows, but prediction has {size}")
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    if array.dtype.kind in "OT":
        strings = np.fromiter((isinstance(label, str) for label in array), np.bool_, len(array))
        if not strings.all():
            index = int(np.argmin(strings))
            raise ValueError(f"{name}[{index}] is {array[index]!r}, expected strings or integers throughout")
        return array.astype(np.str_)
    if array.dtype.kind != "U":
        raise ValueError(f"{name} has dtype {array.dtype}, expected strings or integers")
    return array


def group_codes(known: NDArray[Any], group: NDArray[Any]) -> NDArray[np.intp]:
    """Position of each label in `known` (sorted), -1 where it is not there: (n,)."""
    if (known.dtype.kind == "U") != (group.dtype.kind == "U"):
        raise ValueError(f"group has dtype {group.dtype}, but the calibration groups were {known.dtype}")
    if not len(known):
        return np.full(len(group), -1, np.intp)
    position = np.minimum(np.searchsorted(known, group), len(known) - 1)
    return np.where(known[position] == group, position, -1)
