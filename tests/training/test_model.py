"""Scores without torch are those of the backbones, each the same alone as among others."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from numba.core.errors import TypingError

from tests.rounding import assert_within, scores_apart
from unkgcp.backbones import get, score_triples
from unkgcp.loops import ROWS
from unkgcp.training import TrainConfig, model
from unkgcp.training.compiled_common import products
from unkgcp.training.config import DISTMULT

ENTITIES, RELATIONS = 300, 7
KINDS = ("entity", "relation", "entity")


def tables(dimension: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = model.table_shapes(TrainConfig(dimension=dimension), ENTITIES, RELATIONS)
    return {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def ids(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return tuple(rng.integers(0, size, n) for size in (ENTITIES, RELATIONS, ENTITIES))  # type: ignore[return-value]


@pytest.mark.parametrize("name", DISTMULT)
@pytest.mark.parametrize("dimension", [1, 7, 8, 50, 128])
def test_scores_are_those_of_the_backbone(name: str, dimension: int) -> None:
    own, triples = tables(dimension), ids(2000)
    shapes = {key: (table.kind, table.width) for key, table in get(name).tables(dimension).items()}
    rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
    assert model.table_shapes(TrainConfig(dimension=dimension), ENTITIES, RELATIONS) == {
        key: (rows[kind], width) for key, (kind, width) in shapes.items()
    }
    expected = score_triples(
        get(name),
        {key: torch.from_numpy(table) for key, table in own.items()},
        *(torch.from_numpy(column) for column in triples),
    ).numpy()
    found = model.distmult_scores(name, own, *triples)
    bound = scores_apart(name, own, *triples)
    assert_within(found, expected, bound)
    head, relation, tail = triples
    many = model.distmult_against_all(name, own, head[:20], relation[:20])
    assert_within(many[np.arange(20), tail[:20]], expected[:20], bound[:20])


def test_a_wrong_score_is_beyond_rounding() -> None:
    own, triples = tables(128), ids(2000)
    found = model.distmult_scores("ukge-rect", own, *triples)
    own["entity"][:, -1] *= 1.01  # one dimension of 128 is wrong by one part in a hundred
    with pytest.raises(AssertionError, match="rounding explains"):
        assert_within(
            found,
            model.distmult_scores("ukge-rect", own, *triples),
            scores_apart("ukge-rect", own, *triples),
        )


def test_a_triple_has_one_score_whatever_is_asked_beside_it() -> None:
    own, triples = tables(128), ids(3 * (16 * ROWS) // 2 + 77)
    whole = model.distmult_scores("ukge", own, *triples)
    for rows in (slice(0, 1), slice(5, 12), slice(8190, 8200), slice(-3, None), slice(1, None, 7)):
        part = model.distmult_scores("ukge", own, *(column[rows] for column in triples))
        np.testing.assert_array_equal(part, whole[rows])


@pytest.mark.parametrize("dimension", [1, 50, 64])
def test_a_triple_has_one_score_wherever_its_rows_lie_in_memory(dimension: int) -> None:
    """A run that is read from disk begins its tables at a line of the processor's cache, a fresh one need not."""
    own, triples = tables(dimension), ids(500)
    found = model.distmult_scores("ukge", own, *triples)
    for shift in range(0, 64, 4):
        room = np.empty(own["entity"].nbytes + 128, np.uint8)
        start = -room.ctypes.data % 64 + shift
        moved = room[start : start + own["entity"].nbytes].view(np.float32).reshape(own["entity"].shape)
        moved[:] = own["entity"]
        again = model.distmult_scores("ukge", own | {"entity": moved}, *triples)
        np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("dimension", [1, 7, 15, 16, 17, 50, 64, 100, 128, 200])
def test_numpy_and_the_compiled_loop_add_in_one_order(dimension: int) -> None:
    own, triples = tables(dimension), ids(1000)
    found = [np.empty(1000, np.float32) for _ in range(3)]
    model._numpy_products(own["entity"], own["relation"], *triples, found[0])
    products(own["entity"], own["relation"], *(column.astype(np.int32) for column in triples), found[1])
    np.testing.assert_array_equal(found[0], found[1])
    found[2][:] = np.einsum("nd,nd,nd->n", *(own[k][v] for k, v in zip(KINDS, triples, strict=True)))
    if dimension > 16:
        assert (found[2] != found[1]).any()  # another order is not the same, so the test above can fail


@pytest.mark.parametrize("compiled", [True, False])
def test_tables_in_any_order_give_the_same_scores(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(model, "_products", lambda numbers: model._numpy_products)
    own, triples = tables(50), ids(300)
    found = model.distmult_scores("ukge", own, *triples)
    wide = np.zeros((2 * ENTITIES, 100), np.float32)
    wide[::2, ::2] = own["entity"]
    for entity in (np.asfortranarray(own["entity"]), wide[::2, ::2], own["entity"].astype(np.float64)):
        other = own | {"entity": entity, "relation": np.asfortranarray(own["relation"])}
        np.testing.assert_array_equal(model.distmult_scores("ukge", other, *triples), found)


def test_the_compiled_loop_takes_no_table_that_it_would_misread() -> None:
    own, triples = tables(50), [column.astype(np.int32) for column in ids(3)]
    for wrong in (np.asfortranarray(own["entity"]), own["entity"].astype(np.float64)):
        with pytest.raises(TypingError):
            products(wrong, own["relation"], *triples, np.empty(3, np.float32))


def test_parameters_that_overflow_give_no_made_up_number() -> None:
    own = {name: np.full_like(table, 1e30) for name, table in tables(8).items()}
    found = model.distmult_scores("ukge", own, *ids(10))
    assert ((found >= 0) & (found <= 1)).all()


def test_a_program_that_will_be_asked_for_long_loads_numba_before() -> None:
    code = (
        "import sys\n"
        "from tests.worlds import random_model, vocabulary\n"
        "assert 'numba' not in sys.modules\n"
        "random_model(vocabulary(5, 2), dimension=4).prepare()\n"
        "assert 'unkgcp.training.compiled_common' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("bad", [-1, ENTITIES])
def test_ids_outside_the_tables_are_refused(bad: int) -> None:
    head, relation, tail = ids(5)
    head[3] = bad
    with pytest.raises(IndexError):
        model.distmult_scores("ukge", tables(8), head, relation, tail)


def test_asking_a_model_loads_no_torch_and_asking_it_little_no_numba() -> None:
    code = (
        "import sys, numpy as np\n"
        "from unkgcp.training import Model, TrainConfig\n"
        "from unkgcp.graph import Vocabulary\n"
        "from unkgcp.training.model import table_shapes\n"
        "shapes = table_shapes(TrainConfig(dimension=4), 2, 1)\n"
        "t = {k: np.ones(s, np.float32) for k, s in shapes.items()}\n"
        "m = Model.from_tensors(t, Vocabulary.of(['a', 'b'], ['r']), TrainConfig(dimension=4), 0, None, None)\n"
        "few = m.score([0], [0], [1]); m.tails([0], [0]); m.heads([0], [1])\n"
        "assert not {'torch', 'numba'} & set(sys.modules)\n"
        "many = m.score(*np.repeat([[0], [0], [1]], 1 << 18, axis=1))\n"
        "assert 'torch' not in sys.modules and 'numba' in sys.modules and (many == few).all()\n"
        "from unkgcp.training.model import _numpy_products, _products\n"
        "assert _products(1) is not _numpy_products  # once loaded, it also serves few\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
