"""Features of the neighbourhood against counting in plain Python."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.rounding import apart
from tests.worlds import vocabulary
from unkgcp import loops
from unkgcp.evidence import neighbour_kernels
from unkgcp.evidence.features import NEIGHBOUR_NAMES, Neighbours
from unkgcp.graph import Graph

NAN = math.nan


def graph(n: int, seed: int, entities: int = 9, relations: int = 2) -> Graph:
    rng = np.random.default_rng(seed)
    ids = [rng.integers(high, size=n, dtype=np.int32) for high in (entities, relations, entities)]
    return Graph(*ids, rng.random(n).round(2), vocabulary(entities, relations))


SINGLE = apart(1, 1.0)  # sums of positive numbers in double precision, stored in single precision


def features(train: Graph, queries: Graph) -> np.ndarray:
    return Neighbours.of(train).features(queries.head, queries.relation, queries.tail)


class Counted:
    """The facts of a graph in a list; every question is answered by looking at all of them."""

    def __init__(self, train: Graph, most: int = 10**9) -> None:
        columns = (train.head, train.relation, train.tail, train.confidence)
        self.facts = [
            (int(h), int(r), int(t), float(c)) for h, r, t, c in zip(*columns, strict=True) if h != t
        ]
        self.beside = {
            e: {t for h, _, t, _ in self.facts if h == e} | {h for h, _, t, _ in self.facts if t == e}
            for e in range(train.n_entities)
        }
        self.most = most

    def weight(self, e: int) -> float:
        return 1 / math.log1p(max(len(self.beside[e]), 1))

    def between(self, one: int, two: int) -> list[float]:
        return [c for h, _, t, c in self.facts if {h, t} == {one, two}]

    def facts_of(self, head: int | None, relation: int, tail: int | None) -> list[tuple[int, float]]:
        """The entity in the place that is None and the confidence of each fact, ascending."""
        return sorted(
            (t if tail is None else h, c)
            for h, r, t, c in self.facts
            if r == relation and head in (None, h) and tail in (None, t)
        )

    def row(self, h: int, r: int, t: int) -> list[Any]:
        shared = sorted(self.beside[h] & self.beside[t])
        union = len(self.beside[h] | self.beside[t])
        pairs = {(a, b) for a, _, b, _ in self.facts}
        x = [np.mean(self.between(h, z)) for z in shared]
        y = [np.mean(self.between(t, z)) for z in shared]
        smaller = min(len(self.beside[h]), len(self.beside[t]))
        return [
            len(shared),
            sum(map(self.weight, shared)),
            len(shared) / max(union, 1),
            len(shared) / max(smaller, 1),
            sum((h, z) in pairs and (z, t) in pairs for z in shared),
            sum((t, z) in pairs and (z, h) in pairs for z in shared),
            sum((h, z) in pairs and (t, z) in pairs for z in shared),
            sum((z, h) in pairs and (z, t) in pairs for z in shared),
            len(self.beside[h]),
            len(self.beside[t]),
            float(np.mean(x)) if shared else NAN,
            float(np.mean(y)) if shared else NAN,
            float(np.mean([a * b for a, b in zip(x, y, strict=True)])) if shared else NAN,
            max((min(a, b) for a, b in zip(x, y, strict=True)), default=NAN),
            *self.beside_it([fact for fact in self.facts_of(h, r, None) if fact[0] in shared]),
            *self.beside_it([fact for fact in self.facts_of(None, r, t) if fact[0] in shared]),
            *self.alike(self.facts_of(None, r, t), h, t),
            *self.alike(self.facts_of(h, r, None), t, h),
        ]

    def beside_it(self, facts: list[tuple[int, float]]) -> list[float]:
        if not facts:
            return [0, NAN, NAN, NAN]
        said, weight = [c for _, c in facts], [self.weight(z) for z, _ in facts]
        return [len(facts), float(np.mean(said)), max(said), float(np.average(said, weights=weight))]

    def alike(self, facts: list[tuple[int, float]], me: int, beside: int) -> list[Any]:
        facts = [fact for fact in facts if fact[0] != me]
        if len(facts) > self.most:
            facts = [facts[i * len(facts) // self.most] for i in range(self.most)]
        likeness = [
            sum(self.weight(x) for x in (self.beside[me] & self.beside[z]) - {beside})
            / math.sqrt(1 + len(self.beside[z]))
            for z, _ in facts
        ]
        if not sum(likeness):
            return [NAN, 0, 0, NAN]
        best = max(likeness)
        mean = float(np.average([c for _, c in facts], weights=likeness))
        return [
            mean,
            sum(likeness),
            best,
            [c for (_, c), own in zip(facts, likeness, strict=True) if own > best - 1e-12],
        ]


def rows(counted: Counted, queries: Graph, told: np.ndarray) -> list[list[float]]:
    """The counted features; where several partners are equally alike, up to rounding, the value in the table counts."""
    columns = (queries.head.tolist(), queries.relation.tolist(), queries.tail.tolist())
    return [
        [
            min(cell, key=lambda one, own=own: abs(one - own)) if isinstance(cell, list) else cell
            for cell, own in zip(counted.row(*triple), row, strict=True)
        ]
        for *triple, row in zip(*columns, told.tolist(), strict=True)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_features_are_what_one_counts(seed: int) -> None:
    train, queries = graph(12 + 12 * seed, seed), graph(60, seed + 100)
    table = features(train, queries)
    assert table.shape == (60, len(NEIGHBOUR_NAMES))
    np.testing.assert_allclose(table, rows(Counted(train), queries, table), rtol=SINGLE)


def test_many_partners_are_spread_over_all_of_them() -> None:
    train, queries = graph(3000, 0, entities=300, relations=1), graph(40, 1, entities=300, relations=1)
    hub = np.zeros(1500, np.int32)
    train = Graph(
        train.head, train.relation, np.append(hub, train.tail[1500:]), train.confidence, train.vocabulary
    )
    queries = Graph(queries.head, queries.relation, hub[:40], queries.confidence, queries.vocabulary)
    table = features(train, queries)
    most = neighbour_kernels.MOST
    assert len(Counted(train).facts_of(None, 0, 0)) > 10 * most
    np.testing.assert_allclose(table, rows(Counted(train, most), queries, table), rtol=SINGLE)
    everything = np.array(rows(Counted(train), queries, table))
    assert not np.allclose(table, everything, rtol=SINGLE, equal_nan=True)


def test_long_lists_are_searched_as_short_ones_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    train, queries = graph(400, 5, entities=60), graph(200, 6, entities=60)
    compiled = features(train, queries)
    for search in (False, True):
        monkeypatch.setattr(
            neighbour_kernels, "neighbours", _plain(_searched=lambda *sizes, found=search: found)
        )
        np.testing.assert_array_equal(features(train, queries), compiled)
    # lists that are too long to walk are looked up, and if that is too long as well a sample of one is
    monkeypatch.setattr(neighbour_kernels, "neighbours", _plain(BUDGET=0, SAMPLED=10**6))
    np.testing.assert_allclose(features(train, queries), compiled, rtol=SINGLE)
    monkeypatch.setattr(neighbour_kernels, "neighbours", _plain(BUDGET=0, SAMPLED=4))
    sampled = features(train, queries)
    np.testing.assert_array_equal(sampled[:, :22], compiled[:, :22])
    assert (sampled[:, 23] != compiled[:, 23]).any()
    # a sample is scaled: likeness is right on average
    assert sampled[:, 23].mean() == pytest.approx(compiled[:, 23].mean(), rel=0.1)


def _plain(**others: Any) -> Callable[..., None]:
    """The same loops in plain Python, with other constants or parts."""
    space: dict[str, Any] = {
        name: part.py_func if hasattr(part, "py_func") else part
        for name, part in vars(neighbour_kernels).items()
    }
    for name, part in space.items():
        if isinstance(part, types.FunctionType):
            space[name] = types.FunctionType(part.__code__, space, name, part.__defaults__)
    space.update(others)
    return space["neighbours"]  # type: ignore[no-any-return]


def test_the_same_alone_and_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    train, queries = graph(300, 7, entities=50), graph(600, 8, entities=50)
    monkeypatch.setattr(loops.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    table = features(train, queries)
    alone = [features(train, queries[row : row + 1])[0] for row in range(len(queries))]
    np.testing.assert_array_equal(table, alone)


def test_entities_that_are_not_there() -> None:
    train = graph(20, 0)
    ids = np.array([-1, 0, 9, 10**6])
    table = Neighbours.of(train).features(ids, np.zeros(4, np.int64), np.array([0, -1, 0, 0]))
    assert (table[:, :10] == 0).all()
    assert np.isnan(table[:, 10:]).all()


def test_a_graph_of_loops_has_no_neighbours() -> None:
    train = graph(5, 0)
    circular = Graph(train.head, train.relation, train.head, train.confidence, train.vocabulary)
    table = features(circular, train)
    assert (table[:, :10] == 0).all()
