"""Interval-valued confidences on the demo graph, whose oracle knows the law of both ends.

The true interval of a fact spans two independent draws of its confidence, so [lower, upper] contains it with
probability coverage(lower, upper) squared, given the triple. Labels are drawn afresh for every replication, so that
the number of contained intervals is exactly beta-binomial (larger with ties); false-alarm rates are stated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import betabinom

from tests.oracles import Oracle, generate
from unkgcp.conformal import rank
from unkgcp.conformal.ranks import exact
from unkgcp.graph import Graph
from unkgcp.methods.interval_valued import Joint, MeanLength
from unkgcp.training import Model, config_for, train, train_length

LEVEL, CALIBRATION, REPLICATIONS, FALSE_ALARM = 0.9, 1500, 15, 1e-6
CONFIG = replace(
    config_for("ukge"), dimension=16, negatives=2, negative_weight=0.1, learning_rate=0.01, epochs=10
)

Models = tuple[Model, Model]


@pytest.fixture(scope="module")
def world() -> tuple[Graph, Graph, Oracle]:
    """Training facts with intervals, all other facts about known things (each triple once), and the oracle."""
    graph, oracle = generate(seed=0)
    splits = oracle.draw_intervals(graph, np.random.default_rng(1)).split(seed=0)
    held = splits.graph[len(splits.train) :]
    seen = np.zeros(graph.n_entities, bool)
    seen[splits.train.head] = seen[splits.train.tail] = True
    once = np.zeros(len(held), bool)
    once[np.unique(held.keys, return_index=True)[1]] = True
    return splits.train, held[seen[held.head] & seen[held.tail] & once], oracle


@pytest.fixture(scope="module")
def models(world: tuple[Graph, Graph, Oracle]) -> Models:
    train_facts = world[0]
    first = train_facts[:500]  # early stopping looks at training facts only
    return (
        train(train_facts, config=CONFIG, validation=first, device="cpu"),
        train_length(train_facts, config=CONFIG, validation=first, device="cpu"),
    )


def replicate(
    method: Joint | MeanLength, model: Model, world: tuple[Graph, Graph, Oracle]
) -> tuple[NDArray[np.int64], float, float]:
    """Contained intervals of each replication, mean width, and mean coverage by the oracle's law."""
    _, others, oracle = world
    hits, widths, lawful = [], [], []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([2, seed])
        facts = oracle.draw_intervals(others, rng)[rng.permutation(len(others))]
        test = facts[CALIBRATION:]
        answer = method.calibrate(model, facts[:CALIBRATION]).interval(test, LEVEL)
        assert test.ends is not None
        hits.append(int(((answer.lower <= test.ends[:, 0]) & (test.ends[:, 1] <= answer.upper)).sum()))
        widths.append(float(answer.width.mean()))
        lawful.append(float(np.mean(oracle.coverage(test, answer.lower, answer.upper) ** 2)))
    return np.array(hits), float(np.mean(widths)), float(np.mean(lawful))


def tail(hits: NDArray[np.int64], facts: int) -> tuple[float, float]:
    """Chances of a mean so low, and of one so high, by the exact law of the sum of independent counts."""
    k = rank(LEVEL, CALIBRATION)
    mass = betabinom(facts, k, CALIBRATION + 1 - k).pmf(np.arange(facts + 1))
    transform = np.fft.rfft(mass, REPLICATIONS * facts + 1)
    total = np.clip(np.fft.irfft(transform**REPLICATIONS, REPLICATIONS * facts + 1), 0, None)
    return float(total[: hits.sum() + 1].sum()), float(total[hits.sum() :].sum())


@pytest.mark.parametrize("normalised", [False, True])
def test_joint_coverage_is_exact(
    world: tuple[Graph, Graph, Oracle], models: Models, normalised: bool
) -> None:
    """Fails by chance with probability 1e-6 at either end; scores tie rarely, so the upper end holds too."""
    hits, _, lawful = replicate(Joint(models[1], normalised, by_kind=False), models[0], world)
    low, high = tail(hits, len(world[1]) - CALIBRATION)
    assert low > FALSE_ALARM
    assert high > FALSE_ALARM
    assert lawful == pytest.approx(hits.mean() / (len(world[1]) - CALIBRATION), abs=0.01)


def test_the_union_bound_covers_and_is_wider(world: tuple[Graph, Graph, Oracle], models: Models) -> None:
    hits, width, _ = replicate(MeanLength(models[1], True, by_kind=False), models[0], world)
    _, joint, _ = replicate(Joint(models[1], True, by_kind=False), models[0], world)
    low, _ = tail(hits, len(world[1]) - CALIBRATION)
    assert low > FALSE_ALARM
    assert joint < width


def test_a_threshold_too_low_would_be_noticed(world: tuple[Graph, Graph, Oracle], models: Models) -> None:
    """Thirty of 1,500 ranks short (two points of coverage): the test of coverage must fail."""

    class Short(Joint):
        def _thresholds(self, tables: Any, triples: Any, doubt: Any) -> NDArray[np.float64]:
            k = rank(self.ranked_level(exact(LEVEL)), self.size) - 30
            return np.full((len(triples.head), 1), self.rankings.scores[k - 1])

    hits, _, _ = replicate(Short(models[1], True, by_kind=False), models[0], world)
    assert tail(hits, len(world[1]) - CALIBRATION)[0] < FALSE_ALARM
