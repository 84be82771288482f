"""What the fused kernels share: random numbers, filtered negatives, the error of a fact."""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training import randomness

GOLDEN = tl.constexpr(randomness.GOLDEN)
FIRST = tl.constexpr(randomness.FIRST)
SECOND = tl.constexpr(randomness.SECOND)


@triton.jit
def draw(base, counter):
    """64 random bits; the twin of `randomness.draw`."""
    value = base + counter * GOLDEN
    value = (value ^ (value >> 30)) * FIRST
    value = (value ^ (value >> 27)) * SECOND
    return value ^ (value >> 31)


@triton.jit
def below(bits, limit):
    return (((bits >> 32) * limit.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def unit(bits):
    return (bits >> 40).to(tl.float32) * (2.0**-24)


@triton.jit
def is_known(keys, known, n_known, rounds):
    """Binary search of the keys (k,) among the sorted known ones."""
    low = tl.zeros_like(keys)
    high = low + n_known
    for _ in range(rounds):
        middle = (low + high) // 2
        smaller = tl.load(known + tl.minimum(middle, n_known - 1)) < keys
        low = tl.where((low < high) & smaller, middle + 1, low)
        high = tl.where((low < high) & (smaller == 0), middle, high)
    return tl.load(known + tl.minimum(low, n_known - 1)) == keys


@triton.jit
def corrupt(
    bases, member, counter, h, r, t, n_entities, n_relations, known, n_known, rounds,
    AT_HEAD: tl.constexpr, RETRIES: tl.constexpr,
):  # fmt: skip
    """Entities for one side of a fact (k,), and whether each may be used; see `losses.Corruptions`."""
    base = tl.load(bases + member).to(tl.uint64, bitcast=True)
    drawn = below(draw(base, counter), n_entities)
    taken = drawn < 0
    if rounds > 0:
        retry = 0
        taken = drawn >= 0
        while retry < RETRIES:
            if retry > 0:
                again = below(draw(base + retry, counter), n_entities)
                drawn = tl.where(taken, again, drawn)
            if AT_HEAD:  # noqa: SIM108 (settled when the kernel is compiled)
                keys = (drawn * n_relations + r) * n_entities + t
            else:
                keys = (h * n_relations + r) * n_entities + drawn
            taken = is_known(keys, known, n_known, rounds)
            retry += 1
            if tl.max(taken.to(tl.int32)) == 0:
                retry = RETRIES
    return drawn, taken == 0


@triton.jit
def fact_error(value, target, tau, QUANTILE: tl.constexpr):
    """(error, dError/dvalue) of a fact: squared, or the pinball loss."""
    if QUANTILE:
        under = target > value
        error = tl.where(under, tau * (target - value), (1 - tau) * (value - target))
        slope = tl.where(under, -tau, 1 - tau)
    else:
        error = (value - target) * (value - target)
        slope = 2 * (value - target)
    return error, slope
