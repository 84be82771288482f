"""A single query needs no memory that grows with the graph, and gets the same bits as among many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from tests.rounding import EXP_ULPS, apart, assert_within
from tests.worlds import random_graph, vocabulary
from unkgcp import loops
from unkgcp.evidence import Evidence
from unkgcp.evidence.features import Neighbours
from unkgcp.evidence.tree_kernels import BLOCK
from unkgcp.evidence.trees import LEAVES, Trees, remaining
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


class Walkable(NamedTuple):
    """Random trees, and the children of their nodes: c >= 0 is node c of the same tree, c < 0 is leaf ~c."""

    trees: Trees
    children: list[np.ndarray]

    def sums(self, row: np.ndarray) -> np.ndarray:
        """Sums of leaves in the order of the trees, by walking in plain Python."""
        trees = self.trees
        sums = trees.prior.copy()
        for tree, children in enumerate(self.children):
            node = 0 if len(children) else -1
            while node >= 0:
                at = trees.first_node[tree] + node
                value = float(row[trees.feature[at]])
                lower = bool(trees.missing_left[at]) if np.isnan(value) else value <= trees.threshold[at]
                node = int(children[node, 0 if lower else 1])
            sums[trees.tree_class[tree]] += trees.leaf[LEAVES * tree + ~node]
        return sums


def made_trees(rng: np.random.Generator, count: int, features: int, classes: int) -> Walkable:
    """Trees of up to 31 nodes whose children come after them; some are a single leaf, some have all leaves."""
    sizes = rng.choice([0, 1, 2, 5, 9, 30, LEAVES - 1], count)
    every, if_left, if_right = [], [], []
    for size in sizes:
        # the parent of every node but the root is an earlier node; the remaining children are leaves
        children = np.full((size, 2), -1)
        for node in range(1, size):
            free = np.argwhere(children[:node] < 0)
            children[tuple(free[rng.integers(len(free))])] = node
        for place, at in enumerate(rng.permutation(np.argwhere(children < 0))):
            children[tuple(at)] = ~place
        every.append(children)
        if size:
            left, right = remaining(children[:, 0].tolist(), children[:, 1].tolist())
            if_left += left
            if_right += right
    nodes = int(sizes.sum())
    trees = Trees(
        features,
        np.arange(classes),
        classes,
        rng.normal(size=classes),
        np.append(0, np.cumsum(sizes)),
        rng.integers(0, classes, count),
        rng.integers(0, features, nodes).astype(np.int32),
        rng.normal(size=nodes).astype(np.float32),
        rng.random(nodes) < 0.5,
        np.array(if_left, np.uint32),
        np.array(if_right, np.uint32),
        rng.normal(size=LEAVES * count),
    )
    trees._check()
    return Walkable(trees, every)


@pytest.mark.parametrize("rows", [1, BLOCK, 2 * BLOCK + 3])
def test_leaves_are_summed_in_the_order_of_the_trees(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(rows)
    walkable = made_trees(rng, 60, 5, 3)
    trees = walkable.trees
    table = rng.normal(size=(rows, 5)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    sums = np.array([walkable.sums(row) for row in table])
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
    rng = np.random.default_rng(9)
    walkable = made_trees(rng, 200, 5, 3)
    table = rng.normal(size=(BLOCK + 5, 5)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    table[:7] = rng.choice(walkable.trees.threshold, (7, 5))  # exactly where a node divides
    np.testing.assert_array_equal(walkable.trees.sums(table), np.array([walkable.sums(row) for row in table]))


def test_whatever_a_stranger_writes_a_leaf_of_the_tree_is_added() -> None:
    rng = np.random.default_rng(4)
    trees = made_trees(rng, 50, 5, 3).trees
    bits = rng.integers(0, 1 << 32, (2, len(trees.feature)), np.uint32) & rng.integers(
        0, 1 << 32, (2, 1), np.uint32
    )
    wild = replace(trees, if_left=bits[0], if_right=bits[1], leaf=np.ones_like(trees.leaf))
    sums = wild.sums(rng.normal(size=(200, 5)).astype(np.float32))
    expected = trees.prior + np.bincount(trees.tree_class, minlength=3)
    np.testing.assert_allclose(sums, np.tile(expected, (200, 1)), rtol=1e-13)
