"""Trains an epoch with the compiled kernels: one model of the DistMult family, or BEUrRE, on the CPU.

It has the methods, the random numbers and the loss terms of `TorchEngine`; the gradient is written by hand, but for
that of BEUrRE's rules.
"""

from __future__ import annotations

import math
import os

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import unkgcp.training.randomness as randomness
from unkgcp.training import batches
from unkgcp.training.adam_rates import epoch_rates
from unkgcp.training.batches import Engine, Lookup, TrainingData, initial_tables
from unkgcp.training.compiled_common import (
    LINE,
    Drawing,
    EntityRows,
    FactColumns,
    LossWeights,
    ScoredPool,
    SoftLogic,
    TrainedTable,
    fill_set,
)
from unkgcp.training.config import DISTMULT, Member, TrainConfig
from unkgcp.training.losses import Pool, capacity, fact_batch, rules, share_at

NUMBERS = 500_000
"""How many numbers of a step are worth a thread of their own: with fewer, waking it and waiting for it takes longer."""
BOXES = 10  # a dimension of a box, which is two numbers, takes about ten times as long as one of a vector
MOST_SHARDS = 8


def shards_of(data: TrainingData, config: TrainConfig) -> int:
    """Into how many parts, each for a thread, the compiled kernels divide a batch: as many as a step is worth.

    The result depends on this number; so it counts the processors of the machine, even if the process may use fewer.
    """
    batch_size = min(config.batch_size, len(data.facts))
    rows = batch_size * (2 + 2 * config.drawn_negatives)
    if not _is_lazy(data, config, batch_size):
        rows += data.n_entities  # a dense step moves them all
    numbers = rows * config.dimension * (1 if config.model in DISTMULT else BOXES)
    return max(1, min(MOST_SHARDS, os.cpu_count() or 1, config.batch_size // 16, numbers // NUMBERS))


def _is_lazy(data: TrainingData, config: TrainConfig, batch_size: int) -> bool:
    """Whether a step leaves the entities alone that its batch does not read; rules read the tables themselves."""
    many = data.n_entities > batches.LARGE * batches.entities_touched(config, batch_size)
    return many and not data.ruled and not config.momentum


class CompiledEngine(Engine):
    """Parameters, optimiser and epoch of one model. Torch owns the memory, the kernels work on views of it.

    Tables of one kind lie side by side in one: a row of it holds all parameters of an entity or a relation. Where
    entities are many beside a batch, steps are lazy (`compiled_adam`): the result is the same, and no step walks
    through the whole table.
    """

    def __init__(
        self, data: TrainingData, config: TrainConfig, member: Member, shards: int | None = None
    ) -> None:
        # Starts numba's threads. An epoch that is loaded from disk starts them itself only if the loops it calls were
        # compiled with it; if these had been loaded from disk too, it would end the process.
        numba.get_num_threads()
        self.data, self.config, self.member = data, config, member
        n, device = len(data.facts), torch.device("cpu")
        self.batch_size = min(config.batch_size, n)
        self.steps = -(-n // self.batch_size)
        self.lazy, self._shards = _is_lazy(data, config, self.batch_size), shards or shards_of(data, config)
        touched = batches.entities_touched(config, self.batch_size) if self.lazy else 0
        self.backbone, tables = initial_tables(data, config, [member], device)
        self.tables: dict[str, Tensor] = {}
        """Name -> (1, rows, width), as the backbone names them: parts of the tables that are trained."""
        self._trained: dict[str, TrainedTable] = {}
        buffers: dict[str, Tensor] = {}  # gradients by name, for autograd
        for kind in ("entity", "relation", "model"):
            named = {name: table for name, table in tables.items() if self.backbone.kinds[name] == kind}
            widths = [table.shape[-1] for table in named.values()]
            whole = _zeros(1, next(iter(named.values())).shape[1] if named else 1, sum(widths))
            rows = touched if touched and kind == "entity" else whole.shape[1]
            gradients = _zeros(self._shards, rows, whole.shape[2])
            if named:
                torch.cat([*named.values()], -1, out=whole)
                self.tables |= dict(zip(named, torch.split(whole, widths, -1), strict=True))
                buffers |= dict(zip(named, torch.split(gradients[:1], widths, -1), strict=True))
            self._trained[kind] = TrainedTable(
                whole[0], _zeros(*whole.shape[1:]), _zeros(*whole.shape[1:]), gradients
            )
        places, width = np.arange(data.n_entities, dtype=np.int32), self._trained["entity"].parameter.shape[1]
        self._entities = EntityRows(
            (_zeros(touched, width) if self.lazy else self._trained["entity"].parameter).numpy(),
            places,
            np.empty(touched, np.int64),
            np.empty((touched, 2), np.float32),
            np.zeros(data.n_entities if self.lazy else 0, np.int32),
        )
        self.pool = Pool([member], capacity(config, n, self.batch_size), device)
        self.step = torch.zeros((), dtype=torch.int64)
        self.first_bad = torch.full((), -1, dtype=torch.int64)
        room = 1 << max(4, (2 * len(data.fact_keys)).bit_length()) if config.filter_negatives else 0
        self._known = np.full(room, -1, np.int64)
        if room:
            fill_set(data.fact_keys.numpy(), self._known)
        soft = data.softlogic
        some = len(soft) if config.softlogic_weight else 0
        self._soft = SoftLogic(
            torch.stack([soft.head, soft.relation, soft.tail], -1).numpy().astype(np.int32)[:some],
            soft.target.numpy()[:some],
            self._base(randomness.SOFTLOGIC),
        )
        self._rules = rules(data, config, [member], self.batch_size)
        self._lookup = Lookup(self.backbone, self.tables, buffers)

    def _base(self, purpose: int) -> np.uint64:
        return np.uint64(randomness.stream(self.member.seed, purpose) & randomness.MASK)

    def run_epoch(self, epoch: int) -> Tensor:
        from unkgcp.training.compiled_epoch import run_epoch

        config, data, facts = self.config, self.data, self.data.facts
        n = len(facts)
        order = np.full((self.steps, self.batch_size), -1, np.int64)
        order.reshape(-1)[:n] = randomness.permutations([self.member.seed], epoch, n, torch.device("cpu"))[
            0
        ].numpy()
        losses = np.zeros(self.steps)
        bases = map(self._base, (randomness.NEGATIVE, randomness.POOL_CHOICE, randomness.POOL_DRAW))
        share = share_at(config, epoch) if config.uses_pool else 0.0
        drawing = Drawing(
            config.drawn_negatives, data.n_entities, data.n_relations, self._known, np.float32(share), *bases
        )
        weights = LossWeights(
            config.negative_weight,
            config.regularization,
            config.softlogic_weight,
            config.side_regularization,
            config.box_regularization,
            -1.0 if self.member.quantile is None else self.member.quantile,
            config.model == "ukge-rect",
        )
        columns = FactColumns(
            *(column.numpy() for column in (facts.head, facts.relation, facts.tail, facts.target))
        )
        tables = tuple(TrainedTable(*(part.numpy() for part in table)) for table in self._trained.values())
        opened = config.uses_pool and epoch >= config.pool_from
        pool = ScoredPool(self.pool.triples[0].numpy(), self.pool.scores[0].numpy(), opened)
        threads = numba.get_num_threads()
        # steps in one call: autograd comes before each that has rules
        count = 1 if self._rules else self.steps
        numba.set_num_threads(min(threads, self._shards))
        try:
            for first in range(0, self.steps, count):
                start, called = epoch * n + first * self.batch_size, slice(first, first + count)
                of_rules = self._differentiated(order[first], start) if self._rules else 0.0
                run_epoch(
                    order[called],
                    int(self.step),
                    start,
                    epoch_rates(config.learning_rate, int(self.step), count),
                    np.float32(config.momentum),
                    columns,
                    tables,
                    self._entities,
                    self.lazy,
                    drawing,
                    weights,
                    self._soft,
                    pool,
                    None if config.model in DISTMULT else True,
                    losses[called],
                )
                losses[called] += of_rules
                self.step += count
        finally:  # an interrupted training leaves it as it was, too
            numba.set_num_threads(threads)
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad) and int(self.first_bad) < 0:
            self.first_bad.fill_(int(self.step) - self.steps + int(bad[0]))
        return torch.tensor([losses.mean()])

    def _differentiated(self, order: NDArray[np.int64], start: int) -> float:
        """The loss of BEUrRE's rules on a batch; autograd adds its gradient to that of the relations."""
        rows, columns = torch.from_numpy(order)[None], torch.arange(len(order))
        weight = (rows >= 0) / (rows >= 0).sum()
        batch = fact_batch(self.data, self._lookup, rows.clamp_min(0), weight, start + columns, self.step)
        loss = torch.stack([term(batch) for term in self._rules]).sum()
        torch.autograd.backward(loss)
        return loss.item()

    def state(self) -> dict[str, Tensor]:
        state = {"step": self.step, "first_bad": self.first_bad}
        for kind, table in self._trained.items():
            # without momentum gradients are zero between steps
            kept = table if self.config.momentum else table[:3]
            state |= {f"{part}.{kind}": tensor for part, tensor in zip(table._fields, kept, strict=False)}
        return state | self.pool.state() if self.config.uses_pool else state


def _zeros(*shape: int) -> Tensor:
    """Zeros that begin at a line of the processor's cache, so that rows take no more lines than they must.

    NumPy allocates the memory, because it uses large pages where the system has them, in which random rows are found
    faster.
    """
    room = np.zeros(math.prod(shape) + LINE, np.float32)
    begin = -room.ctypes.data % (4 * LINE) // 4
    return torch.from_numpy(room[begin : begin + math.prod(shape)].reshape(shape))
