"""A small model with random parameters: what a bundle holds does not depend on how well it was trained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unkgcp.backbones import get
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import Model, TrainConfig

ENTITIES, RELATIONS, DIMENSION = 40, 4, 8


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary.of(
        [f"entity {i}" if i else "Zoë\n" for i in range(ENTITIES)], [f"r{i}" for i in range(RELATIONS)]
    )


@pytest.fixture(scope="session")
def make_model(vocabulary: Vocabulary) -> Callable[..., Model]:
    def make(seed: int = 0, model: str = "ukge", quantile: float | None = None) -> Model:
        rng = np.random.default_rng(seed)
        rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
        tensors = {
            name: rng.normal(0, 1, (rows[table.kind], table.width)).astype(np.float32)
            for name, table in get(model).tables(DIMENSION).items()
        }
        config = TrainConfig(model=model, dimension=DIMENSION, quantile=quantile)
        seen_entities = np.arange(ENTITIES) < ENTITIES - 2
        seen_relations = np.arange(RELATIONS) < RELATIONS - 1
        return Model.from_tensors(tensors, vocabulary, config, seed, seen_entities, seen_relations)

    return make


@pytest.fixture(scope="session")
def make_facts(vocabulary: Vocabulary) -> Callable[..., Graph]:
    def make(n: int, seed: int = 0) -> Graph:
        rng = np.random.default_rng(seed)
        head, tail = rng.integers(0, ENTITIES, (2, n), dtype=np.int32)
        return Graph(head, rng.integers(0, RELATIONS, n, dtype=np.int32), tail, rng.random(n), vocabulary)

    return make


@pytest.fixture(scope="session")
def quantiles(make_model: Callable[..., Model]) -> dict[float, Model]:
    return {tau: make_model(7 + i, quantile=tau) for i, tau in enumerate((0.05, 0.1, 0.9, 0.95))}
