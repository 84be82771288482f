"""The border: arrays of a stranger become columns of one length, or a ValueError says what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def column(name: str, values: ArrayLike, size: int | None = None, ndim: int = 1) -> Floats:
    """`values` as a float32 array (if it is one, or float16) or a float64 one, of `size` rows."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        try:
            array = array.astype(FLOAT64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} holds values that are not numbers") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}, expected real numbers")
    if array.ndim != ndim:
        expected = "(n,)" if ndim == 1 else "(n, d)"
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if size is not None and len(array) != size:
        raise ValueError(f"{name} has {len(array)} rows, but prediction has {size}")
    small = array.dtype.kind == "f" and array.dtype.itemsize <= FLOAT32.itemsize
    return array.astype(FLOAT32 if small else FLOAT64, copy=False)


def check_finite(name: str, chunk: Floats, start: int) -> None:
    """Every value is a number and not infinite; `start` is the position of the chunk in its array."""
    good = np.isfinite(chunk)
    if not good.all():
        place = np.unravel_index(int(np.argmin(good)), good.shape)
        raise ValueError(f"{_where(name, place, start)} is {chunk[place]}, expected a finite number")


def check_positive(name: str, chunk: Floats, start: int) -> None:
    check_finite(name, chunk, start)
    if len(chunk) and not chunk.min() > 0:
        place = (int(np.argmax(chunk <= 0)),)
        raise ValueError(f"{_where(name, place, start)} is {chunk[place]}, expected a positive number")


def check_non_negative(name: str, chunk: Floats, start: int) -> None:
    check_finite(name, chunk, start)
    if len(chunk) and not chunk.min() >= 0:
        place = (int(np.argmax(chunk < 0)),)
        raise ValueError(f"{_where(name, place, start)} is {chunk[place]}, expected no negative number")


def check_within(name: str, chunk: Floats, start: int, low: float, high: float) -> None:
    check_finite(name, chunk, start)
    if len(chunk) and not (chunk.min() >= low and chunk.max() <= high):
        place = (int(np.argmax((chunk < low) | (chunk > high))),)
        raise ValueError(
            f"{_where(name, place, start)} is {chunk[place]}, outside the bounds ({low:g}, {high:g}); "
            "set bounds= to the range of the labels, or to None"
        )


def _where(name: str, place: tuple[Any, ...], start: int) -> str:
    indices = ", ".join(str(int(index) + (start if axis == 0 else 0)) for axis, index in enumerate(place))
    return f"{name}[{indices}]"


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
