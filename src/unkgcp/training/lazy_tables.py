"""Entity tables of the torch engine that move only where a batch reads them, on the CPU.

A dense step of Adam walks through every row. Where entities are many beside a batch these tables leave the others
alone; a row makes its steps up, by the same operations, when it is next read, and all of them at the end of an epoch.
The loops, and what is forgotten after many steps, are those of the compiled kernels (`compiled_common`). Importing
this imports numba. GPUs and several processes make dense steps.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unkgcp.training.compiled_common import epoch_rates
from unkgcp.training.lazy_steps import FREE, finish_rows, read_rows, together, touch_rows, write_rows


class LazyTables:
    """Tables by name, (members, entities, width) each, with their moments and the gradients of one batch."""

    def __init__(self, tables: dict[str, Tensor], momentum: float, most: int) -> None:
        """`most`: rows that a batch can touch, of all members together."""
        self.tables, self.momentum = tables, np.float32(momentum)
        self.first = {name: torch.zeros_like(table) for name, table in tables.items()}
        self.second = {name: torch.zeros_like(table) for name, table in tables.items()}
        remembered = {name: _rows(table) if momentum else 0 for name, table in tables.items()}
        self.memory = {
            name: table.new_zeros(remembered[name], table.shape[-1]) for name, table in tables.items()
        }
        self.values = {name: table.new_zeros(most, table.shape[-1]) for name, table in tables.items()}
        """The rows that the batch has touched, as they are now, and"""
        self.gradients = {name: table.new_zeros(most, table.shape[-1]) for name, table in tables.items()}
        """their gradients, both by place."""
        self.shrunk = {name: np.zeros((most, 2), np.float32) for name in tables}
        count = max(map(_rows, tables.values()))
        self.places = np.full(count, FREE)
        """Of rows that the batch has touched."""
        self.touched, self.count = np.zeros(most, np.int64), 0
        self.done = {name: np.zeros(count, np.int64) for name in tables}
        """Steps of the epoch that a row has made."""
        self.rates, self.step = np.zeros((2, 0), np.float32), 0
        self.blocks = 2 * torch.get_num_threads()

    def begin(self, learning_rate: float, before: int, steps: int) -> None:
        """An epoch of so many steps, after others with `before` steps in all."""
        self.rates, self.step = epoch_rates(learning_rate, before, steps), 0
        for done in self.done.values():
            done[:] = 0

    def read(self, rows: Tensor) -> Tensor:
        """Places of rows (any shape) of the flattened tables, whose values are now up to date."""
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
        """Adam on what the batch has touched, whose gradients are then zero again."""
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


def _rows(table: Tensor) -> int:
    return table.shape[0] * table.shape[1]
