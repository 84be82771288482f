"""Shared neighbours against counting them."""

from __future__ import annotations

import numpy as np

from unkgcp.evidence.neighbours import NAMES, Neighbours
from unkgcp.graph import Graph, Vocabulary


def graph(n: int, seed: int, entities: int = 9) -> Graph:
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary.of([f"e{i}" for i in range(entities)], ["r0", "r1"])
    draw = lambda high: rng.integers(high, size=n, dtype=np.int32)  # noqa: E731
    return Graph(draw(entities), draw(2), draw(entities), rng.random(n), vocabulary)


def naive(train: Graph, head: int, tail: int) -> list[float]:
    pairs = {(int(h), int(t)) for h, t in zip(train.head, train.tail, strict=True) if h != t}
    beside = {
        e: {t for h, t in pairs if h == e} | {h for h, t in pairs if t == e} for e in range(train.n_entities)
    }
    shared = beside[head] & beside[tail]
    weight = sum(1 / np.log1p(max(len(beside[x]), 1)) for x in shared)
    union = len(beside[head]) + len(beside[tail]) - len(shared)
    chain = sum((head, x) in pairs and (x, tail) in pairs for x in range(train.n_entities))
    return [len(shared), weight, len(shared) / max(union, 1), chain]


def test_features_are_the_counts() -> None:
    for seed in range(5):
        train, queries = graph(25, seed), graph(60, seed + 100)
        table = Neighbours.of(train).features(queries)
        expected = [naive(train, int(h), int(t)) for h, t in zip(queries.head, queries.tail, strict=True)]
        assert table.shape == (60, len(NAMES))
        np.testing.assert_allclose(table, expected, rtol=1e-5)


def test_a_fact_between_the_two_changes_the_share_alone() -> None:
    train = graph(25, 0)
    for row in range(len(train)):
        fact = train[row : row + 1]
        rest = train[np.arange(len(train)) != row]
        with_it, without = (Neighbours.of(each).features(fact)[0] for each in (train, rest))
        assert with_it[0] == without[0]
        assert with_it[3] == without[3]
