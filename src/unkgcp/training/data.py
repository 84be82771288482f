"""What a training step reads: facts, soft logic and known keys as tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.training.config import TrainConfig


@dataclass(frozen=True)
class Member:
    """One model of a run: its seed, and its quantile if it learns one."""

    seed: int = 0
    quantile: float | None = None


@dataclass(frozen=True)
class Triples:
    """Triples with a target each: head, relation, tail (n,) int64 and target (n,) float32."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.target)

    @classmethod
    def of(cls, graph: Graph, device: torch.device) -> Triples:
        ids = (
            torch.from_numpy(column.astype(np.int64)) for column in (graph.head, graph.relation, graph.tail)
        )
        head, relation, tail = (column.to(device) for column in ids)
        return cls(head, relation, tail, torch.from_numpy(graph.confidence.astype(np.float32)).to(device))


@dataclass(frozen=True)
class Composition:
    """Two relations that imply a third, with the heads of the first and the tails of the second to try it on."""

    first: int
    second: int
    implied: int
    heads: Tensor
    tails: Tensor


@dataclass(frozen=True)
class TrainingData:
    """Everything a step reads, on one device."""

    facts: Triples
    softlogic: Triples
    known: Tensor  # sorted keys of the training facts, (k,) int64
    n_entities: int
    n_relations: int
    transitive: Tensor  # (n_relations,) bool
    compositions: tuple[Composition, ...]

    @classmethod
    def of(
        cls, facts: Graph, softlogic: Graph | None, config: TrainConfig, device: torch.device
    ) -> TrainingData:
        if softlogic is not None and softlogic.vocabulary != facts.vocabulary:
            raise InputError("soft logic and facts have different vocabularies; read them together")
        transitive = np.zeros(facts.n_relations, dtype=bool)
        transitive[_relation_ids(facts, config.transitive)] = True
        return cls(
            facts=Triples.of(facts, device),
            softlogic=Triples.of(facts[:0] if softlogic is None else softlogic, device),
            known=torch.from_numpy(np.unique(facts.keys)).to(device),
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
    found = []
    for label in labels:
        ids = facts.vocabulary.relation_ids([label, *label.split("|")])
        if (ids < 0).all():
            raise InputError(f"the configuration names relation {label!r}, which the data do not have")
        found.append(int(ids[ids >= 0][0]))
    return found


def _composition(facts: Graph, rule: list[int], device: torch.device) -> Composition | None:
    first, second, implied = rule
    heads = facts.head[facts.relation == first].astype(np.int64)
    tails = facts.tail[facts.relation == second].astype(np.int64)
    if len(heads) == 0 or len(tails) == 0:
        return None
    return Composition(
        first, second, implied, torch.from_numpy(heads).to(device), torch.from_numpy(tails).to(device)
    )
