"""A run on disk, and runs of several backbones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model


@pytest.fixture(scope="session")
def original(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A run that nobody has touched."""
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    folder = tmp_path_factory.mktemp("original") / "run"
    calibrate(model, make_facts(100)).save(folder)
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture(params=["ukge", "beurre", "ukge-rect"])
def predictor(
    request: pytest.FixtureRequest, make_model: Callable[..., Model], make_facts: Callable[..., Graph]
) -> Predictor:
    """A run of each kind of backbone that knows its training facts."""
    model = replace(make_model(model=request.param), facts=KnownFacts.of(make_facts(400)))
    return calibrate(model, make_facts(200, seed=1))
