"""The files of a run, as they were written and with one of them changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import calibrate
from unkgcp.training import Model


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
