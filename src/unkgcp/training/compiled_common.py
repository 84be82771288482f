"""What the compiled CPU kernels share: random numbers, filtered negatives, the error of a fact, and Adam.

Importing this imports numba, but not torch, which scoring does without. The random numbers are those of `randomness`,
bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import unkgcp.training.randomness as randomness
from unkgcp.compiling import njit

F = np.float32
U = np.uint64
GOLDEN, FIRST, SECOND = U(randomness.GOLDEN), U(randomness.FIRST), U(randomness.SECOND)
RETRIES = randomness.RETRIES

# the numpy error model leaves out checks for division by zero, without which loops can be vectorised
exact = {"nogil": True, "error_model": "numpy"}
fast = {"fastmath": True, **exact}

# fmt: off


@njit(**fast)
def draw(base: Any, counter: Any) -> Any:
    """64 random bits; the twin of `randomness.draw`."""
    value = base + counter * GOLDEN
    value = (value ^ (value >> U(30))) * FIRST
    value = (value ^ (value >> U(27))) * SECOND
    return value ^ (value >> U(31))


@njit(**fast)
def below(bits: Any, limit: Any) -> Any:
    return np.int64(((bits >> U(32)) * U(limit)) >> U(32))


@njit(**fast)
def unit(bits: Any) -> Any:
    return F(np.int64(bits >> U(40))) * F(2.0**-24)


@njit(**fast)
def fill_set(keys: Any, table: Any) -> None:
    """Put the keys (n,) into an open-addressing set: a table of a power of two, -1 where empty."""
    mask = len(table) - 1
    for key in keys:
        place = np.int64(draw(U(key), U(0)) & U(mask))
        while table[place] != -1 and table[place] != key:
            place = (place + 1) & mask
        table[place] = key


@njit(**fast)
def in_set(key: Any, table: Any) -> Any:
    mask = len(table) - 1
    place = np.int64(draw(U(key), U(0)) & U(mask))
    while table[place] != -1:
        if table[place] == key:
            return True
        place = (place + 1) & mask
    return False


@njit(**fast)
def corrupt(
    base: Any, counter: Any, head: Any, relation: Any, tail: Any, at_head: Any, sizes: Any, known: Any
) -> Any:
    """An entity for one side, and whether it may be used (False: every draw was a known fact)."""
    n, m = sizes
    drawn = np.int64(0)
    for retry in range(RETRIES):
        drawn = below(draw(base + U(retry), counter), n)
        if len(known) == 0:
            return drawn, True
        key = (drawn * m + relation) * n + tail if at_head else (head * m + relation) * n + drawn
        if not in_set(key, known):
            return drawn, True
    return drawn, False


@njit(**fast)
def fact_error(p: Any, c: Any, quantile: Any) -> Any:
    """(error, dError/dp) of a fact: squared, or the pinball loss at a quantile that is not negative."""
    if quantile >= F(0):
        return (quantile * (c - p), -quantile) if c > p else ((F(1) - quantile) * (p - c), F(1) - quantile)
    return (p - c) * (p - c), F(2) * (p - c)


@njit(**fast)
def count_facts(rows: Any) -> Any:
    count = 0
    for fact in rows:
        count += fact >= 0
    return count


@njit(**exact)
def adam_rates(learning_rate: Any, step: Any) -> Any:
    """Learning rate and epsilon of a step, counted from 1, with the corrections of the early steps in them."""
    correction = math.sqrt(1.0 - 0.999**step)
    return F(learning_rate * correction / (1.0 - 0.9**step)), F(1e-8 * correction)


@njit(**fast)
def adam_rows(parameter, first, second, memory, gradients, momentum, lr, eps, begin, end):
    """Dense Adam on rows begin..end with the sum of the shards' gradients, which it sets back to zero.

    lr and eps are those of `adam_rates`: p -= lr m / (sqrt(v) + eps). With momentum the gradient is that of `memory`,
    which adds up gradients as g + momentum * (what was there).
    """
    shards, d = gradients.shape[0], parameter.shape[1]
    for row in range(begin, end):
        for shard in range(1, shards):
            for k in range(d):
                gradients[0, row, k] += gradients[shard, row, k]
                gradients[shard, row, k] = F(0)
        if momentum > F(0):
            for k in range(d):
                memory[row, k] = momentum * memory[row, k] + gradients[0, row, k]
                gradients[0, row, k] = memory[row, k]
        for k in range(d):
            g = gradients[0, row, k]
            gradients[0, row, k] = F(0)
            m = F(0.9) * first[row, k] + F(0.1) * g
            v = F(0.999) * second[row, k] + F(0.001) * g * g
            first[row, k], second[row, k] = m, v
            parameter[row, k] -= lr * m / (math.sqrt(v) + eps)
