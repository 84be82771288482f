"""A small predictor with known facts and unfriendly labels, and clients of the service over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi.testclient import TestClient

from tests.worlds import random_model
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.service import Settings, create_app

ENTITIES, RELATIONS, DIMENSION, CALIBRATION, FACTS = 60, 4, 8, 99, 400
HOSTILE = ["<script>alert(1)</script>", "Zoë\n", 'a "quoted" \\ label', "&amp; </textarea>", "日本 🙂"]


@pytest.fixture(scope="session")
def facts() -> Graph:
    """Training facts; the last two entities and the last relation have none."""
    rng = np.random.default_rng(1)
    labels = [*HOSTILE, *(f"Entity {i}" for i in range(len(HOSTILE), ENTITIES))]
    vocabulary = Vocabulary.of(labels, [f"relation {i}" for i in range(RELATIONS)])
    head, tail = rng.integers(0, ENTITIES - 2, (2, FACTS), dtype=np.int32)
    relation = rng.integers(0, RELATIONS - 1, FACTS, dtype=np.int32)
    return Graph(head, relation, tail, rng.random(FACTS).round(3), vocabulary)


@pytest.fixture(scope="session")
def predictor(facts: Graph) -> Predictor:
    rng = np.random.default_rng(0)
    model = random_model(facts.vocabulary, dimension=DIMENSION, unseen=(2, 1))
    calibration = facts[:CALIBRATION].with_confidence(rng.random(CALIBRATION))
    return calibrate(replace(model, facts=KnownFacts.of(facts)), calibration)


@pytest.fixture(scope="session")
def others(facts: Graph) -> Graph:
    """Facts to calibrate with, of the entities and relations that have training facts, and none of these."""
    rng = np.random.default_rng(7)
    head, tail = rng.integers(0, ENTITIES - 2, (2, FACTS), dtype=np.int32)
    relation = rng.integers(0, RELATIONS - 1, FACTS, dtype=np.int32)
    drawn = Graph(head, relation, tail, rng.random(FACTS).round(3), facts.vocabulary)
    return drawn[~np.isin(drawn.keys, facts.keys)]


@pytest.fixture(scope="session")
def good(predictor: Predictor, others: Graph) -> Predictor:
    """A run whose scores say something about confidences, so that some candidates are chosen and some are not."""
    scores = predictor.model.score(others.head, others.relation, others.tail)
    near = np.clip(scores + np.random.default_rng(5).normal(0, 0.05, len(others)), 0.01, 0.99)
    return calibrate(predictor.model, others.with_confidence(near))


@pytest.fixture(scope="session")
def evident(
    predictor: Predictor, facts: Graph, others: Graph, tmp_path_factory: pytest.TempPathFactory
) -> Predictor:
    """A run that answers from evidence, from disk as users have it."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    from unkgcp.evidence import learn

    run = tmp_path_factory.mktemp("evident") / "run"
    calibrate(predictor.model, others, "evidence", evidence=learn(facts, rounds=20)).save(run)
    return Predictor.load(run)


@pytest.fixture(scope="session")
def triples(facts: Graph) -> list[list[str]]:
    """Queries of every status."""
    entities, relations = facts.vocabulary.entities.to_pylist(), facts.vocabulary.relations.to_pylist()
    rng = np.random.default_rng(2)
    asked = [
        [entities[h], relations[r], entities[t]]
        for h, r, t in zip(
            *(rng.integers(0, size, 40).tolist() for size in (ENTITIES, RELATIONS, ENTITIES)), strict=True
        )
    ]
    return [*asked, ["nobody", relations[0], entities[0]], [entities[0], "no relation", entities[1]]]


@pytest.fixture(scope="session")
def make_client(predictor: Predictor) -> Iterator[Callable[..., TestClient]]:
    """A client of the service with these settings; each is started once."""
    clients: dict[Any, TestClient] = {}

    def make(**settings: Any) -> TestClient:
        chosen = Settings(**settings)
        if chosen not in clients:
            clients[chosen] = TestClient(create_app(predictor, chosen), raise_server_exceptions=True)
            clients[chosen].__enter__()
        return clients[chosen]

    yield make
    for client in clients.values():
        client.__exit__(None, None, None)


@pytest.fixture(scope="session")
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()
