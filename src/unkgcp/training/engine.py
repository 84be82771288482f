"""Trains an epoch with torch: any backbone, CPU or GPU, several models at once, one process or many.

On a GPU the whole step (drawing, scoring, gradients, Adam) is captured once in a CUDA graph and replayed, so the
host only counts. With several processes each takes its share of every batch and gradients are summed.
"""

from __future__ import annotations

import copy
import shutil

import torch
from torch import Tensor

from unkgcp.backbones import Backbone, get
from unkgcp.training import randomness
from unkgcp.training.boxlogic import BoxNormTerm, CompositionTerm, TransitiveTerm
from unkgcp.training.config import TrainConfig
from unkgcp.training.data import Member, TrainingData
from unkgcp.training.lookup import Lookup
from unkgcp.training.pool import GeneratedTerm, Pool, capacity, share_at
from unkgcp.training.terms import Batch, Corruptions, FactTerm, NegativeTerm, NormTerm, SoftLogicTerm, Term

FUSED = (
    "beurre",
    "passleaf-rotate",
)  # formulas of many elementwise operations, which pay when compiled into one
EAGER_STEPS = 3  # before a capture: lazily made buffers must exist by then


class TorchEngine:
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
        self.rank, self.world = rank, world
        self.backbone = fused(get(config.model)) if config.model in FUSED else get(config.model)
        n = len(data.facts)
        self.batch_size = min(config.batch_size, n)
        self.steps = -(-n // self.batch_size)
        self.tables = initial_tables(self.backbone, data, config, members, device)
        self.gradients = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        for name, table in self.tables.items():
            table.requires_grad_(True)
            table.grad = self.gradients[name]
        self.lookup = Lookup(self.backbone, self.tables, self.gradients)
        self.rate = torch.tensor(config.learning_rate, device=device)
        self.adam = torch.optim.Adam(
            list(self.tables.values()),
            lr=self.rate if device.type == "cuda" else config.learning_rate,
            fused=True,
            capturable=device.type == "cuda",
        )
        for table in self.tables.values():
            moments = {"exp_avg": torch.zeros_like(table), "exp_avg_sq": torch.zeros_like(table)}
            self.adam.state[table] = {"step": torch.zeros((), device=device), **moments}
        self.share = torch.zeros((), device=device)
        self.pool = Pool(len(members), capacity(config, n) if config.uses_pool else 1, device)
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
        """Train on every fact once; mean loss a member: (members,), on the device."""
        self._prepare(epoch)
        captured = self.device.type == "cuda" and self.world == 1
        for i in range(self.steps):
            if not captured:
                self._step()
            elif self._graph is not None:
                self._graph.replay()
            elif i < EAGER_STEPS:
                self._on_side_stream()
            else:
                self._capture()
                self._replay()
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
        rate = learning_rate_at(self.config, epoch)
        self.rate.fill_(rate)
        if self.device.type != "cuda":
            self.adam.param_groups[0]["lr"] = rate
        self.share.fill_(share_at(self.config, epoch))
        phase = 0
        if self.config.uses_pool:
            phase = (epoch >= self.config.pool_from) + (epoch >= self.config.pool_train_from)
        if phase != self._phase:
            self._phase, self._graph = phase, None
            self._terms = self._make_terms(phase)

    def _make_terms(self, phase: int) -> list[Term]:
        config, data, members, backbone = self.config, self.data, self.members, self.backbone
        terms: list[Term] = [FactTerm(backbone, members, self.device)]
        if config.negatives and config.negative_weight:
            corruptions = Corruptions(data, members, config.negatives, config.filter_negatives)
            if phase == 0:
                terms.append(NegativeTerm(backbone, corruptions, config.negative_weight))
            else:
                terms.append(
                    GeneratedTerm(
                        backbone,
                        corruptions,
                        self.pool,
                        members,
                        config.negative_weight,
                        self.share,
                        phase == 2,
                    )
                )
        if len(data.softlogic) and config.softlogic_weight:
            terms.append(
                SoftLogicTerm(backbone, data.softlogic, members, config.softlogic_weight, self.world)
            )
        if config.regularization:
            terms.append(NormTerm(config.regularization))
        if config.model == "beurre":
            terms.append(BoxNormTerm(config.side_regularization, config.box_regularization))
            if config.logic_weight and bool(data.transitive.any()):
                terms.append(TransitiveTerm(data, config.logic_weight, self.batch_size))
            terms += [
                CompositionTerm(rule, members, config.logic_weight, self.batch_size, self.world)
                for rule in data.compositions
                if config.logic_weight
            ]
        return terms

    def _batch(self) -> Batch:
        rows = self.order.index_select(0, self.place)[0]
        count = (rows >= 0).sum(1, keepdim=True)
        rows = rows[:, self.columns]
        weight = (rows >= 0) / count
        rows = rows.clamp_min(0)
        facts, lookup = self.data.facts, self.lookup
        head, relation, tail = facts.head[rows], facts.relation[rows], facts.tail[rows]
        return Batch(
            head=head,
            relation=relation,
            tail=tail,
            confidence=facts.target[rows],
            weight=weight,
            position=self.start + self.place * self.batch_size + self.columns,
            step=self.step,
            lookup=lookup,
            head_rows=lookup.rows("entity", head[..., None]),
            relation_rows=lookup.rows("relation", relation[..., None]),
            tail_rows=lookup.rows("entity", tail[..., None]),
            model=lookup.model(3),
        )

    def _step(self) -> None:
        batch = self._batch()
        loss = torch.stack([term(batch) for term in self._terms]).sum(0)
        loss.sum().backward()
        if self.world > 1:
            for gradient in self.gradients.values():
                torch.distributed.all_reduce(gradient)
        self.adam.step()
        for gradient in self.gradients.values():
            gradient.mul_(self.config.momentum) if self.config.momentum else gradient.zero_()
        with torch.no_grad():
            self.loss += loss
            bad = ~torch.isfinite(loss).all() & (self.first_bad < 0)
            self.first_bad.copy_(torch.where(bad, self.step, self.first_bad))
            self.step += 1
            self.place += 1

    def _on_side_stream(self) -> None:
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def _capture(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()

    def _replay(self) -> None:
        if self._graph is not None:
            self._graph.replay()

    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides how training goes on, by name."""
        state = {f"table.{name}": table.detach() for name, table in self.tables.items()}
        for name, table in self.tables.items():
            state |= {f"adam.{name}.{key}": value for key, value in self.adam.state[table].items()}
            if self.config.momentum:
                state[f"gradient.{name}"] = self.gradients[name]
        state |= {"step": self.step, "first_bad": self.first_bad}
        return state | self.pool.state() if self.config.uses_pool else state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put a saved state in place, in the buffers that are there."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name].view_as(tensor))


def fused(backbone: Backbone) -> Backbone:
    """The backbone with its formula compiled into few passes over memory, where a compiler is at hand."""
    compiled = copy.copy(backbone)
    if torch.cuda.is_available() or shutil.which("g++") or shutil.which("clang++"):
        compiled.value = torch.compile(backbone.value, dynamic=False)  # type: ignore[method-assign]
    return compiled


def initial_tables(
    backbone: Backbone, data: TrainingData, config: TrainConfig, members: list[Member], device: torch.device
) -> dict[str, Tensor]:
    """Fresh tables of all members, stacked: name -> (members, rows, width)."""
    each = [
        backbone.initial(data.n_entities, data.n_relations, config.dimension, member.seed)
        for member in members
    ]
    return {name: torch.stack([tables[name] for tables in each]).to(device) for name in each[0]}


def learning_rate_at(config: TrainConfig, epoch: int) -> float:
    """The learning rate of an epoch: constant, or falling in a straight line."""
    return config.learning_rate * (1.0 - config.decay * epoch / config.epochs)
