"""What the compiled CPU kernels share: random numbers, filtered negatives, the error of a fact, Adam and lazy steps.

Importing this imports numba, but not torch, which scoring does without. The random numbers are those of `randomness`,
bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

import unkgcp.training.randomness as randomness
from unkgcp.compiling import njit

F = np.float32
U = np.uint64
GOLDEN, FIRST, SECOND = U(randomness.GOLDEN), U(randomness.FIRST), U(randomness.SECOND)
RETRIES = randomness.RETRIES

# the numpy error model leaves out checks for division by zero, without which loops can be vectorised
exact = {"nogil": True, "error_model": "numpy"}
fast = {"fastmath": True, **exact}

LINE = 16  # floats in a line of the processor's cache
AHEAD = 4  # rows that are asked for ahead of the one at hand

# fmt: off


@intrinsic
def fetch(typing: Any, table: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of table[row, column] without waiting for it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, list(arguments[1:]), wraparound=False)
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        # to be read, to be kept in the second cache, data
        builder.call(call, [builder.bitcast(place, byte), number(0), number(1), number(1)])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), code


@njit(forceinline=True, **fast)
def fetch_row(table: Any, row: Any) -> None:
    """Ask for a whole row. Rows that are read in a random order are otherwise waited for, one after the other."""
    for k in range(0, table.shape[1], LINE):
        fetch(table, np.int64(row), np.int64(k))


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
def key_with(drawn: Any, head: Any, relation: Any, tail: Any, at_head: Any, sizes: Any) -> Any:
    """The key of a triple with an entity put in the place of its head or tail."""
    n, m = sizes
    return (drawn * m + relation) * n + tail if at_head else (head * m + relation) * n + drawn


@njit(**fast)
def corrupt(
    base: Any, counter: Any, head: Any, relation: Any, tail: Any, at_head: Any, sizes: Any, known: Any
) -> Any:
    """An entity for one side, and whether it may be used (False: every draw was a known fact)."""
    drawn = np.int64(0)
    for retry in range(RETRIES):
        drawn = below(draw(base + U(retry), counter), sizes[0])
        if len(known) == 0 or not in_set(key_with(drawn, head, relation, tail, at_head, sizes), known):
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


@njit(**exact)
def epoch_rates(learning_rate, before, steps):
    """`adam_rates` of the steps of an epoch that follows on `before` others: (2, steps)."""
    rates = np.empty((2, steps), F)
    for i in range(steps):
        rates[0, i], rates[1, i] = adam_rates(learning_rate, before + i + 1)
    return rates


@njit(forceinline=True, **exact)
def adam_row(parameter, first, second, memory, gradient, momentum, lr, eps, row):
    """Adam on one row with its gradient (d,), which is set back to zero.

    lr and eps are those of `adam_rates`: p -= lr m / (sqrt(v) + eps). With momentum the gradient is that of `memory`,
    which adds up gradients as g + momentum * (what was there). No rounding is left to the compiler, see `catch_up`.
    """
    d = parameter.shape[1]
    if momentum > F(0):
        for k in range(d):
            memory[row, k] = momentum * memory[row, k] + gradient[k]
            gradient[k] = memory[row, k]
    for k in range(d):
        g = gradient[k]
        gradient[k] = F(0)
        m = F(0.9) * first[row, k] + F(0.1) * g
        v = F(0.999) * second[row, k] + F(0.001) * g * g
        first[row, k], second[row, k] = m, v
        parameter[row, k] -= lr * m / (math.sqrt(v) + eps)


@njit(forceinline=True, **exact)
def summed(gradients, place):
    """The sum of the shards' gradients at a place, in the first of them; the others are set back to zero."""
    shards, _, d = gradients.shape
    for shard in range(1, shards):
        for k in range(d):
            gradients[0, place, k] += gradients[shard, place, k]
            gradients[shard, place, k] = F(0)
    return gradients[0, place]


@njit(**exact)
def adam_rows(parameter, first, second, memory, gradients, momentum, lr, eps, begin, end):
    """Dense Adam on rows begin..end, whose gradients are at the places of the same number."""
    for row in range(begin, end):
        adam_row(parameter, first, second, memory, summed(gradients, row), momentum, lr, eps, row)


# Lazy steps: in a table that is large beside a batch most rows have no gradient. Adam moves them all the same, because
# their moments decay; but nobody looks until a batch has them again, or the epoch is over. So a step costs what it
# touches, and a row makes its steps without gradient up when it is next read.

FORGOTTEN = 256  # steps after which what is left of the first moment, 0.9^256 = 2e-12 of it, moves a parameter no more
APART = F(-1)  # where steps cannot be made at once
ROOT = math.sqrt(0.999)  # sqrt(v) after a step without gradient, over what it was


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
    here, and nothing is left to do. `rates` (2, steps) are those of `adam_rates`, at_once those of `together`.
    """
    k = now - done
    if k < at_once.shape[1] and at_once[0, k] != APART and momentum == F(0):
        return at_once[0, k], at_once[1, k], at_once[2, k], at_once[3, k]
    return missed_apart(parameter, first, second, memory, momentum, rates, row, done, now)


@njit(forceinline=True, **exact)
def catch_up(parameter, first, second, memory, momentum, rates, at_once, row, done, now):
    """Make the steps of `missed`."""
    size, eps, by_first, by_second = missed(
        parameter, first, second, memory, momentum, rates, at_once, row, done, now
    )
    if size == F(0):
        return
    for k in range(parameter.shape[1]):
        m, v = first[row, k], second[row, k]
        parameter[row, k] -= size * m / (math.sqrt(v) + eps)
        first[row, k], second[row, k] = by_first * m, by_second * v


@njit(forceinline=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def peek(parameter, first, second, row, size, eps, out, q):
    """Put what the steps of `missed` make of a row, which itself stays as it is, into `out`; its product with q."""
    total = F(0)
    for k in range(parameter.shape[1]):
        out[k] = parameter[row, k] - size * first[row, k] / (math.sqrt(second[row, k]) + eps)
        total += out[k] * q[k]
    return total


@njit(forceinline=True, **exact)
def adam_late(parameter, first, second, row, ahead, by_first, by_second, slope, direction, lr, eps, dq):
    """The steps of `missed`, which make `ahead` of the row, and then `adam_row` with the gradient slope direction."""
    for k in range(parameter.shape[1]):
        dq[k] += slope * ahead[k]
        g = slope * direction[k]
        m = F(0.9) * (by_first * first[row, k]) + F(0.1) * g
        v = F(0.999) * (by_second * second[row, k]) + F(0.001) * g * g
        first[row, k], second[row, k] = m, v
        parameter[row, k] = ahead[k] - lr * m / (math.sqrt(v) + eps)


FREE, ALONE = -1, -2  # instead of a place in the gradients: the batch does not read the row, or once only


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


@njit(**fast)
def draw_batch(rows, first, last, start, facts, negatives, share, choice, place, base, sizes, known, n_pool, drawn):
    """Fill drawn[first:last] (., 2 negatives) for facts rows[first:last], corrupted heads first.

    An entity, or -1 - entity where every draw was a known fact, or n_entities + the place of a pool sample.
    """
    head, relation_of, tail, _ = facts
    lines, mask = known.reshape(1, len(known)), U(len(known) - 1)
    for i in range(first - 1, last):
        later = rows[i + 1] if i + 1 < last else -1
        if len(known) > 0 and later >= 0:  # the set of known facts is large: ask for the places of the next fact
            h, r, t = head[later], relation_of[later], tail[later]
            for j in range(2 * negatives):
                other = below(draw(base, U((start + i + 1) * 2 * negatives + j)), sizes[0])
                key = key_with(other, h, r, t, j < negatives, sizes)
                fetch(lines, 0, np.int64(draw(U(key), U(0)) & mask))
        if i < first or rows[i] < 0:
            continue
        h, r, t = head[rows[i]], relation_of[rows[i]], tail[rows[i]]
        for j in range(2 * negatives):
            position = U((start + i) * 2 * negatives + j)
            if share > F(0) and unit(draw(choice, position)) < share:
                drawn[i, j] = sizes[0] + below(draw(place, position), n_pool)
            else:
                other, usable = corrupt(base, position, h, r, t, j < negatives, sizes, known)
                drawn[i, j] = other if usable else -1 - other


# The three parallel parts of a step that both kernels have. Each is a function of its own, so that it is compiled once.


@njit(parallel=True, **exact)
def draw_all(rows, start, facts, negatives, share, choice, place, base, sizes, known, n_pool, drawn, shards):
    """`draw_batch` for all facts of a batch."""
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        draw_batch(rows, begin, end, start, facts, negatives, share, choice, place, base, sizes, known, n_pool, drawn)


@njit(parallel=True, **exact)
def catch_up_all(parameter, first, second, memory, momentum, rates, at_once, rows, done, now, blocks):
    """`catch_up` for rows (k,), which have then made the steps of the epoch up to `now`."""
    for block in prange(blocks):
        for at in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            row, later = rows[at], rows[min(at + AHEAD, len(rows) - 1)]
            fetch_row(parameter, later)
            fetch_row(first, later)
            fetch_row(second, later)
            catch_up(parameter, first, second, memory, momentum, rates, at_once, row, done[row], now)
            done[row] = now


@njit(parallel=True, **exact)
def adam_all(parameter, first, second, memory, gradients, momentum, lr, eps, rows, blocks):
    """`adam_row` for rows (k,), whose gradients are at places 0 to k."""
    for block in prange(blocks):
        for at in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            if len(rows) < len(parameter):  # or they lie in order, and are fetched by the processor itself
                later = rows[min(at + AHEAD, len(rows) - 1)]
                fetch_row(parameter, later)
                fetch_row(first, later)
                fetch_row(second, later)
            adam_row(parameter, first, second, memory, summed(gradients, at), momentum, lr, eps, rows[at])


@njit(**exact)
def release(rows, places, done, now):
    """Rows (k,) that have made step `now` give their places back."""
    for row in rows:
        done[row], places[row] = now, FREE
