"""The counter-based random numbers: one definition in Python, torch and numba, and uniform."""

import torch
from scipy import stats

from unkgcp.training import randomness


def test_draws_are_uniform() -> None:
    bits = randomness.draw(torch.tensor(randomness.stream(0, randomness.NEGATIVE)), torch.arange(200_000))
    counts = torch.bincount(randomness.below(bits, 50), minlength=50).numpy()
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.kstest(randomness.unit(bits).numpy(), "uniform").pvalue > 1e-6


def test_permutations_are_permutations_and_differ() -> None:
    device = torch.device("cpu")
    first = randomness.permutations([0, 1], 0, 1000, device)
    assert (first.sort(1).values == torch.arange(1000)).all()
    assert (first[0] != first[1]).any()
    assert (first != randomness.permutations([0, 1], 1, 1000, device)).any()
    assert torch.equal(first, randomness.permutations([0, 1], 0, 1000, device))
