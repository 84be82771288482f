"""The exact inverse of a rounded, monotone function: the outermost float that still satisfies a threshold.

A conformal set is defined by its scores: the labels y with score(y) <= q. Scores are floats, rounded at every
step, so the textbook ends prediction - q scale and prediction + q scale are off by a unit in the last place for
about every second query, and then a label that ties with the threshold falls out of its own interval. Here an
end starts from the textbook formula and is checked with the rounded function itself, at the guess and at the
float beside it; a search follows only where the two do not bracket the threshold. It is not a root finder for
arbitrary functions: `excess` must not decrease outwards.

>>> prediction, radius = np.array([0.3]), np.float64(0.1)
>>> end = outermost(lambda y, rows: y - prediction[rows], radius, prediction + radius, 1, np.float64(np.inf))
>>> bool(end[0] - prediction[0] <= radius < np.nextafter(end[0], 1) - prediction[0])
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Rows = slice | NDArray[np.intp]
Excess = Callable[[Floats, Rows], Floats]

ALL = slice(None)
_BITS = {np.dtype(np.float32): np.dtype(np.uint32), np.dtype(np.float64): np.dtype(np.uint64)}
# x + x * _STEP[dtype] is the float next to x for every normal x: the product is more than half of the spacing
# of floats there and at most all of it
_STEP = {dtype: np.nextafter(np.finfo(dtype).epsneg, dtype.type(1)) for dtype in _BITS}


def outermost(
    excess: Excess, threshold: Floats | np.floating[Any], guess: Floats, side: int, limit: np.floating[Any]
) -> Floats:
    """Outermost floats y with excess(y) <= threshold, cut at `limit`: (n,), in the dtype of `guess`.

    `side` is 1 for the largest such y and -1 for the smallest. `excess(y, rows)` evaluates the given rows and
    does not decrease as y moves outwards. `guess` (n,) is overwritten.
    """
    inner = np.fmin if side > 0 else np.fmax
    end = inner(guess, limit, out=guess)
    value = excess(end, ALL)
    inside = value <= threshold
    step = np.copysign(end * _STEP[end.dtype], np.subtract(threshold, value, out=value))
    beside = np.add(end, step, out=step) if side > 0 else np.subtract(end, step, out=step)
    settled = (excess(beside, ALL) <= threshold) != inside
    settled |= inside & (end == limit)
    if settled.all():
        return inner(end, beside, out=end)
    rows = np.flatnonzero(~settled)
    found = _search(excess, np.broadcast_to(threshold, end.shape), end, inside, side, rows)
    inner(end, beside, out=end)
    end[rows] = inner(found, limit)
    return end


def _search(
    excess: Excess,
    threshold: Floats,
    start: Floats,
    inside: NDArray[np.bool_],
    side: int,
    rows: NDArray[np.intp],
) -> Floats:
    """The outermost floats for `rows`, by doubling strides away from `start`, then by halving: (len(rows),)."""
    dtype = start.dtype
    first, last = _position(np.array([-side, side], dtype) * dtype.type(np.inf), side)
    low = _position(start[rows], side)  # a position inside, as soon as one is known
    high = low.copy()  # a position outside, as soon as one is known
    outwards = inside[rows]

    def holds(positions: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.bool_]:
        at = rows[which]
        good = excess(_value(positions, side, dtype), at) <= threshold[at]
        low[which[good]] = positions[good]
        high[which[~good]] = positions[~good]
        return np.asarray(good)

    open_, reach = np.arange(len(rows)), low.dtype.type(1)
    while len(open_):
        away = outwards[open_]
        origin = np.where(away, low[open_], high[open_])
        stride = np.minimum(reach, np.where(away, last - origin, origin - first))
        good = holds(np.where(away, origin + stride, origin - stride), open_)
        at_infinity = good & away & (stride == 0)
        high[open_[at_infinity]] = last + low.dtype.type(1)
        open_ = open_[(good == away) & ~at_infinity]
        reach = min(reach * low.dtype.type(2), last // low.dtype.type(4))
    while len(open_ := np.flatnonzero(high - low > 1)):
        holds(low[open_] + (high[open_] - low[open_]) // low.dtype.type(2), open_)
    return _value(low, side, dtype) + dtype.type(0)  # + 0: never a negative zero


def _position(values: Floats, side: int) -> NDArray[Any]:
    """Floats as unsigned integers that grow outwards, neighbours one apart."""
    bits = values.view(_BITS[values.dtype])
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    upwards = np.where(bits & sign, ~bits, bits | sign)
    return upwards if side > 0 else ~upwards


def _value(positions: NDArray[Any], side: int, dtype: np.dtype[Any]) -> Floats:
    upwards = positions if side > 0 else ~positions
    sign = upwards.dtype.type(1 << (8 * upwards.itemsize - 1))
    return np.where(upwards & sign, upwards ^ sign, ~upwards).view(dtype)
