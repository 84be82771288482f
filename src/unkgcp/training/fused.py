"""Launches the fused kernels on an engine's tensors, where there is a GPU and Triton to compile them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unkgcp.training import randomness

if TYPE_CHECKING:
    from unkgcp.training.torch_engine import TorchEngine

BILINEAR = ("ukge", "ukge-rect", "passleaf")
Batch = Callable[[Tensor], None]


def fused_batch(engine: TorchEngine, phase: int) -> Batch | None:
    """A function that adds a batch's loss to a tensor (members,) and its gradient to the engine's buffers.

    It covers facts, negatives, norms, soft logic and PASSLEAF's pool, whose phase is given; None where a model or
    a machine has no fused kernel.
    """
    if engine.device.type != "cuda" or find_spec("triton") is None:
        return None
    if engine.config.model in BILINEAR:
        return bilinear(engine, phase)
    if engine.config.model == "beurre" and not engine.config.regularization:
        soft = len(engine.data.softlogic) and engine.config.softlogic_weight
        return None if soft else boxes(engine)
    return None


def bilinear(engine: TorchEngine, phase: int) -> Batch:
    """The batch of `ukge`, `ukge-rect` and `passleaf`."""
    from unkgcp.training.fused_bilinear import bilinear_batch, pool_insert

    config, data, pool = engine.config, engine.data, engine.pool
    facts, constants = _facts(engine), _constants(engine)
    soft = data.softlogic
    triples = torch.stack([soft.head, soft.relation, soft.tail], -1).contiguous()
    tables = _tables(engine, ("entity", "relation", "w", "b"))
    negative, softlogic, choice, draws = (
        _bases(engine, purpose)
        for purpose in (
            randomness.NEGATIVE,
            randomness.SOFTLOGIC,
            randomness.POOL_CHOICE,
            randomness.POOL_DRAW,
        )
    )
    sizes = (len(engine.members), engine.batch_size, data.n_entities, data.n_relations)
    grid, count = (sizes[0] * sizes[1],), constants["COUNT"]
    staged = grid[0] * 2 * count if phase else 1
    fresh = torch.full((staged,), -1, dtype=torch.int32, device=engine.device)
    values = torch.zeros(staged, device=engine.device)
    places = pool.scores.shape[1]

    def batch(loss: Tensor) -> None:
        bilinear_batch[grid](
            *facts, *tables, negative, data.known, len(data.known), _rounds(engine),
            triples, soft.target, len(soft), softlogic, engine.step,
            pool.triples, pool.scores, places, engine.share, choice, draws, fresh, values,
            loss, *sizes, config.negative_weight, config.regularization, config.softlogic_weight,
            RECTIFIED=config.model == "ukge-rect", PHASE=phase,
            SOFT=bool(len(soft) and config.softlogic_weight), **constants,
        )  # fmt: skip
        if phase:
            order, place, start, _, heads, relations, tails, *_ = facts
            pool_insert[grid](
                order, place, start, heads, relations, tails, pool.triples, pool.scores, places,
                fresh, values, *sizes[:2], COUNT=count, LANES=_power(2 * count), num_warps=1,
            )  # fmt: skip

    return batch


def boxes(engine: TorchEngine) -> Batch:
    """The batch of `beurre`, without its rules."""
    from unkgcp.training.fused_boxes import box_batch

    config, data = engine.config, engine.data
    facts, constants = _facts(engine), _constants(engine)
    tables = _tables(engine, ("low", "log_side", "head_shift", "head_scale", "tail_shift", "tail_scale"))
    negative = _bases(engine, randomness.NEGATIVE)
    sizes = (len(engine.members), engine.batch_size, data.n_entities, data.n_relations)

    def batch(loss: Tensor) -> None:
        box_batch[(sizes[0] * sizes[1],)](
            *facts, *tables, negative, data.known, len(data.known), _rounds(engine), loss, *sizes,
            config.negative_weight, config.side_regularization, config.box_regularization, **constants,
        )  # fmt: skip

    return batch


def _facts(engine: TorchEngine) -> list[Any]:
    facts = engine.data.facts
    taus = torch.tensor([member.quantile or 0.0 for member in engine.members], device=engine.device)
    columns = [facts.head, facts.relation, facts.tail, facts.target]
    return [engine.order, engine.place, engine.start, len(facts), *columns, taus]


def _constants(engine: TorchEngine) -> dict[str, Any]:
    """What both kernels are compiled for."""
    config = engine.config
    count = config.negatives if config.negative_weight else 0
    lanes = _power(max(count, 1))
    return {
        "COUNT": count,
        "LANES": lanes,
        "WIDTH": config.dimension,
        "COLUMNS": _power(config.dimension),
        "RETRIES": randomness.RETRIES,
        "QUANTILE": engine.members[0].quantile is not None,
        "num_warps": 4 if config.dimension * lanes <= 4096 else 8,
    }


def _tables(engine: TorchEngine, names: tuple[str, ...]) -> list[Tensor]:
    return [engine.tables[name] for name in names] + [engine.gradients[name] for name in names]


def _rounds(engine: TorchEngine) -> int:
    """Steps of the search among known facts; 0 leaves the filter out."""
    return len(engine.data.known).bit_length() + 1 if engine.config.filter_negatives else 0


def _bases(engine: TorchEngine, purpose: int) -> Tensor:
    streams = [randomness.stream(member.seed, purpose) for member in engine.members]
    return torch.tensor(streams, device=engine.device)


def _power(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()
