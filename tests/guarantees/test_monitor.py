"""False alarms of the monitor over a thousand streams, and how soon it finds the paper's shift.

Every test states the chance with which it fails although all is well.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from tests.worlds import random_model, scored_facts, small_model, vocabulary
from unkgcp import files
from unkgcp.conformal.martingale import Bag
from unkgcp.evaluation.metrics import contains
from unkgcp.evaluation.monitor import Monitor, watch
from unkgcp.graph import Graph, concatenate
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
        larger = len(self.scores) - np.searchsorted(self.scores, scores, "right")
        equal = len(self.scores) - larger - np.searchsorted(self.scores, scores, "left")
        return np.asarray((larger + uniform * (equal + 1)) / (len(self.scores) + 1))

    monkeypatch.setattr(Bag, "p_values", p_values)
    assert alarms(model, 200) > most(200)


WEEKS, A_WEEK, FIRST = 10, 25, 20


def weekly_alarms(repetitions: int, folder: Path, updating: bool) -> int:
    """Repetitions with an alarm in any of ten weekly calls with one state.

    updating: every week the run is updated first, so that it has another model and holds the week's facts out, as
    `unkgcp update` does, and then monitored; otherwise the run stays as it is.
    """
    count, world = 0, small_model()
    for seed in range(repetitions):
        rng = np.random.default_rng([9, seed])
        held = [scored_facts(world, FIRST, rng)]
        predictor = calibrate(world, held[0], "cp")
        for week in range(1, WEEKS + 1):
            facts = scored_facts(world, A_WEEK, rng)
            if updating:
                held.append(facts)
                another = random_model(world.vocabulary, dimension=4, unseen=(1, 1), seed=week)
                predictor = calibrate(another, concatenate(held), "cp")
                predictor.provenance["updates"] = [{}] * week
            state, settings = folder / f"{seed}.json", {"false_alarm": 2 * RATE, "by_relation": False}
            if watch(predictor, facts, state, seed=seed, **settings)[0].broken:
                count += 1
                break  # an alarm stays
    return count


@pytest.mark.slow
@pytest.mark.parametrize("updating", [False, True])
def test_false_alarms_of_weekly_calls_that_are_one_test(
    tmp_path: Path, updating: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state spends half of its rate before it ever has to begin anew. Fails although all is well with probability one
    in a million, and sees alarms in 20 % of streams, or more, with probability 0.99."""
    monkeypatch.setattr(files, "sync", lambda path: None)  # thousands of states, and no power is lost
    assert weekly_alarms(200, tmp_path, updating) <= most(200)


def test_weekly_calls_that_each_begin_anew_would_not_do(model: Model) -> None:
    """Every call is a test of its own then, and the chances of false alarms add up: the test above must notice."""
    count = 0
    for seed in range(200):
        rng = np.random.default_rng([9, seed])
        predictor = calibrate(model, scored_facts(model, FIRST, rng), "cp")
        weeks = [scored_facts(model, A_WEEK, rng) for _ in range(WEEKS)]
        monitors = (Monitor(predictor, false_alarm=RATE, seed=seed, by_relation=False) for _ in weeks)
        count += any(
            m.update(facts, facts.confidence).broken for m, facts in zip(monitors, weeks, strict=True)
        )
    assert count > most(200)


# The p-value of coverage.


def low_p_values(seeds: int) -> tuple[int, int]:
    """How often p <= 0.05 for exchangeable facts: the monitor's p-value, and that of calibration facts counted under
    the thresholds that they set themselves. 2,500 calibration facts, a promise for each of 30 relations, 2,000 new."""
    world = vocabulary(40, 30)
    model, low, low_before = random_model(world, dimension=4), 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng([11, seed])

        def facts(n: int, rng: np.random.Generator = rng) -> Graph:
            relation = np.minimum(rng.geometric(0.08, n) - 1, 29).astype(np.int32)
            head, tail = rng.integers(0, 40, (2, n), dtype=np.int32)
            return Graph(head, relation, tail, rng.random(n), world)

        calibration, new = facts(2_500), facts(2_000)
        predictor = calibrate(model, calibration, "cp", per="relation")
        monitor = Monitor(predictor, by_relation=False).update(new, new.confidence)
        p_value, answer = monitor.coverage_p_value, predictor.interval(calibration, 0.9)
        assert p_value is not None
        low += p_value <= 0.05
        hits, before = (
            int(monitor.hits_of.sum()),
            int(contains(calibration.truth, answer.lower, answer.upper).sum()),
        )
        low_before += hypergeom(4_500, hits + before, 2_000).cdf(hits) <= 0.05
    return low, low_before


def test_the_p_value_of_coverage_is_one_for_grouped_runs() -> None:
    """P(p <= 0.05) <= 0.05, tested at one in a million; the law of thresholds that the facts set themselves fails."""
    low, low_before = low_p_values(100)
    assert low <= most(100)
    assert low_before > most(100)


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
