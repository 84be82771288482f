"""A single query needs no memory that grows with the graph, and gets the same bits as among many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from tests.rounding import EXP_ULPS, apart, assert_within
from tests.worlds import random_graph, vocabulary
from unkgcp import loops
from unkgcp.evidence import Evidence
from unkgcp.evidence.features import Neighbours
from unkgcp.evidence.tree_kernels import BLOCK
from unkgcp.evidence.trees import Trees
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods.method import status_codes

FACTS, ENTITIES = 30_000, 3_000


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Nearly as many values as facts, so that a table of values is as large as the graph."""
    return random_graph(FACTS, vocabulary(ENTITIES, 40))


def peak(work: Callable[[], object]) -> int:
    """The most bytes that a call holds, measured at its second run."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_features_of_one_query_take_no_table_of_the_graph(graph: Graph) -> None:
    evidence, query = Evidence.of(graph), graph[:1]
    assert len(evidence.values) > 0.9 * FACTS
    assert peak(lambda: evidence.features(query)) < FACTS


def test_neighbours_of_one_query_take_no_copy_of_the_graph(graph: Graph) -> None:
    neighbours, query = Neighbours.of(graph), graph[:1]
    assert peak(lambda: neighbours.features(query.head, query.relation, query.tail)) < FACTS


class Known:
    """A model that only says which entities and relations it has seen."""

    seen_entities = np.arange(1_000_000) % 2 == 0
    seen_relations = np.ones(3, np.bool_)

    def score(self, head, relation, tail):  # type: ignore[no-untyped-def]
        raise AssertionError


def test_who_is_known_is_looked_up_not_copied() -> None:
    ids = [(0, 0, 2), (1, 0, 2), (-1, 0, 2), (0, 3, 2), (0, -1, 4), (2_000_000, 0, 0), (0, 0, 1_000_000)]
    triples = Triples(*np.array(ids, np.int32).T)
    assert status_codes(Known(), triples).tolist() == [0, 1, 1, 2, 2, 1, 1]
    assert peak(lambda: status_codes(Known(), triples)) < 20_000


def made_trees(rng: np.random.Generator, count: int, features: int, classes: int) -> Trees:
    """Random trees of up to six nodes whose children come after them; some are a single leaf."""
    sizes = rng.integers(0, 7, count)
    left, right = [], []
    for size in sizes:
        # the parent of every node but the root is an earlier node; the remaining children are leaves
        children = np.full((size, 2), -1)
        for node in range(1, size):
            free = np.argwhere(children[:node] < 0)
            children[tuple(free[rng.integers(len(free))])] = node
        leaves = np.argwhere(children < 0)
        for place, at in enumerate(leaves):
            children[tuple(at)] = ~place
        left += children[:, 0].tolist()
        right += children[:, 1].tolist()
    nodes = int(sizes.sum())
    return Trees(
        features,
        np.arange(classes),
        classes,
        rng.normal(size=classes),
        np.append(0, np.cumsum(sizes)),
        np.append(0, np.cumsum(sizes + 1)),
        rng.integers(0, classes, count),
        rng.integers(0, features, nodes).astype(np.int32),
        rng.normal(size=nodes),
        rng.random(nodes) < 0.5,
        np.array(left, np.int32),
        np.array(right, np.int32),
        rng.normal(size=nodes + count),
    )


def walked(trees: Trees, row: np.ndarray) -> np.ndarray:
    """Sums of leaves in the order of the trees, in plain Python."""
    sums = trees.prior.copy()
    for tree, base in enumerate(trees.first_node[:-1].tolist()):
        node = 0 if trees.first_node[tree + 1] > base else -1
        while node >= 0:
            at, value = base + node, float(row[trees.feature[base + node]])
            lower = bool(trees.missing_left[at]) if np.isnan(value) else value <= trees.threshold[at]
            node = int(trees.left[at] if lower else trees.right[at])
        sums[trees.tree_class[tree]] += trees.leaf[trees.first_leaf[tree] + ~node]
    return sums


@pytest.mark.parametrize("rows", [1, BLOCK, 2 * BLOCK + 3])
def test_leaves_are_summed_in_the_order_of_the_trees(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(rows)
    trees = made_trees(rng, 60, 5, 3)
    trees._check()
    table = rng.normal(size=(rows, 5)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    sums = np.array([walked(trees, row) for row in table])
    found = trees.probabilities(table)
    for k, raw in enumerate(sums):
        weight = np.exp(raw - raw.max())
        share = weight / weight.sum()
        # the same sums of leaves; then exponentials above and below, of which each is off by some units
        assert_within(found[k], share, apart(4 * EXP_ULPS + len(raw) + 2, share, np.float64))
    # bit for bit the same alone, and with every row in a thread of its own
    alone = [trees.probabilities(table[k : k + 1])[0] for k in range(rows)]
    np.testing.assert_array_equal(found, alone)
    monkeypatch.setattr("unkgcp.evidence.trees.WALKS", 0)
    monkeypatch.setattr(loops.os, "sched_getaffinity", lambda _: set(range(rows)), raising=False)
    np.testing.assert_array_equal(trees.probabilities(table), found)


def test_sums_of_leaves_bit_for_bit() -> None:
    from unkgcp.evidence import tree_kernels

    rng = np.random.default_rng(9)
    trees = made_trees(rng, 200, 5, 3)
    table = rng.normal(size=(BLOCK + 5, 5)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    out = np.tile(trees.prior, (len(table), 1))
    columns = (trees.first_node, trees.first_leaf, trees.tree_class, trees.feature, trees.threshold)
    tree_kernels.sum_trees(table, *columns, trees.missing_left, trees.left, trees.right, trees.leaf, out)  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(out, np.array([walked(trees, row) for row in table]))
