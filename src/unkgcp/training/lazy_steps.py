"""Lazy steps of Adam on the CPU: they cost what a batch reads, for tables that are large beside a batch.

Most rows of such a table have no gradient in a batch. Adam moves them all the same, because their moments decay; but
nobody reads these rows until a batch needs them, or the epoch is over. So a batch first brings the rows that it reads
up to date, in a small table in the order of their places, and afterwards writes them back with its own step. At the end
of an epoch all rows are brought up to date.

The compiled kernels call the loops; the torch engine uses them by way of `LazyTables`. GPUs make steps of their own
(`fused_common`), and several processes make dense ones. Importing this imports numba.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import prange
from torch import Tensor

from unkgcp.loops import njit
from unkgcp.training.compiled_common import (
    F,
    adam,
    adam_all,
    epoch_rates,
    exact,
    fast,
    fetch,
    fetch_row,
    summed,
)

AHEAD = 4  # how many rows ahead of the current one are prefetched
FREE, ALONE = -1, -2  # instead of a place: nothing in the batch reads the row, or a single corruption does
FORGOTTEN = 256  # steps after which the rest of the first moment, 0.9^256 = 2e-12 of it, moves nothing
APART = F(-1)  # marks steps that cannot be made at once
ROOT = math.sqrt(0.999)  # sqrt(v) after a step without gradient, over what it was

# fmt: off


@njit(**exact)
def together(rates, now):
    """How to make k steps without a gradient at once, the last of them the step before `now`; k up to FORGOTTEN.

    m and v shrink by known factors, and each step is lr m / (sqrt(v) + eps); so their sum is m / (sqrt(v) + e) times a
    number, where e is the mean of eps relative to sqrt(v). (4, k + 1): that number, e, the factors of m and of v.
    The error is below a rounding where sqrt(v) is above 1e-6, and below 1e-4 of the move elsewhere. Early in training,
    while eps grows, it would be larger: the number is then APART.
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
    """What `missed` does with steps that are not in its table: it makes them here, unless they are very many."""
    if momentum == F(0) and now - done > FORGOTTEN:  # after so many steps the rest of m moves nothing
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

    With momentum, and early in training, this function makes them one by one with the operations of dense steps, and
    nothing is left to do. `rates` (2, steps) come from `epoch_rates`, `at_once` from `together`.
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
    """The row at a position; one that comes soon is prefetched."""
    soon = rows[min(at + AHEAD, len(rows) - 1)]
    fetch_row(parameter, soon)
    fetch_row(first, soon)
    fetch_row(second, soon)
    return rows[at]


@njit(forceinline=True, **fast)
def ask_entity(i, j, ahead, further, drawn, values, g_entity, places, tables, lines):
    """Prefetch the row of the entity that is corruption j of fact i + 1, and the place of that of fact i + 2.

    `ahead` and `further`: whether there are such facts. `lines`: places and steps of all entities, (1, n) each.
    """
    n = len(places)
    if ahead and 0 <= drawn[i + 1, j] < n:
        other = drawn[i + 1, j]
        if places[other] == ALONE:
            fetch_row(tables[0], other)
            fetch_row(tables[1], other)
            fetch_row(tables[2], other)
        else:
            fetch_row(values, places[other])
            fetch_row(g_entity, places[other])
    if further and 0 <= drawn[i + 2, j] < n:
        fetch(lines[0], 0, drawn[i + 2, j])
        fetch(lines[1], 0, drawn[i + 2, j])


@njit(parallel=True, **exact)
def read_rows(parameter, first, second, memory, momentum, rates, at_once, rows, done, now, values, shrunk, blocks):
    """Write rows (k,) as they are after the steps before `now` to `values` (k, d).

    `shrunk` (k, 2) gets the factors of their moments. `done` (n,): the steps of the epoch that each row has made.
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
    """Step `now` of a table: `write_rows`, or a dense step."""
    if lazy is not None:
        write_rows(
            parameter, first, second, memory, gradients, momentum, rates, rows, places, done, now, values, shrunk,
            blocks,
        )
    else:
        adam_all(parameter, first, second, memory, gradients, momentum, rates[0, now], rates[1, now], blocks)


@njit(parallel=True, **exact)
def finish_rows(parameter, first, second, memory, momentum, rates, done, blocks):
    """Bring all rows up to date at the end of an epoch."""
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
    """`touch` for many rows."""
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


# fmt: on


class LazyTables:
    """Entity tables of the torch engine, (members, entities, width) each, with moments and the gradients of a batch."""

    def __init__(self, tables: dict[str, Tensor], momentum: float, most: int) -> None:
        """`most`: how many rows a batch can touch, over all members."""
        self.tables, self.momentum = tables, np.float32(momentum)
        self.first = {name: torch.zeros_like(table) for name, table in tables.items()}
        self.second = {name: torch.zeros_like(table) for name, table in tables.items()}
        members, entities, _ = next(iter(tables.values())).shape
        count = members * entities
        self.memory = {
            name: table.new_zeros(count if momentum else 0, table.shape[-1]) for name, table in tables.items()
        }
        # by place: the rows that the batch has touched, up to date, their gradients and the factors of their moments
        self.values = {name: table.new_zeros(most, table.shape[-1]) for name, table in tables.items()}
        self.gradients = {name: table.new_zeros(most, table.shape[-1]) for name, table in tables.items()}
        self.shrunk = {name: np.zeros((most, 2), np.float32) for name in tables}
        # by row: its place in the batch, and how many steps of the epoch it has made
        self.places = np.full(count, FREE)
        self.done = {name: np.zeros(count, np.int64) for name in tables}
        self.touched, self.count = np.zeros(most, np.int64), 0
        self.rates, self.step = np.zeros((2, 0), np.float32), 0
        self.blocks = 2 * torch.get_num_threads()

    def begin(self, learning_rate: float, before: int, steps: int) -> None:
        """Begin an epoch of so many steps; `before` is the number of steps of all earlier epochs."""
        self.rates, self.step = epoch_rates(learning_rate, before, steps), 0
        for done in self.done.values():
            done[:] = 0

    def read(self, rows: Tensor) -> Tensor:
        """The places of rows (any shape) of the flattened tables; their values are then up to date."""
        before = self.count
        self.count = touch_rows(rows.reshape(-1).numpy(), self.places, self.touched, before)
        fresh, at_once = slice(before, self.count), together(self.rates, self.step)
        for name, values in self.values.items():
            read_rows(
                *self._parts(name), self.momentum, self.rates, at_once, self.touched[fresh], self.done[name], self.step,
                values.numpy()[fresh], self.shrunk[name][fresh], self.blocks,
            )  # fmt: skip
        return torch.from_numpy(self.places[rows.numpy()])

    def make_step(self) -> None:
        """A step of Adam on the rows that the batch has touched; their gradients are then zero again."""
        for name, values in self.values.items():
            write_rows(
                *self._parts(name), self.gradients[name].numpy()[None], self.momentum, self.rates,
                self.touched[: self.count], self.places, self.done[name], self.step, values.numpy(), self.shrunk[name],
                self.blocks,
            )  # fmt: skip
        self.step, self.count = self.step + 1, 0

    def finish(self) -> None:
        """Bring all rows up to date."""
        for name in self.tables:
            finish_rows(*self._parts(name), self.momentum, self.rates, self.done[name], self.blocks)

    def state(self) -> dict[str, Tensor]:
        parts = {"table": self.tables, "first": self.first, "second": self.second}
        if self.momentum:
            parts["memory"] = self.memory
        return {
            f"lazy.{part}.{name}": table for part, tables in parts.items() for name, table in tables.items()
        }

    def _parts(self, name: str) -> list[np.ndarray]:
        parts = (self.tables[name], self.first[name], self.second[name], self.memory[name])
        return [table.view(-1, table.shape[-1]).numpy() for table in parts]
