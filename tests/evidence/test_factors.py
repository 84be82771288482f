"""Factors find patterns that means do not have, and say nothing of what they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worlds import crowded_graph, vocabulary
from unkgcp.evidence.factors import FACTOR_NAMES, RANK, Factorisation, Factors, SharedFactors
from unkgcp.graph import Graph


def test_a_product_is_found_where_means_say_nothing() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.choice([-1.0, 1.0], 60), rng.choice([-1.0, 1.0], 50)
    row, column = rng.integers(0, 60, 2500), rng.integers(0, 50, 2500)
    confidence = 0.5 + 0.3 * u[row] * v[column]
    known = np.arange(2500) < 2200
    table = Factorisation.fit(row[known], column[known], confidence[known])
    additive, product = table.features(row[~known], column[~known])[:, :2].T
    truth = confidence[~known]
    assert np.abs(product - truth).mean() < 0.1 < 0.25 < np.abs(additive - truth).mean()


def test_relations_share_what_they_say_of_an_entity() -> None:
    """Each relation weighs one hidden number of every entity; of ten relations, each fact teaches all others."""
    rng = np.random.default_rng(1)
    number, weight = rng.normal(0, 0.5, 100), rng.choice([-1.0, 1.0], 10)
    head, tail = rng.integers(0, 100, (2, 9000))
    relation = rng.integers(0, 10, 9000)
    confidence = (
        0.5 + 0.1 * (number[head] + number[tail]) + 0.2 * weight[relation] * number[head] * number[tail]
    )
    known = np.arange(9000) < 8000
    facts = [ids[known] for ids in (head, relation, tail)]
    shared = SharedFactors.fit(*facts, confidence[known], (100, 10))
    apart = Factorisation.fit(facts[0], facts[2] * 10 + facts[1], confidence[known])
    fresh = [ids[~known] for ids in (head, relation, tail)]
    additive, product = shared.features(*fresh)[:, :2].T
    without = apart.features(fresh[0], fresh[2] * 10 + fresh[1])[:, 1]
    errors = [np.abs(guess - confidence[~known]).mean() for guess in (product, additive, without)]
    assert errors[0] < 0.5 * min(errors[1:])
    unknown = shared.features(*(np.array([-1]) for _ in range(3)))[0]
    np.testing.assert_allclose(unknown, [confidence[known].mean()] * 2 + [shared.mean[1]] * 2, rtol=1e-5)


def test_what_was_never_seen_has_no_effect_and_the_error_of_all() -> None:
    rng = np.random.default_rng(2)
    confidence = rng.random(200)
    table = Factorisation.fit(rng.integers(0, 9, 200), rng.integers(0, 9, 200), confidence)
    nobody = table.features(np.array([77]), np.array([-1]))[0]
    np.testing.assert_allclose(nobody, [confidence.mean()] * 2 + [table.mean[1]] * 2, rtol=1e-5)


def test_stored_and_restored() -> None:
    graph = crowded_graph(300, 3)
    factors = Factors.of(graph, np.minimum(np.arange(300), 200))
    again = Factors.restore(factors.arrays(), graph.n_entities, graph.n_relations)
    ids = [np.asarray(ids[:40], np.int64) for ids in (graph.head, graph.relation, graph.tail)]
    told = factors.features(*ids, graph.n_relations)
    assert told.shape == (40, len(FACTOR_NAMES))
    np.testing.assert_array_equal(told, again.features(*ids, graph.n_relations))
    for name in ("0.of_row", "2.of_relation"):
        with pytest.raises(ValueError, match="do not fit together"):
            Factors.restore(
                {**factors.arrays(), name: np.zeros((1, RANK))}, graph.n_entities, graph.n_relations
            )


def test_stock_values_do_not_hide_what_the_other_facts_say() -> None:
    """Half of the facts have a stock value; the table without them finds the numbers of the entities."""
    rng = np.random.default_rng(5)
    standing = rng.normal(0, 0.1, 60)
    head, tail = rng.integers(0, 60, (2, 3000))
    relation = np.zeros(3000, np.int64)
    truth = 0.4 + standing[head] + standing[tail]
    stock = rng.random(3000) < 0.5
    columns = (head.astype(np.int32), relation.astype(np.int32), tail.astype(np.int32))
    graph = Graph(*columns, np.clip(np.where(stock, 1.0, truth), 0, 1), vocabulary(60, 1))
    codes = np.unique(graph.confidence, return_inverse=True)[1]
    shares = [Factors.of(graph, codes) for codes in (codes, np.arange(3000))]
    assert shares[1].tables[3] is None
    told = shares[0].features(head, relation, tail, 1)
    every, rare = (np.abs(told[:, 4 * table + 1] - truth).mean() for table in (2, 3))
    assert rare < 0.02 < 0.2 < every
