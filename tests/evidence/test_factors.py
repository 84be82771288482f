"""Factors find patterns that means do not have, and say nothing of what they have not seen."""

from __future__ import annotations

import numpy as np

from tests.worlds import crowded_graph
from unkgcp.evidence.factors import FACTOR_NAMES, RANK, Factorisation, Factors


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


def test_of_the_same_things_the_direction_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    head, tail = rng.integers(0, 40, (2, 900))
    table = Factorisation.fit(head, tail, rng.random(900), same=True)
    one, other = table.features(head[:50], tail[:50]), table.features(tail[:50], head[:50])
    np.testing.assert_allclose(one[:, :2], other[:, :2], rtol=1e-5)
    np.testing.assert_allclose(one[:, 2], other[:, 3], rtol=1e-5)


def test_what_was_never_seen_has_no_effect_and_the_error_of_all() -> None:
    rng = np.random.default_rng(2)
    confidence = rng.random(200)
    table = Factorisation.fit(rng.integers(0, 9, 200), rng.integers(0, 9, 200), confidence)
    nobody = table.features(np.array([77]), np.array([-1]))[0]
    np.testing.assert_allclose(nobody, [confidence.mean()] * 2 + [table.mean[1]] * 2, rtol=1e-5)


def test_stored_and_restored() -> None:
    graph = crowded_graph(300, 3)
    factors = Factors.of(graph)
    again = Factors.restore(factors.arrays(), graph.n_relations)
    ids = [np.asarray(ids[:40], np.int64) for ids in (graph.head, graph.relation, graph.tail)]
    told = factors.features(*ids)
    assert told.shape == (40, len(FACTOR_NAMES))
    np.testing.assert_array_equal(told, again.features(*ids))
    assert factors.tables[0] is not None
    assert factors.tables[0].of_row.shape[1] == RANK + 2
