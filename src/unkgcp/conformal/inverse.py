"""The exact inverse of a rounded, monotone function: the outermost float that still satisfies a threshold.

A conformal set is defined by its scores: the labels y with score(y) <= q. Scores are floats, rounded at
every step, so the textbook ends prediction - q scale and prediction + q scale are off by a unit in the last
place for about every second query, and then a label that ties with the threshold falls out of its own
interval. Here an end starts from a good guess and is checked with the rounded function itself, at the guess
and at the float beside it; a search follows only where the two do not bracket the threshold. It is not a root
finder for arbitrary functions: `excess` must not decrease outwards.

>>> prediction, radius = np.array([0.3]), np.float64(0.1)
>>> end = outermost(lambda y, rows: y - prediction[rows], radius, prediction + radius, 1, np.inf)
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


def outermost(
    excess: Excess,
    threshold: Floats | np.floating[Any],
    guess: Floats,
    side: int,
    limit: float,
    positive: bool = False,
) -> Floats:
    """Outermost floats y with excess(y) <= threshold, cut at `limit`: (n,), in the dtype of `guess`.

    `side` is 1 for the largest such y and -1 for the smallest. `excess(y, rows)` evaluates the given rows and
    does not decrease as y moves outwards. `positive` says that the answers (for side -1: the limit) are not
    negative, which is faster. `guess` (n,) is overwritten.
    """
    inner = np.fmin if side > 0 else np.fmax
    if abs(limit) < np.inf:
        inner(guess, np.full(guess.shape, limit, guess.dtype), out=guess)
    inside = excess(guess, ALL) <= threshold
    beside = _beside(guess, inside, side, positive)
    settled = (excess(beside, ALL) <= threshold) != inside
    if not positive:
        settled &= guess != 0
    if abs(limit) < np.inf:
        settled |= inside & (guess == limit)
    elif threshold.ndim > 0 or threshold == np.inf:
        settled &= np.isfinite(guess)  # there is no float beside infinity
    if not settled.all():
        rows = np.flatnonzero(~settled)
        found = _search(excess, np.broadcast_to(threshold, guess.shape), guess, inside, side, rows)
        beside[rows] = guess[rows] = inner(found, guess.dtype.type(limit))
    return inner(guess, beside, out=guess)


def _beside(values: Floats, outwards: NDArray[np.bool_], side: int, positive: bool) -> Floats:
    """The next float outwards or inwards of each value that is not zero: (n,)."""
    bits = values.view(_integers(values.dtype, "i"))
    step: NDArray[Any] = outwards.view(np.int8) * np.int8(2 * side)
    step -= np.int8(side)
    # positive floats are ordered like the integers with the same bits, negative ones the other way round
    if not positive:
        step = step * ((bits >> (8 * bits.itemsize - 1)) | 1)
    # If `positive` was promised wrongly, the float on the other side is returned for a negative value. Guess and
    # neighbour then lie on the same side of the threshold, `outermost` sees that, and `_search` finds the answer.
    beside: Floats = (bits + step).view(values.dtype)
    return beside


def _search(
    excess: Excess,
    threshold: Floats,
    start: Floats,
    inside: NDArray[np.bool_],
    side: int,
    rows: NDArray[np.intp],
) -> Floats:
    """The outermost floats for `rows`, by doubling strides away from `start`, then halving: (len(rows),)."""
    dtype = start.dtype
    first, last = _position(np.array([-side * np.inf, side * np.inf], dtype), side)
    low = _position(start[rows], side)  # a position inside, as soon as one is known
    high = low.copy()  # a position outside, as soon as one is known
    outwards = inside[rows]
    one, two, four = (low.dtype.type(number) for number in (1, 2, 4))

    def probe(positions: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.bool_]:
        at = rows[which]
        good = np.asarray(excess(_value(positions, side, dtype), at) <= threshold[at])
        low[which[good]] = positions[good]
        high[which[~good]] = positions[~good]
        return good

    open_, reach = np.arange(len(rows)), one
    while len(open_):
        away = outwards[open_]
        origin = np.where(away, low[open_], high[open_])
        stride = np.minimum(reach, np.where(away, last - origin, origin - first))
        good = probe(np.where(away, origin + stride, origin - stride), open_)
        at_infinity = good & away & (stride == 0)
        high[open_[at_infinity]] = last + one
        open_ = open_[(good == away) & ~at_infinity]
        reach = min(reach * two, last // four)
    while len(open_ := np.flatnonzero(high - low > 1)):
        probe(low[open_] + (high[open_] - low[open_]) // two, open_)
    return _value(low, side, dtype) + dtype.type(0)  # + 0: never a negative zero


def _position(values: Floats, side: int) -> NDArray[Any]:
    """Floats as unsigned integers that grow outwards, neighbours one apart."""
    bits = values.view(_integers(values.dtype, "u"))
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    upwards = np.where(bits & sign, ~bits, bits | sign)
    return upwards if side > 0 else ~upwards


def _value(positions: NDArray[Any], side: int, dtype: np.dtype[Any]) -> Floats:
    upwards = positions if side > 0 else ~positions
    sign = upwards.dtype.type(1 << (8 * upwards.itemsize - 1))
    return np.where(upwards & sign, upwards ^ sign, ~upwards).view(dtype)


def _integers(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    return np.dtype(f"{kind}{dtype.itemsize}")
