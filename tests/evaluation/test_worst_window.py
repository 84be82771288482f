"""The worst window is exact; the figure is unbiased by the search for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unkgcp.evaluation.slices import worst_slab_coverage, worst_window


def brute_force(position: np.ndarray, inside: np.ndarray, share: float) -> float:
    values = np.unique(position)
    best = math.inf
    for i, a in enumerate(values):
        for b in values[i:]:
            chosen = (position >= a) & (position <= b)
            if chosen.sum() >= math.ceil(share * len(position)):
                best = min(best, float(inside[chosen].mean()))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_worst_window_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 40))
    position = rng.integers(0, 12, n) / 3 if seed % 2 else rng.random(n)
    inside = rng.random(n) < 0.7
    share = float(rng.uniform(0.05, 0.6))
    found, a, b = worst_window(position, inside, share)
    assert found == pytest.approx(brute_force(position, inside, share))
    chosen = (position >= a) & (position <= b)
    assert inside[chosen].mean() == pytest.approx(found)
    assert chosen.sum() >= math.ceil(share * n)


def test_finds_a_region_that_is_not_covered() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((4000, 2))
    inside = x[:, 0] > 0.15
    assert worst_slab_coverage(x, inside, share=0.1, rng=np.random.default_rng(2)) < 0.2


def test_even_coverage_stays_near_the_level() -> None:
    # the same search on the same rows would report about 0.84 here: half the rows judge what the others found
    values = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values.append(worst_slab_coverage(rng.random((2000, 3)), rng.random(2000) < 0.9, share=0.2, rng=rng))
    assert abs(np.mean(values) - 0.9) < 4 * 0.3 / math.sqrt(20 * 200)
