"""The compiled CPU kernels against autograd: same gradients and same training, up to rounding."""

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

from tests.rounding import EXP_ULPS, apart, assert_within, training_apart
from tests.worlds import learnable_graph
from unkgcp.graph import Graph
from unkgcp.training import (
    Member,
    TrainConfig,
    box_geometry,
    compiled_adam,
    compiled_common,
    train_many,
)
from unkgcp.training.adam_rates import epoch_rates
from unkgcp.training.batches import TrainingData
from unkgcp.training.compiled_engine import CompiledEngine
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
    "beurre, momentum": {"momentum": 0.9, "negative_weight": 0.3},
    "beurre, quantile": {"quantile": 0.9, "negatives": 0, "side_regularization": 0.1},
    "beurre, rules": {"negatives": 1, "logic_weight": 10.0, **RULES},
}


def config_of(case: str) -> TrainConfig:
    base = TrainConfig(
        case.split(",")[0], dimension=10, batch_size=64, negatives=4, epochs=5, validate_every=5
    )
    return replace(base, **CASES[case])


def soft_for(config: TrainConfig) -> Graph | None:
    return None if config.model == "beurre" else learnable_graph(20, seed=5)


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same_with_both_engines(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(case)
    facts, softlogic = learnable_graph(300), soft_for(config)
    pair = []
    for kernel in (True, False):
        monkeypatch.setattr("unkgcp.training.trainer.has_compiled_kernel", lambda *arguments, own=kernel: own)
        pair += train_many(facts, [Member(2, config.quantile)], config, softlogic=softlogic, device="cpu")
    for name, table in pair[0].parameters.items():
        assert_within(table, pair[1].parameters[name], training_apart(config.learning_rate))
    assert pair[0].history[-1]["loss"] == pytest.approx(pair[1].history[-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_one_batch_has_the_gradient_of_autograd(case: str) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    n = 30
    config = replace(config_of(case), batch_size=n)
    member = Member(1, config.quantile)
    facts, softlogic = learnable_graph(n), soft_for(config)
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
    losses = [engine.run_epoch(0) for engine in engines]
    expected = engines[0].adam.state[engines[0].flat]["exp_avg"] * 10
    sizes = [table.numel() for table in engines[0].tables.values()]
    by_name = dict(zip(engines[0].tables, expected.split(sizes), strict=True))
    # Gradients of w and b are sums of terms of both signs, which may nearly cancel, so that the rounding is not one of
    # the sum itself. Their terms are larger than those of a vector, which are multiplied by its other coordinates.
    largest = max(float(gradient.abs().max()) for gradient in by_name.values())
    for name, gradient in moments(engines[1]).items():
        own = float(by_name[name].abs().max())
        assert own > 0
        scale = largest if gradient.numel() == 1 else own
        # 30 facts with up to 22 corruptions are summed, each after a sum over 10 dimensions and some ten roundings
        # more; boxes divide distances by beta = 0.01, so that roundings of coordinates count a hundredfold
        rounding = apart(30 * 23 + 10 + 10, scale / 0.01 if "beurre" in case else scale)
        assert_within(gradient.flatten() * 10, by_name[name], rounding)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-4)


def moments(engine: CompiledEngine) -> dict[str, torch.Tensor]:
    """The first moments of the tables as the backbone names them."""
    found = {}
    for kind, table in engine._trained.items():
        names = [name for name, of in engine.backbone.kinds.items() if of == kind]
        found |= dict(zip(names, table.first.chunk(max(len(names), 1), -1), strict=False))
    return found


@pytest.mark.parametrize(
    ("name", "exact", "arguments"),
    [
        ("exponential", np.exp, np.linspace(-87.3, 40, 4001)),
        ("halved", lambda t: np.exp2(-t), np.linspace(0, 126, 4001)),
        ("log_one_plus", np.log1p, np.append(np.linspace(0, 1, 2001), 10.0 ** -np.arange(1, 38))),
    ],
)
def test_polynomials_are_accurate_to_some_units_in_the_last_place(
    name: str, exact: Any, arguments: np.ndarray
) -> None:
    """The bound is what vector libraries promise of exp and log, with which the tolerances above reckon."""
    x = arguments.astype(np.float32)
    values = [getattr(box_geometry, name)(value) for value in x]
    expected = exact(x.astype(float))
    assert_within(values, expected, EXP_ULPS * float(np.finfo(np.float32).eps) * expected)
    assert box_geometry.halved(np.float32(1e9)) == np.finfo(np.float32).tiny


def test_a_product_far_beyond_floats_is_exact_and_says_when_it_is_no_number() -> None:
    sizes = np.float32(10.0) ** np.random.default_rng(0).uniform(-37, 17, 150).astype(np.float32)
    mantissa, power = box_geometry.product(sizes, 0, len(sizes))
    found = math.log(mantissa) + power * math.log(2)
    expected = float(np.log(sizes.astype(float)).sum())
    assert abs(found - expected) <= apart(len(sizes), 1.0) + 1e-12 * abs(expected)
    sizes[70] = np.inf
    assert math.isnan(box_geometry.product(sizes, 0, len(sizes))[0])


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Steps this small are not worth waking others for."""
    threads = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    numba.set_num_threads(threads[0])
    torch.set_num_threads(threads[1])


@pytest.mark.parametrize("case", ["ukge", "passleaf", "beurre"])
@pytest.mark.parametrize("first_step", [0, 10_000])
def test_lazy_steps_are_the_dense_ones(
    case: str, first_step: int, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that no batch has touched for a while make their steps up when they are read, and at the end of an epoch.

    Up to a tenth of a step: gradients so small that Adam's epsilon counts are made up with its mean. In one thread:
    whether numbers below the smallest normal one count as 0 is a setting of each thread, which other libraries change,
    and the two engines give a row to different threads.
    """
    config = replace(config_of(case), batch_size=8, negatives=2)
    facts = learnable_graph(100, entities=900)
    softlogic = None if case == "beurre" else learnable_graph(20, entities=900, seed=5)
    data = TrainingData.of(facts, softlogic, config, torch.device("cpu"))
    engines = []
    for large in (4, math.inf):
        monkeypatch.setattr("unkgcp.training.batches.LARGE", large)
        engines.append(CompiledEngine(data, config, Member(1), shards=2))
        engines[-1].step.fill_(first_step)
        for epoch in range(3):
            engines[-1].run_epoch(epoch)
    assert [engine.lazy for engine in engines] == [True, False]
    for name, table in engines[0].tables.items():
        assert_within(table, engines[1].tables[name], config.learning_rate / 10)


@pytest.mark.parametrize("deviation", [1e-9, 1e-8, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize(("first_step", "gap"), [(0, 30), (100, 2), (3000, 1), (3000, 7), (3000, 900)])
def test_steps_made_together_move_a_row_as_far_as_single_ones(
    first_step: int, gap: int, deviation: float
) -> None:
    rates, rng = epoch_rates(1e-3, first_step, gap), np.random.default_rng(0)
    m, v = (deviation * rng.normal(size=(1, 8))).astype(np.float32), np.full((1, 8), deviation**2, np.float32)
    parameter, first, second = np.zeros((1, 8), np.float32), m.copy(), v.copy()
    table = compiled_common.TrainedTable(parameter, first, second, np.zeros((1, 1, 8), np.float32))
    compiled_adam.finish_rows(table, np.zeros(1, np.int32), rates, 1)
    moved, m, v = np.zeros((1, 8)), m.astype(float), v.astype(float)
    for step in range(gap):
        m, v = 0.9 * m, 0.999 * v
        moved -= rates[0, step] * m / (np.sqrt(v) + rates[1, step])
    # made together they take some ten roundings, made one by one some for each step; where eps counts, its mean does
    left_out = (1e-6 if deviation >= 1e-6 else 0.05) * np.abs(moved)
    assert_within(parameter, moved, left_out + apart(10 + 3 * min(gap, 100), np.abs(moved)))
    assert_within(first, m, apart(gap + 3, np.abs(m)) + 1e-37)
    assert_within(second, v, apart(gap + 3, v) + 1e-37)


ONE_VERSION = """
from collections import namedtuple
from unkgcp.loops import njit
{name} = namedtuple("{name}", "value")
@njit()
def value_of(one):
    return one.value
print(value_of({name}(7)))
"""


def test_code_that_another_version_left_on_disk_is_compiled_anew(tmp_path: Path) -> None:
    for name in ("Before", "After"):
        (tmp_path / "kernels.py").write_text(ONE_VERSION.format(name=name))
        done = subprocess.run(
            # without the variable compiled code is kept beside the source
            ["env", "-u", "NUMBA_CACHE_DIR", sys.executable, "-c", "import kernels"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "7\n", done.stderr
    assert list(tmp_path.glob("__pycache__/kernels.value_of-*.nbi"))


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
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # numba.threading_layer raises where no thread has been started
