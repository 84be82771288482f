"""The torch engine with facts, negatives, norms, soft logic and PASSLEAF's pool in one kernel, on a GPU with Triton.

The kernels are in `fused_bilinear` (the DistMult family) and `fused_boxes` (BEUrRE); `fused_common` is what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unkgcp.training import randomness
from unkgcp.training.adam_rates import epoch_rates
from unkgcp.training.batches import TrainingData
from unkgcp.training.config import Member, TrainConfig
from unkgcp.training.losses import Term, rules
from unkgcp.training.torch_engine import TorchEngine

Launch = Callable[[], None]
"""Adds the loss of a batch that needs no autograd to the sums, and its gradient to the buffers or the sums."""


class FusedEngine(TorchEngine):
    """As `TorchEngine`, in one process; autograd computes BEUrRE's rules only."""

    def __init__(
        self, data: TrainingData, config: TrainConfig, members: list[Member], device: torch.device
    ) -> None:
        from unkgcp.training.fused_common import SLOTS

        super().__init__(data, config, members, device)
        self._fused: Launch | None = None
        self.rates = torch.zeros(self.steps + 1, 2, device=device)
        self.step_loss = torch.zeros_like(self.loss)
        self.sums = torch.zeros(len(members), SLOTS.value, 8, device=device)

    def run_epoch(self, epoch: int) -> Tensor:
        loss = super().run_epoch(epoch)
        self.adam.state[self.flat]["step"].fill_((epoch + 1) * self.steps)
        return loss

    def _prepare(self, epoch: int) -> None:
        super()._prepare(epoch)
        rates = epoch_rates(self.config.learning_rate, epoch * self.steps, self.steps)
        self.rates.copy_(torch.from_numpy(rates[:2].T))

    def _step(self) -> None:
        from unkgcp.training.fused_common import count_step, step_all

        assert self._fused is not None
        self._fused()
        if self._terms:
            self.step_loss += self._differentiated(self._batch())
        count_step[(1,)](
            self.sums, *list(self.gradients.values())[-2:], self.step_loss, self.loss, self.first_bad, self.step,
            self.place, len(self.members), LANES=_power(len(self.members)), WEIGHTS=self.config.model != "beurre",
        )  # fmt: skip
        state, count, size = self.adam.state[self.flat], len(self.flat), 1024
        step_all[(-(-count // size),)](
            self.flat, self.flat.grad, state["exp_avg"], state["exp_avg_sq"], self.rates, self.place,
            self.config.momentum, count, BLOCK=size,
        )  # fmt: skip

    def _make_terms(self, phase: int) -> list[Term]:
        self._fused = self._boxes() if self.config.model == "beurre" else self._bilinear(phase)
        return rules(self.data, self.config, self.members, self.batch_size)

    def _arguments(self) -> list[Any]:
        """The first arguments of both kernels: a batch, the tables in the backbone's order, and negatives."""
        facts, fact_keys = self.data.facts, self.data.fact_keys
        taus = torch.tensor([member.quantile or 0.0 for member in self.members], device=self.device)
        batch = [self.order, self.place, self.start, len(facts)]
        batch += [facts.head, facts.relation, facts.tail, facts.target, taus]
        # steps of the search among known facts; 0 leaves the filter out
        rounds = len(fact_keys).bit_length() + 1 if self.config.filter_negatives else 0
        negatives = [self._bases(randomness.NEGATIVE), fact_keys, len(fact_keys), rounds]
        return [*batch, *self.tables.values(), *self.gradients.values(), *negatives]

    def _sizes(self) -> tuple[int, int, int, int]:
        return len(self.members), self.batch_size, self.data.n_entities, self.data.n_relations

    def _bilinear(self, phase: int) -> Launch:
        """The batch of `ukge`, `ukge-rect` and `passleaf`, in a phase of its pool."""
        from unkgcp.training.fused_bilinear import bilinear_batch, pool_insert

        config, pool, facts, soft = self.config, self.pool, self.data.facts, self.data.softlogic
        arguments, sizes, constants = self._arguments(), self._sizes(), self._constants()
        triples = torch.stack([soft.head, soft.relation, soft.tail], -1).contiguous()
        streams = randomness.SOFTLOGIC, randomness.POOL_CHOICE, randomness.POOL_DRAW
        softlogic, choice, draws = (self._bases(purpose) for purpose in streams)
        grid, count, places = (sizes[0] * sizes[1],), constants["COUNT"], pool.scores.shape[1]
        staged = grid[0] * 2 * count if phase else 1
        fresh = torch.full((staged,), -1, dtype=torch.int32, device=self.device)
        values = torch.zeros(staged, device=self.device)

        def launch() -> None:
            bilinear_batch[grid](
                *arguments, triples, soft.target, len(soft), softlogic, self.step,
                pool.triples, pool.scores, places, self.share, choice, draws, fresh, values,
                self.sums, *sizes, config.negative_weight, config.regularization, config.softlogic_weight,
                RECTIFIED=config.model == "ukge-rect", PHASE=phase,
                SOFT=bool(len(soft) and config.softlogic_weight), **constants,
            )  # fmt: skip
            if phase:
                pool_insert[grid](
                    self.order, self.place, self.start, facts.head, facts.relation, facts.tail,
                    pool.triples, pool.scores, places, fresh, values, *sizes[:2],
                    COUNT=count, LANES=_power(2 * count), num_warps=1,
                )  # fmt: skip

        return launch

    def _boxes(self) -> Launch:
        """The batch of `beurre`, without its rules."""
        from unkgcp.training.fused_boxes import box_batch

        config, constants, sizes, arguments = self.config, self._constants(), self._sizes(), self._arguments()

        def launch() -> None:
            box_batch[(sizes[0] * sizes[1],)](
                *arguments, self.sums, *sizes, config.negative_weight, config.side_regularization,
                config.box_regularization, **constants,
            )  # fmt: skip

        return launch

    def _constants(self) -> dict[str, Any]:
        """The constants that both kernels are compiled with."""
        config = self.config
        count, columns = config.drawn_negatives, _power(config.dimension)
        # the fastest on an H200: a box is many numbers, for which only few programs at a time have registers
        boxes = config.model == "beurre"
        at_once, warps = (256, 2) if boxes else (1024, 4) if columns > 128 else (2048, 1)
        constants: dict[str, Any] = {
            "COUNT": count,
            "LANES": max(1, min(_power(count), at_once // columns)),
            "WIDTH": config.dimension,
            "COLUMNS": columns,
            "RETRIES": randomness.RETRIES,
            "QUANTILE": self.members[0].quantile is not None,
            "num_warps": warps,
        }
        return constants | ({"maxnreg": 128} if boxes else {})

    def _bases(self, purpose: int) -> Tensor:
        streams = [randomness.stream(member.seed, purpose) for member in self.members]
        return torch.tensor(streams, device=self.device)


def _power(value: int) -> int:
    """The smallest power of two that is not below `value`."""
    return 1 << max(0, value - 1).bit_length()
