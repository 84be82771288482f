"""The bag against its definition, score by score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.rounding import apart, assert_within
from unkgcp.evaluation.monitor import martingale as bag_module
from unkgcp.evaluation.monitor.martingale import Bag

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


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(1, 90), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
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
    assert bag.size == calibration + count


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    start, scores, uniform = rng.random(50), rng.random(400).round(2), rng.random(400)
    whole = Bag(start).p_values(scores, uniform)
    monkeypatch.setattr(bag_module, "BAG_CHUNK", 7)
    np.testing.assert_array_equal(Bag(start).p_values(scores, uniform), whole)


def test_runs_stay_few() -> None:
    bag = Bag(np.random.default_rng(0).random(1000))
    for score in np.random.default_rng(1).random(2000):
        bag.p_values(np.array([score]), np.array([0.5]))
    assert len(bag._runs) <= 13
    assert sum(map(len, bag._runs)) == bag.size == 3000
