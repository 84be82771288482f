"""`GET /v1/distribution` and `/v1/without`: the numbers of `unkgcp.run.answers`, with labels and within bounds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")

from fastapi.testclient import TestClient

from unkgcp.evidence import learn
from unkgcp.evidence.trees import Boosting
from unkgcp.run import calibrate
from unkgcp.run.answers import masses, without
from unkgcp.service import Settings, api_schema, create_app
from unkgcp.service.knowledge import MOST_LEFT_OUT, closest

QUERY = {"head": "Entity 10", "relation": "relation 1", "tail": "Entity 11"}


@pytest.fixture(scope="module")
def evident(predictor, facts):
    few = Boosting(rounds=3)
    others = facts.with_confidence(np.random.default_rng(3).random(len(facts)))
    return calibrate(predictor.model, others, "evidence", evidence=learn(facts, suggested=few, elsewhere=few))


@pytest.fixture(scope="module")
def client(evident):
    with TestClient(create_app(evident, Settings())) as client:
        yield client


def test_the_distribution_is_that_of_the_run(client, evident):
    said = client.get("/v1/distribution", params=QUERY).json()
    api_schema.Distribution.model_validate(said)
    low, _, mass = masses(evident, tuple(QUERY.values()))
    assert [cell["mass"] for cell in said["cells"]] == mass.tolist()
    assert [cell["low"] for cell in said["cells"]] == low.tolist()
    answers = evident.interval([tuple(QUERY.values())])
    assert (said["score"], said["value"]) == (answers.score[0], answers.value[0])
    assert said["belief"] == pytest.approx(answers.belief[0])


def test_facts_that_change_the_answer_most_come_first(client, evident, facts):
    said = client.get("/v1/without", params={**QUERY, "confidence": 0.8}).json()
    api_schema.Without.model_validate(said)
    now = evident.interval([tuple(QUERY.values())], 0.8)
    assert (said["score"], said["lower"], said["upper"]) == (now.score[0], now.lower[0], now.upper[0])
    changes = [abs(fact["change"]) for fact in said["facts"]]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0
    assert len(changes) == min(MOST_LEFT_OUT, said["around"])
    rows = facts.table().to_pylist()
    for fact in said["facts"][:3]:
        place = rows.index({name: fact[name] for name in ("head", "relation", "tail", "confidence")})
        other = next(without(evident, tuple(QUERY.values()), [place], 0.8))
        assert (fact["score"], fact["lower"], fact["upper"]) == (
            other.score[0],
            other.lower[0],
            other.upper[0],
        )
        assert fact["change"] == pytest.approx(float(now.score[0]) - float(other.score[0]))


def test_the_closest_facts_are_tried(facts):
    head, relation, tail = int(facts.head[0]), int(facts.relation[0]), int(facts.tail[0])
    rows = closest(facts, head, relation, tail)
    assert rows[0] == 0
    ends = {head, tail}
    touching = [row for row in range(len(facts)) if ends & {int(facts.head[row]), int(facts.tail[row])}]
    assert sorted(rows.tolist()) == touching


def test_a_run_without_a_distribution_and_unknown_labels_are_said_in_a_sentence(client, make_client):
    for path in ("/v1/distribution", "/v1/without"):
        assert "--method evidence" in make_client().get(path, params=QUERY).json()["error"]
        for place in QUERY:
            answer = client.get(path, params={**QUERY, place: "nobody"})
            assert answer.status_code == 404
            assert "'nobody'" in answer.json()["error"]


def test_a_graph_that_is_too_large_is_not_gone_through(client, monkeypatch):
    monkeypatch.setattr("unkgcp.service.knowledge.LEFT_OUT", 100)
    answer = client.get("/v1/without", params=QUERY)
    assert answer.status_code == 422
    assert "400 training facts" in answer.json()["error"]
