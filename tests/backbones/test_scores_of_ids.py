"""A triple has one score, whatever is asked beside it, for the backbones that torch computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.worlds import random_model, vocabulary
from unkgcp.backbones import REGISTRY, score_triples
from unkgcp.training import Model
from unkgcp.training.config import DISTMULT

ENTITIES, RELATIONS, N = 300, 7, 3000
TORCH = sorted(set(REGISTRY) - set(DISTMULT))


def model(name: str, dimension: int) -> Model:
    return random_model(vocabulary(ENTITIES, RELATIONS), name, dimension, spread=0.5)


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
    single, ids = model(name, 50), triples()
    tables = {key: table.double().numpy() for key, table in single.parameters.items()}
    own = Model(tables, single.vocabulary, single.config, 0, single.seen_entities, single.seen_relations)
    expected = score_triples(
        own.backbone, own.parameters, *(torch.from_numpy(column) for column in ids)
    ).numpy()
    # computed in double precision, and rounded once to single precision; some scores of boxes are below 1e-20, and
    # those below the smallest normal number have fewer digits, or none where a processor takes them for 0
    single = np.finfo(np.float32)
    np.testing.assert_allclose(own.score(*ids), expected, rtol=float(single.eps), atol=float(single.tiny))
    assert own.score(*(column[:0] for column in ids)).shape == (0,)
