"""A triple has one score, whatever is asked beside it, for the backbones that torch computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unkgcp.backbones import REGISTRY, get, score_triples
from unkgcp.graph import Vocabulary
from unkgcp.training import Model, TrainConfig
from unkgcp.training.config import DISTMULT

ENTITIES, RELATIONS, N = 300, 7, 3000
TORCH = sorted(set(REGISTRY) - set(DISTMULT))


def model(name: str, dimension: int) -> Model:
    rng = np.random.default_rng(0)
    rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
    tables = {
        key: rng.normal(0, 0.5, (rows[table.kind], table.width)).astype(np.float32)
        for key, table in get(name).tables(dimension).items()
    }
    words = Vocabulary.of([f"e{i}" for i in range(ENTITIES)], [f"r{i}" for i in range(RELATIONS)])
    seen = np.ones(ENTITIES, bool), np.ones(RELATIONS, bool)
    return Model(tables, words, TrainConfig(name, dimension=dimension), 0, *seen)


def triples() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, size, N) for size in (ENTITIES, RELATIONS, ENTITIES)]


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dimension", [8, 50, 64, 100])
def test_a_triple_has_one_score_whatever_is_asked_beside_it(name: str, dimension: int) -> None:
    own, ids = model(name, dimension), triples()
    whole = own.score(*ids)
    for size in (1, 7, 32, 257, 1001):
        last = 300 if size == 1 else N
        parts = [own.score(*(c[i : min(i + size, last)] for c in ids)) for i in range(0, last, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[:last])
    np.testing.assert_array_equal(own.score(*(c[::-1] for c in ids)), whole[::-1])
    np.testing.assert_array_equal(own.score(*(np.tile(c, 20) for c in ids)), np.tile(whole, 20))


@pytest.mark.parametrize("name", TORCH)
def test_scores_are_those_of_the_backbone(name: str) -> None:
    own, ids = model(name, 50), triples()
    expected = score_triples(own.backbone, own.parameters, *(torch.from_numpy(column) for column in ids))
    np.testing.assert_allclose(own.score(*ids), expected.numpy(), rtol=1e-5, atol=1e-7)
    assert own.score(*(column[:0] for column in ids)).shape == (0,)
