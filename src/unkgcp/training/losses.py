"""Loss terms that compose: each is a function of a batch and adds one number a member.

First come the terms of every backbone, then PASSLEAF's pool, then the norms and rules of BEUrRE. A term never touches
the optimiser or the loop. Weights of facts in a batch add up to one over all processes, so the sum of the processes'
gradients is the gradient of the mean loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.linalg import vector_norm

import unkgcp.training.randomness as randomness
from unkgcp.backbones import Backbone
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
from unkgcp.training.batches import Composition, Lookup, TrainingData, TripleTensors
from unkgcp.training.config import Member, TrainConfig


@dataclass(frozen=True)
class FactBatch:
    """One step's facts: ids, confidence and weight (members, batch), and their rows (members, batch, 1, width)."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    confidence: Tensor
    weight: Tensor
    position: Tensor  # (batch,) int64: the place of each fact in the run, from which random numbers are drawn
    step: Tensor  # () int64
    lookup: Lookup
    head_rows: dict[str, Tensor]
    relation_rows: dict[str, Tensor]
    tail_rows: dict[str, Tensor]
    model: dict[str, Tensor]


class Term(Protocol):
    """A part of the loss."""

    def __call__(self, batch: FactBatch) -> Tensor: ...  # (members,)


class Streams:
    """The members' random streams for one purpose."""

    def __init__(self, members: list[Member], purpose: int, device: torch.device, retries: int = 1) -> None:
        bases = [[randomness.stream(member.seed, purpose) + k for member in members] for k in range(retries)]
        self.bases = torch.tensor(bases, device=device)

    def bits(self, counter: Tensor, retry: int = 0) -> Tensor:
        """Random bits for counters (...) that all members share: (members, ...)."""
        return randomness.draw(self.bases[retry].view(-1, *(1,) * counter.dim()), counter[None])


Error = Callable[[Tensor, Tensor], Tensor]  # of values and targets, element by element


def squared_error(value: Tensor, target: Tensor) -> Tensor:
    return (value - target) ** 2


def pinball(members: list[Member], device: torch.device) -> Error:
    """tau max(c - p, 0) + (1 - tau) max(p - c, 0), tau of each member."""
    tau = torch.tensor([[member.quantile or 0.0] for member in members], device=device)
    return lambda value, target: torch.maximum(tau * (target - value), (1 - tau) * (value - target))


class FactTerm:
    """Error on the facts of the batch: squared, or the pinball loss for quantile models."""

    def __init__(self, backbone: Backbone, members: list[Member], device: torch.device) -> None:
        self.backbone = backbone
        self.error = squared_error if members[0].quantile is None else pinball(members, device)

    def __call__(self, batch: FactBatch) -> Tensor:
        value = self.backbone.value(batch.head_rows, batch.relation_rows, batch.tail_rows, batch.model)
        return (batch.weight * self.error(value[..., 0], batch.confidence)).sum(1)


class Corruptions:
    """Draws `count` corrupted heads and `count` corrupted tails a fact, filtered with the training facts alone."""

    def __init__(self, data: TrainingData, members: list[Member], count: int, filtered: bool) -> None:
        self.data, self.count, self.filtered = data, count, filtered
        device = data.known.device
        self.streams = Streams(members, randomness.NEGATIVE, device, randomness.RETRIES)
        self.slots = torch.arange(2 * count, device=device)

    def counters(self, position: Tensor) -> Tensor:
        """(batch, 2 count)."""
        return position[:, None] * (2 * self.count) + self.slots

    def __call__(
        self, head: Tensor, relation: Tensor, tail: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Entities (members, batch, 2 count), the heads first, and whether each may be used.

        For facts (members, batch) with these places in the run (batch,).
        """
        counter = self.counters(position)
        drawn = randomness.below(self.streams.bits(counter), self.data.n_entities)
        if not self.filtered:
            return drawn, torch.ones_like(drawn, dtype=torch.bool)
        known = self._known(head, relation, tail, drawn)
        for retry in range(1, randomness.RETRIES):
            again = randomness.below(self.streams.bits(counter, retry), self.data.n_entities)
            drawn = torch.where(known, again, drawn)
            known = self._known(head, relation, tail, drawn)
        return drawn, ~known

    def _known(self, head: Tensor, relation: Tensor, tail: Tensor, drawn: Tensor) -> Tensor:
        n, m, (heads, tails) = self.data.n_entities, self.data.n_relations, drawn.chunk(2, -1)
        relation = relation[..., None]
        keys = torch.cat(
            [(heads * m + relation) * n + tail[..., None], (head[..., None] * m + relation) * n + tails], -1
        )
        place = torch.searchsorted(self.data.known, keys).clamp_max(len(self.data.known) - 1)
        return self.data.known[place] == keys


class NegativeTerm:
    """Mean squared value of corrupted facts, whose target is 0."""

    def __init__(self, backbone: Backbone, corruptions: Corruptions, weight: float) -> None:
        self.backbone, self.corruptions, self.weight = backbone, corruptions, weight

    def __call__(self, batch: FactBatch) -> Tensor:
        drawn, usable = self.corruptions(batch.head, batch.relation, batch.tail, batch.position)
        value = corrupted_values(self.backbone, batch, drawn)
        return self.weight * (batch.weight * (value**2 * usable).mean(-1)).sum(1)


def corrupted_values(backbone: Backbone, batch: FactBatch, drawn: Tensor) -> Tensor:
    """Values of the batch's facts with each drawn entity put in place: (members, batch, 2 count)."""
    heads, tails = drawn.chunk(2, -1)
    rows = batch.lookup.rows
    return torch.cat(
        [
            backbone.value(rows("entity", heads), batch.relation_rows, batch.tail_rows, batch.model),
            backbone.value(batch.head_rows, batch.relation_rows, rows("entity", tails), batch.model),
        ],
        -1,
    )


class SoftLogicTerm:
    """weight max(0, target - p)^2 on one random soft-logic fact a step: its target is a lower bound."""

    def __init__(
        self,
        backbone: Backbone,
        softlogic: TripleTensors,
        members: list[Member],
        weight: float,
        world: int = 1,
    ) -> None:
        self.backbone, self.softlogic, self.weight = backbone, softlogic, weight / world
        self.streams = Streams(members, randomness.SOFTLOGIC, softlogic.target.device)

    def __call__(self, batch: FactBatch) -> Tensor:
        chosen = randomness.below(self.streams.bits(batch.step[None]), len(self.softlogic))
        rows, soft = batch.lookup.rows, self.softlogic
        value = self.backbone.value(
            rows("entity", soft.head[chosen]),
            rows("relation", soft.relation[chosen]),
            rows("entity", soft.tail[chosen]),
            batch.lookup.model(2),
        )
        return self.weight * torch.relu(soft.target[chosen] - value).square().sum(1)


class NormTerm:
    """weight (|h|^2 + |r|^2 + |t|^2) / 2 a fact (UKGE_rect)."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, batch: FactBatch) -> Tensor:
        tables = [*batch.head_rows.values(), *batch.relation_rows.values(), *batch.tail_rows.values()]
        squares = torch.stack([rows.square().sum((-2, -1)) for rows in tables]).sum(0)
        return 0.5 * self.weight * (batch.weight * squares).sum(1)


# PASSLEAF: corrupted facts enter a pool with the score that the model gave them, and later come back with that score as
# their target.


def share_at(config: TrainConfig, epoch: int) -> float:
    """Share of pool samples among those generated in an epoch: 0, then growing evenly up to its bound."""
    growing = max(0, epoch - config.pool_train_from + 1)
    return min(config.pool_share, config.pool_growth * growing)


def capacity(config: TrainConfig, facts: int, batch_size: int) -> int:
    """Places in the pool, a ring: room for a batch, and no more than are filled before the first draw; 1 if unused."""
    if not config.uses_pool:
        return 1
    filled = (config.pool_train_from - config.pool_from) * facts * 2 * config.negatives
    return max(1, batch_size * 2 * config.negatives, min(config.pool_size, filled))


class Pool:
    """Triples with the score they had when they entered: (members, places, 3) int32 and (members, places)."""

    def __init__(self, members: int, places: int, device: torch.device) -> None:
        self.triples = torch.zeros(members, places, 3, dtype=torch.int32, device=device)
        self.scores = torch.zeros(members, places, device=device)

    def state(self) -> dict[str, Tensor]:
        return {"pool.triples": self.triples, "pool.scores": self.scores}


class GeneratedTerm:
    """Errors of generated triples: the target of a fresh corruption is 0, that of a pool sample is its old score.

    Fresh corruptions enter the pool. `draws`: pool samples take part, in the share that the tensor `share` holds.
    """

    def __init__(
        self,
        backbone: Backbone,
        corruptions: Corruptions,
        pool: Pool,
        members: list[Member],
        weight: float,
        share: Tensor,
        draws: bool,
    ) -> None:
        self.backbone, self.corruptions, self.pool = backbone, corruptions, pool
        self.weight, self.share, self.draws = weight, share, draws
        self.choice = Streams(members, randomness.POOL_CHOICE, share.device)
        self.place = Streams(members, randomness.POOL_DRAW, share.device)
        self.member = torch.arange(len(members), device=share.device).view(-1, 1, 1)

    def __call__(self, batch: FactBatch) -> Tensor:
        drawn, usable = self.corruptions(batch.head, batch.relation, batch.tail, batch.position)
        value = corrupted_values(self.backbone, batch, drawn)
        counter = self.corruptions.counters(batch.position)
        fresh = torch.ones_like(usable)
        error = value**2 * usable
        if self.draws:
            fresh = randomness.unit(self.choice.bits(counter)) >= self.share
            error = torch.where(fresh, error, self._pool_error(batch, counter))
        self._insert(batch, counter, drawn, value.detach(), fresh & (batch.weight > 0)[..., None])
        return self.weight * (batch.weight * error.mean(-1)).sum(1)

    def _pool_error(self, batch: FactBatch, counter: Tensor) -> Tensor:
        place = randomness.below(self.place.bits(counter), self.pool.scores.shape[1])
        triples = self.pool.triples[self.member, place].long()
        rows = batch.lookup.rows
        value = self.backbone.value(
            rows("entity", triples[..., 0]),
            rows("relation", triples[..., 1]),
            rows("entity", triples[..., 2]),
            batch.model,
        )
        return (value - self.pool.scores[self.member, place]).square()

    def _insert(self, batch: FactBatch, counter: Tensor, drawn: Tensor, value: Tensor, fresh: Tensor) -> None:
        place = (counter % self.pool.scores.shape[1]).expand_as(drawn)
        heads, tails = drawn.chunk(2, -1)
        new = torch.stack(
            [
                torch.cat([heads, batch.head[..., None].expand_as(heads)], -1),
                batch.relation[..., None].expand_as(drawn),
                torch.cat([batch.tail[..., None].expand_as(tails), tails], -1),
            ],
            -1,
        ).to(torch.int32)
        old, old_score = self.pool.triples[self.member, place], self.pool.scores[self.member, place]
        self.pool.triples[self.member, place] = torch.where(fresh[..., None], new, old)
        self.pool.scores[self.member, place] = torch.where(fresh, self.backbone.squash(value), old_score)


# BEUrRE: norms keep boxes small, and rules move relations but not entities.

PAIRS = 256  # entity pairs on which a composition is tried in a step


class BoxNormTerm:
    """Norm of the side lengths x `side`, and of corners, shifts and scales x `other`, mean over the facts."""

    def __init__(self, side: float, other: float) -> None:
        self.side, self.other = side, other

    def __call__(self, batch: FactBatch) -> Tensor:
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

    def __call__(self, batch: FactBatch) -> Tensor:
        head, tail = _detached(batch.head_rows), _detached(batch.tail_rows)
        share = contained(head_box(head, batch.relation_rows), tail_box(tail, batch.relation_rows))[..., 0]
        counts = self.transitive[batch.relation] & (batch.weight > 0)
        return self.weight * _norm((1 - share) * counts)


class CompositionTerm:
    """The map of r1, then that of r2, should put a box where r3 puts it; tried on heads of r1 and tails of r2."""

    def __init__(
        self, rule: Composition, members: list[Member], weight: float, batch_size: int, world: int
    ) -> None:
        self.rule, self.weight = rule, weight / batch_size / world
        device = rule.heads.device
        self.streams = Streams(members, randomness.COMPOSITION, device)
        self.slots = torch.arange(2 * PAIRS, device=device)
        self.relations = torch.tensor([rule.first, rule.second, rule.implied], device=device)

    def __call__(self, batch: FactBatch) -> Tensor:
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
