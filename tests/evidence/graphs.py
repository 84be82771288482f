"""Small graphs with what makes confidences hard: atoms, repeated triples, loops, pairs seen from both sides."""

from __future__ import annotations

import numpy as np

from unkgcp.graph import Graph, Vocabulary

ATOMS = np.array([0.4375, 0.4374999999999998, 0.7, 1.0, 0.9999999999999998])


def vocabulary(entities: int, relations: int) -> Vocabulary:
    return Vocabulary.of([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])


def small_graph(n: int, seed: int, entities: int = 6, relations: int = 3) -> Graph:
    """So few entities that every statistic has something to count."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(0, entities, (2, n), dtype=np.int32)
    confidence = np.where(rng.random(n) < 0.7, rng.choice(ATOMS, n), rng.random(n).round(2))
    relation = rng.integers(0, relations, n, dtype=np.int32)
    return Graph(head, relation, tail, confidence, vocabulary(entities, relations))


def mirrored_graph(n: int, seed: int, entities: int = 60, relations: int = 4) -> Graph:
    """Confidences that other facts of the pair mostly repeat, the rest depends on the relation; rows exchangeable."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, entities, (max(1, n // 4), 2))
    own = np.where(
        rng.random(len(pairs)) < 0.6, rng.choice(ATOMS[[0, 2, 3]], len(pairs)), rng.random(len(pairs))
    )
    which = rng.integers(0, len(pairs), n)
    turned = rng.random(n) < 0.5
    head = np.where(turned, pairs[which, 1], pairs[which, 0]).astype(np.int32)
    tail = np.where(turned, pairs[which, 0], pairs[which, 1]).astype(np.int32)
    relation = rng.integers(0, relations, n).astype(np.int32)
    noise = np.clip(0.2 * relation + 0.3 * rng.random(n), 0, 1)
    confidence = np.where(rng.random(n) < 0.75, own[which], noise)
    return Graph(head, relation, tail, confidence, vocabulary(entities, relations))
