"""Checks of a caller's arrays, at the border: a ValueError says what is wrong and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.loops import run_chunks

Floats = NDArray[np.float64]
Group = ArrayLike | Mapping[str, ArrayLike]
"""What a caller gives: the groups of one partition, (n,), or those of several partitions by name."""
Columns = Mapping[str, NDArray[Any]]


def column(name: str, values: ArrayLike, size: int | None = None, ndim: int = 1) -> Floats:
    """`values` as an array of `size` rows."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} holds values that are not numbers") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}, expected real numbers")
    _check_shape(name, array, size, ndim)
    return array.astype(np.float64, copy=False)


def _check_shape(name: str, array: NDArray[Any], size: int | None, ndim: int = 1) -> None:
    if array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}, expected {'(n,)' if ndim == 1 else '(n, d)'}")
    if size is not None and len(array) != size:
        raise ValueError(f"{name} has {len(array)} rows, but prediction has {size}")


FINITE = "expected a finite number"


def check(
    name: str,
    values: NDArray[Any],
    good: Callable[[NDArray[Any]], NDArray[np.bool_]] = np.isfinite,
    problem: str = FINITE,
) -> None:
    """ValueError about the first value that is not good; `good` is asked about some rows at a time."""

    def look(start: int, stop: int) -> None:
        fine = good(values[start:stop])
        if not fine.all():
            place = start + int(np.argmin(fine))
            value = values[place]
            finite = values.dtype.kind != "f" or np.isfinite(value)
            raise ValueError(f"{name}[{place}] is {value}, {problem if finite else FINITE}")

    run_chunks(len(values), look)


def labels_within(bounds: tuple[float, float], truth: ArrayLike, size: int) -> Floats:
    """`size` labels as an array; ValueError unless all are finite and within the bounds."""
    labels, (low, high) = column("truth", truth, size), bounds
    problem = f"outside the bounds ({low:g}, {high:g}); set bounds= to the range of the labels, or to None"
    check("truth", labels, lambda some: np.isfinite(some) & (some >= low) & (some <= high), problem)
    return labels


def group_labels(values: ArrayLike, size: int | None = None, name: str = "group") -> NDArray[Any]:
    """Group labels of `size` rows as an array of strings or integers: (n,); errors call the array `name`."""
    array = np.asarray(values)
    _check_shape(name, array, size)
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    if array.dtype.kind in "OT":
        check(name, array, _are_strings, "expected strings or integers throughout")
        return array.astype(np.str_)
    if array.dtype.kind not in "iuU":
        raise ValueError(f"{name} has dtype {array.dtype}, expected strings or integers")
    return array


def _are_strings(labels: NDArray[Any]) -> NDArray[np.bool_]:
    return np.fromiter((isinstance(label, str) for label in labels), np.bool_, len(labels))


def group_columns(group: Group | None, size: int | None = None) -> dict[str, NDArray[Any]] | None:
    """The groups of `size` rows in each partition; a single column has the name ""."""
    if group is None:
        return None
    if isinstance(group, Mapping):
        if not group:
            raise ValueError("group is an empty dict; give a column of groups, several by name, or None")
        return {
            str(name): group_labels(labels, size, f"group[{name!r}]" if name else "group")
            for name, labels in group.items()
        }
    if np.ndim(np.asarray(group)) > 1:
        raise ValueError(
            f"group has shape {np.shape(np.asarray(group))}, expected (n,), or several columns as a dict, "
            'for example {"relation": ..., "source": ...}'
        )
    return {"": group_labels(group, size)}


def check_names(expected: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    """ValueError unless queries have the same columns of groups as the calibration points had."""
    if expected.keys() != columns.keys():
        had, have = (", ".join(name or "one column" for name in names) for names in (expected, columns))
        raise ValueError(f"group has {have}, but at calibration it had {had}")
