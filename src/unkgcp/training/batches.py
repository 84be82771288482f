"""What an engine is, and what its steps read, on the device: facts, soft logic, known keys, and rows of the tables.

Rows are looked up for several models at once, and each table has one buffer to which gradients are added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unkgcp.backbones import Backbone, get, score_triples
from unkgcp.backbones.backbone import Kind
from unkgcp.backbones.ukge_passleaf import START_DEVIATION
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, distinct_keys
from unkgcp.training.config import DISTMULT, Member, TrainConfig


@dataclass(frozen=True)
class TripleTensors:
    """Triples with a target each: head, relation, tail (n,) int64 and target (n,) float32."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.target)

    @classmethod
    def of(cls, graph: Graph, device: torch.device) -> TripleTensors:
        columns = [column.astype(np.int64) for column in (graph.head, graph.relation, graph.tail)]
        columns.append(graph.confidence.astype(np.float32))
        return cls(*(torch.from_numpy(column).to(device) for column in columns))


@dataclass(frozen=True)
class Composition:
    """Two relations that imply a third (3,), with heads of the first and tails of the second to try it on."""

    relations: Tensor
    heads: Tensor
    tails: Tensor


@dataclass(frozen=True)
class TrainingData:
    """Everything a step reads, on one device."""

    facts: TripleTensors
    softlogic: TripleTensors
    fact_keys: Tensor  # sorted keys of the training facts, (k,) int64
    n_entities: int
    n_relations: int
    transitive: Tensor  # (n_relations,) bool
    compositions: tuple[Composition, ...]

    @property
    def ruled(self) -> bool:
        """Whether there are rules for BEUrRE."""
        return bool(self.compositions) or bool(self.transitive.any())

    @classmethod
    def of(
        cls, facts: Graph, softlogic: Graph | None, config: TrainConfig, device: torch.device
    ) -> TrainingData:
        if softlogic is not None and softlogic.vocabulary != facts.vocabulary:
            raise InputError("soft logic and facts have different vocabularies; read them together")
        transitive = np.zeros(facts.n_relations, dtype=bool)
        transitive[_relation_ids(facts, config.transitive)] = True
        return cls(
            facts=TripleTensors.of(facts, device),
            softlogic=TripleTensors.of(facts[:0] if softlogic is None else softlogic, device),
            fact_keys=torch.from_numpy(distinct_keys(facts.keys)).to(device),
            n_entities=facts.n_entities,
            n_relations=facts.n_relations,
            transitive=torch.from_numpy(transitive).to(device),
            compositions=tuple(
                composition
                for rule in config.compositions
                if (composition := _composition(facts, _relation_ids(facts, rule), device)) is not None
            ),
        )


def _relation_ids(facts: Graph, labels: tuple[str, ...]) -> list[int]:
    """Ids of relation labels; `a|b` means whichever of the two the data have."""
    relations = []
    for label in labels:
        ids = facts.vocabulary.relation_ids([label, *label.split("|")])
        if (ids < 0).all():
            raise InputError(f"the configuration names relation {label!r}, which the data do not have")
        relations.append(int(ids[ids >= 0][0]))
    return relations


def _composition(facts: Graph, rule: list[int], device: torch.device) -> Composition | None:
    heads = facts.head[facts.relation == rule[0]]
    tails = facts.tail[facts.relation == rule[1]]
    if len(heads) == 0 or len(tails) == 0:
        return None
    return Composition(
        *(torch.as_tensor(ids, dtype=torch.int64, device=device) for ids in (rule, heads, tails))
    )


class Engine(ABC):
    """Trains the tables (members, rows, width) of one or several models, an epoch at a time."""

    backbone: Backbone
    tables: dict[str, Tensor]
    first_bad: Tensor
    """The first step whose loss is no number, -1 as long as there is none: ()."""

    @abstractmethod
    def run_epoch(self, epoch: int) -> Tensor:
        """Train on every fact once; mean loss a member: (members,)."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides how training goes on, by name."""

    def scores(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Scores of triples given by ids (n,): (members, n)."""
        members = range(len(next(iter(self.tables.values()))))
        tables = ({name: table[i] for name, table in self.tables.items()} for i in members)
        return torch.stack([score_triples(self.backbone, member, head, relation, tail) for member in tables])


LARGE = 4  # a table is large if it has more than so many times the rows that a batch can touch


def entities_touched(config: TrainConfig, batch_size: int) -> int:
    """The most entities that a batch can touch: in facts, corruptions, pool samples and a soft-logic fact."""
    # a pool sample has two entities, and the torch engine draws a corruption in its place all the same
    return batch_size * (2 + 2 * config.drawn_negatives * (3 if config.uses_pool else 1)) + 2


def initial_tables(
    data: TrainingData, config: TrainConfig, members: list[Member], device: torch.device
) -> tuple[Backbone, dict[str, Tensor]]:
    """The backbone, and fresh tables of all members, stacked: name -> (members, rows, width)."""
    backbone, sizes = get(config.model), (data.n_entities, data.n_relations, config.dimension)
    each = [backbone.initial(*sizes, member.seed) for member in members]
    tables = {name: torch.stack([one[name] for one in each]) for name in each[0]}
    if config.model in DISTMULT:
        # a mean above 0 lets single entities and relations raise and lower a score from the first step on
        for name in ("entity", "relation"):
            tables[name] = config.start_mean + config.start_deviation / START_DEVIATION * tables[name]
    return backbone, {name: table.to(device) for name, table in tables.items()}


class _Gather(torch.autograd.Function):
    """Rows of a table (rows, width); the backward pass adds into the same rows of `buffer`.

    `anchor` is any tensor that requires a gradient: it makes autograd call `backward`, and gets no gradient itself.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: Tensor, buffer: Tensor, rows: Tensor) -> Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(rows)
        return table.index_select(0, rows.reshape(-1)).view(*rows.shape, table.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        (rows,) = ctx.saved_tensors
        buffer: Tensor = ctx.buffer
        added = gradients[0].reshape(-1, buffer.shape[1])
        if buffer.is_cuda:
            buffer.index_add_(0, rows.reshape(-1), added)
        else:
            # on the CPU index_add takes the rows one by one; this function runs in parallel
            buffer.add_(
                torch.ops.aten.embedding_dense_backward(added, rows.reshape(-1), len(buffer), -1, False)
            )
        return None, None, None, None


_gather: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _Gather.apply


class Lookup:
    """Looks up rows of each member's tables by ids of shape (members, ...). Gradients are added to `buffers`."""

    def __init__(self, backbone: Backbone, tables: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        self.kinds, self.tables = backbone.kinds, tables
        self.buffers = {name: buffer.flatten(0, -2) for name, buffer in buffers.items()}
        some = next(iter(tables.values()))
        self.members = torch.arange(some.shape[0], device=some.device)
        self.anchor = torch.zeros((), requires_grad=True)

    def rows(self, kind: Kind, ids: Tensor) -> dict[str, Tensor]:
        """Rows of all tables of one kind: (*ids.shape, width) each."""
        shape = (-1,) + (1,) * (ids.dim() - 1)
        named = {name: self.tables[name] for name, of in self.kinds.items() if of == kind}
        if not named:
            return {}
        rows = ids + self.members.view(shape) * next(iter(named.values())).shape[1]
        return {
            name: _gather(self.anchor, table.flatten(0, 1), self.buffers[name], rows)
            for name, table in named.items()
        }

    def model(self, dimensions: int) -> dict[str, Tensor]:
        """The tables of the model as a whole, shaped to broadcast against ids of `dimensions` dimensions."""
        return self.rows("model", torch.zeros_like(self.members).view(-1, *(1,) * (dimensions - 1)))
