"""The compiled CPU kernels against autograd: same gradients and same training, up to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.rounding import apart, assert_within, training_apart
from tests.worlds import learnable_graph
from unkgcp.training import Member, TrainConfig, train_many
from unkgcp.training.batches import TrainingData
from unkgcp.training.compiled_engine import CompiledEngine
from unkgcp.training.torch_engine import TorchEngine

CASES = {
    "ukge": {},
    "ukge, unfiltered": {"filter_negatives": False},
    "ukge, negatives weigh less": {"negative_weight": 0.3},
    "ukge, quantile": {"quantile": 0.1, "negatives": 0},
    "ukge-rect": {"regularization": 0.01},
    "passleaf": {"pool_from": 1, "pool_train_from": 2, "pool_growth": 0.3},
}


def config_of(case: str) -> TrainConfig:
    base = TrainConfig(
        case.split(",")[0], dimension=10, batch_size=64, negatives=4, epochs=5, validate_every=5
    )
    return replace(base, **CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same_with_both_engines(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(case)
    facts, softlogic = learnable_graph(300), learnable_graph(20, seed=5)
    pair = []
    for kernel in (True, False):
        monkeypatch.setattr("unkgcp.training.trainer.has_kernel", lambda config, device, own=kernel: own)
        pair += train_many(facts, [Member(2, config.quantile)], config, softlogic=softlogic, device="cpu")
    for name, table in pair[0].parameters.items():
        assert_within(table, pair[1].parameters[name], training_apart(config.learning_rate))
    assert pair[0].history[-1]["loss"] == pytest.approx(pair[1].history[-1]["loss"], rel=1e-4)


def largest_gradients(config: TrainConfig, tables: dict[str, torch.Tensor]) -> dict[str, float]:
    """The most that the parts of a gradient add up to: the weights of all terms times the largest slope."""
    entity, relation, w, b = (tables[name].abs().double()[0] for name in ("entity", "relation", "w", "b"))
    raw = float(torch.einsum("hd,rd,td->hrt", entity, relation, entity).max())
    rectified = config.model == "ukge-rect"
    error = float(w) * raw + float(b) + 1 if rectified else 1.0
    slope = 2 * error * (1.0 if rectified else 0.25)
    slope *= 1 + config.negative_weight + config.softlogic_weight
    row = float(max(entity.max(), relation.max()))
    part = slope * float(w) * row**2 + 3 * config.regularization * row
    return {"entity": part, "relation": part, "w": slope * raw, "b": slope}


@pytest.mark.parametrize("case", CASES)
def test_one_batch_has_the_gradient_of_autograd(case: str) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    config = replace(config_of(case), batch_size=300)
    member = Member(1, config.quantile)
    facts, softlogic = learnable_graph(300), learnable_graph(20, seed=5)
    data = TrainingData.of(facts, softlogic, config, torch.device("cpu"))
    engines = (
        TorchEngine(data, config, [member], torch.device("cpu")),
        CompiledEngine(data, config, member, shards=3),
    )
    noise = torch.Generator().manual_seed(0)
    for name, table in engines[0].tables.items():
        stirred = table + 0.2 * torch.randn(table.shape, generator=noise)
        table.copy_(stirred)
        engines[1].tables[name].copy_(stirred)
    largest = largest_gradients(config, engines[0].tables)
    for engine in engines:
        engine.run_epoch(0)
    expected = engines[0].adam.state[engines[0].flat]["exp_avg"] * 10
    sizes = [table.numel() for table in engines[0].tables.values()]
    by_name = dict(zip(engines[0].tables, expected.split(sizes), strict=True))
    model = engines[1]._first["model"] * 10
    found = {
        "entity": engines[1]._first["entity"] * 10,
        "relation": engines[1]._first["relation"] * 10,
        "w": model[..., 0],
        "b": model[..., 1],
    }
    for name, gradient in found.items():
        assert float(gradient.abs().max()) > 0
        # facts with their negatives are summed, each after a sum over the dimensions and some ten roundings more
        roundings = len(facts) * (1 + 2 * config.negatives) + config.dimension + 10
        assert_within(gradient.flatten(), by_name[name], apart(roundings, largest[name]))


def test_filtered_negatives_are_never_training_facts() -> None:
    from unkgcp.training import distmult_kernels, randomness

    facts = learnable_graph(900, entities=20)
    keys = np.unique(facts.keys)
    table = np.full(4096, -1, np.int64)
    distmult_kernels.fill_set(keys, table)
    assert all(distmult_kernels.in_set(key, table) for key in keys)
    base = np.uint64(randomness.stream(0, randomness.NEGATIVE) & randomness.MASK)
    usable = 0
    for counter in range(400):
        fact = counter % len(facts)
        h, r, t = int(facts.head[fact]), int(facts.relation[fact]), int(facts.tail[fact])
        drawn, may_use = distmult_kernels.corrupt(base, np.uint64(counter), h, r, t, True, (20, 3), table)
        usable += may_use
        assert may_use == ((drawn * 3 + r) * 20 + t not in keys)
    assert 100 < usable <= 400
