"""A small graph with structure that a few epochs can learn."""

import numpy as np
import pytest

from unkgcp.graph import Graph, Vocabulary


def small_graph(n: int = 600, entities: int = 40, relations: int = 3, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary.of([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    latent = rng.normal(size=(entities, 3))
    weights = rng.normal(size=(relations, 3))
    head, tail = (rng.integers(entities, size=n, dtype=np.int32) for _ in range(2))
    relation = rng.integers(relations, size=n, dtype=np.int32)
    score = (latent[head] * weights[relation] * latent[tail]).sum(1)
    return Graph(head, relation, tail, 1 / (1 + np.exp(-score)), vocabulary)


@pytest.fixture
def facts() -> Graph:
    return small_graph()
