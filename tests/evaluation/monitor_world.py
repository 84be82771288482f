"""A model with random parameters: what a monitor does does not depend on how well it was trained."""

from __future__ import annotations

import numpy as np

from unkgcp.backbones import get
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import Model, TrainConfig

ENTITIES, RELATIONS = 40, 3


def random_model() -> Model:
    rng = np.random.default_rng(0)
    rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
    tensors = {
        name: rng.normal(0, 1, (rows[table.kind], table.width)).astype(np.float32)
        for name, table in get("ukge").tables(4).items()
    }
    vocabulary = Vocabulary.of([f"e{i}" for i in range(ENTITIES)], [f"r{i}" for i in range(RELATIONS)])
    seen = np.ones(ENTITIES, bool)
    seen[-1] = False
    return Model.from_tensors(
        tensors, vocabulary, TrainConfig(dimension=4), 0, seen, np.array([True] * (RELATIONS - 1) + [False])
    )


def draw_facts(model: Model, n: int, rng: np.random.Generator, power: float = 1.0) -> Graph:
    """Facts about known things, with confidences that lie on 11 values (ties) and depend on the score."""
    head, tail = rng.integers(0, ENTITIES - 1, (2, n), dtype=np.int32)
    relation = rng.integers(0, RELATIONS - 1, n, dtype=np.int32)
    score = model.score(head, relation, tail)
    noise = rng.random(n) ** power
    return Graph(head, relation, tail, np.round(0.5 * score + 0.5 * noise, 1).astype(float), model.vocabulary)
