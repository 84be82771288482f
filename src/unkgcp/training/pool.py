"""PASSLEAF's semi-supervised samples: corrupted facts keep the score the model gave them and come back as
targets.

A ring of bounded size on the training device. Its place for a candidate follows from the candidate's position
in the run, so nothing has to be counted, and a run is the same whether or not it was interrupted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unkgcp.backbones import Backbone
from unkgcp.training import randomness
from unkgcp.training.config import TrainConfig
from unkgcp.training.data import Member
from unkgcp.training.terms import Batch, Corruptions, Streams, corrupted_values


def share_at(config: TrainConfig, epoch: int) -> float:
    """Share of pool samples among those generated in an epoch: 0, then growing evenly up to its bound."""
    growing = max(0, epoch - config.pool_train_from + 1)
    return min(config.pool_share, config.pool_growth * growing)


def capacity(config: TrainConfig, facts: int, batch_size: int) -> int:
    """Places in the ring: room for a batch, and no more than are filled before the first draw."""
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
    """Errors of the generated triples: 0 is the target of a fresh corruption, its old score that of a pool
    sample.

    `inserts`: candidates enter the pool. `draws`: pool samples take part, in the share given by the tensor
    `share`.
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

    def __call__(self, batch: Batch) -> Tensor:
        drawn, usable = self.corruptions(batch)
        value = corrupted_values(self.backbone, batch, drawn)
        counter = self.corruptions.counters(batch)
        fresh = torch.ones_like(usable)
        error = value**2 * usable
        if self.draws:
            fresh = randomness.unit(self.choice.bits(counter)) >= self.share
            error = torch.where(fresh, error, self._pool_error(batch, counter))
        self._insert(batch, counter, drawn, value.detach(), fresh & (batch.weight > 0)[..., None])
        return self.weight * (batch.weight * error.mean(-1)).sum(1)

    def _pool_error(self, batch: Batch, counter: Tensor) -> Tensor:
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

    def _insert(self, batch: Batch, counter: Tensor, drawn: Tensor, value: Tensor, fresh: Tensor) -> None:
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
