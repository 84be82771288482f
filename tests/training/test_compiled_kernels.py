"""The compiled CPU kernels against autograd: same gradients and same training, up to rounding."""

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from tests.rounding import EXP_ULPS, apart, assert_within, training_apart
from tests.worlds import learnable_graph
from unkgcp.backbones import beurre
from unkgcp.training import (
    Member,
    TrainConfig,
    box_geometry,
    box_kernels,
    compiled_common,
    distmult_kernels,
    lazy_steps,
    losses,
    randomness,
    train_many,
)
from unkgcp.training.batches import TrainingData
from unkgcp.training.compiled_engine import CompiledEngine, shards_of
from unkgcp.training.config import COMPILED
from unkgcp.training.torch_engine import TorchEngine

RULES = {"transitive": ("r1", "r2"), "compositions": (("r0", "r1", "r2"), ("r2", "r2", "r1"))}
CASES = {
    "ukge": {},
    "ukge, unfiltered": {"filter_negatives": False},
    "ukge, negatives weigh less": {"negative_weight": 0.3},
    "ukge, quantile": {"quantile": 0.1, "negatives": 0},
    "ukge, momentum": {"momentum": 0.9},
    "ukge-rect": {"regularization": 0.01},
    "passleaf": {"pool_from": 1, "pool_train_from": 2, "pool_growth": 0.3},
    "beurre": {"negatives": 11, "box_regularization": 0.1},
    "beurre, momentum": {"momentum": 0.9, "regularization": 0.1, "negative_weight": 0.3},
    "beurre, quantile": {"quantile": 0.9, "negatives": 0, "side_regularization": 0.1},
    "beurre, rules": {"negatives": 1, "logic_weight": 10.0, **RULES},
}


def config_of(case: str) -> TrainConfig:
    base = TrainConfig(
        case.split(",")[0], dimension=10, batch_size=64, negatives=4, epochs=5, validate_every=5
    )
    return replace(base, **CASES[case])


def test_kernels_and_formulas_have_the_same_constants() -> None:
    assert box_kernels.PAIRS == losses.PAIRS
    assert np.float32(beurre.BETA) == box_geometry.BETA
    assert np.float32(1 / beurre.BETA / math.log(2)) == box_geometry.HALVINGS
    assert np.float32(2 * beurre.EULER_GAMMA * beurre.BETA) == box_geometry.OFFSET
    assert box_geometry.LARGEST_LOG_SIDE == beurre.LARGEST_LOG_SIDE


def test_every_model_with_a_kernel_has_a_case() -> None:
    assert {case.split(",")[0] for case in CASES} == set(COMPILED)


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same_with_both_engines(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(case)
    facts, softlogic = learnable_graph(300), learnable_graph(20, seed=5)
    pair = []
    for kernel in (True, False):
        monkeypatch.setattr(
            "unkgcp.training.trainer.has_compiled_kernel", lambda config, device, own=kernel: own
        )
        pair += train_many(facts, [Member(2, config.quantile)], config, softlogic=softlogic, device="cpu")
    for name, table in pair[0].parameters.items():
        assert_within(table, pair[1].parameters[name], training_apart(config.learning_rate))
    assert pair[0].history[-1]["loss"] == pytest.approx(pair[1].history[-1]["loss"], rel=1e-4)


def largest_gradients(config: TrainConfig, tables: dict[str, torch.Tensor]) -> dict[str, float]:
    """The most that the parts of a gradient add up to: the weights of all terms times the largest slope."""
    if config.model == "beurre":
        return largest_box_gradients(config, tables)
    entity, relation, w, b = (tables[name].abs().double()[0] for name in ("entity", "relation", "w", "b"))
    raw = float(torch.einsum("hd,rd,td->hrt", entity, relation, entity).max())
    rectified = config.model == "ukge-rect"
    error = float(w) * raw + float(b) + 1 if rectified else 1.0
    slope = 2 * error * (1.0 if rectified else 0.25)
    slope *= 1 + config.negative_weight + config.softlogic_weight
    row = float(max(entity.max(), relation.max()))
    part = slope * float(w) * row**2 + 3 * config.regularization * row
    return {"entity": part, "relation": part, "w": slope * raw, "b": slope}


def largest_box_gradients(config: TrainConfig, tables: dict[str, torch.Tensor]) -> dict[str, float]:
    """The derivative of log softplus is at most 1, so is that of log p by a corner or a side; p and errors too.

    Rules: a norm over n pairs has parts (1 - p) / norm, whose sum is at most the square root of n.
    """
    side, scale = float(tables["log_side"].max().exp()), float(tables["head_scale"].max()) + 1
    slope = 2 * (1 + config.negative_weight + config.softlogic_weight)
    pairs = math.sqrt(losses.PAIRS) + math.sqrt(config.batch_size)
    slope += 4 * config.logic_weight / config.batch_size * pairs
    row = max(float(table.abs().max()) for table in tables.values())
    other = 2 * config.box_regularization + 2 * config.regularization * row
    corner, long = slope + other, slope * side * scale + 2 * config.side_regularization * side + other
    return {name: corner if name.endswith(("low", "shift")) else long for name in tables}


@pytest.mark.parametrize("case", CASES)
def test_one_batch_has_the_gradient_of_autograd(case: str) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    n = 30
    config = replace(config_of(case), batch_size=n)
    member = Member(1, config.quantile)
    facts, softlogic = learnable_graph(n), learnable_graph(20, seed=5)
    data = TrainingData.of(facts, softlogic, config, torch.device("cpu"))
    engines = (
        TorchEngine(data, config, [member], torch.device("cpu")),
        CompiledEngine(data, config, member, shards=3),
    )
    noise = torch.Generator().manual_seed(0)
    for name, table in engines[0].tables.items():
        stirred = table + 0.2 * torch.randn(table.shape, generator=noise)
        table.copy_(stirred)
        engines[1].tables[name].copy_(stirred)
    largest = largest_gradients(config, engines[0].tables)
    # distances of boxes are measured in units of beta, so that so many roundings of a coordinate of size 1 come in
    sharp = int(4 / beurre.BETA) if case.startswith("beurre") else 0
    losses = [engine.run_epoch(0) for engine in engines]
    expected = engines[0].adam.state[engines[0].flat]["exp_avg"] * 10
    sizes = [table.numel() for table in engines[0].tables.values()]
    by_name = dict(zip(engines[0].tables, expected.split(sizes), strict=True))
    # facts with their negatives are summed, each after a sum over the dimensions and some ten roundings more
    roundings = n * (1 + 2 * config.negatives) + config.dimension + 10 + sharp
    for name, gradient in moments(engines[1]).items():
        assert float(gradient.abs().max()) > 0
        bound = apart(roundings, largest[name])
        if sharp:
            assert float(by_name[name].abs().max()) > 20 * bound  # or the test would not see much
        assert_within(gradient.flatten() * 10, by_name[name], bound)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=apart(roundings, 1.0))


def moments(engine: CompiledEngine) -> dict[str, torch.Tensor]:
    """The first moments of the tables as the backbone names them."""
    names = {kind: [n for n, k in engine.backbone.kinds.items() if k == kind] for kind in engine._first}
    return {
        name: part
        for kind, table in engine._first.items()
        if names[kind]
        for name, part in zip(names[kind], table.chunk(len(names[kind]), -1), strict=True)
    }


def test_polynomials_are_accurate_to_some_units_in_the_last_place() -> None:
    """The bound is what vector libraries promise of exp and log, with which the tolerances above reckon."""
    x = np.linspace(-87.3, 40, 4001, dtype=np.float32)
    found = np.array([box_geometry.exponential(value) for value in x], float)
    unit = float(np.finfo(np.float32).eps)
    assert_within(found, np.exp(x.astype(float)), EXP_ULPS * unit * np.exp(x.astype(float)))
    t = np.linspace(0, 126, 4001, dtype=np.float32)
    found = np.array([box_geometry.halved(value) for value in t], float)
    assert_within(found, np.exp2(-t.astype(float)), EXP_ULPS * unit * np.exp2(-t.astype(float)))
    assert box_geometry.halved(np.float32(1e9)) == np.finfo(np.float32).tiny
    e = np.concatenate([np.linspace(0, 1, 2001), 10.0 ** -np.arange(1, 38)]).astype(np.float32)
    found = np.array([box_geometry.log_one_plus(value) for value in e], float)
    assert_within(found, np.log1p(e.astype(float)), EXP_ULPS * unit * np.log1p(e.astype(float)))


def test_a_product_far_beyond_floats_is_exact_and_says_when_it_is_no_number() -> None:
    sizes = np.float32(10.0) ** np.random.default_rng(0).uniform(-37, 17, 150).astype(np.float32)
    mantissa, power = box_geometry.product(sizes, 0, len(sizes))
    found = math.log(mantissa) + power * math.log(2)
    expected = float(np.log(sizes.astype(float)).sum())
    assert abs(found - expected) <= apart(len(sizes), 1.0) + 1e-12 * abs(expected)
    sizes[70] = np.inf
    assert math.isnan(box_geometry.product(sizes, 0, len(sizes))[0])


def test_filtered_negatives_are_never_training_facts() -> None:
    facts = learnable_graph(900, entities=20)
    keys = np.unique(facts.keys)
    table = np.full(4096, -1, np.int64)
    compiled_common.fill_set(keys, table)
    assert all(compiled_common.in_set(key, table) for key in keys)
    base = np.uint64(randomness.stream(0, randomness.NEGATIVE) & randomness.MASK)
    usable = 0
    for counter in range(400):
        fact = counter % len(facts)
        h, r, t = int(facts.head[fact]), int(facts.relation[fact]), int(facts.tail[fact])
        drawn, may_use = compiled_common.corrupt(base, np.uint64(counter), h, r, t, True, (20, 3), table)
        usable += may_use
        assert may_use == ((drawn * 3 + r) * 20 + t not in keys)
    assert 100 < usable <= 400


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Steps this small are not worth waking others for."""
    threads = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    numba.set_num_threads(threads[0])
    torch.set_num_threads(threads[1])


def test_a_step_gets_as_many_threads_as_it_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(entities: int = 900, processors: int = 4, **changes: object) -> int:
        monkeypatch.setattr("os.cpu_count", lambda: processors)
        config = replace(TrainConfig("ukge", dimension=64, batch_size=500, negatives=10), **changes)
        facts = learnable_graph(1000, entities=entities)
        return shards_of(TrainingData.of(facts, None, config, torch.device("cpu")), config)

    assert found() == found(processors=1) == 1  # 500 facts x 22 entities x 64 numbers: not worth two
    assert found(batch_size=1000) == 2
    assert found(dimension=640) == 4
    assert found(dimension=640, processors=16) == 8
    assert found(dimension=640, batch_size=40) == 2  # a batch of 40 facts is not divided into more
    assert found(entities=20_000) > 1  # dense steps move all entities
    assert found(entities=200_000) == 1  # lazy ones do not
    assert found(model="beurre", processors=2) == 2


def test_an_epoch_leaves_the_number_of_threads_as_it_was() -> None:
    config = replace(config_of("ukge"), epochs=1)
    data = TrainingData.of(learnable_graph(100), None, config, torch.device("cpu"))
    threads = numba.get_num_threads()
    CompiledEngine(data, config, Member(0), shards=1).run_epoch(0)
    assert numba.get_num_threads() == threads


LAZY = {
    "ukge": {},
    "ukge, momentum": {"momentum": 0.9},
    "passleaf": CASES["passleaf"],
    "beurre": {"momentum": 0.999},
}


@pytest.mark.parametrize("case", LAZY)
def test_lazy_steps_are_the_dense_ones(case: str, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that no batch has touched for a while make their steps up when they are read, and at the end of an epoch.

    Bit for bit with momentum, where they are made one by one. In one thread: whether numbers below the smallest normal
    one count as 0 is a setting of each thread, which other libraries change, and the two engines give a row to
    different threads.
    """
    config = replace(config_of(case), **LAZY[case], batch_size=8, negatives=2)
    facts, softlogic = learnable_graph(100, entities=900), learnable_graph(20, entities=900, seed=5)
    data = TrainingData.of(facts, softlogic, config, torch.device("cpu"))
    engines = []
    for large in (4, math.inf):
        monkeypatch.setattr("unkgcp.training.batches.LARGE", large)
        engines.append(CompiledEngine(data, config, Member(1), shards=2))
    assert [engine.lazy for engine in engines] == [True, False]
    assert engines[0]._gradients[0].nbytes < engines[1]._gradients[0].nbytes / 4
    losses = [[float(engine.run_epoch(epoch)) for epoch in range(3)] for engine in engines]
    if config.momentum:
        assert losses[0] == losses[1]
        for name, tensor in engines[0].state().items():
            assert torch.equal(tensor, engines[1].state()[name]), name
    for name, table in engines[0].tables.items():
        assert_within(table, engines[1].tables[name], training_apart(config.learning_rate))


@pytest.mark.parametrize("case", ["ukge", "passleaf"])
def test_steps_made_together_late_in_training_are_the_dense_ones(
    case: str, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config_of(case), **LAZY[case], batch_size=8, negatives=2)
    data = TrainingData.of(learnable_graph(100, entities=900), None, config, torch.device("cpu"))
    engines = []
    for large in (4, math.inf):
        monkeypatch.setattr("unkgcp.training.batches.LARGE", large)
        engines.append(CompiledEngine(data, config, Member(1), shards=2))
        engines[-1].step.fill_(10_000)
        for epoch in range(3):
            engines[-1].run_epoch(epoch)
    assert [engine.lazy for engine in engines] == [True, False]
    for name, table in engines[0].tables.items():
        assert_within(table, engines[1].tables[name], training_apart(config.learning_rate))


@pytest.mark.parametrize("deviation", [1e-9, 1e-8, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize(
    ("first_step", "gap"), [(0, 30), (100, 2), (3000, 1), (3000, 7), (3000, 256), (3000, 400)]
)
def test_steps_made_together_move_a_row_as_far_as_single_ones(
    first_step: int, gap: int, deviation: float
) -> None:
    rates = np.array(
        [compiled_common.adam_rates(1e-3, first_step + step + 1) for step in range(gap)], np.float32
    ).T.copy()
    rng = np.random.default_rng(0)
    m, v = (deviation * rng.normal(size=(1, 8))).astype(np.float32), np.full((1, 8), deviation**2, np.float32)
    parameter, first, second = np.zeros((1, 8), np.float32), m.copy(), v.copy()
    none = np.zeros((1, 0), np.float32)
    lazy_steps.finish_rows(parameter, first, second, none, np.float32(0), rates, np.zeros(1, np.int32), 1)
    moved, m, v = np.zeros((1, 8)), m.astype(float), v.astype(float)
    for step in range(gap):
        m, v = 0.9 * m, 0.999 * v
        moved -= rates[0, step] * m / (np.sqrt(v) + rates[1, step])
    # made together they take some ten roundings, made one by one some for each step; where eps counts, the mean does
    left_out = 0.0 if deviation >= 1e-6 else 1e-4 * np.abs(moved)
    assert_within(
        parameter, moved, left_out + apart(10 + (3 * gap if first_step < 3000 else 0), np.abs(moved))
    )
    assert_within(first, m, apart(gap + 3, np.abs(m)) + 1e-37)
    assert_within(second, v, apart(gap + 3, v) + 1e-37)


LAZY_TORCH = {
    "passleaf-complex": CASES["passleaf"],
    "ukge, momentum": {"momentum": 0.9},
    "ukge, quantile": {"quantile": 0.1, "negatives": 0},
    "beurre, rules": {"momentum": 0.999, "logic_weight": 0.1, "compositions": RULES["compositions"]},
}


@pytest.mark.parametrize("case", LAZY_TORCH)
def test_lazy_steps_of_the_torch_engine_are_the_dense_ones(
    case: str, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models at once; Adam is torch's own in one engine and that of the kernels in the other."""
    settings = {"batch_size": 8, "negatives": 2} | LAZY_TORCH[case]
    config = replace(TrainConfig(case.split(",")[0], dimension=4, epochs=5), **settings)
    entities = 6000 if config.model == "beurre" else 900
    facts, softlogic = learnable_graph(60, entities=entities), learnable_graph(20, entities=entities, seed=5)
    cpu = torch.device("cpu")
    data = TrainingData.of(facts, softlogic, config, cpu)
    engines = []
    for large in (4, math.inf):
        monkeypatch.setattr("unkgcp.training.batches.LARGE", large)
        engines.append(
            TorchEngine(data, config, [Member(1, config.quantile), Member(2, config.quantile)], cpu)
        )
    assert [engine.lazy is None for engine in engines] == [False, True]
    start = {name: table.clone() for name, table in engines[0].tables.items()}
    for epoch in range(3):
        losses = [engine.run_epoch(epoch) for engine in engines]
        assert losses[0].tolist() == pytest.approx(losses[1].tolist(), rel=1e-4)
    for name, table in engines[0].tables.items():
        assert float((table - start[name]).abs().max()) > config.learning_rate
        assert_within(table, engines[1].tables[name], training_apart(config.learning_rate))


def test_a_row_that_waits_very_long_keeps_its_parameters_and_its_moments_decay() -> None:
    """What is left out after so many steps is less than a rounding of the step."""
    waits, d = 3 * lazy_steps.FORGOTTEN, 10
    rng = np.random.default_rng(0)
    gradient = rng.normal(size=(1, d)).astype(np.float32)
    start = [np.zeros((1, d), np.float32), np.float32(0.1) * gradient, np.float32(0.001) * gradient**2]
    rates = np.array(
        [compiled_common.adam_rates(1.0, 5000 + step) for step in range(waits)], np.float32
    ).T.copy()
    memory, none = np.zeros((0, d), np.float32), np.zeros((1, 1, d), np.float32)
    lazy, dense = [table.copy() for table in start], [table.copy() for table in start]
    lazy_steps.finish_rows(*lazy, memory, np.float32(0), rates, np.zeros(1, np.int32), 1)
    for lr, eps in rates.T:
        compiled_common.adam_rows(*dense, memory, none, np.float32(0), lr, eps, 0, 1)
    assert_within(lazy[0], dense[0], apart(waits, np.abs(dense[0])))
    for kept, expected in zip(lazy[1:], dense[1:], strict=True):
        assert_within(kept, expected, apart(waits, np.abs(expected)) + float(np.finfo(np.float32).tiny))


def test_every_loop_says_how_exact_it_is() -> None:
    """numba compiles one that does not as its first caller is, so that results would depend on who calls first."""
    modules = (compiled_common, lazy_steps, distmult_kernels, box_geometry, box_kernels)
    loops = {
        name: value.targetoptions
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "targetoptions")
    }
    assert len(loops) > 40
    assert [name for name, options in loops.items() if "fastmath" not in options] == []


STARTED = """
import torch
import numba
from tests.worlds import learnable_graph
from unkgcp.training import Member, config_for
from unkgcp.training.batches import TrainingData
from unkgcp.training.compiled_engine import CompiledEngine
config = config_for("ukge")
CompiledEngine(TrainingData.of(learnable_graph(9), None, config, torch.device("cpu")), config, Member(0), 1)
print(numba.threading_layer())
"""


def test_threads_run_before_an_epoch_that_may_come_from_disk() -> None:
    """Without them such an epoch ends the process, if the loops it calls had come from disk when it was compiled."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", STARTED], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr  # numba.threading_layer raises where no thread has been started
