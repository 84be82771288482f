"""Scores without torch are those of the backbones, up to rounding, with the map from scores to confidences applied."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.rounding import assert_within, scores_apart
from unkgcp.backbones import get, score_triples
from unkgcp.training import Model, TrainConfig, model
from unkgcp.training.config import DISTMULT

ENTITIES, RELATIONS = 300, 7


def tables(dimension: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = Model.table_shapes(TrainConfig(dimension=dimension), ENTITIES, RELATIONS)
    return {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def ids(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return tuple(rng.integers(0, size, n) for size in (ENTITIES, RELATIONS, ENTITIES))  # type: ignore[return-value]


@pytest.mark.parametrize("name", DISTMULT)
@pytest.mark.parametrize(("dimension", "n"), [(1, 50), (7, 50), (128, 50), (128, 20_000)])
def test_scores_are_those_of_the_backbone(name: str, dimension: int, n: int) -> None:
    """Few triples are scored by NumPy, 20,000 by the compiled loop."""
    parameters, triples = tables(dimension), ids(n)
    rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
    assert Model.table_shapes(TrainConfig(dimension=dimension), ENTITIES, RELATIONS) == {
        key: (rows[table.kind], table.width) for key, table in get(name).tables(dimension).items()
    }
    expected = score_triples(
        get(name),
        {key: torch.from_numpy(table) for key, table in parameters.items()},
        *(torch.from_numpy(column) for column in triples),
    ).numpy()
    bound = scores_apart(name, parameters, *triples)
    assert_within(model.distmult_scores(name, parameters, *triples), expected, bound)
    head, relation, tail = (column[:20] for column in triples)
    many = model.distmult_against_all(name, parameters, head, relation)
    assert_within(many[np.arange(20), tail], expected[:20], bound[:20])


def test_asking_a_model_loads_no_torch_and_asking_it_little_no_numba() -> None:
    code = (
        "import sys, numpy as np\n"
        "from unkgcp.training import Model, TrainConfig\n"
        "from unkgcp.graph import Vocabulary\n"
        "from unkgcp.training.score_map import learn_map\n"
        "shapes = Model.table_shapes(TrainConfig(dimension=4), 2, 1)\n"
        "t = {k: np.full(s, 0.5, np.float32) for k, s in shapes.items()}\n"
        "t['map'] = learn_map(np.linspace(0, 1, 9), np.linspace(0.5, 0.6, 9))\n"
        "m = Model.from_tensors(t, Vocabulary.of(['a', 'b'], ['r']), TrainConfig(dimension=4), 0, None, None)\n"
        "few = m.score([0], [0], [1]); m.tails([0], [0]); m.heads([0], [1])\n"
        "assert not {'torch', 'numba'} & set(sys.modules) and 0.5 < few < 0.6\n"
        "many = m.score(*np.repeat([[0], [0], [1]], 1 << 18, axis=1))\n"
        "assert 'torch' not in sys.modules and 'numba' in sys.modules and np.allclose(many, few, atol=1e-5)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ids_outside_the_tables_are_refused_and_overflow_gives_no_made_up_number() -> None:
    head, relation, tail = ids(5)
    for bad in (-1, ENTITIES):
        with pytest.raises(IndexError):
            model.distmult_scores("ukge", tables(8), np.where(np.arange(5) == 3, bad, head), relation, tail)
    parameters = {name: np.full_like(table, 1e30) for name, table in tables(8).items()}
    found = model.distmult_scores("ukge", parameters, head, relation, tail)
    assert ((found >= 0) & (found <= 1)).all()
