"""Residual scores and the ends of their intervals, compiled: the same floats as NumPy's, several times faster.

A row is settled when one of two neighbouring floats, the guess and the float beside it, satisfies the threshold and the
other does not, exactly as in `scores.outermost`. There is no search here and there are no messages: a chunk with a row
that is not settled, or with a bad value, is computed again by NumPy. Importing this module imports numba;
`query_chunks.kernels_for` decides when that pays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unkgcp.loops import njit

# No fastmath, because every rounding is part of the definition of a score. The numpy error model leaves out the checks
# for division by zero, so that loops can be vectorised.
exact: Any = {"nogil": True, "error_model": "numpy"}

EXPONENT_AND_PARITY = np.int64(0x7FF0_0000_0000_0001)
HALF_SPACING = 2.0**-53


@njit(**exact)
def slack(value: Any) -> Any:
    """The same as `scores.rounding_slack`, for one float64."""
    bits = np.float64(value).view(np.int64) & EXPONENT_AND_PARITY
    return np.int64(bits ^ 1).view(np.float64) * HALF_SPACING


@njit(**exact)
def moved(value: Any, step: Any) -> Any:
    """The float whose bits, read as an integer, are `step` larger: the next float for a value >= 0 and step 1."""
    return np.int64(np.float64(value).view(np.int64) + step).view(np.float64)


@njit(**exact)
def beside(value: Any, upwards: Any) -> Any:
    """The next float above or below a value that is not zero."""
    return moved(value, (1 if upwards else -1) * (1 if value > 0 else -1))


@njit(**exact)
def row_ends(p: Any, s: Any, q: Any, low: Any, high: Any) -> Any:
    """Ends of |p - y| / s <= q, cut to [low, high], and whether they are settled. It has no branches, for speed."""
    guess = s * q + s * slack(q)
    inside = guess / s <= q
    other = moved(guess, 1 if inside else -1)
    settled = (other / s <= q) != inside
    radius = guess if inside else other
    room = slack(radius)

    guess = max((p - radius) - room, low)
    inside = p - guess <= radius
    other = beside(guess, not inside)
    settled &= (((p - other <= radius) != inside) & (guess != 0)) | (inside & (guess == low))
    lower = guess if inside else other

    guess = min((p + radius) + room, high)
    inside = guess - p <= radius
    other = beside(guess, inside)
    settled &= (((other - p <= radius) != inside) & (guess != 0)) | (inside & (guess == high))
    upper = guess if inside else other
    return lower, upper, settled


@njit(**exact)
def usable(p: Any, s: Any) -> Any:
    """Whether a prediction is a finite number and a scale a positive one."""
    return (p - p == 0) & (s > 0) & (s < np.inf)


@njit(**exact)
def ends_at_one(p: Any, s: Any, q: Any, low: Any, high: Any, lower: Any, upper: Any) -> Any:
    """Fill `lower` and `upper` (n,) for one threshold; False if a row was not settled or not usable."""
    good = True
    for i in range(len(p)):
        lower[i], upper[i], settled = row_ends(p[i], s[i], q, low, high)
        good &= settled & usable(p[i], s[i])
    return good


@njit(**exact)
def ends_at_each(p: Any, s: Any, q: Any, low: Any, high: Any, lower: Any, upper: Any) -> Any:
    """The same as `ends_at_one` with one threshold for each row."""
    good = True
    for i in range(len(p)):
        lower[i], upper[i], settled = row_ends(p[i], s[i], q[i], low, high)
        good &= settled & usable(p[i], s[i])
    return good


@njit(**exact)
def scores(p: Any, s: Any, y: Any, low: Any, high: Any, out: Any) -> Any:
    """Fill `out` (n,) with |p - y| / s; False if a row was not usable or a label not in [low, high]."""
    good = True
    for i in range(len(p)):
        out[i] = abs(p[i] - y[i]) / s[i]
        good &= usable(p[i], s[i]) & (y[i] >= low) & (y[i] <= high) & (y[i] - y[i] == 0)
    return good


@njit(**exact)
def enclosed(values: Any, low: Any, high: Any, kept: Any) -> Any:
    """Counts the values below `low` and those equal to it, and writes those above `low` and up to `high` into `kept`.

    Returns the two counts and the number of values written.
    """
    below, equal, size = 0, 0, 0
    for value in values:
        below += value < low
        equal += value == low
        kept[size] = value  # the next value overwrites it unless `size` grows
        size += (value > low) & (value <= high)
    return below, equal, size


@njit(**exact)
def split_mass(p: Any, low: Any, high: Any, mass: Any, rest: Any) -> None:
    """Fill `mass` (n,) with p cut to [low, high], and `rest` (n,) with 1 - mass."""
    for i in range(len(p)):
        m = low if p[i] < low else (high if p[i] > high else p[i])
        mass[i] = m
        rest[i] = 1 - m


@njit(**exact)
def minus_products(a: Any, b: Any, c: Any, d: Any) -> None:
    """Write -(a b + c d) over `a` (n,)."""
    for i in range(len(a)):
        a[i] = -(a[i] * b[i] + c[i] * d[i])
