"""Groups (Mondrian conformal prediction): a promise for every group instead of only on average over all.

A query is compared with the calibration points of its own group and with no others. A group with too few points
for a level is answered with the whole range, and so is a group without any, at every level: then the promise holds
in every group, and so on average over all. A threshold borrowed from the other groups would break both promises: the
large groups use their own, so nobody would make up for what the small ones miss. `SmallGroupWarning` says how many
queries that concerns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SmallGroupWarning(UserWarning):
    """Some queries are in groups with too few calibration points for the level and got the whole range."""


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
