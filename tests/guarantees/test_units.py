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
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import create
from unkgcp.methods import method as method_module

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


RELATIONS, ENTITIES = 40, 60


class Zero:
    """A model that knows its training facts and scores every triple with 0."""

    def __init__(self, train: Graph) -> None:
        self.vocabulary, self.facts = train.vocabulary, KnownFacts.of(train)
        self.seen_entities = np.ones(ENTITIES, np.bool_)
        self.seen_relations = np.ones(RELATIONS, np.bool_)

    def score(self, head: NDArray[Any], relation: NDArray[Any], tail: NDArray[Any]) -> NDArray[Any]:
        return np.zeros(len(head), np.float32)


def split_and_calibrate(rows: int, seeds: int = 60) -> tuple[float, float]:
    """Mean coverage, relation by relation, of `cp --per relation` where whole pairs are held out."""
    pairs = np.array([(a, b) for a in range(ENTITIES) for b in range(a)], np.int32)
    relation = np.repeat(np.arange(RELATIONS, dtype=np.int32), 10)
    means = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        head, tail = pairs[rng.permutation(len(pairs))[: len(relation)]].T
        columns = (head, relation, tail, rng.random(len(relation)))
        graph = Graph(*(np.repeat(column, rows) for column in columns), vocabulary(ENTITIES, RELATIONS))
        parts = graph.split(calibration=0.4, test=0.3, hold_out="pairs", seed=seed)
        method = create("cp", per="relation").calibrate(Zero(parts.train), parts.calibration)
        result = method.interval(parts.test, LEVEL)
        inside = (result.lower <= parts.test.confidence) & (parts.test.confidence <= result.upper)
        means.append([inside[parts.test.relation == each].mean() for each in np.unique(parts.test.relation)])
    each = np.array([np.mean(mean) for mean in means])
    return float(each.mean()), float(each.std() / seeds**0.5)


@pytest.mark.skipif(not hasattr(method_module, "one_row_per_unit"), reason="calibration ranks all rows")
@pytest.mark.parametrize("rows", [1, 10, 20])
def test_relations_are_covered_after_split_and_calibrate(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mean, error = split_and_calibrate(rows)
    monkeypatch.setattr(method_module, "one_row_per_unit", lambda unit, *_, **__: np.arange(len(unit)))
    mutant, mutant_error = split_and_calibrate(rows)
    print(f"\n{rows} rows a triple: {mean:.3f}, all rows ranked {mutant:.3f}")
    assert mean >= LEVEL - 5 * error
    assert rows == 1 or mutant < LEVEL - 3 * mutant_error
