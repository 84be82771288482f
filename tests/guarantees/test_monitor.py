"""False alarms of the monitor over a thousand streams, and how soon it finds the paper's shift.

Every test states the chance with which it fails although all is well.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from tests.worlds import scored_facts, small_model
from unkgcp.evaluation.monitor import Monitor
from unkgcp.evaluation.monitor.martingale import Bag
from unkgcp.graph import Graph
from unkgcp.graph.datasets import load_dataset
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model, config_for, train

RATE, FALSE_ALARM = 0.05, 1e-6


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model()


def most(streams: int) -> int:
    """More alarms have probability below one in a million if each stream raises one with probability RATE."""
    return int(binom.ppf(1 - FALSE_ALARM, streams, RATE))


def alarms(model: Model, streams: int) -> int:
    """Streams of 100 facts, watched after every one of them, by relation too, with fresh calibration facts each."""
    count = 0
    for seed in range(streams):
        rng = np.random.default_rng([7, seed])
        predictor = calibrate(model, scored_facts(model, 80, rng), "cp")
        facts = scored_facts(model, 100, rng)
        monitor = Monitor(predictor, false_alarm=RATE, seed=seed)
        assert len(monitor.relations) == 2  # 19 calibration facts each at least
        count += monitor.update(facts, facts.confidence).broken
    return count


def test_false_alarms_over_a_thousand_streams(model: Model) -> None:
    assert alarms(model, 1000) <= most(1000)


def test_ranks_among_the_calibration_facts_alone_would_not_do(
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The p-values share the luck of one calibration set: the test above must notice."""

    def p_values(self: Bag, scores: np.ndarray, uniform: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        run = self._runs[0]
        larger = len(run) - np.searchsorted(run, scores, "right")
        equal = np.searchsorted(run, scores, "right") - np.searchsorted(run, scores, "left")
        return np.asarray((larger + uniform * (equal + 1)) / (len(run) + 1))

    monkeypatch.setattr(Bag, "p_values", p_values)
    assert alarms(model, 200) > most(200)


WEEKS, A_WEEK = 12, 25


def weekly_alarms(model: Model, repetitions: int, one_test: bool) -> int:
    """Repetitions with an alarm in any of twelve weekly calls, each a new monitor, as `unkgcp monitor` makes them.

    one_test: whether a call goes on from the state of the last one, through the text that is kept.
    """
    count = 0
    for seed in range(repetitions):
        rng = np.random.default_rng([9, seed])
        predictor = calibrate(model, scored_facts(model, 80, rng), "cp")
        kept: str | None = None
        for _ in range(WEEKS):
            facts = scored_facts(model, A_WEEK, rng)
            monitor = Monitor(predictor, false_alarm=RATE, seed=seed, by_relation=False)
            if kept is not None:
                monitor.resume(json.loads(kept))
            if monitor.update(facts, facts.confidence).broken:
                count += 1
                break  # an alarm stays
            kept = json.dumps(monitor.state()) if one_test else None
    return count


def test_false_alarms_of_weekly_calls_that_are_one_test(model: Model) -> None:
    """Fails although all is well with probability one in a million, and sees alarms in 17 % of streams, or more, with
    probability 0.999."""
    assert weekly_alarms(model, 400, one_test=True) <= most(400)


def test_weekly_calls_that_each_begin_anew_would_not_do(model: Model) -> None:
    """Every call is a test of its own then, and the chances of false alarms add up: the test above must notice."""
    assert weekly_alarms(model, 200, one_test=False) > most(200)


@pytest.fixture(scope="module")
def demo() -> tuple[Model, Graph, Graph, Graph]:
    """A model of the demo graph, its calibration and test facts, and negatives (confidence 0)."""
    dataset = load_dataset("demo")
    config = replace(config_for("ukge"), dimension=16, negatives=4, learning_rate=0.01, epochs=10)
    trained = train(dataset.splits.train, config=config, device="cpu")
    assert dataset.negatives is not None
    return trained, dataset.splits.calibration, dataset.splits.test, dataset.negatives


@pytest.fixture(scope="module", params=["cp", "unkgcp"])
def predictor(request: pytest.FixtureRequest, demo: tuple[Model, Graph, Graph, Graph]) -> Predictor:
    return calibrate(demo[0], demo[1], request.param)


def test_finds_negatives_within_a_hundred_queries(
    predictor: Predictor, demo: tuple[Model, Graph, Graph, Graph]
) -> None:
    """Facts calibrated, negatives queried: found in at least 95 % of streams (40 of them, tested at 1e-6)."""
    negatives, found = demo[3], 0
    for seed in range(40):
        rows = np.random.default_rng([8, seed]).permutation(len(negatives))[:100]
        monitor = Monitor(predictor, seed=seed)
        found += monitor.update(negatives[rows], negatives.confidence[rows]).broken
    assert found >= binom.ppf(FALSE_ALARM, 40, 0.95)


def test_keeps_quiet_on_the_test_facts(predictor: Predictor, demo: tuple[Model, Graph, Graph, Graph]) -> None:
    """False-alarm rate of this test: 1e-6, the monitor's own."""
    test = demo[2]
    assert not Monitor(predictor, false_alarm=FALSE_ALARM).update(test, test.confidence).broken
