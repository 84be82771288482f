"""Folds: fixed by the seed for facts and by the triple for queries; a fact is scored by the model that missed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.worlds import crowded_graph
from unkgcp.evidence.crossfit import FOLDS, CrossFit, fold_of_queries, fold_of_rows, variants
from unkgcp.graph.facts import Triples
from unkgcp.training import TrainConfig


@dataclass
class Numbered:
    """A model that answers with its number."""

    number: float

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), self.number, np.float32)


def test_folds_of_facts() -> None:
    fold = fold_of_rows(1003, seed=3)
    assert sorted(np.bincount(fold).tolist()) == [200, 200, 201, 201, 201]
    np.testing.assert_array_equal(fold, fold_of_rows(1003, seed=3))
    assert (fold != fold_of_rows(1003, seed=4)).any()


def test_folds_of_queries_depend_on_the_triple_alone() -> None:
    rng = np.random.default_rng(0)
    head, relation, tail = rng.integers(0, 3000, (3, 50_000)).astype(np.int32)
    fold = fold_of_queries(Triples(head, relation, tail))
    np.testing.assert_array_equal(fold[::7], fold_of_queries(Triples(head[::7], relation[::7], tail[::7])))
    counts = np.bincount(fold, minlength=FOLDS)
    assert (np.abs(counts - 10_000) < 5 * np.sqrt(8000)).all()
    # a triple and its reverse share a fold by chance only
    assert np.mean(fold == fold_of_queries(Triples(tail, relation, head))) < 0.25


def test_each_row_is_answered_by_the_model_of_its_fold() -> None:
    graph = crowded_graph(40, 0)
    models = tuple(tuple(Numbered(10 * variant + place) for place in range(FOLDS)) for variant in range(2))
    crossfit = CrossFit(models)  # type: ignore[arg-type]
    fold = fold_of_rows(40, 0)
    np.testing.assert_array_equal(crossfit.scores(graph, fold), np.stack([fold, fold + 10], axis=1))
    np.testing.assert_array_equal(crossfit.scores(graph)[:, 0], fold_of_queries(graph))


def test_variants() -> None:
    first, second = variants(TrainConfig())
    assert first == TrainConfig()
    assert second.negative_weight == 0.05
    assert second.regularization > 0
