"""Rows to learn from look like queries: their kinds are those of calibration facts, and no row knows its own label."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worlds import crowded_graph, random_graph, vocabulary
from unkgcp.evidence import Evidence
from unkgcp.evidence.fact_groups import Values
from unkgcp.evidence.folds import Rehearsal, Shares, draw_folds
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import Graph
from unkgcp.graph.kinds import KNOWN_PAIR, NEW_ENTITY, NEW_PAIR, count_kinds

TREES = Boosting(rounds=150, leaves=31, feature_fraction=1.0, patience=150)


def explained(
    table: np.ndarray, label: np.ndarray, fresh: np.ndarray, truth: np.ndarray
) -> tuple[float, float]:
    """r2 of trees on rows like those that they were learned from, every fifth one, and on fresh facts."""
    held = np.arange(len(label)) % 5 == 0
    trees = TREES.regress(table[~held], label[~held], table[held], label[held])

    def r2(rows: np.ndarray, wanted: np.ndarray) -> float:
        return float(1 - ((trees.sums(rows)[:, 0] - wanted) ** 2).mean() / wanted.var())

    return r2(table[held], label[held]), r2(fresh, truth)


def test_trees_are_worth_on_training_rows_what_they_are_worth_on_fresh_facts() -> None:
    """The mutant, means without the fact itself (leave-one-out), tells the label: confidences here are pure noise."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    graph = random_graph(3000, vocabulary(60, 3))
    train, fresh = graph[:2400], graph[2400:]
    values = Values.of(graph.confidence)
    rehearsal = Rehearsal.of(train, None, 0)
    tables = [
        Evidence.of(rehearsal.rest(train, rows), values).features(train[rows]).table
        for rows in rehearsal.rows
    ]
    label = train.confidence[rehearsal.asked()]
    evidence = Evidence.of(train, values)
    asked = evidence.features(fresh).table
    held, new = explained(np.concatenate(tables), label, asked, fresh.confidence)
    assert abs(held - new) < 0.15

    def mean_without(ids: np.ndarray) -> np.ndarray:
        total, count = np.bincount(ids, train.confidence), np.bincount(ids)
        return (total[ids] - train.confidence) / np.maximum(count[ids] - 1, 1)

    columns = [train.relation, train.head, train.tail]
    left_out = np.column_stack([*map(mean_without, columns), train.relation, train.head]).astype(np.float32)
    means = [
        (np.bincount(ids, train.confidence) / np.maximum(np.bincount(ids), 1))[queries]
        for ids, queries in zip(columns, (fresh.relation, fresh.head, fresh.tail), strict=True)
    ]
    as_query = np.column_stack([*means, fresh.relation, fresh.head]).astype(np.float32)
    held, new = explained(left_out, train.confidence, as_query, fresh.confidence)
    assert held - new > 0.5


@pytest.mark.parametrize("by", ["rows", "pairs", "entities"])
def test_rows_are_of_the_kinds_of_calibration_facts(by: str) -> None:
    graph = crowded_graph(3000, 0, entities=25 if by == "rows" else 120)
    splits = graph.split(calibration=0.1, test=0.1, hold_out=by)
    wanted = count_kinds(splits.train, splits.calibration) / len(splits.calibration)
    rehearsal = Rehearsal.of(splits.train, count_kinds(splits.train, splits.calibration), 0)
    asked = np.bincount(rehearsal.kinds(splits.train), minlength=4) / len(rehearsal.asked())
    assert np.abs(asked - wanted).max() < 0.15
    assert (
        wanted.argmax()
        == asked.argmax()
        == {"rows": KNOWN_PAIR, "pairs": NEW_PAIR, "entities": NEW_ENTITY}[by]
    )


def test_a_pair_or_an_entity_is_taken_out_whole() -> None:
    graph = crowded_graph(400, 1, entities=30)
    fold, _ = draw_folds(graph.head, graph.tail, Shares(0.0, 1.0, 0.0), 5, 0)
    pair = np.minimum(graph.head, graph.tail) * 30 + np.maximum(graph.head, graph.tail)
    assert all(len(set(fold[pair == each])) == 1 for each in np.unique(pair))
    rehearsal = Rehearsal.of(graph, np.array([0, 10, 90, 0]), 0)
    assert (rehearsal.of_entity >= 0).any()
    for rows in rehearsal.rows:
        rest = rehearsal.rest(graph, rows)
        gone = np.flatnonzero(rehearsal.of_entity == rehearsal.fold[rows[0]])
        assert not np.isin(gone, np.concatenate([rest.head, rest.tail])).any()


def test_all_facts_are_asked_once() -> None:
    graph: Graph = crowded_graph(300, 2)
    rehearsal = Rehearsal.of(graph, np.array([10, 20, 0, 0]), 3)
    assert sorted(rehearsal.asked().tolist()) == list(range(300))
    assert 0 < rehearsal.held().sum() < 100
