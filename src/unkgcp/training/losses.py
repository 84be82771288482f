"""Loss terms that compose: each is a function of a batch and adds one number a member.

The last argument of a term is the batch; `rules` and the engines fix the others.

First come the terms of every backbone, then PASSLEAF's pool, then the norms and rules of BEUrRE. A term never touches
the optimiser or the loop. Weights of facts in a batch add up to one over all processes, so the sum of the processes'
gradients is the gradient of the mean loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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


Term = Callable[[FactBatch], Tensor]
"""A part of the loss: (members,)."""


def fact_batch(
    data: TrainingData, lookup: Lookup, rows: Tensor, weight: Tensor, position: Tensor, step: Tensor
) -> FactBatch:
    """The batch of the facts `rows` (members, batch); those that do not count have weight 0."""
    head, relation, tail = data.facts.head[rows], data.facts.relation[rows], data.facts.tail[rows]
    return FactBatch(
        head=head,
        relation=relation,
        tail=tail,
        confidence=data.facts.target[rows],
        weight=weight,
        position=position,
        step=step,
        lookup=lookup,
        head_rows=lookup.rows("entity", head[..., None]),
        relation_rows=lookup.rows("relation", relation[..., None]),
        tail_rows=lookup.rows("entity", tail[..., None]),
        model=lookup.model(3),
    )


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


def error_of(members: list[Member], device: torch.device) -> Error:
    """What members are trained with and judged by: the pinball loss of quantile models, the squared error of others."""
    return squared_error if members[0].quantile is None else pinball(members, device)


def fact_term(backbone: Backbone, error: Error, batch: FactBatch) -> Tensor:
    """Error on the facts of the batch."""
    value = backbone.value(batch.head_rows, batch.relation_rows, batch.tail_rows, batch.model)
    return (batch.weight * error(value[..., 0], batch.confidence)).sum(1)


class Corruptions:
    """Draws `count` corrupted heads and `count` corrupted tails a fact, filtered with the training facts alone."""

    def __init__(self, data: TrainingData, members: list[Member], count: int, filtered: bool) -> None:
        self.data, self.count, self.filtered = data, count, filtered
        device = data.fact_keys.device
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
        is_fact = self._known(head, relation, tail, drawn)
        for retry in range(1, randomness.RETRIES):
            again = randomness.below(self.streams.bits(counter, retry), self.data.n_entities)
            drawn = torch.where(is_fact, again, drawn)
            is_fact = self._known(head, relation, tail, drawn)
        return drawn, ~is_fact

    def _known(self, head: Tensor, relation: Tensor, tail: Tensor, drawn: Tensor) -> Tensor:
        n, m, (heads, tails) = self.data.n_entities, self.data.n_relations, drawn.chunk(2, -1)
        relation = relation[..., None]
        keys = torch.cat(
            [(heads * m + relation) * n + tail[..., None], (head[..., None] * m + relation) * n + tails], -1
        )
        place = torch.searchsorted(self.data.fact_keys, keys).clamp_max(len(self.data.fact_keys) - 1)
        return self.data.fact_keys[place] == keys


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


def triple_values(backbone: Backbone, batch: FactBatch, triples: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Values of other triples than the batch's, by their ids (members, ...): (members, ...)."""
    head, relation, tail = triples
    rows, model = batch.lookup.rows, batch.lookup.model(head.dim())
    return backbone.value(rows("entity", head), rows("relation", relation), rows("entity", tail), model)


def softlogic_term(
    backbone: Backbone, softlogic: TripleTensors, streams: Streams, weight: float, batch: FactBatch
) -> Tensor:
    """weight max(0, target - p)^2 on one random soft-logic fact a step: its target is a lower bound."""
    chosen = randomness.below(streams.bits(batch.step[None]), len(softlogic))
    triples = softlogic.head[chosen], softlogic.relation[chosen], softlogic.tail[chosen]
    value = triple_values(backbone, batch, triples)
    return weight * torch.relu(softlogic.target[chosen] - value).square().sum(1)


def norm_term(weight: float, batch: FactBatch) -> Tensor:
    """weight (|h|^2 + |r|^2 + |t|^2) / 2 a fact (UKGE_rect)."""
    tables = [*batch.head_rows.values(), *batch.relation_rows.values(), *batch.tail_rows.values()]
    squares = torch.stack([rows.square().sum((-2, -1)) for rows in tables]).sum(0)
    return 0.5 * weight * (batch.weight * squares).sum(1)


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

    def __init__(self, members: list[Member], places: int, device: torch.device) -> None:
        self.triples = torch.zeros(len(members), places, 3, dtype=torch.int32, device=device)
        self.scores = torch.zeros(len(members), places, device=device)
        self.choice = Streams(members, randomness.POOL_CHOICE, device)
        self.place = Streams(members, randomness.POOL_DRAW, device)
        self.member = torch.arange(len(members), device=device).view(-1, 1, 1)

    def state(self) -> dict[str, Tensor]:
        return {"pool.triples": self.triples, "pool.scores": self.scores}

    def error(self, backbone: Backbone, batch: FactBatch, counter: Tensor) -> Tensor:
        """Squared errors of samples, drawn by counters (batch, slots): (members, batch, slots)."""
        place = randomness.below(self.place.bits(counter), self.scores.shape[1])
        head, relation, tail = self.triples[self.member, place].long().unbind(-1)
        value = triple_values(backbone, batch, (head, relation, tail))
        return (value - self.scores[self.member, place]).square()

    def insert(self, batch: FactBatch, counter: Tensor, drawn: Tensor, score: Tensor, fresh: Tensor) -> None:
        """Put the corruptions drawn into the ring where they are `fresh`: (members, batch, slots)."""
        place = (counter % self.scores.shape[1]).expand_as(drawn)
        heads, tails = drawn.chunk(2, -1)
        columns = [
            torch.cat([heads, batch.head[..., None].expand_as(heads)], -1),
            batch.relation[..., None].expand_as(drawn),
            torch.cat([batch.tail[..., None].expand_as(tails), tails], -1),
        ]
        old, old_score = self.triples[self.member, place], self.scores[self.member, place]
        new = torch.stack(columns, -1).to(torch.int32)
        self.triples[self.member, place] = torch.where(fresh[..., None], new, old)
        self.scores[self.member, place] = torch.where(fresh, score, old_score)


def negative_term(
    backbone: Backbone,
    corruptions: Corruptions,
    pool: Pool | None,
    weight: float,
    share: Tensor | None,
    batch: FactBatch,
) -> Tensor:
    """Mean squared errors of corrupted facts, whose target is 0; they enter the pool, if there is one.

    `share` is that of samples of the pool among the triples, whose target is their old score; without it there are
    none.
    """
    drawn, usable = corruptions(batch.head, batch.relation, batch.tail, batch.position)
    value = corrupted_values(backbone, batch, drawn)
    error = value**2 * usable
    if pool is not None:
        counter = corruptions.counters(batch.position)
        fresh = torch.ones_like(usable)
        if share is not None:
            fresh = randomness.unit(pool.choice.bits(counter)) >= share
            error = torch.where(fresh, error, pool.error(backbone, batch, counter))
        score = backbone.squash(value.detach())
        pool.insert(batch, counter, drawn, score, fresh & (batch.weight > 0)[..., None])
    return weight * (batch.weight * error.mean(-1)).sum(1)


# BEUrRE: norms keep boxes small, and rules move relations but not entities.

PAIRS = 256  # entity pairs on which a composition is tried in a step


def rules(
    data: TrainingData, config: TrainConfig, members: list[Member], batch_size: int, world: int = 1
) -> list[Term]:
    """The terms of BEUrRE's rules; none for other models."""
    weight = config.logic_weight / batch_size
    if config.model != "beurre" or not weight:
        return []
    terms: list[Term] = [partial(transitive_term, data.transitive, weight)] if data.transitive.any() else []
    streams = Streams(members, randomness.COMPOSITION, data.transitive.device)
    return terms + [partial(composition_term, rule, streams, weight / world) for rule in data.compositions]


def box_norm_term(side: float, other: float, batch: FactBatch) -> Tensor:
    """Norm of the side lengths x `side`, and of corners, shifts and scales x `other`, mean over the facts."""
    total = torch.zeros_like(batch.weight)
    for rows in (batch.head_rows, batch.tail_rows):
        total = total + side * vector_norm(entity_box(rows).side, dim=-1)[..., 0]
        total = total + other * vector_norm(rows["low"], dim=-1)[..., 0]
    for table in batch.relation_rows.values():
        total = total + other * vector_norm(table, dim=-1)[..., 0]
    return (batch.weight * total).sum(1)


def transitive_term(transitive: Tensor, weight: float, batch: FactBatch) -> Tensor:
    """For facts of transitive relations the head's box should cover the tail's: weight |1 - P|."""
    head, tail = _detached(batch.head_rows), _detached(batch.tail_rows)
    share = contained(head_box(head, batch.relation_rows), tail_box(tail, batch.relation_rows))[..., 0]
    return weight * _norm((1 - share) * (transitive[batch.relation] & (batch.weight > 0)))


def composition_term(rule: Composition, streams: Streams, weight: float, batch: FactBatch) -> Tensor:
    """The map of r1, then that of r2, should put a box where r3 puts it; tried on heads of r1 and tails of r2."""
    bits = streams.bits(batch.step * (2 * PAIRS) + torch.arange(2 * PAIRS, device=rule.heads.device))
    relation = batch.lookup.rows("relation", rule.relations.expand(len(bits), 3))
    loss = torch.zeros(len(bits), device=bits.device)
    for side, ids, part in zip(("head", "tail"), (rule.heads, rule.tails), bits.chunk(2, 1), strict=True):
        tried = ids[randomness.below(part, len(ids))]
        start = entity_box(_detached(batch.lookup.rows("entity", tried)))
        shift, scale = (relation[f"{side}_{name}"][:, :, None].unbind(1) for name in ("shift", "scale"))
        composed = transformed(transformed(start, shift[0], scale[0]), shift[1], scale[1])
        loss = loss + _mismatch(composed, transformed(start, shift[2], scale[2]))
    return weight * loss


def _mismatch(first: Box, second: Box) -> Tensor:
    shared = log_volume(intersection_side(first, second))
    shares = (torch.exp((shared - log_volume(box.side)).clamp_max(0.0)) for box in (first, second))
    return torch.stack([_norm(1 - share) for share in shares]).sum(0)


def _detached(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: table.detach() for name, table in rows.items()}


def _norm(values: Tensor) -> Tensor:
    """Euclidean norm a member; 1e-12 under the root keeps its gradient finite at 0."""
    return torch.sqrt(values.square().sum(1) + 1e-12)
