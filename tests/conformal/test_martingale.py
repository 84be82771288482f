"""The bag against its definition, score by score, and the martingale, which must be one."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.rounding import apart, assert_within
from unkgcp.conformal.martingale import BLOCK, SETTLING, Bag, Martingale

Floats = NDArray[np.float64]


def by_definition(calibration: Floats, scores: Floats, uniform: Floats) -> list[float]:
    """(#{larger} + u (#{equal} + 1)) / (n + 1), the scores before each included in the comparison."""
    before, found = list(calibration), []
    for score, u in zip(scores, uniform, strict=True):
        larger = sum(other > score for other in before)
        equal = sum(other == score for other in before)
        found.append((larger + u * (equal + 1)) / (len(before) + 1))
        before.append(score)
    return found


@given(
    st.integers(0, 2**32),
    st.integers(0, 30),
    st.integers(1, BLOCK + 40),
    st.integers(1, 12),
    st.integers(1, BLOCK + 40),
)
@settings(max_examples=40, deadline=None)
def test_equals_the_definition_however_it_is_fed(
    seed: int, calibration: int, count: int, values: int, step: int
) -> None:
    rng = np.random.default_rng(seed)
    start, scores = (rng.integers(0, values, n).astype(float) for n in (calibration, count))
    uniform = rng.random(count)
    expected = by_definition(start, scores, uniform)
    bag = Bag(start)
    parts = [bag.p_values(scores[i : i + step], uniform[i : i + step]) for i in range(0, count, step)]
    # a product, a sum and a quotient
    assert_within(np.concatenate(parts), expected, apart(3, np.array(expected), np.float64))
    assert len(bag.scores) == calibration + count


# Whatever happened before, the next uniform p-value multiplies the capital by 1 on average.


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("history", [[], [0.01] * 30, [0.3, 0.9, 0.05, 0.999] * 20])
def test_the_expected_factor_is_one(confidence: float, history: list[float]) -> None:
    martingale = Martingale(confidence)
    martingale.update(np.array(history))
    # midpoints of a fine grid, finer still towards the ends, where densities have poles
    half = np.geomspace(1e-11, 0.5, 3000)
    steps = [learner.edges for learner in martingale.learners]
    edges = np.unique(np.concatenate([[0], half, 1 - half, [1], *steps]))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    shares = _factors(martingale, middle)
    for place in range(0, len(middle), 500):
        bet = copy.deepcopy(martingale).update(middle[place : place + 1])[0]
        assert shares[place] == pytest.approx(math.exp(bet - martingale.log_capital), rel=1e-9)
    assert float(shares @ width) == pytest.approx(1, abs=1e-3)


def _factors(martingale: Martingale, p: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The factor of each possible next p-value, from the parts of the martingale."""
    jump = 1 / (martingale.size + SETTLING + 1)
    portfolio = (1 - jump) * martingale.portfolio + jump / len(martingale.portfolio)
    capitals = [math.exp(martingale.jumper) * (martingale._densities(p) @ portfolio)]
    for learner in martingale.learners:
        bins = np.searchsorted(learner.edges[1:-1], p, side="left")
        share = (learner.counts[bins] + 0.5) / (learner.counts.sum() + 0.5 * len(learner.counts))
        capitals.append(math.exp(learner.log_capital) * share / np.diff(learner.edges)[bins])
    return np.mean(capitals, axis=0) / math.exp(martingale.log_capital)


def test_fed_one_by_one_or_at_once() -> None:
    p = np.random.default_rng(0).beta(0.6, 1, 500)
    at_once, one_by_one = Martingale(), Martingale()
    path = at_once.update(p)
    steps = [one_by_one.update(p[i : i + 1])[0] for i in range(len(p))]
    np.testing.assert_allclose(path, steps, rtol=1e-12)
    assert at_once.log_largest == pytest.approx(path.max())
    assert one_by_one.log_largest == pytest.approx(path.max())
    assert at_once.p_value == pytest.approx(math.exp(-path.max()))


@pytest.mark.parametrize(("a", "b"), [(0.4, 1.0), (2.5, 1.0), (0.3, 0.3), (4.0, 4.0)])
@pytest.mark.parametrize("before", [0, 5_000])
def test_finds_shapes_early_and_late(a: float, b: float, before: int) -> None:
    rng = np.random.default_rng(2)
    martingale = Martingale()
    assert martingale.update(rng.random(before)).max(initial=0) < math.log(100)
    assert martingale.log_capital > -12  # by chance alone it falls like 1 / n, not exponentially
    assert martingale.update(rng.beta(a, b, 400)).max() > math.log(100)


def test_extreme_p_values_are_no_accident() -> None:
    path = Martingale().update(np.array([0.0, 1.0, 1e-300, 1.0]))
    assert np.isfinite(path).all()
    assert len(Martingale().update(np.empty(0))) == 0
