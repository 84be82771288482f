"""Selecting values at ranks gives the same as sorting, in any order of questions and from several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.conformal import SplitConformal
from unkgcp.conformal import ranks as rank_module
from unkgcp.conformal.ranks import Order, select

pytest.importorskip("numba", reason="numba is not installed: pip install 'unkgcp[train]'")
from unkgcp.conformal import residual_kernels


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_module, "WORTH_SELECTING", 1)


NUMBERS = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0, np.inf])


@given(values=st.lists(NUMBERS, min_size=1, max_size=40), data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_kth_smallest_in_any_order_of_questions(values: list[float], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_module, "WORTH_SELECTING", 1)
        lazy = Order(np.array(values))
        expected = np.sort(values)
        for _ in range(data.draw(st.integers(1, 4))):
            ranks = data.draw(st.lists(st.integers(1, len(values)), max_size=5))
            assert lazy.smallest(ranks).tolist() == expected[np.array(ranks, int) - 1].tolist()
        assert np.array_equal(lazy.sorted(), expected)
        assert lazy.smallest([1])[0] == expected[0]


def _data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "uniform": rng.random(200_000),
        "few values": np.round(rng.random(200_000), 1),
        "mostly one value": np.where(rng.random(200_000) < 0.9, 0.5, rng.random(200_000)),
        "all the same": np.full(200_000, 0.25),
        "sorted": np.sort(rng.random(200_000)),
        "heavy tail": rng.standard_cauchy(200_000) ** 2,
    }


@pytest.mark.parametrize("name", _data())
def test_a_selected_value_is_the_sorted_one(name: str) -> None:
    values = _data()[name]
    before = values.copy()
    expected = np.sort(values)
    for ranks in ([1], [2, 1000], [100_000], [160_000, 170_000, 180_001, 190_000], [199_999, 200_000]):
        assert select(values, ranks, residual_kernels) == [expected[rank - 1] for rank in ranks]
    assert select(values, [1, 150_000], residual_kernels) is None
    assert np.array_equal(values, before)


def test_a_sample_that_misleads_is_noticed() -> None:
    """Every 4th value, and so the whole sample, is 0: the values are then sorted instead."""
    values = np.random.default_rng(1).random(1 << 18)
    values[::4] = 0
    expected = np.sort(values)
    assert select(values, [1 << 17], residual_kernels) is None
    assert Order(values.copy()).smallest([1 << 17])[0] == expected[(1 << 17) - 1]


def test_many_threads_ask_at_once() -> None:
    values = np.random.default_rng(0).random(50_000)
    expected = np.sort(values)
    ranks = np.random.default_rng(1).integers(1, 50_001, 40).tolist()
    for _ in range(5):
        smallest = Order(values.copy()).smallest
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(smallest, [[k] for k in ranks]))
        assert np.concatenate(found).tolist() == expected[np.array(ranks) - 1].tolist()


def test_a_calibrator_answers_the_same_before_and_after_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    prediction, truth = rng.random(3000), np.round(rng.random(3000), 2)
    lazy = SplitConformal().calibrate(prediction, truth)
    monkeypatch.setattr(rank_module, "WORTH_SELECTING", 1_000_000)
    eager = SplitConformal().calibrate(prediction, truth)
    levels = [0.8, 0.9, 0.85, 0.95, 0, 1]
    before = lazy.interval(prediction, confidence=levels)
    assert np.array_equal(before, eager.interval(prediction, confidence=levels))
    assert np.array_equal(lazy.p_value(prediction, truth), eager.p_value(prediction, truth))
    assert np.array_equal(before, lazy.interval(prediction, confidence=levels))
    many = rng.random(20)
    assert np.array_equal(lazy.threshold(many), eager.threshold(many))
