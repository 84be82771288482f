"""Settings and fixtures for all tests: devices, signals, threads, the order of tests in workers, small worlds."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import random_graph, random_model
from unkgcp.evidence import evidence_model, trees
from unkgcp.graph import Graph, Vocabulary
from unkgcp.loops import cores
from unkgcp.training import Model

if not os.environ.get("UNKGCP_TEST_GPU"):
    # A seed gives the same bytes on a CPU, while a GPU adds up gradients in no fixed order. So tests train on the CPU,
    # also where there is a GPU; `make test-gpu` runs the GPU's kernels.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

if threading.current_thread() is threading.main_thread():
    # pytest ignores SIGINT when it runs in the background, and SIGHUP under nohup, and the programs that tests start
    # and stop would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# How tests are distributed to workers (`pytest -n 2`): by whole files, so that their fixtures are made once; files that
# need the same heavy program go to one worker. The mark `xdist_group` is made for this, but has no effect with pytest
# 9.2 and pytest-xdist 3.8.

TOGETHER = {
    "tests/browser": "browser",
    "tests/predict/test_ray_engine.py": "ray",
    "tests/training/test_compiled_kernels.py": "boxes",
    "tests/training/test_trainer.py": "boxes",
}
"""Files, or folders of files, that run in one worker, because it starts a browser or Ray, or compiles, for them."""
LONG = (
    "browser",
    "ray",
    "boxes",
    "tests/cli/test_fit.py",
    "tests/cli/test_predict.py",
    "tests/guarantees/test_demo_graph.py",
    "tests/guarantees/test_monitor.py",
    "tests/guarantees/test_partitions.py",
    "tests/service/test_server.py",
    "tests/test_tutorials.py",
    "tests/training/test_fused.py",
)
"""The files that take longest run first, so that no worker is left alone with one at the end."""


def share(nodeid: str) -> str:
    """The name of the group of tests that a test belongs to; one worker runs a group."""
    path = nodeid.partition("::")[0]
    return TOGETHER.get(path) or TOGETHER.get(path.rpartition("/")[0]) or path


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

    config.option.loadscopereorder = False  # keep the order that `pytest_collection_modifyitems` makes
    return Shares(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        order = {name: place for place, name in enumerate(LONG)}
        items.sort(key=lambda item: order.get(share(item.nodeid), len(LONG)))


# `make test` has a worker for each core. If libraries used several threads in each worker, threads would mostly wait
# for one another. So libraries compute in one thread, except in tests of rooms whose own code runs in threads.

OWN_THREADS = tuple(f"tests/{room}/" for room in ("conformal", "evidence", "predict", "tabular", "training"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    alone = not item.nodeid.startswith(OWN_THREADS)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1 if alone else cores())
    if (numba := sys.modules.get("numba")) is not None:
        numba.set_num_threads(1 if alone else numba.config.NUMBA_NUM_THREADS)


@pytest.fixture(scope="session", autouse=True)
def _evidence_in_little_time() -> Iterator[None]:
    """LightGBM is set to be deterministic, so it learns the same trees in any number of threads. Forms of the law are
    tried out once and with fewer trees: what is promised holds for each of them, and this is most of a small fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "cores", lambda: 1)
        patch.setattr(evidence_model, "TURNS", 1)
        patch.setitem(evidence_model.TRIED, "rounds", 10)
        yield


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """40 entities, one of them with a line break in its label, and 4 relations."""
    return Vocabulary.of(["Zoë\n", *(f"entity {i}" for i in range(1, 40))], [f"r{i}" for i in range(4)])


@pytest.fixture(scope="session")
def make_model(vocabulary: Vocabulary) -> Callable[..., Model]:
    """A model that knows all of the vocabulary except two entities and one relation."""

    def make(seed: int = 0, model: str = "ukge", quantile: float | None = None) -> Model:
        return random_model(vocabulary, model, seed=seed, quantile=quantile, unseen=(2, 1))

    return make


@pytest.fixture(scope="session")
def make_facts(vocabulary: Vocabulary) -> Callable[..., Graph]:
    """Random facts about the vocabulary, with random confidences."""

    def make(n: int, seed: int = 0) -> Graph:
        return random_graph(n, vocabulary, seed)

    return make


@pytest.fixture(scope="session")
def quantiles(make_model: Callable[..., Model]) -> dict[float, Model]:
    return {tau: make_model(7 + i, quantile=tau) for i, tau in enumerate((0.05, 0.1, 0.9, 0.95))}


@pytest.fixture(scope="session")
def published() -> Callable[[str], Path]:
    """$UNKGCP_DATA, as it was before tests changed it; a test is skipped if the data set it asks for is missing."""
    folder = os.environ.get("UNKGCP_DATA")

    def find(name: str) -> Path:
        if folder is None or not (Path(folder) / name / "train.tsv").is_file():
            pytest.skip(f"{name} is not here: set UNKGCP_DATA to a folder that holds the published data sets")
        return Path(folder)

    return find
