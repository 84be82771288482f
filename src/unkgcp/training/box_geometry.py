"""Gumbel boxes in compiled loops: where a relation puts an entity's box, what two boxes share, and the derivatives.

The side of an intersection is x = softmin(high1, high2) - softmax(low1, low2), with weights of the two boxes in each
corner that are logistic functions of their distance; log p is the sum over the dimensions of log softplus(x) less that
of box 2. So dlog p / dx = logistic(x) / softplus(x), shared out among the corners by those weights.

Nearly all of the time goes into exponentials and logarithms. They are polynomials here (with the least maximal relative
error), accurate to some units in the last place, because a call of the C library for each number cannot be vectorised.
Where an exponential is that of a difference of coordinates, its argument is rounded once, which moves it no more than
the rounding of the difference itself. A volume is the product of the mantissas of its sides and the sum of their
exponents, so that p, the ratio of two volumes, needs no logarithm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from unkgcp.loops import njit
from unkgcp.training.compiled_common import F, U, exact, fast

# as in `unkgcp.backbones.beurre`, which needs torch
BETA = F(0.01)
OFFSET = F(2 * 0.5772156649015329 * 0.01)
LARGEST_LOG_SIDE = F(40)
TINY = F(np.finfo(np.float32).tiny)
LOG_TINY = F(math.log(float(np.finfo(np.float32).tiny)))

# a product and a sum may become one operation; any other rearrangement would cancel the small corrections below
careful: Any = exact | {"fastmath": {"contract", "nsz"}, "forceinline": True}
LOG2_E, LN2_HIGH, LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
HALVINGS = F(100 * 1.4426950408889634)  # exp(-x / beta) is so many halvings for each unit of x
MOVER = F(1.5 * 2**23)  # a number added to it loses its fraction, and its whole part stands in the last bits
BLOCK = 64  # mantissas below 2 whose product stays finite

# fmt: off


def _bits(source: Any, target: Any, code: Any) -> Any:
    @intrinsic
    def cast(typing: Any, value: Any) -> Any:
        return target(source), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], code)

    return cast


as_whole: Any = _bits(types.float32, types.int32, ir.IntType(32))
as_real: Any = _bits(types.int32, types.float32, ir.FloatType())


@njit(**careful)
def exponential(x: Any) -> Any:
    """exp(x) for x from the logarithm of the smallest number to 88."""
    moved = x * LOG2_E + MOVER
    n = moved - MOVER
    r = x - n * LN2_HIGH - n * LN2_LOW
    y = F(8.2903150469e-3)
    y = y * r + F(4.1897930205e-2)
    y = y * r + F(1.6667635739e-1)
    y = y * r + F(4.9999150634e-1)
    y = y * r + F(9.9999970198e-1)
    y = y * r + F(1)
    return as_real(as_whole(y) + (as_whole(moved) << np.int32(23)))


@njit(**careful)
def halved(t: Any) -> Any:
    """2^-t for t from 0 on, not below the smallest number."""
    t = min(t, F(126))
    moved = MOVER - t
    f = (MOVER - moved) - t
    y = F(1.3264727313e-3)
    y = y * f + F(9.6715129912e-3)
    y = y * f + F(5.5507335812e-2)
    y = y * f + F(2.4022242427e-1)
    y = y * f + F(6.9314700365e-1)
    y = y * f + F(1)
    return as_real(as_whole(y) + (as_whole(moved) << np.int32(23)))


@njit(**careful)
def log_one_plus(e: Any) -> Any:
    """log(1 + e) for e in [0, 1]."""
    y = F(-8.5392063484e-3)
    y = y * e + F(4.4089622796e-2)
    y = y * e + F(-1.0768169910e-1)
    y = y * e + F(1.7745240033e-1)
    y = y * e + F(-2.4495463073e-1)
    y = y * e + F(3.3275479078e-1)
    y = y * e + F(-4.9997404218e-1)
    y = y * e + F(9.9999982119e-1)
    return y * e


@njit(**careful)
def softplus(x: Any) -> Any:
    """(softplus(x) or the smallest number, d log softplus(x) / dx)."""
    e = halved(abs(x) * LOG2_E)
    size = max(x, F(0)) + log_one_plus(e)
    rate = (F(1) if x >= F(0) else e) / ((F(1) + e) * size)
    return max(size, TINY), rate if size > TINY else F(0)


@njit(**fast)
def product(sizes: Any, begin: Any, end: Any) -> Any:
    """The product of sizes begin..end as (mantissa, exponent): it may be far beyond the range of a float."""
    whole, power = 1.0, 0
    for first in range(begin, end, BLOCK):
        exponents, mantissas, largest = np.int32(0), F(1), np.int32(0)
        for k in range(min(BLOCK, end - first)):
            bits = as_whole(sizes[U(first) + U(k)])
            largest = max(largest, bits)
            exponents += (bits >> np.int32(23)) - np.int32(127)
            mantissas *= as_real((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000))
        if largest >= np.int32(0x7F800000):  # infinite or not a number: say so
            return np.nan, 0
        whole, more = math.frexp(whole * mantissas)
        power += exponents + more
    return whole, power


# Boxes, intersections and gradients are tuples of plain arrays, and each loop writes few of them: with more, or with
# rows of one array, the compiler no longer proves that none overlaps another, and does not vectorise. Nor does it where
# an index might be negative and count from the end; so indices that are sums are unsigned.


@njit(**fast)
def new_box(n: Any) -> Any:
    """Arrays (n,) of a box: lower corner, negative upper corner, sides, and the derivatives of the sides.

    Those are by the logarithm of the side, a parameter of the entity, and by the scale, a parameter of the relation.
    """
    return np.empty(n, F), np.empty(n, F), np.empty(n, F), np.empty(n, F), np.empty(n, F)


@njit(**fast)
def new_work(n: Any) -> Any:
    """Arrays (n,) of an intersection: the derivative of its log volume by its side, the weights of box 1 in its lower
    and upper corner, its corners, its softplus sizes, and the derivative of the log volume of a whole box by its side.
    """
    return (*new_box(n), np.empty(n, F), np.empty(n, F))


@njit(**fast)
def measure(box: Any, n: Any, work: Any) -> None:
    """The softplus sizes of whole boxes, and the derivatives of their logarithms, n numbers."""
    side, sizes, rate = box[2], work[5], work[6]
    for k in range(n):
        sizes[k], rate[k] = softplus(side[k] - OFFSET)


@njit(**fast)
def soft_maximum(a: Any, b: Any, n: Any, out: Any, weight: Any) -> None:
    """out = beta log(exp(a / beta) + exp(b / beta)), and weight = d out / da."""
    for k in range(n):
        apart = a[k] - b[k]
        e = halved(abs(apart) * HALVINGS)
        out[k] = max(a[k], b[k]) + BETA * log_one_plus(e)
        weight[k] = (F(1) if apart >= F(0) else e) / (F(1) + e)


@njit(**fast)
def intersect(low1: Any, depth1: Any, low2: Any, depth2: Any, n: Any, work: Any) -> None:
    """The intersections of boxes 1 and 2, given by their corners, n numbers."""
    slope, lower, upper, low, depth, sizes, _ = work
    soft_maximum(low1, low2, n, low, lower)
    soft_maximum(depth1, depth2, n, depth, upper)
    for k in range(n):
        sizes[k], slope[k] = softplus(-low[k] - depth[k] - OFFSET)


@njit(forceinline=True, **fast)
def share(part: Any, whole: Any) -> Any:
    """(p, dp / dlog p) for volumes as `product` gives them; p is at most 1."""
    p = F(math.ldexp(part[0] / whole[0], max(part[1] - whole[1], -1000)))
    return (p, p) if p <= F(1) else (F(1), F(0))


@njit(**fast)
def pull(factor: Any, n: Any, work: Any) -> None:
    """The derivatives of the logarithms of the intersections' volumes, times a factor each, n numbers.

    They overwrite the arrays of the intersections: the slopes become gradients by the side of box 2, the weights those
    by the lower corner of box 1 and by its side. By the lower corner of box 2 it is that of box 1 with the other sign,
    because nothing changes when both boxes move together.
    """
    slope, lower, upper = work[0], work[1], work[2]
    for k in range(n):
        slope[k] *= factor[k]
        upper[k] *= slope[k]
    for k in range(n):
        lower[k] = upper[k] - slope[k] * lower[k]
    for k in range(n):
        slope[k] -= upper[k]


@njit(**fast)
def add(target: Any, start: Any, factor: Any, values: Any, begin: Any, count: Any) -> None:
    """Add `count` values from `begin` on, times a factor, to the target from `start` on."""
    for k in range(count):
        target[U(start) + U(k)] += factor * values[U(begin) + U(k)]


@njit(**fast)
def stage(row: Any, shift: Any, scale: Any, box: Any, begin: Any) -> None:
    """Write an entity's row (2 d,) and the map of a relation into a box from `begin` on, ready for `widen`."""
    d = len(shift)
    low, _, _, by_log, by_scale = box
    for k in range(d):
        low[U(begin) + U(k)] = row[k] + shift[k]
    for k in range(d):
        by_log[U(begin) + U(k)] = row[U(d) + U(k)]
        by_scale[U(begin) + U(k)] = scale[k]


@njit(**fast)
def widen(box: Any, n: Any) -> None:
    """Sides, upper corners and derivatives of boxes that `stage` has written, n numbers."""
    low, depth, side, by_log, by_scale = box
    for k in range(n):
        size = exponential(max(min(by_log[k], LARGEST_LOG_SIDE), LOG_TINY))
        side[k] = size * max(by_scale[k], F(0))
        by_log[k] = side[k] if by_log[k] <= LARGEST_LOG_SIDE else F(0)
        by_scale[k] = size if by_scale[k] > F(0) else F(0)
    for k in range(n):
        depth[k] = -low[k] - side[k]


@njit(**fast)
def place(row: Any, shift: Any, scale: Any, box: Any) -> None:
    """The box of an entity's row (2 d,) after the map of a relation."""
    stage(row, shift, scale, box, 0)
    widen(box, len(shift))


@njit(**fast)
def push(g_row: Any, g_shift: Any, g_scale: Any, box: Any, by: Any) -> None:
    """Add the gradient of a box, by its lower corner and by its side, to that of its entity's row and of the map that
    moved it.
    """
    d, by_log, by_scale, (by_corner, by_side) = len(g_shift), box[3], box[4], by
    add(g_row, 0, F(1), by_corner, 0, d)
    add(g_shift, 0, F(1), by_corner, 0, d)
    for k in range(d):
        g_row[U(d) + U(k)] += by_side[k] * by_log[k]
    for k in range(d):
        g_scale[k] += by_side[k] * by_scale[k]


@njit(**fast)
def norm(row, weight, inner, g_row):
    """weight |row|; its gradient times `inner` is added to g_row."""
    total = F(0)
    for k in range(len(row)):
        total += row[k] * row[k]
    size = F(math.sqrt(total))
    scale = weight / size if size > F(0) else F(0)
    for k in range(len(row)):
        g_row[k] += scale * row[k] * inner[k]
    return weight * size
