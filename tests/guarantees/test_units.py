"""Groups count units: where rows of a triple belong together, one random row of each triple is ranked.

Every relation has a few triples, and every row of a triple has the same label. Whole triples are held out. Ranking all
rows as if each were a calibration point of its own, the rule that seems natural, covers far too little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.worlds import vocabulary
from unkgcp.conformal import SplitConformal, one_row_per_unit
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.monitor import Monitor
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import create
from unkgcp.methods import method as method_module
from unkgcp.run import Predictor, calibrate

LEVEL, SEEDS = 0.9, 150

Rule = Callable[[NDArray[Any], int], NDArray[np.intp]]
"""From the unit of each calibration row, (l,), and a seed to the rows that are ranked."""


def one_row(unit: NDArray[Any], seed: int) -> NDArray[np.intp]:
    return one_row_per_unit(unit, seed)


def all_rows(unit: NDArray[Any], seed: int) -> NDArray[np.intp]:
    return np.arange(len(unit))


def coverage(rule: Rule, relations: int, triples: int, rows: int, calibrating: float) -> tuple[float, float]:
    """Mean coverage of held-out triples, each of them a query, with a threshold per relation; its standard error."""
    means = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        relation = np.repeat(np.arange(relations), triples)
        truth = rng.random(len(relation))
        held = rng.random(len(relation)) < calibrating
        unit = np.repeat(np.flatnonzero(held), rows)
        ranked = unit[rule(unit, seed)]
        cal = SplitConformal().calibrate(np.zeros(len(ranked)), truth[ranked], group=relation[ranked])
        ends = cal.interval(np.zeros((~held).sum()), group=relation[~held], confidence=LEVEL)
        means.append(np.mean(truth[~held] <= ends[:, 1]))
    return float(np.mean(means)), float(np.std(means) / SEEDS**0.5)


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize(
    "shape", [(40, 10, 10, 0.4), (40, 10, 20, 0.4), (20, 25, 20, 0.4), (20, 100, 10, 0.5)]
)
def test_every_relation_is_covered_where_units_are_ranked(shape: tuple[int, int, int, float]) -> None:
    mean, error = coverage(one_row, *shape)
    mutant, mutant_error = coverage(all_rows, *shape)
    print(f"\n{shape}: one row of each unit {mean:.3f}, all rows {mutant:.3f}")
    assert mean >= LEVEL - 5 * error
    assert shape[1] > 25 or mutant < LEVEL - 5 * mutant_error


def test_rows_of_a_unit_are_drawn_evenly_and_from_units_and_seed_alone() -> None:
    unit = np.array(["b", "a", "b", "c", "b", "c"])
    draws = np.array([one_row_per_unit(unit, seed) for seed in range(6000)])
    assert all(sorted(unit[rows]) == ["a", "b", "c"] for rows in draws)
    assert (np.diff(draws, axis=1) > 0).all()
    chosen = [int(np.isin(draws, [row]).any(axis=1).sum()) for row in range(len(unit))]
    for rows in ([0, 2, 4], [3, 5]):
        assert stats.chisquare([chosen[row] for row in rows]).pvalue > 1e-6
    assert one_row_per_unit(np.arange(50)).tolist() == list(range(50))
    assert len(one_row_per_unit([])) == 0


ENTITIES, MOST_RELATIONS = 60, 40
PAIRS = np.array([(a, b) for a in range(ENTITIES) for b in range(a)], np.int32)


class Zero:
    """A model that knows its training facts and scores every triple with 0."""

    def __init__(self, train: Graph) -> None:
        self.vocabulary, self.facts = train.vocabulary, KnownFacts.of(train)
        self.seen_entities = np.ones(ENTITIES, np.bool_)
        self.seen_relations = np.ones(MOST_RELATIONS, np.bool_)

    def score(self, head: NDArray[Any], relation: NDArray[Any], tail: NDArray[Any]) -> NDArray[Any]:
        return np.zeros(len(head), np.float32)


def draw(relations: int, triples: int, rows: int, rng: np.random.Generator) -> Graph:
    """So many triples of each relation, no two of them about one pair, and so many equal rows of each."""
    relation = np.repeat(np.arange(relations, dtype=np.int32), triples)
    head, tail = PAIRS[rng.permutation(len(PAIRS))[: len(relation)]].T
    columns = (head, relation, tail, rng.random(len(relation)))
    return Graph(*(np.repeat(column, rows) for column in columns), vocabulary(ENTITIES, MOST_RELATIONS))


def split_and_calibrate(shape: tuple[int, int, int], hold_out: str, seeds: int) -> tuple[float, float]:
    """Mean coverage, relation by relation, of `cp --per relation` where whole units are held out."""
    means = []
    for seed in range(seeds):
        graph = draw(*shape, np.random.default_rng(seed))
        parts = graph.split(calibration=0.4, test=0.3, hold_out=hold_out, seed=seed)
        method = create("cp", per="relation").calibrate(Zero(parts.train), parts.calibration)
        result = method.interval(parts.test, LEVEL)
        inside = (result.lower <= parts.test.confidence) & (parts.test.confidence <= result.upper)
        means.append([inside[parts.test.relation == each].mean() for each in np.unique(parts.test.relation)])
    each = np.array([np.mean(mean) for mean in means])
    return float(each.mean()), float(each.std() / seeds**0.5)


@pytest.mark.parametrize("hold_out", ["pairs", "triples"])
@pytest.mark.parametrize("shape", [(40, 10, 1), (40, 10, 10), (40, 10, 20), (20, 25, 20)])
def test_relations_are_covered_after_split_and_calibrate(
    shape: tuple[int, int, int], hold_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, error = split_and_calibrate(shape, hold_out, SEEDS)
    monkeypatch.setattr(method_module, "one_row_per_unit", lambda unit, *_, **__: np.arange(len(unit)))
    mutant, mutant_error = split_and_calibrate(shape, hold_out, SEEDS)
    print(f"\n{shape}, {hold_out}: {mean:.3f}, all rows ranked {mutant:.3f}")
    assert mean >= LEVEL - 5 * error
    assert shape[2] == 1 or mutant < LEVEL - 5 * mutant_error


def alarms_and_low_p_values(repeats: int, seeds: int) -> tuple[int, int]:
    """How many monitors raise an alarm, and find p <= 0.05, where 40 new pairs come with so many equal rows each."""
    alarms = low = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        parts = draw(20, 20, 1, rng).split(calibration=0.6, test=0.1, hold_out="pairs", seed=seed)
        model = Zero(parts.train)
        method = create("cp", per="none").calibrate(model, parts.calibration)
        new = parts.test[rng.permutation(np.repeat(np.arange(len(parts.test)), repeats))]
        run: Any = Predictor(model, method, None, {}, {})  # type: ignore[arg-type]
        monitor = Monitor(run, false_alarm=0.05, seed=seed, by_relation=False)
        for part in (new[: len(new) // 2], new[len(new) // 2 :]):
            monitor.update(part, part.confidence)
        assert monitor.facts + monitor.repeats == len(new)
        assert monitor.coverage_p_value is not None
        alarms += monitor.broken
        low += monitor.coverage_p_value <= 0.05
    return alarms, low


def test_the_monitor_tests_one_row_of_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right monitor fails with a chance below two in a million. Forty rows of a pair are not forty facts."""
    most = stats.binom.ppf(1 - 1e-6, 100, 0.05)
    assert max(alarms_and_low_p_values(40, 100)) <= most
    monkeypatch.setattr(Monitor, "_rows_of_new_units", lambda monitor, facts: np.arange(len(facts)))
    alarms, low = alarms_and_low_p_values(40, 100)
    print(f"\nall rows tested: {alarms} alarms and {low} low p-values in 100 monitors at 0.05")
    assert min(alarms, low) > most


def judged(seed: int) -> dict[str, Any]:
    """What `evaluate` says of `cp` where pairs of one fact are sure and pairs of ten are not."""
    rng = np.random.default_rng(seed)
    rows = rng.choice([1, 10], 800)
    head, tail = np.repeat(PAIRS[rng.permutation(len(PAIRS))[: len(rows)]], rows, axis=0).T
    relation = np.concatenate([np.arange(each, dtype=np.int32) for each in rows])
    truth = np.where(np.repeat(rows, rows) == 1, 0.1, 1.0) * rng.random(rows.sum())
    graph = Graph(head, relation, tail, truth, vocabulary(ENTITIES, MOST_RELATIONS))
    parts = graph.split(calibration=0.3, test=0.3, hold_out="pairs", seed=seed)
    model: Any = Zero(parts.train)
    run = calibrate(model, parts.calibration, "cp", vocabulary=graph.vocabulary, training=parts.train)
    figures: dict[str, Any] = evaluate(run, parts.test, [LEVEL])["levels"][0]["positive"]["kinds"]["new pair"]
    return figures


def test_coverage_is_judged_by_units_as_it_is_promised() -> None:
    figures = [judged(seed) for seed in range(60)]
    low = np.array([each["band"][0] for each in figures])
    assert all(each["units"] < each["n"] / 3 for each in figures)
    assert np.mean([each["coverage"] for each in figures]) >= LEVEL - 0.01
    assert (np.array([each["coverage"] for each in figures]) >= low).all()
    # the mutant that counts all rows finds broken promises where there are none
    of_rows = np.array([each["coverage_of_rows"] for each in figures])
    assert of_rows.mean() < LEVEL - 0.04
    assert (of_rows < low).mean() > 0.05
