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
def test_fused_batch_has_the_loss_and_gradient_of_autograd(case: str) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    phase = int(case.split()[1]) if case.startswith("passleaf") else 0
    options = {"negatives": 3, "dimension": 20, "batch_size": 16, "momentum": 0.0, **CASES[case]}
    config = replace(config_for(case.split()[0]), **options)
    config = replace(config, pool_from=2, pool_train_from=3, pool_growth=0.4, pool_size=64)
    members = [Member(0, config.quantile), Member(7, config.quantile and 0.5)]
    softlogic = None if config.model == "beurre" else graph(9, 1)
    data = TrainingData.of(graph(13, 0), softlogic, config, DEVICE)
    losses, gradients, pools = [], [], []
    for engine in (kind(data, config, members, DEVICE) for kind in (FusedEngine, TorchEngine)):
        noise = torch.Generator().manual_seed(3)
        engine.flat += 0.3 * torch.randn(engine.flat.shape, generator=noise).to(DEVICE)
        engine.pool.triples.copy_(torch.randint(0, 3, engine.pool.triples.shape, generator=noise))
        engine.pool.scores.copy_(torch.rand(engine.pool.scores.shape, generator=noise))
        before = engine.pool.scores.clone()
        losses.append(engine.run_epoch(phase + 1).cpu())
        gradients.append(10 * engine.state()["adam.exp_avg"].cpu())
        pools.append(engine.pool)
    # up to 13 facts with 10 negatives are summed, each after a sum over 20 dimensions and some ten roundings more; the
    # parts of a loss are positive, and those of a gradient of the order of its largest entry
    roundings = 13 * 11 + 20 + 10
    assert_within(losses[0], losses[1], apart(roundings, float(losses[1].max())))
    assert_within(*gradients, apart(roundings, float(gradients[1].abs().max())))
    assert torch.equal(pools[0].triples, pools[1].triples)
    torch.testing.assert_close(pools[0].scores, pools[1].scores)
    assert torch.equal(pools[1].scores, before) == (phase == 0)


STEPS = {
    "ukge": {"softlogic_weight": 0.2},
    "ukge quantile": {"quantile": 0.05, "negatives": 0, "batch_size": 2},
    "passleaf": {"pool_from": 0, "pool_train_from": 1, "pool_growth": 0.5, "pool_size": 16},
    "beurre": {"momentum": 0.9},
}


@pytest.mark.parametrize("case", STEPS)
def test_epochs_are_those_of_the_torch_engine(case: str) -> None:
    options = {"negatives": 1, "dimension": 5, "batch_size": 3, "softlogic_weight": 0.0, **STEPS[case]}
    config = replace(config_for(case.split()[0]), **options)
    # with the quantile 0.5 the gradients of two facts cancel but for rounding, and Adam makes a whole step of that
    members = [Member(0, config.quantile), Member(7, config.quantile and 0.4)]
    words = vocabulary(40, 2)
    softlogic = random_graph(3, words, 1) if config.softlogic_weight else None
    data = TrainingData.of(random_graph(10, words, 0), softlogic, config, DEVICE)
    fused, torchs = FusedEngine(data, config, members, DEVICE), TorchEngine(data, config, members, DEVICE)
    for epoch in range(2):
        # sums of few numbers, each of which has been through some twenty roundings
        assert_within(fused.run_epoch(epoch).cpu(), torchs.run_epoch(epoch).cpu(), apart(40, 1.0))
        state, expected = fused.state(), torchs.state()
        assert_within(
            state["parameters"].cpu(), expected["parameters"].cpu(), training_apart(config.learning_rate)
        )
        for name in ("step", "first_bad", "adam.step"):
            assert torch.equal(state[name].cpu(), expected[name].cpu())
