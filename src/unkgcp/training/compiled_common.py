"""What compiled loops on the CPU share: groups of arguments, random numbers, filtered negatives, and products.

Importing this imports numba but not torch, because scoring must work without torch. The random numbers are those of
`randomness`, bit for bit.

Kernels take few arguments, most of them groups: the named tuples below say once what each holds. n is the number of
entities, d the width of a row.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

import unkgcp.training.randomness as randomness
from unkgcp.loops import njit

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
AHEAD = 8  # triples whose rows are fetched before they are needed


class FactColumns(namedtuple("FactColumns", "head relation tail confidence")):
    """The training facts, (facts,) each."""


class TrainedTable(namedtuple("TrainedTable", "parameter first second gradients")):
    """A table (rows, d) with the moments of Adam, and a gradient table of each shard (shards, places, d)."""


class EntityRows(namedtuple("EntityRows", "values places touched shrunk done")):
    """The entities as a batch reads them.

    values: their rows, by place (places, d). places: the place of each entity (n,). Dense steps read the table itself,
    at the entity's own place, and leave the other three empty. Lazy steps (`compiled_adam`) have by place the entity
    (`touched`) and the factors by which its moments have shrunk (places, 2), and by entity how many steps of the epoch
    it has made (`done`).
    """


class Drawing(
    namedtuple("Drawing", "negatives entities relations known share entity_base choice_base place_base")
):
    """How corruptions are drawn.

    negatives: on each side of a fact. known: the set of known facts, empty if they are not filtered out. share: of
    corruptions that are samples from PASSLEAF's pool instead. The bases of the random numbers: of entities, of the
    choice of samples, and of their places.
    """


class LossWeights(namedtuple("LossWeights", "negative norm soft side box quantile rectified")):
    """What a term of the loss weighs (see `TrainConfig`), the quantile or -1, and whether the score is rectified."""


class SoftLogic(namedtuple("SoftLogic", "triples bounds base")):
    """Triples (soft, 3) with the lower bounds of their confidences (soft,), and the base of the draw of one a step."""


class ScoredPool(namedtuple("ScoredPool", "triples scores open")):
    """PASSLEAF's pool: triples (places, 3) with their scores (places,), and whether corruptions enter it."""


class DrawnBatch(namedtuple("DrawnBatch", "rows drawn fresh fresh_scores soft weight")):
    """Facts by row, -1 beyond the last (b,); corruptions of each, heads first, as `draw_all` codes them; those that
    enter the pool or -1, and their scores (b, 2 negatives or 0); the soft-logic fact, or -1; the weight of a fact.
    """


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
def corrupt(drawing: Any, counter: Any, head: Any, relation: Any, tail: Any, at_head: Any) -> Any:
    """An entity for one side, and whether it may be used (False: every draw was a known fact)."""
    n, m, known, drawn = drawing.entities, drawing.relations, drawing.known, np.int64(0)
    for retry in range(RETRIES):
        drawn = below(draw(drawing.entity_base + U(retry), counter), n)
        key = (drawn * m + relation) * n + tail if at_head else (head * m + relation) * n + drawn
        if len(known) == 0 or not in_set(key, known):
            return drawn, True
    return drawn, False


@njit(parallel=True, **exact)
def draw_all(rows: Any, start: Any, facts: Any, drawing: Any, places: Any, drawn: Any, shards: Any) -> None:
    """Fill `drawn` (b, 2 negatives) for the facts of a batch that begins at `start` of the run, heads first.

    An entity, or -1 - entity where every draw was a known fact, or the number of entities + the place of a sample
    among the `places` of the pool.
    """
    slots = drawn.shape[1]
    for shard in prange(shards):
        for i in range(shard * len(rows) // shards, (shard + 1) * len(rows) // shards):
            fact = rows[i]
            if fact < 0:
                continue
            h, r, t = facts.head[fact], facts.relation[fact], facts.tail[fact]
            for j in range(slots):
                position = U((start + i) * slots + j)
                if drawing.share > F(0) and unit(draw(drawing.choice_base, position)) < drawing.share:
                    drawn[i, j] = drawing.entities + below(draw(drawing.place_base, position), places)
                else:
                    other, usable = corrupt(drawing, position, h, r, t, 2 * j < slots)
                    drawn[i, j] = other if usable else -1 - other


@njit(**fast)
def fact_error(p: Any, c: Any, quantile: Any) -> Any:
    """(error, dError/dp) of a fact: squared, or the pinball loss at a quantile that is not negative."""
    if quantile >= F(0):
        return (quantile * (c - p), -quantile) if c > p else ((F(1) - quantile) * (p - c), F(1) - quantile)
    return (p - c) * (p - c), F(2) * (p - c)


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, table: Any, row: Any, column: Any) -> Any:
    """Have the processor fetch the line of a table that holds a place, and go on without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(table)(context, builder, values[0])
        place = cgutils.get_item_pointer(context, builder, table, array, values[1:], wraparound=False)
        number, address = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
        to_read_again = [number(0), number(3), number(1)]
        builder.call(call, [builder.bitcast(place, address), *to_read_again])
        return context.get_dummy_value()

    return types.void(table, row, column), generate


@njit(forceinline=True, **exact)
def fetch_row(table: Any, row: Any) -> None:
    """`prefetch` for a whole row: of rows that lie anywhere, waiting for each would take most of the time."""
    for k in range(0, table.shape[1], LINE):
        prefetch(table, np.int64(row), k)


@njit(alone=True, **quick)
def products(entity: Any, relation: Any, head: Any, middle: Any, tail: Any, out: Any) -> None:
    """Fill `out` (n,) with the sums over the dimensions of h r t, for `unkgcp.training.model`, which has no torch."""
    for i in range(len(out)):
        if i + AHEAD < len(out):
            for k in range(0, entity.shape[1], LINE):
                prefetch(entity, head[i + AHEAD], k)
                prefetch(entity, tail[i + AHEAD], k)
        h, r, t, total = head[i], middle[i], tail[i], F(0)
        for k in range(entity.shape[1]):
            total += entity[h, k] * relation[r, k] * entity[t, k]
        out[i] = total
