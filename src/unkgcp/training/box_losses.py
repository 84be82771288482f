"""Loss terms that only BEUrRE has: norms keep boxes small, and rules move relations but not entities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import vector_norm

import unkgcp.training.randomness as randomness
from unkgcp.backbones.beurre import (
    Box,
    contained,
    entity_box,
    head_box,
    intersection_side,
    log_volume,
    tail_box,
    transformed,
)
from unkgcp.training.batches import Composition, Member, TrainingData
from unkgcp.training.losses import Batch, Streams

PAIRS = 256  # entity pairs on which a composition is tried in a step


class BoxNormTerm:
    """Norm of the side lengths x `side`, and of corners, shifts and scales x `other`, mean over the facts."""

    def __init__(self, side: float, other: float) -> None:
        self.side, self.other = side, other

    def __call__(self, batch: Batch) -> Tensor:
        total = torch.zeros_like(batch.weight)
        for rows in (batch.head_rows, batch.tail_rows):
            total = total + self.side * vector_norm(entity_box(rows).side, dim=-1)[..., 0]
            total = total + self.other * vector_norm(rows["low"], dim=-1)[..., 0]
        for table in batch.relation_rows.values():
            total = total + self.other * vector_norm(table, dim=-1)[..., 0]
        return (batch.weight * total).sum(1)


class TransitiveTerm:
    """For facts of transitive relations the head's box should cover the tail's: weight |1 - P| / batch."""

    def __init__(self, data: TrainingData, weight: float, batch_size: int) -> None:
        self.transitive, self.weight = data.transitive, weight / batch_size

    def __call__(self, batch: Batch) -> Tensor:
        head, tail = _detached(batch.head_rows), _detached(batch.tail_rows)
        share = contained(head_box(head, batch.relation_rows), tail_box(tail, batch.relation_rows))[..., 0]
        counts = self.transitive[batch.relation] & (batch.weight > 0)
        return self.weight * _norm((1 - share) * counts)


class CompositionTerm:
    """r1 after r2 should map a box to where r3 maps it, tried on heads of r1 and tails of r2."""

    def __init__(
        self, rule: Composition, members: list[Member], weight: float, batch_size: int, world: int
    ) -> None:
        self.rule, self.weight = rule, weight / batch_size / world
        device = rule.heads.device
        self.streams = Streams(members, randomness.COMPOSITION, device)
        self.slots = torch.arange(2 * PAIRS, device=device)
        self.relations = torch.tensor([rule.first, rule.second, rule.implied], device=device)

    def __call__(self, batch: Batch) -> Tensor:
        bits = self.streams.bits(batch.step * (2 * PAIRS) + self.slots)
        head_ids = self.rule.heads[randomness.below(bits[:, :PAIRS], len(self.rule.heads))]
        tail_ids = self.rule.tails[randomness.below(bits[:, PAIRS:], len(self.rule.tails))]
        members = len(bits)
        relation = batch.lookup.rows("relation", self.relations.expand(members, 3))
        loss = torch.zeros(members, device=bits.device)
        for side, ids in (("head", head_ids), ("tail", tail_ids)):
            entity = _detached(batch.lookup.rows("entity", ids))
            maps = [
                (relation[f"{side}_shift"][:, k, None], relation[f"{side}_scale"][:, k, None])
                for k in range(3)
            ]
            start = entity_box(entity)
            loss = loss + _mismatch(
                transformed(transformed(start, *maps[0]), *maps[1]), transformed(start, *maps[2])
            )
        return self.weight * loss


def _mismatch(first: Box, second: Box) -> Tensor:
    shared = log_volume(intersection_side(first, second))
    shares = (torch.exp((shared - log_volume(box.side)).clamp_max(0.0)) for box in (first, second))
    return torch.stack([_norm(1 - share) for share in shares]).sum(0)


def _detached(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: table.detach() for name, table in rows.items()}


def _norm(values: Tensor) -> Tensor:
    """Euclidean norm a member; 1e-12 under the root keeps its gradient finite at 0."""
    return torch.sqrt(values.square().sum(1) + 1e-12)
