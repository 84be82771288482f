"""For all tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unkgcp.backbones import get
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import Model, TrainConfig

ENTITIES, RELATIONS, DIMENSION = 40, 4, 8

if threading.current_thread() is threading.main_thread():
    # tests that run in the background ignore SIGINT, those under nohup SIGHUP, and so would the programs that they
    # start and stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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


@pytest.fixture(scope="session")
def published() -> Callable[[str], Path]:
    """$UNKGCP_DATA, as it was before tests changed it; a test is skipped where the data set it names is not there."""
    folder = os.environ.get("UNKGCP_DATA")

    def find(name: str) -> Path:
        if folder is None or not (Path(folder) / name / "train.tsv").is_file():
            pytest.skip(f"{name} is not here: set UNKGCP_DATA to a folder that holds the published data sets")
        return Path(folder)

    return find
