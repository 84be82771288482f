"""The fused GPU kernels against the autograd terms: same loss, same gradients, same random numbers.

They run where there is a GPU, or anywhere in Triton's interpreter (TRITON_INTERPRET=1).
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import Member, config_for
from unkgcp.training.batches import TrainingData
from unkgcp.training.fused_engine import FusedEngine
from unkgcp.training.torch_engine import TorchEngine

pytest.importorskip("triton", reason="Triton is not installed")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("no GPU; TRITON_INTERPRET=1 runs these tests on the CPU", allow_module_level=True)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def graph(n: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary.of([f"e{i}" for i in range(12)], [f"r{i}" for i in range(3)])
    head, tail = (rng.integers(12, size=n, dtype=np.int32) for _ in range(2))
    return Graph(head, rng.integers(3, size=n, dtype=np.int32), tail, rng.random(n), vocabulary)


CASES = {
    "ukge": {},
    "ukge unfiltered": {"filter_negatives": False},
    "passleaf 0": {},
    "passleaf 1": {},
    "passleaf 2": {},
    "ukge-rect": {"regularization": 0.01},
    "ukge quantile": {"quantile": 0.05, "negatives": 0},
    "beurre": {"negatives": 5, "momentum": 0.0},
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
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(engine.flat.grad, gradient, rtol=1e-4, atol=1e-6)
    for name, tensor in engine.pool.state().items():
        torch.testing.assert_close(tensor, after[name])
        assert torch.equal(tensor, before[name]) == (phase == 0)
