"""Trains an epoch with the compiled kernels: one DistMult-family model on the CPU.

The same methods as `TorchEngine`, the same random numbers, the same terms; only the gradient is written by hand.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import unkgcp.training.distmult_kernels as distmult_kernels
import unkgcp.training.randomness as randomness
from unkgcp.backbones import get
from unkgcp.training.batches import Member, TrainingData, initial_tables
from unkgcp.training.config import TrainConfig, learning_rate_at
from unkgcp.training.losses import Pool, capacity, share_at


class CompiledEngine:
    """Parameters, optimiser and epoch of one model. Torch owns the memory, the kernels work on views of it."""

    def __init__(self, data: TrainingData, config: TrainConfig, member: Member, shards: int) -> None:
        self.data, self.config, self.member = data, config, member
        self.members = [member]
        device = torch.device("cpu")
        n = len(data.facts)
        self.batch_size = min(config.batch_size, n)
        self.steps = -(-n // self.batch_size)
        tables = initial_tables(get(config.model), data, config, self.members, device)
        model = torch.cat([tables.pop("w"), tables.pop("b")], -1)
        self._parameters = {"entity": tables["entity"], "relation": tables["relation"], "model": model}
        self._first = {name: torch.zeros_like(table) for name, table in self._parameters.items()}
        self._second = {name: torch.zeros_like(table) for name, table in self._parameters.items()}
        self._gradients = [
            np.zeros((shards, *table.shape[1:]), np.float32) for table in self._parameters.values()
        ]
        self.pool = Pool(1, capacity(config, n, self.batch_size) if config.uses_pool else 1, device)
        self.step = torch.zeros((), dtype=torch.int64)
        self.first_bad = torch.full((), -1, dtype=torch.int64)
        purposes = (randomness.NEGATIVE, randomness.SOFTLOGIC, randomness.POOL_CHOICE, randomness.POOL_DRAW)
        streams = [randomness.stream(member.seed, purpose) & randomness.MASK for purpose in purposes]
        self._bases = np.array(streams, np.uint64)
        self._known = _key_set(data.known.numpy()) if config.filter_negatives else np.zeros(1, np.int64) - 1
        soft = data.softlogic
        self._soft = torch.stack([soft.head, soft.relation, soft.tail], -1).numpy().astype(np.int32)

    @property
    def tables(self) -> dict[str, Tensor]:
        """Name -> (1, rows, width), as the backbone names them."""
        model = self._parameters["model"]
        return {
            "entity": self._parameters["entity"],
            "relation": self._parameters["relation"],
            "w": model[..., :1],
            "b": model[..., 1:],
        }

    def run_epoch(self, epoch: int) -> Tensor:
        """Train on every fact once; mean loss: (1,)."""
        config, facts = self.config, self.data.facts
        n = len(facts)
        order = np.full(self.steps * self.batch_size, -1, np.int64)
        order[:n] = randomness.permutations([self.member.seed], epoch, n, torch.device("cpu"))[0].numpy()
        share = share_at(config, epoch) if config.uses_pool else 0.0
        quantile = -1.0 if self.member.quantile is None else self.member.quantile
        real = [config.negative_weight, config.regularization, config.softlogic_weight, share, quantile]
        inserts = config.uses_pool and epoch >= config.pool_from
        negatives = config.negatives if config.negative_weight else 0
        whole = [negatives, config.model == "ukge-rect", inserts, config.filter_negatives]
        losses = np.zeros(self.steps)
        moments = [
            state[name][0].numpy() for name in self._parameters for state in (self._first, self._second)
        ]
        distmult_kernels.run_epoch(
            order.reshape(self.steps, self.batch_size),
            int(self.step),
            epoch * n,
            learning_rate_at(config, epoch),
            facts.head.numpy(),
            facts.relation.numpy(),
            facts.tail.numpy(),
            facts.target.numpy(),
            *(table[0].numpy() for table in self._parameters.values()),
            *moments,
            *self._gradients,
            np.array(real, np.float64),
            np.array(whole, np.int64),
            self._bases,
            (self.data.n_entities, self.data.n_relations),
            self._known,
            self._soft,
            self.data.softlogic.target.numpy(),
            self.pool.triples[0].numpy(),
            self.pool.scores[0].numpy(),
            losses,
        )
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad) and int(self.first_bad) < 0:
            self.first_bad.fill_(int(self.step) + int(bad[0]))
        self.step += self.steps
        return torch.tensor([losses.mean()])

    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides how training goes on, by name."""
        state = {"step": self.step, "first_bad": self.first_bad}
        for part, tables in (("table", self._parameters), ("first", self._first), ("second", self._second)):
            state |= {f"{part}.{name}": table for name, table in tables.items()}
        return state | self.pool.state() if self.config.uses_pool else state


def _key_set(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    size = 1 << max(4, (2 * len(keys)).bit_length())
    table = np.full(size, -1, np.int64)
    distmult_kernels.fill_set(keys, table)
    return table
