"""Trains an epoch with the compiled kernels: one model of the DistMult family, or BEUrRE, on the CPU.

It has the methods, the random numbers and the loss terms of `TorchEngine`; only the gradient is written by hand.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import unkgcp.training.randomness as randomness
from unkgcp.training import batches
from unkgcp.training.batches import Composition, TrainingData, initial_tables
from unkgcp.training.compiled_common import LINE, fill_set
from unkgcp.training.config import DISTMULT, Member, TrainConfig, learning_rate_at
from unkgcp.training.losses import Pool, capacity, share_at

KINDS = ("entity", "relation", "model")
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
    """Whether a step leaves the entities alone that its batch does not read; compositions read others too."""
    many = data.n_entities > batches.LARGE * batches.entities_touched(config, batch_size)
    return many and not data.compositions


class CompiledEngine:
    """Parameters, optimiser and epoch of one model. Torch owns the memory, the kernels work on views of it.

    Tables of one kind lie side by side in one: a row of it holds all parameters of an entity or a relation. Where
    entities are many beside a batch, steps are lazy (`lazy_steps`): the result is the same, and no step walks through
    the whole table.
    """

    def __init__(self, data: TrainingData, config: TrainConfig, member: Member, shards: int) -> None:
        # Starts numba's threads. An epoch that is loaded from disk starts them itself only if the loops it calls were
        # compiled with it; if these had been loaded from disk too, it would end the process.
        numba.get_num_threads()
        self.data, self.config, self.member = data, config, member
        self._quantile = -1.0 if member.quantile is None else member.quantile
        device = torch.device("cpu")
        n = len(data.facts)
        self.batch_size = min(config.batch_size, n)
        self.steps = -(-n // self.batch_size)
        self.backbone, tables = initial_tables(data, config, [member], device)
        self._parameters: dict[str, Tensor] = {}
        self.tables: dict[str, Tensor] = {}
        """Name -> (1, rows, width), as the backbone names them: parts of the tables above."""
        for kind in KINDS:
            named = {name: table for name, table in tables.items() if self.backbone.kinds[name] == kind}
            widths = [table.shape[-1] for table in named.values()]
            whole = _zeros(1, next(iter(named.values())).shape[1] if named else 1, sum(widths))
            if named:
                torch.cat([*named.values()], -1, out=whole)
            self._parameters[kind] = whole
            self.tables |= dict(zip(named, torch.split(whole, widths, -1), strict=True)) if named else {}
        self._first = {kind: _zeros(*table.shape) for kind, table in self._parameters.items()}
        self._second = {kind: _zeros(*table.shape) for kind, table in self._parameters.items()}
        self._memory = {
            kind: _zeros(1, table.shape[1] if config.momentum else 0, table.shape[-1])
            for kind, table in self._parameters.items()
        }
        most = batches.entities_touched(config, self.batch_size)
        self.lazy, self._shards = _is_lazy(data, config, self.batch_size), shards
        rows = {"entity": most} if self.lazy else {}
        self._gradients = tuple(
            _zeros(shards, rows.get(kind, table.shape[1]), table.shape[2]).numpy()
            for kind, table in self._parameters.items()
        )
        # the entities that a batch reads: lazy steps bring them up to date in a table of its own
        width = self._parameters["entity"].shape[-1]
        self._values = _zeros(most, width) if self.lazy else self._parameters["entity"][0]
        self.pool = Pool(1, capacity(config, n, self.batch_size), device)
        self.step = torch.zeros((), dtype=torch.int64)
        self.first_bad = torch.full((), -1, dtype=torch.int64)
        self._known = _key_set(data.known.numpy()) if config.filter_negatives else np.zeros(1, np.int64) - 1
        soft = data.softlogic
        self._soft = torch.stack([soft.head, soft.relation, soft.tail], -1).numpy().astype(np.int32)
        logic = config.logic_weight > 0
        self._transitive = data.transitive.numpy() & logic
        ruled = len(self._transitive) if self._transitive.any() else 0
        self._rule_gradient = np.zeros((shards, ruled, self._parameters["relation"].shape[-1]), np.float32)
        self._compositions = _arrays(data.compositions if logic else ())

    def run_epoch(self, epoch: int) -> Tensor:
        """Train on every fact once; mean loss: (1,)."""
        config, facts = self.config, self.data.facts
        n = len(facts)
        order = np.full(self.steps * self.batch_size, -1, np.int64)
        order[:n] = randomness.permutations([self.member.seed], epoch, n, torch.device("cpu"))[0].numpy()
        losses = np.zeros(self.steps)
        kernel, real, whole, purposes, more = (
            self._distmult(epoch) if config.model in DISTMULT else self._boxes()
        )
        streams = [randomness.stream(self.member.seed, purpose) & randomness.MASK for purpose in purposes]
        threads = numba.get_num_threads()
        numba.set_num_threads(min(threads, self._shards))
        try:
            kernel(
                order.reshape(self.steps, self.batch_size),
                int(self.step),
                epoch * n,
                learning_rate_at(config, epoch),
                np.float32(config.momentum),
                True if self.lazy else None,  # a loop is compiled for each of the two
                (facts.head.numpy(), facts.relation.numpy(), facts.tail.numpy(), facts.target.numpy()),
                *(_views(tables) for tables in (self._parameters, self._first, self._second, self._memory)),
                self._gradients,
                self._values.numpy(),
                np.array(real, np.float64),
                np.array(whole, np.int64),
                np.array(streams, np.uint64),
                (self.data.n_entities, self.data.n_relations),
                self._known,
                self._soft,
                self.data.softlogic.target.numpy(),
                *more,
                losses,
            )
        finally:  # an interrupted training leaves it as it was, too
            numba.set_num_threads(threads)
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad) and int(self.first_bad) < 0:
            self.first_bad.fill_(int(self.step) + int(bad[0]))
        self.step += self.steps
        return torch.tensor([losses.mean()])

    def _distmult(self, epoch: int) -> tuple[Any, list[float], list[int], list[int], list[Any]]:
        """The kernel of `ukge`, `ukge-rect` and `passleaf`, its settings, its streams and its own arguments."""
        import unkgcp.training.distmult_kernels as distmult_kernels

        config = self.config
        share = share_at(config, epoch) if config.uses_pool else 0.0
        real = [config.negative_weight, config.regularization, config.softlogic_weight, share, self._quantile]
        inserts = config.uses_pool and epoch >= config.pool_from
        whole = [config.drawn_negatives, config.model == "ukge-rect", inserts, config.filter_negatives]
        purposes = [randomness.NEGATIVE, randomness.SOFTLOGIC, randomness.POOL_CHOICE, randomness.POOL_DRAW]
        pool = [self.pool.triples[0].numpy(), self.pool.scores[0].numpy()]
        return distmult_kernels.run_epoch, real, whole, purposes, pool

    def _boxes(self) -> tuple[Any, list[float], list[int], list[int], list[Any]]:
        """The kernel of `beurre`, its settings, its streams and its own arguments."""
        from unkgcp.training import box_kernels

        config = self.config
        real = [config.negative_weight, config.regularization, config.softlogic_weight, self._quantile]
        real += [config.side_regularization, config.box_regularization, config.logic_weight]
        whole = [config.drawn_negatives, config.filter_negatives]
        purposes = [randomness.NEGATIVE, randomness.SOFTLOGIC, randomness.COMPOSITION]
        rules = [self._transitive, self._rule_gradient, *self._compositions]
        return box_kernels.run_epoch, real, whole, purposes, rules

    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides how training goes on, by name."""
        state = {"step": self.step, "first_bad": self.first_bad}
        parts = {"table": self._parameters, "first": self._first, "second": self._second}
        if self.config.momentum:
            parts["memory"] = self._memory
        for part, tables in parts.items():
            state |= {f"{part}.{kind}": table for kind, table in tables.items()}
        return state | self.pool.state() if self.config.uses_pool else state


def _zeros(*shape: int) -> Tensor:
    """Zeros that begin at a line of the processor's cache, so that rows take no more lines than they must.

    NumPy allocates the memory, because it uses large pages where the system has them, in which random rows are found
    faster.
    """
    room = np.zeros(math.prod(shape) + LINE, np.float32)
    begin = -room.ctypes.data % (4 * LINE) // 4
    return torch.from_numpy(room[begin : begin + math.prod(shape)].reshape(shape))


def _views(tables: dict[str, Tensor]) -> tuple[NDArray[np.float32], ...]:
    return tuple(table[0].numpy() for table in tables.values())


def _key_set(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    size = 1 << max(4, (2 * len(keys)).bit_length())
    table = np.full(size, -1, np.int64)
    fill_set(keys, table)
    return table


def _arrays(rules: tuple[Composition, ...]) -> list[NDArray[np.int64]]:
    """Relations of each rule (c, 3); then the heads of all rules with the end of each rule's part; then the tails."""
    relations = np.array([[rule.first, rule.second, rule.implied] for rule in rules], np.int64).reshape(-1, 3)
    arrays = [relations]
    for ids in ([rule.heads.numpy() for rule in rules], [rule.tails.numpy() for rule in rules]):
        arrays.append(np.concatenate([np.zeros(0, np.int64), *ids]))
        arrays.append(np.cumsum([len(part) for part in ids], dtype=np.int64))
    return arrays
