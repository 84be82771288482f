"""Trains an epoch with torch: any backbone, CPU or GPU, several models at once, one process or many.

On a GPU the whole step (drawing, scoring, gradients, Adam) is captured once in a CUDA graph and replayed, so that the
host only counts steps. With several processes each takes its share of every batch, and gradients are summed.
`fused_engine` is the same engine with most of the loss in one kernel.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

import unkgcp.training.randomness as randomness
from unkgcp.training.batches import Engine, Lookup, TrainingData, initial_tables
from unkgcp.training.config import Member, TrainConfig
from unkgcp.training.losses import (
    Corruptions,
    FactBatch,
    Pool,
    Streams,
    Term,
    box_norm_term,
    capacity,
    error_of,
    fact_batch,
    fact_term,
    negative_term,
    norm_term,
    rules,
    share_at,
    softlogic_term,
)

EAGER_STEPS = 3  # before a capture, so that buffers that are made at first use exist by then


class TorchEngine(Engine):
    """Parameters, optimiser and step of one run."""

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        members: list[Member],
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.data, self.config, self.members, self.device = data, config, members, device
        self.world, n = world, len(data.facts)
        self.batch_size = min(config.batch_size, n)
        self.steps = -(-n // self.batch_size)
        self.backbone, tables = initial_tables(data, config, members, device)
        # all tables lie in one flat tensor, so that there is one buffer to clear and one call of Adam
        self.flat = torch.cat([table.flatten() for table in tables.values()])
        self.flat.grad = torch.zeros_like(self.flat)
        self.tables, self.gradients = _views(self.flat, tables), _views(self.flat.grad, tables)
        self.lookup = Lookup(self.backbone, self.tables, self.gradients)
        capturable = device.type == "cuda"
        rate = torch.tensor(config.learning_rate, device=device) if capturable else config.learning_rate
        self.adam = torch.optim.Adam([self.flat], lr=rate, fused=True, capturable=capturable)
        self.adam.state[self.flat] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(self.flat),
            "exp_avg_sq": torch.zeros_like(self.flat),
        }
        self.share = torch.zeros((), device=device)
        self.pool = Pool(members, capacity(config, n, self.batch_size), device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.start = torch.zeros(1, dtype=torch.int64, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.order = torch.full((self.steps, len(members), self.batch_size), -1, device=device)
        self.loss = torch.zeros(len(members), device=device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=device)
        self.columns = torch.arange(rank, self.batch_size, world, device=device)
        self._phase = -1
        self._terms: list[Term] = []
        self._graph: torch.cuda.CUDAGraph | None = None

    def run_epoch(self, epoch: int) -> Tensor:
        self._prepare(epoch)
        captured = self.device.type == "cuda" and self.world == 1
        for i in range(self.steps):
            if captured and self._graph is None and i >= EAGER_STEPS:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                    self._step()
            if self._graph is not None:
                self._graph.replay()
            elif captured:
                self._on_side_stream()
            else:
                self._step()
        loss = self.loss / self.steps
        if self.world > 1:
            torch.distributed.all_reduce(loss)
        return loss

    def _prepare(self, epoch: int) -> None:
        n = len(self.data.facts)
        flat = torch.full((len(self.members), self.steps * self.batch_size), -1, device=self.device)
        flat[:, :n] = randomness.permutations([m.seed for m in self.members], epoch, n, self.device)
        self.order.copy_(flat.view(len(self.members), self.steps, self.batch_size).transpose(0, 1))
        self.start.fill_(epoch * n)
        self.place.zero_()
        self.loss.zero_()
        self.share.fill_(share_at(self.config, epoch))
        begun = (epoch >= self.config.pool_from) + (epoch >= self.config.pool_train_from)
        phase = begun if self.config.uses_pool else 0
        if phase != self._phase:
            self._phase, self._graph = phase, None
            self._terms = self._make_terms(phase)

    def _make_terms(self, phase: int) -> list[Term]:
        """The terms of the loss that autograd computes, in a phase of PASSLEAF's pool."""
        config, data, backbone = self.config, self.data, self.backbone
        terms: list[Term] = [partial(fact_term, backbone, error_of(self.members, self.device))]
        if config.drawn_negatives:
            drawn = Corruptions(data, self.members, config.negatives, config.filter_negatives)
            pool, share = self.pool if phase else None, self.share if phase == 2 else None
            terms.append(partial(negative_term, backbone, drawn, pool, config.negative_weight, share))
        if len(data.softlogic) and config.softlogic_weight:
            streams = Streams(self.members, randomness.SOFTLOGIC, self.device)
            weight = config.softlogic_weight / self.world
            terms.append(partial(softlogic_term, backbone, data.softlogic, streams, weight))
        if config.regularization:
            terms.append(partial(norm_term, config.regularization))
        if config.model == "beurre":
            terms.append(partial(box_norm_term, config.side_regularization, config.box_regularization))
        return terms + rules(data, config, self.members, self.batch_size, self.world)

    def _batch(self) -> FactBatch:
        """The current batch: this process's share of it."""
        rows = self.order.index_select(0, self.place)[0]
        count = (rows >= 0).sum(1, keepdim=True)
        rows = rows[:, self.columns]
        position = self.start + self.place * self.batch_size + self.columns
        return fact_batch(self.data, self.lookup, rows.clamp_min(0), (rows >= 0) / count, position, self.step)

    def _step(self) -> None:
        gradient = self.flat.grad
        assert gradient is not None
        loss = self._differentiated(self._batch())
        if self.world > 1:
            torch.distributed.all_reduce(gradient)
        self.adam.step()
        gradient.mul_(self.config.momentum) if self.config.momentum else gradient.zero_()
        self.loss += loss
        bad = ~torch.isfinite(loss).all() & (self.first_bad < 0)
        self.first_bad.copy_(torch.where(bad, self.step, self.first_bad))
        self.step += 1
        self.place += 1

    def _differentiated(self, batch: FactBatch) -> Tensor:
        """The loss of the terms (members,); their gradients are added to the buffers."""
        loss = torch.stack([term(batch) for term in self._terms]).sum(0)
        torch.autograd.backward(loss.sum())
        return loss.detach()

    def _on_side_stream(self) -> None:
        stream: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def state(self) -> dict[str, Tensor]:
        state = {"parameters": self.flat, "step": self.step, "first_bad": self.first_bad}
        state |= {f"adam.{name}": value for name, value in self.adam.state[self.flat].items()}
        if self.config.momentum and self.flat.grad is not None:
            state["gradient"] = self.flat.grad
        return state | self.pool.state() if self.config.uses_pool else state


def _views(flat: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    pieces = torch.split(flat, [table.numel() for table in like.values()])
    return {name: part.view(table.shape) for part, (name, table) in zip(pieces, like.items(), strict=True)}
