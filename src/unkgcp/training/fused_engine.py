"""The torch engine with facts, negatives, norms, soft logic and PASSLEAF's pool in one kernel, on a GPU with Triton."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from unkgcp.training import randomness
from unkgcp.training.batches import TrainingData
from unkgcp.training.config import DISTMULT, TrainConfig
from unkgcp.training.losses import Term
from unkgcp.training.torch_engine import TorchEngine

Launch = Callable[[Tensor], None]


def has_kernel(config: TrainConfig, data: TrainingData) -> bool:
    """Whether there is a fused kernel for this model, and Triton to compile it."""
    if find_spec("triton") is None:
        return False
    if config.model in DISTMULT:
        return True
    soft = len(data.softlogic) and config.softlogic_weight
    return config.model == "beurre" and not config.regularization and not soft


class FusedEngine(TorchEngine):
    """As `TorchEngine`, of one process; autograd is left with BEUrRE's rules. Its steps are dense."""

    def _lazy_tables(self, tables: dict[str, Tensor]) -> None:
        return None

    def _make_terms(self, phase: int) -> list[Term]:
        self._fused = self._boxes() if self.config.model == "beurre" else self._bilinear(phase)
        return self._box_logic()

    def _arguments(self) -> list[Any]:
        """The first arguments of both kernels: a batch, the tables in the backbone's order, and negatives."""
        facts, known = self.data.facts, self.data.known
        taus = torch.tensor([member.quantile or 0.0 for member in self.members], device=self.device)
        batch = [self.order, self.place, self.start, len(facts)]
        batch += [facts.head, facts.relation, facts.tail, facts.target, taus]
        # steps of the search among known facts; 0 leaves the filter out
        rounds = len(known).bit_length() + 1 if self.config.filter_negatives else 0
        negatives = [self._bases(randomness.NEGATIVE), known, len(known), rounds]
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

        def launch(loss: Tensor) -> None:
            bilinear_batch[grid](
                *arguments, triples, soft.target, len(soft), softlogic, self.step,
                pool.triples, pool.scores, places, self.share, choice, draws, fresh, values,
                loss, *sizes, config.negative_weight, config.regularization, config.softlogic_weight,
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
        weights = (config.negative_weight, config.side_regularization, config.box_regularization)

        def launch(loss: Tensor) -> None:
            box_batch[(sizes[0] * sizes[1],)](*arguments, loss, *sizes, *weights, **constants)

        return launch

    def _constants(self) -> dict[str, Any]:
        """What both kernels are compiled for."""
        config = self.config
        count = config.negatives if config.negative_weight else 0
        lanes = _power(max(count, 1))
        return {
            "COUNT": count,
            "LANES": lanes,
            "WIDTH": config.dimension,
            "COLUMNS": _power(config.dimension),
            "RETRIES": randomness.RETRIES,
            "QUANTILE": self.members[0].quantile is not None,
            "num_warps": 4 if config.dimension * lanes <= 4096 else 8,
        }

    def _bases(self, purpose: int) -> Tensor:
        streams = [randomness.stream(member.seed, purpose) for member in self.members]
        return torch.tensor(streams, device=self.device)


def _power(value: int) -> int:
    """The smallest power of two that is not below `value`."""
    return 1 << max(0, value - 1).bit_length()
