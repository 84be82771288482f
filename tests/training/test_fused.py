"""The fused GPU kernels against the autograd terms: same loss, same gradients, same random numbers.

They run on the GPU where there is one, and in Triton's interpreter elsewhere.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.rounding import apart, assert_within, training_apart
from tests.worlds import random_graph, vocabulary
from unkgcp.graph import Graph
from unkgcp.training import Member, config_for
from unkgcp.training.batches import TrainingData
from unkgcp.training.fused_engine import FusedEngine
from unkgcp.training.torch_engine import TorchEngine

INTERPRETED = not torch.cuda.is_available()
if INTERPRETED:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton looks at it when it is imported first
triton = pytest.importorskip(
    "triton",
    minversion="3.2" if INTERPRETED else None,
    reason="without a GPU these tests need Triton's interpreter, 3.2 or later (Linux on x86-64): pip install triton",
)
if INTERPRETED and triton.__version__ < "3.7" and np.__version__ >= "2.5":
    pytest.skip("before 3.7 Triton's interpreter needs NumPy below 2.5", allow_module_level=True)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def graph(n: int, seed: int) -> Graph:
    return random_graph(n, vocabulary(12, 3), seed)


CASES = {
    "ukge": {},
    "ukge unfiltered": {"filter_negatives": False},
    "passleaf 0": {},
    "passleaf 1": {},
    "passleaf 2": {},
    "ukge-rect": {"regularization": 0.01},
    "ukge quantile": {"quantile": 0.05, "negatives": 0},
    "beurre": {"negatives": 5, "momentum": 0.0},
    "beurre transitive": {"negatives": 2, "transitive": ("r1", "r2")},
    "beurre quantile": {"negatives": 0, "quantile": 0.95},
}


@pytest.mark.parametrize("case", CASES)
def test_fused_batch_equals_the_autograd_terms(case: str) -> None:
    phase = int(case.split()[1]) if case.startswith("passleaf") else 0
    options = {"negatives": 3, "dimension": 20, "batch_size": 16, **CASES[case]}
    config = replace(config_for(case.split()[0]), **options)
    members = [Member(0, config.quantile), Member(7, config.quantile and 0.5)]
    config = replace(config, pool_from=2, pool_train_from=3, pool_growth=0.4, pool_size=64)
    softlogic = None if config.model == "beurre" else graph(9, 1)
    data = TrainingData.of(graph(40, 0), softlogic, config, DEVICE)
    engine = FusedEngine(data, config, members, DEVICE)
    noise = torch.Generator().manual_seed(3)
    engine.flat += 0.3 * torch.randn(engine.flat.shape, generator=noise).to(DEVICE)
    engine.pool.triples.copy_(torch.randint(0, 3, engine.pool.triples.shape, generator=noise))
    engine.pool.scores.copy_(torch.rand(engine.pool.scores.shape, generator=noise))
    engine._prepare(phase + 1)
    engine.place.fill_(2)  # the short last batch
    engine.step.fill_(5)
    before = {name: tensor.clone() for name, tensor in engine.pool.state().items()}
    batch = engine._batch()
    expected = torch.stack([term(batch) for term in TorchEngine._make_terms(engine, phase)]).sum(0)
    torch.autograd.backward(expected.sum())
    assert engine.flat.grad is not None
    gradient = engine.flat.grad.clone()
    assert (gradient != 0).any()
    engine.flat.grad.zero_()
    after = {name: tensor.clone() for name, tensor in engine.pool.state().items()}
    for name, tensor in engine.pool.state().items():
        tensor.copy_(before[name])
    loss = torch.zeros(2, device=DEVICE)
    assert engine._fused is not None
    engine._fused(loss)
    # up to 16 facts with 10 negatives are summed, each after a sum over 20 dimensions and some ten roundings more; the
    # parts of a loss are positive, and those of a gradient of the order of its largest entry
    roundings = 16 * 11 + 20 + 10
    expected = expected.detach()
    assert_within(loss.cpu(), expected.cpu(), apart(roundings, float(expected.max())))
    assert_within(engine.flat.grad.cpu(), gradient.cpu(), apart(roundings, float(gradient.abs().max())))
    for name, tensor in engine.pool.state().items():
        torch.testing.assert_close(tensor, after[name])
        assert torch.equal(tensor, before[name]) == (phase == 0)


WAITING = {
    "ukge": {"softlogic_weight": 0.2},
    "ukge quantile": {"quantile": 0.05, "negatives": 0, "batch_size": 2},
    "passleaf": {"pool_from": 0, "pool_train_from": 1, "pool_growth": 0.5, "pool_size": 16},
}


@pytest.mark.parametrize("case", WAITING)
def test_rows_that_wait_take_the_steps_of_the_dense_engine(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unkgcp.training.batches.LARGE", 10**6)  # the torch engine steps densely
    options = {"negatives": 1, "dimension": 5, "batch_size": 3, "softlogic_weight": 0.0, **WAITING[case]}
    config = replace(config_for(case.split()[0]), **options)
    members = [Member(0, config.quantile), Member(7, config.quantile and 0.5)]
    words = vocabulary(40, 2)
    softlogic = random_graph(3, words, 1) if config.softlogic_weight else None
    data = TrainingData.of(random_graph(10, words, 0), softlogic, config, DEVICE)
    lazy, dense = FusedEngine(data, config, members, DEVICE), TorchEngine(data, config, members, DEVICE)
    assert lazy.waits
    assert dense.lazy is None
    for epoch in range(2):
        # sums of few numbers, each of which has been through some twenty roundings
        assert_within(lazy.run_epoch(epoch).cpu(), dense.run_epoch(epoch).cpu(), apart(40, 1.0))
        state, expected = lazy.state(), dense.state()
        assert_within(
            state["parameters"].cpu(), expected["parameters"].cpu(), training_apart(config.learning_rate)
        )
        for name in ("step", "first_bad", "adam.step"):
            assert torch.equal(state[name].cpu(), expected[name].cpu())
        assert not lazy.flat.grad[: lazy.tables["entity"].numel()].any()  # type: ignore[index]


def test_a_long_wait_ends_where_single_steps_end() -> None:
    """300 steps without a gradient, the last hundred of which are lost in rounding and taken at once."""
    from unkgcp.training.fused_common import settle_all

    steps, rate, draws = 300, 1e-3, torch.Generator().manual_seed(0)
    count = torch.arange(1, steps + 1, dtype=torch.float64)
    sizes, roots = (rate / (1 - 0.9**count)).float(), (1 - 0.999**count).rsqrt().float()
    value, slope, first = (torch.randn(3, 8, generator=draws) for _ in range(3))
    second = torch.rand(3, 8, generator=draws)
    taken = torch.tensor([0, 295, steps], dtype=torch.int32)
    expected, m, v = value.double(), first.double(), second.double()
    for row, begin in enumerate(taken.tolist()):
        for step in range(begin, steps):
            g = slope[row].double() * (step == begin)
            m[row], v[row] = 0.9 * m[row] + 0.1 * g, 0.999 * v[row] + 0.001 * g * g
            expected[row] -= sizes[step].double() * m[row] / (v[row].sqrt() * roots[step].double() + 1e-8)
    tensors = [tensor.clone().to(DEVICE) for tensor in (value, slope, first, second, taken, sizes, roots)]
    settle_all[(3,)](*tensors, steps, WIDTH=8, COLUMNS=8, num_warps=1)
    # a rounding of the value at each step, and of each moment; the steps themselves are small beside the value
    assert_within(tensors[0].cpu(), expected, apart(steps, 3.0))
    assert_within(tensors[2].cpu(), m, apart(3 * steps, 1.0) * m.abs().clamp_min(1e-30))
    assert_within(tensors[3].cpu(), v, apart(3 * steps, 1.0) * v)
    assert torch.equal(tensors[1][2].cpu(), slope[2])
    assert not tensors[1][:2].any()
    assert not tensors[4].any()
