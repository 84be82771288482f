"""A small model with random parameters: what a bundle holds does not depend on how well it was trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unkgcp.backbones import get
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.known import KnownFacts
from unkgcp.run import calibrate
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


@pytest.fixture(scope="session")
def original(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, bytes]:
    """The files of a run that nobody has touched."""
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    folder = tmp_path_factory.mktemp("original") / "run"
    calibrate(model, make_facts(100)).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def write(original: dict[str, bytes], tmp_path: Path) -> Callable[..., Path]:
    """Write that run with one file changed; its hash agrees with the change unless told otherwise."""

    def make(name: str, content: bytes, agree: bool = True) -> Path:
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        files = {**original, name: content}
        if agree and name != "provenance.json":
            provenance = json.loads(files["provenance.json"])
            digest = hashlib.sha256(content).hexdigest()
            provenance["files"][name] = {"bytes": len(content), "sha256": digest}
            files["provenance.json"] = json.dumps(provenance).encode()
        for place, text in files.items():
            (run / place).write_bytes(text)
        return run

    return make
