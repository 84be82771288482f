"""The map from scores to confidences: it rises, it fits, and the strict protocol alone has it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import learnable_graph
from unkgcp.training import TrainConfig, config_for, train
from unkgcp.training.score_map import FIELD, MAP, apply_map, learn_map


@settings(deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 500),
    st.sampled_from([0, 1, 6]),
    st.sampled_from([1e-3, 1.0, 40.0]),
)
def test_it_keeps_the_order_of_scores(seed: int, n: int, decimals: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    score = (scale * rng.normal(size=n)).round(decimals)
    points = learn_map(score, rng.random(n), rng.uniform(1, 8, n))
    FIELD.check(points, {})
    found = apply_map(points, np.linspace(score.min() - 1, score.max() + 1, 999))
    assert (np.diff(found) >= 0).all()
    assert found[-1] > found[0]


def test_it_has_a_smaller_error_than_any_line() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=4000)
    confidence = np.clip(0.9 / (1 + np.exp(-3 * score)) + 0.03 * rng.normal(size=4000), 0, 1)
    error = np.mean((apply_map(learn_map(score, confidence), score) - confidence) ** 2)
    line = np.polyval(np.polyfit(score, confidence, 1), score)
    assert error < 0.0012 < np.mean((line - confidence) ** 2)


def test_facts_count_as_much_as_they_weigh() -> None:
    score, confidence = np.zeros(40), np.repeat([0.2, 0.8], 20)
    found = apply_map(learn_map(score, confidence, np.repeat([3.0, 1.0], 20)), np.zeros(1))
    assert found[0] == pytest.approx(0.35, abs=0.01)


def test_the_strict_protocol_maps_and_the_paper_does_not() -> None:
    facts = learnable_graph(400)
    odd = facts.with_confidence(0.99 + 0.005 * facts.confidence)  # a sliver of [0, 1]
    quick = {"dimension": 8, "epochs": 4, "batch_size": 64, "negative_weight": 1.0}
    strict, paper = (
        train(odd, config=replace(config_for("ukge", protocol=protocol), **quick), device="cpu")
        for protocol in ("strict", "paper")
    )
    ids = odd.head, odd.relation, odd.tail
    assert MAP not in paper.tables
    assert np.mean((paper.score(*ids) - odd.confidence) ** 2) > 0.001
    assert np.mean((strict.score(*ids) - odd.confidence) ** 2) < 1e-5
    tails = strict.tails(odd.head[:3], odd.relation[:3])
    np.testing.assert_allclose(tails[np.arange(3), odd.tail[:3]], strict.score(*ids)[:3], atol=1e-5)
    quantile = train(
        odd, config=replace(TrainConfig("ukge", **quick), quantile=0.5, negatives=0), device="cpu"
    )
    assert MAP not in quantile.tables
