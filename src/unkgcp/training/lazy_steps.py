"""Steps of Adam that cost what they touch, for tables that are large beside a batch.

Most rows of such a table have no gradient in a batch. Adam moves them all the same, because their moments decay; but
nobody looks until a batch has them again, or the epoch is over. So a batch first brings the rows that it reads up to
date, in a small table in the order of their places, and afterwards writes them back with its own step. Importing this
imports numba, but not torch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from unkgcp.loops import njit
from unkgcp.training.compiled_common import F, adam, adam_all, exact, fetch, fetch_row, summed

AHEAD = 4  # rows that are asked for ahead of the one at hand
FREE, ALONE = -1, -2  # instead of a place: nothing in the batch reads the row, or one corruption alone
FORGOTTEN = 256  # steps after which what is left of the first moment, 0.9^256 = 2e-12 of it, moves a parameter no more
APART = F(-1)  # where steps cannot be made at once
ROOT = math.sqrt(0.999)  # sqrt(v) after a step without gradient, over what it was

# fmt: off


@njit(**exact)
def together(rates, now):
    """How to make k steps without gradient, the last of them that before `now`, at once; k up to FORGOTTEN.

    m and v shrink by known factors, and each step is lr m / (sqrt(v) + eps); so their sum is m / (sqrt(v) + e) times a
    number, with e the mean of what eps is beside sqrt(v) in them. (4, k + 1): that number, e, what m and v shrink to.
    What this leaves out is below a rounding where sqrt(v) is above 1e-6, and below 1e-4 of the move elsewhere. Early in
    training, where eps grows, it would be more: the number is then APART.
    """
    most = min(now, FORGOTTEN)
    found = np.ones((4, most + 1), F)
    found[0, 0] = F(0)
    total = mean = 0.0
    for k in range(1, most + 1):
        # one step more at the beginning: all later ones are a step further away
        lr, eps = rates[0, now - k], rates[1, now - k]
        total = (lr + total) * 0.9 / ROOT
        mean = (lr * eps + mean) * 0.9 / 0.999
        grows = rates[1, now - 1] > F(1.01) * eps
        found[0, k], found[1, k] = APART if grows else F(total), mean / total
        found[2, k], found[3, k] = 0.9**k, 0.999**k
    return found


@njit(**exact)
def missed_apart(parameter, first, second, memory, momentum, rates, row, done, now):
    """What `missed` does with steps that are not in its table. It makes them here, unless they are very many."""
    if momentum == F(0) and now - done > FORGOTTEN:  # after so many, what is left of m moves nothing
        found, steps = together(rates, done + FORGOTTEN), now - done
        if found[0, FORGOTTEN] != APART:
            return found[0, FORGOTTEN], found[1, FORGOTTEN], F(0.9**steps), F(0.999**steps)
    d = parameter.shape[1]
    for step in range(done, now):
        lr, eps = rates[0, step], rates[1, step]
        if momentum > F(0):
            for k in range(d):
                g = momentum * memory[row, k]
                memory[row, k] = g
                first[row, k] = F(0.9) * first[row, k] + F(0.1) * g
                second[row, k] = F(0.999) * second[row, k] + F(0.001) * g * g
        else:
            for k in range(d):
                first[row, k] = F(0.9) * first[row, k]
                second[row, k] = F(0.999) * second[row, k]
        for k in range(d):
            parameter[row, k] -= lr * first[row, k] / (math.sqrt(second[row, k]) + eps)
    return F(0), F(1), F(1), F(1)


@njit(forceinline=True, **exact)
def missed(parameter, first, second, memory, momentum, rates, at_once, row, done, now):
    """How a row that had no gradient in the steps done..now of the epoch makes them at once: a column of `together`.

    With momentum and early in training they are made one by one, with the operations of dense steps: then this is done
    here, and nothing is left to do. `rates` (2, steps) are those of `adam_rates`, `at_once` those of `together`.
    """
    k = now - done
    if k < at_once.shape[1] and at_once[0, k] != APART and momentum == F(0):
        return at_once[0, k], at_once[1, k], at_once[2, k], at_once[3, k]
    return missed_apart(parameter, first, second, memory, momentum, rates, row, done, now)


@njit(forceinline=True, **exact)
def later(parameter, first, second, row, k, size, eps):
    """Parameter k of a row after the steps of `missed`."""
    return parameter[row, k] - size * first[row, k] / (math.sqrt(second[row, k]) + eps)


@njit(forceinline=True, **exact)
def ask_ahead(parameter, first, second, rows, at):
    """The row at hand; memory is asked for one that comes soon."""
    soon = rows[min(at + AHEAD, len(rows) - 1)]
    fetch_row(parameter, soon)
    fetch_row(first, soon)
    fetch_row(second, soon)
    return rows[at]


@njit(parallel=True, **exact)
def read_rows(parameter, first, second, memory, momentum, rates, at_once, rows, done, now, values, shrunk, blocks):
    """Put rows (k,) as they are after the steps before `now` into `values` (k, d), what their moments shrink to beside.

    `done` (n,): the steps of the epoch that the rows of the table have made.
    """
    for block in prange(blocks):
        for at in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            row = ask_ahead(parameter, first, second, rows, at)
            size, eps, shrunk[at, 0], shrunk[at, 1] = missed(
                parameter, first, second, memory, momentum, rates, at_once, row, done[row], now
            )
            for k in range(parameter.shape[1]):
                values[at, k] = later(parameter, first, second, row, k, size, eps)


@njit(parallel=True, **exact)
def write_rows(
    parameter, first, second, memory, gradients, momentum, rates, rows, places, done, now, values, shrunk, blocks
):
    """Make step `now` on the rows that `read_rows` has read; their gradients are then zero and their places free."""
    lr, eps = rates[0, now], rates[1, now]
    for block in prange(blocks):
        for at in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            row = ask_ahead(parameter, first, second, rows, at)
            gradient = summed(gradients, at, memory, momentum, row)
            for k in range(parameter.shape[1]):
                adam(
                    parameter, first, second, row, k, values[at, k], shrunk[at, 0], shrunk[at, 1], gradient[k], lr, eps
                )
                gradient[k] = F(0)
            done[row], places[row] = now + 1, FREE


@njit(**exact)
def step_rows(
    lazy, parameter, first, second, memory, gradients, momentum, rates, rows, places, done, now, values, shrunk, blocks
):
    """Step `now` of a table: `write_rows`, or a dense one."""
    if lazy:
        write_rows(
            parameter, first, second, memory, gradients, momentum, rates, rows, places, done, now, values, shrunk,
            blocks,
        )
    else:
        adam_all(parameter, first, second, memory, gradients, momentum, rates[0, now], rates[1, now], blocks)


@njit(parallel=True, **exact)
def finish_rows(parameter, first, second, memory, momentum, rates, done, blocks):
    """Make up what rows have missed at the end of an epoch."""
    n, now = len(parameter), rates.shape[1]
    at_once = together(rates, now)
    for block in prange(blocks):
        for row in range(block * n // blocks, (block + 1) * n // blocks):
            size, eps, by_first, by_second = missed(
                parameter, first, second, memory, momentum, rates, at_once, row, done[row], now
            )
            for k in range(parameter.shape[1]):
                parameter[row, k] = later(parameter, first, second, row, k, size, eps)
                first[row, k], second[row, k] = by_first * first[row, k], by_second * second[row, k]


@njit(**exact)
def touch(row, places, touched, count):
    """Give a row a place among those of the batch, unless it has one; the number of places taken."""
    if places[row] < 0:
        places[row] = count
        touched[count] = row
        count += 1
    return count


@njit(**exact)
def touch_rows(rows, places, touched, count):
    """The same for many."""
    for row in rows:
        count = touch(row, places, touched, count)
    return count


@njit(**exact)
def touch_batch(rows, head, tail, drawn, soft, soft_chosen, pool, places, touched, spare):
    """Places for all entities that a batch reads: of facts, corruptions, pool samples and the soft-logic fact.

    `spare`: an entity that nothing but one usable corruption reads gets no place, but the mark ALONE.
    """
    n, count, lines = len(places), 0, places.reshape(1, len(places))
    for i in range(len(rows)):
        fact = rows[i]
        if fact < 0:
            continue
        if i + 1 < len(rows):
            for j in range(drawn.shape[1]):
                if 0 <= drawn[i + 1, j] < n:
                    fetch(lines, 0, drawn[i + 1, j])
        count = touch(head[fact], places, touched, count)
        count = touch(tail[fact], places, touched, count)
        for j in range(drawn.shape[1]):
            value = drawn[i, j]
            if value >= n:
                count = touch(pool[value - n, 0], places, touched, count)
                count = touch(pool[value - n, 2], places, touched, count)
                continue
            other = value if value >= 0 else -1 - value
            if spare and value >= 0 and places[other] == FREE:
                places[other] = ALONE
            else:
                count = touch(other, places, touched, count)
    if soft_chosen >= 0:
        count = touch(soft[soft_chosen, 0], places, touched, count)
        count = touch(soft[soft_chosen, 2], places, touched, count)
    return count
