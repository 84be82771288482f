"""Steps of Adam on the CPU: dense ones, and lazy ones for tables that are large beside a batch.

Most rows of a large table have no gradient in a batch. Adam moves them all the same, because their moments decay; but
nobody reads these rows until a batch needs them, or the epoch is over. So a batch first brings the rows that it reads
up to date, in a small table in the order of their places, and afterwards writes them back with its own step. A row that
only one corruption of the batch reads, as most are, makes all of its steps while it is at hand. At the end of an epoch
all rows are brought up to date.

The steps that a row has missed are made at once, by the numbers of `adam_rates`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from unkgcp.loops import njit
from unkgcp.training.compiled_common import AHEAD, F, exact, fetch_row

FREE, ALONE = -2, -1  # instead of a place: nothing in the batch reads the row, one corruption alone does

# fmt: off


@njit(forceinline=True, **exact)
def adam(parameter, first, second, row, k, now, by_first, by_second, g, lr, eps):
    """One step of Adam on parameter k of a row, whose value is `now`. Its moments are `first` and `second` times
    by_first and by_second. p -= lr m / (sqrt(v) + eps), with lr and eps of `adam_rates`.
    """
    m = F(0.9) * (by_first * first[row, k]) + F(0.1) * g
    v = F(0.999) * (by_second * second[row, k]) + F(0.001) * g * g
    first[row, k], second[row, k] = m, v
    parameter[row, k] = now - lr * m / (math.sqrt(v) + eps)


@njit(forceinline=True, **exact)
def summed(gradients, place):
    """The gradient of a row: the sum over the shards at its place, kept in the first shard; the others become zero."""
    shards, _, d = gradients.shape
    for shard in range(1, shards):
        for k in range(d):
            gradients[0, place, k] += gradients[shard, place, k]
            gradients[shard, place, k] = F(0)
    return gradients[0, place]


@njit(parallel=True, **exact)
def step_all(table, momentum, rates, now, blocks):
    """Step `now` of all rows; `momentum` times their gradients remain, to which later ones are added."""
    parameter, first, second, gradients = table
    n, lr, eps = len(parameter), F(rates[0, now]), F(rates[1, now])
    for block in prange(blocks):
        for row in range(block * n // blocks, (block + 1) * n // blocks):
            gradient = summed(gradients, row)
            for k in range(parameter.shape[1]):
                adam(parameter, first, second, row, k, parameter[row, k], F(1), F(1), gradient[k], lr, eps)
                gradient[k] *= momentum


@njit(forceinline=True, **exact)
def missed(rates, done, now):
    """(size, eps, factor of m, factor of v): a row that had no gradient in the steps done..now of the epoch moves by
    size m / (sqrt(v) + eps).
    """
    k = now - done
    size = rates[2, done] - rates[4, k] * rates[2, now]
    eps = (rates[3, done] - rates[5, k] * rates[3, now]) / size if size > 0 else 1.0
    return F(size), F(eps), F(rates[6, k]), F(rates[7, k])


@njit(forceinline=True, **exact)
def later(parameter, first, second, row, k, size, eps):
    """Parameter k of a row after the steps of `missed`."""
    return parameter[row, k] - size * first[row, k] / (math.sqrt(second[row, k]) + eps)


@njit(forceinline=True, **exact)
def fetch_rows(parameter, first, second, row):
    """Have the processor fetch a row and its moments."""
    fetch_row(parameter, row)
    fetch_row(first, row)
    fetch_row(second, row)


@njit(parallel=True, **exact)
def read_rows(table, entities, rates, now, count, blocks):
    """Write the first `count` touched rows to their places, as they are after the steps before `now`."""
    parameter, first, second, _ = table
    values, rows, shrunk, done = entities.values, entities.touched[:count], entities.shrunk, entities.done
    for block in prange(blocks):
        for at in range(block * count // blocks, (block + 1) * count // blocks):
            row = rows[at]
            fetch_rows(parameter, first, second, rows[min(at + AHEAD, count - 1)])
            size, eps, shrunk[at, 0], shrunk[at, 1] = missed(rates, done[row], now)
            for k in range(parameter.shape[1]):
                values[at, k] = later(parameter, first, second, row, k, size, eps)


@njit(parallel=True, **exact)
def write_rows(table, entities, rates, now, count, blocks):
    """Make step `now` on the rows that `read_rows` has read; their gradients are then zero and their places free."""
    parameter, first, second, gradients = table
    values, places, touched, shrunk, done = entities
    rows, lr, eps = touched[:count], F(rates[0, now]), F(rates[1, now])
    for block in prange(blocks):
        for at in range(block * count // blocks, (block + 1) * count // blocks):
            row = rows[at]
            fetch_rows(parameter, first, second, rows[min(at + AHEAD, count - 1)])
            gradient, by_first, by_second = summed(gradients, at), shrunk[at, 0], shrunk[at, 1]
            for k in range(parameter.shape[1]):
                adam(parameter, first, second, row, k, values[at, k], by_first, by_second, gradient[k], lr, eps)
                gradient[k] = F(0)
            done[row], places[row] = now + 1, FREE


@njit(parallel=True, **exact)
def finish_rows(table, done, rates, blocks):
    """Bring all rows up to date at the end of an epoch, so that the next one can begin."""
    parameter, first, second, _ = table
    n, now = len(parameter), rates.shape[1] - 1
    for block in prange(blocks):
        for row in range(block * n // blocks, (block + 1) * n // blocks):
            size, eps, by_first, by_second = missed(rates, done[row], now)
            for k in range(parameter.shape[1]):
                parameter[row, k] = later(parameter, first, second, row, k, size, eps)
                first[row, k], second[row, k] = by_first * first[row, k], by_second * second[row, k]
            done[row] = 0


@njit(**exact)
def read_alone(ids, coming, table, entities, rates, now, values):
    """Write the rows of corruptions (k,) that are ALONE to their places in `values` (k, d), as they are after the steps
    before `now`. Those of the corruptions that come next (k,) are fetched meanwhile, one with each.
    """
    parameter, first, second, _ = table
    places, done = entities.places, entities.done
    for j in range(len(ids)):
        row = coming[j]
        if 0 <= row < len(places) and places[row] == ALONE:
            fetch_rows(parameter, first, second, row)
        row = ids[j]
        if 0 <= row < len(places) and places[row] == ALONE:
            size, eps, _, _ = missed(rates, done[row], now)
            for k in range(values.shape[1]):
                values[j, k] = later(parameter, first, second, row, k, size, eps)


@njit(**exact)
def write_alone(ids, table, entities, rates, now, values, slopes, query, gradient):
    """Make step `now` on the rows that `read_alone` has read, each with the gradient slope times query (d,); they are
    then free. To the gradient of the query, slope times row is added.
    """
    parameter, first, second, _ = table
    places, done, lr, eps = entities.places, entities.done, F(rates[0, now]), F(rates[1, now])
    for j in range(len(ids)):
        row, slope = ids[j], slopes[j]
        if 0 <= row < len(places) and places[row] == ALONE:
            _, _, by_first, by_second = missed(rates, done[row], now)
            for k in range(len(query)):
                gradient[k] += slope * values[j, k]
                g = slope * query[k]
                adam(parameter, first, second, row, k, values[j, k], by_first, by_second, g, lr, eps)
            done[row], places[row] = now + 1, FREE


@njit(**exact)
def touch(ids, places, touched, count, alone):
    """Give entities (k,) a place among the rows of the batch, unless they have one; the number of places taken.

    Ids are coded as `draw_all` does it; samples are left out. An entity that may be used and that nothing has touched
    yet becomes ALONE instead, if it may be.
    """
    for value in ids:
        row = value if value >= 0 else -1 - value
        if row >= len(places):
            continue
        if alone and value >= 0 and places[row] == FREE:
            places[row] = ALONE
        elif places[row] < 0:
            places[row], touched[count] = count, row
            count += 1
    return count


@njit(**exact)
def touch_batch(batch, facts, soft, pool, entities, alone):
    """Places for all entities that a batch reads, of facts, corruptions, samples and the soft-logic fact; how many.

    alone: whether an entity that a corruption alone reads goes without.
    """
    places, touched, live = entities.places, entities.touched, np.count_nonzero(batch.rows >= 0)
    rows, drawn = batch.rows[:live], batch.drawn[:live].ravel()
    count = touch(facts.head[rows], places, touched, 0, False)
    count = touch(facts.tail[rows], places, touched, count, False)
    count = touch(drawn, places, touched, count, alone)
    samples = drawn[drawn >= len(places)] - len(places)
    count = touch(pool.triples[:, 0][samples], places, touched, count, False)
    count = touch(pool.triples[:, 2][samples], places, touched, count, False)
    if batch.soft >= 0:
        count = touch(soft.triples[batch.soft, ::2], places, touched, count, False)
    return count
