"""What compiled loops on the CPU share: random numbers, filtered negatives, the error of a fact, Adam, and products.

Importing this imports numba but not torch, because scoring must work without torch. The random numbers are those of
`randomness`, bit for bit.
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
from unkgcp.loops import njit
from unkgcp.training.config import LANES

F = np.float32
U = np.uint64
GOLDEN, FIRST, SECOND = U(randomness.GOLDEN), U(randomness.FIRST), U(randomness.SECOND)
RETRIES = randomness.RETRIES

# The numpy error model leaves out checks for division by zero, which would keep loops from being vectorised. Every
# function states its rounding (`fastmath`): numba compiles one that does not in the way of its first caller.
exact: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}
fast: dict[str, Any] = exact | {"fastmath": True}
# the compiler may choose the order of a sum, so that it can add several numbers at once, and nothing else
quick: dict[str, Any] = exact | {"fastmath": {"reassoc", "nsz"}}

LINE = 16  # floats in a line of the processor's cache
SOON = 16  # triples: rows prefetched so far ahead arrive in time, and the second cache still holds them

# fmt: off


@intrinsic
def fetch(typing: Any, table: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of table[row, column]: ask for it without waiting."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, list(arguments[1:]), wraparound=False)
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        # for reading, into the second cache, as data rather than code
        builder.call(call, [builder.bitcast(place, byte), number(0), number(1), number(1)])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), code


@njit(forceinline=True, **fast)
def fetch_row(table: Any, row: Any) -> None:
    """Prefetch a whole row. Rows that are read in random order would otherwise be waited for one after the other."""
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
def adam(parameter, first, second, row, k, now, by_first, by_second, g, lr, eps):
    """One step of Adam on parameter k of a row, whose value is `now`. Its moments are `first` and `second` times
    by_first and by_second.

    lr and eps are those of `adam_rates`: p -= lr m / (sqrt(v) + eps). No rounding is left to the compiler, so that a
    step is the same whether or not it is lazy (`lazy_steps`).
    """
    m = F(0.9) * (by_first * first[row, k]) + F(0.1) * g
    v = F(0.999) * (by_second * second[row, k]) + F(0.001) * g * g
    first[row, k], second[row, k] = m, v
    parameter[row, k] = now - lr * m / (math.sqrt(v) + eps)


@njit(forceinline=True, **exact)
def summed(gradients, place, memory, momentum, row):
    """The gradient of a row: the sum over the shards at its place, kept in the first shard; the others become zero.

    With momentum it is the row of `memory`, in which gradients add up as g + momentum * (the row before).
    """
    shards, _, d = gradients.shape
    for shard in range(1, shards):
        for k in range(d):
            gradients[0, place, k] += gradients[shard, place, k]
            gradients[shard, place, k] = F(0)
    if momentum > F(0):
        for k in range(d):
            memory[row, k] = momentum * memory[row, k] + gradients[0, place, k]
            gradients[0, place, k] = memory[row, k]
    return gradients[0, place]


@njit(**exact)
def adam_rows(parameter, first, second, memory, gradients, momentum, lr, eps, begin, end):
    """Dense Adam on rows begin..end with their gradients, which are then zero."""
    for row in range(begin, end):
        gradient = summed(gradients, row, memory, momentum, row)
        for k in range(parameter.shape[1]):
            adam(parameter, first, second, row, k, parameter[row, k], F(1), F(1), gradient[k], lr, eps)
            gradient[k] = F(0)


@njit(**fast)
def draw_batch(rows, first, last, facts, drawing, drawn):
    """Fill drawn[first:last] (., 2 negatives) for facts rows[first:last], corrupted heads first.

    An entity, or -1 - entity where every draw was a known fact, or n_entities + the place of a pool sample. `drawing`:
    the number of facts seen before the batch, negatives a side, the base of their random numbers, the numbers of
    entities and relations, the set of known facts, the share of pool samples, the bases of the choice of them and of
    their places, and the size of the pool.
    """
    start, negatives, base, entities, relations, known, share, choice, place, n_pool = drawing
    sizes = entities, relations
    head, relation_of, tail, _ = facts
    lines, mask = known.reshape(1, len(known)), U(len(known) - 1)
    for i in range(first - 1, last):
        later = rows[i + 1] if i + 1 < last else -1
        if len(known) > 0 and later >= 0:  # the set of known facts is large: prefetch the places of the next fact
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


@njit(**fast)
def ask_samples(i, last, rows, drawn, values, g_entity, places, pool, pool_score):
    """Prefetch the rows of the pool samples of fact i + 1, and those of fact i + 2 themselves: they lie anywhere."""
    n, scores = len(places), pool_score.reshape(1, len(pool_score))
    if i + 1 < last and rows[i + 1] >= 0:
        for value in drawn[i + 1]:
            if value >= n:
                for side in range(0, 3, 2):
                    fetch_row(values, places[pool[value - n, side]])
                    fetch_row(g_entity, places[pool[value - n, side]])
    if i + 2 < last and rows[i + 2] >= 0:
        for value in drawn[i + 2]:
            if value >= n:
                fetch(pool, value - n, 0)
                fetch(scores, 0, value - n)


@njit(**fast)
def insert(rows, position, head, relation_of, tail, fresh, fresh_score, pool, pool_score):
    """Put the corruptions of a batch into the pool after the batch, so that its draws do not depend on timing."""
    slots = fresh.shape[1]
    for i in range(len(rows)):
        fact = rows[i]
        if fact < 0:
            continue
        for j in range(slots):
            other = fresh[i, j]
            if other < 0:
                continue
            at_head = 2 * j < slots
            place = ((position + i) * slots + j) % len(pool_score)
            pool[place, 0] = other if at_head else head[fact]
            pool[place, 1] = relation_of[fact]
            pool[place, 2] = tail[fact] if at_head else other
            pool_score[place] = fresh_score[i, j]


# The parallel parts of a step that both kernels share. Each is a function of its own, so that it is compiled once.


@njit(parallel=True, **exact)
def draw_all(rows, facts, drawing, drawn, shards):
    """`draw_batch` for all facts of a batch."""
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        draw_batch(rows, begin, end, facts, drawing, drawn)


@njit(parallel=True, **exact)
def adam_all(parameter, first, second, memory, gradients, momentum, lr, eps, blocks):
    """`adam_rows` for all rows."""
    n = len(parameter)
    for block in prange(blocks):
        begin, end = block * n // blocks, (block + 1) * n // blocks
        adam_rows(parameter, first, second, memory, gradients, momentum, lr, eps, begin, end)


# Dot products for `unkgcp.training.model`, which scores without torch.


@intrinsic
def sum_of_products(typing: Any, entity: Any, head: Any, relation: Any, middle: Any, tail: Any) -> Any:
    """The sum over the dimensions of h r t, in one order on every processor; ids must be within the tables.

    Tables must hold float32 in C order; others are not compiled.
    LANES partial sums take the dimensions in turn, as many as fill whole rounds; halves of them are added until there
    is one number, and the remaining dimensions are added to it one by one. A compiler that may choose the order takes
    that of the processor's registers, and one that may not adds one number at a time: hence this code by hand.
    """
    if any(table.dtype != types.float32 or table.layout != "C" for table in (entity, relation)):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        real, number, tables = ir.FloatType(), ir.IntType(32), {}
        for place in (0, 2):
            tables[place] = context.make_array(signature.args[place])(context, builder, arguments[place])
        width = cgutils.unpack_tuple(builder, tables[0].shape)[1]
        nothing, one, lanes = (ir.Constant(width.type, size) for size in (0, 1, LANES))
        rows = [
            cgutils.get_item_pointer(
                context, builder, signature.args[table], tables[table], [arguments[row], nothing], wraparound=False
            )
            for table, row in ((0, 1), (2, 3), (0, 4))
        ]

        def product(first: Any, kind: Any) -> Any:
            places = (builder.bitcast(builder.gep(row, [first]), kind.as_pointer()) for row in rows)
            h, r, t = (builder.load(place, align=4) for place in places)
            return builder.fmul(builder.fmul(h, r), t)

        several = ir.VectorType(real, LANES)
        whole = builder.sub(width, builder.srem(width, lanes))
        parts = cgutils.alloca_once_value(builder, ir.Constant(several, [0.0] * LANES))
        with cgutils.for_range_slice(builder, nothing, whole, lanes, width.type) as (first, _):
            builder.store(builder.fadd(builder.load(parts), product(first, several)), parts)
        part, half = builder.load(parts), LANES // 2
        while half:
            low, high = (
                builder.shuffle_vector(
                    part,
                    ir.Constant(part.type, ir.Undefined),
                    ir.Constant(ir.VectorType(number, half), [number(start + lane) for lane in range(half)]),
                )
                for start in (0, half)
            )
            part, half = builder.fadd(low, high), half // 2
        total = cgutils.alloca_once_value(builder, builder.extract_element(part, number(0)))
        with cgutils.for_range_slice(builder, whole, width, one, width.type) as (first, _):
            builder.store(builder.fadd(builder.load(total), product(first, real)), total)
        return builder.load(total)

    return types.float32(entity, types.int64, relation, types.int64, types.int64), code


@njit(alone=True, **exact)
def products(entity: Any, relation: Any, head: Any, middle: Any, tail: Any, out: Any) -> None:
    """Fill `out` (n,) with sums of products."""
    n, width = len(out), entity.shape[1]
    for i in range(n):
        later = min(i + SOON, n - 1)
        for row in (head[later], tail[later]):
            fetch_row(entity, row)
            # a row that begins in the middle of a cache line ends in a line that was not prefetched yet
            fetch(entity, np.int64(row), np.int64(width - 1))
        out[i] = sum_of_products(
            entity, np.int64(head[i]), relation, np.int64(middle[i]), np.int64(tail[i])
        )
