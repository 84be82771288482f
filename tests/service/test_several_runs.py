"""Several runs behind one port: each under its name, the first also where it always was."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient

from unkgcp.errors import InputError
from unkgcp.run import calibrate
from unkgcp.service import Settings, create_app
from unkgcp.service.server import named_runs


@pytest.fixture(scope="module")
def other(predictor, facts):
    return calibrate(
        predictor.model, facts.with_confidence(np.random.default_rng(4).random(len(facts))), "cp"
    )


@pytest.fixture(scope="module")
def runs(predictor, other):
    return {"first": predictor, "the other run": other}


@pytest.fixture(scope="module")
def client(runs):
    with TestClient(create_app(runs, Settings())) as client:
        yield client


def test_each_run_answers_under_its_name_and_the_first_everywhere(client, runs, triples):
    body = {"triples": triples, "confidence": 0.8}
    lower = {}
    for name, predictor in runs.items():
        lower[name] = client.post(f"/runs/{name}/v1/intervals", json=body).json()["lower"]
        assert lower[name] == predictor.interval([tuple(triple) for triple in triples], 0.8).lower.tolist()
        assert client.get(f"/runs/{name}/v1/about").json()["method"] == predictor.method.name
    assert lower["first"] != lower["the other run"]
    assert client.post("/v1/intervals", json=body).json()["lower"] == lower["first"]
    asked = {"head": "Entity 10", "relation": "relation 1", "k": 3}
    found = client.get("/runs/the%20other%20run/v1/complete", params=asked).json()["answers"]
    assert [one["lower"] for one in found] == runs["the other run"].complete(
        "Entity 10", "relation 1", k=3
    ).lower.tolist()


def test_the_runs_are_listed_the_first_first(client):
    said = client.get("/v1/runs").json()["runs"]
    assert [(run["name"], run["method"]) for run in said] == [("first", "unkgcp"), ("the other run", "cp")]


def test_a_run_that_is_not_there_is_no_path(client):
    answer = client.get("/runs/nobody/v1/about")
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}


def test_the_token_is_asked_for_under_every_name(runs):
    with TestClient(create_app(runs, Settings(token=b"secret"))) as client:
        for path in ("/v1/about", "/v1/runs", "/runs/first/v1/about", "/runs/the other run/v1/about"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
        document = client.get("/openapi.json").text
    assert "the other run" not in document


def test_counters_tell_the_runs_apart(client):
    client.get("/runs/first/v1/about")
    text = client.get("/metrics").text
    assert 'method="cp",run="the other run"} 1' in text
    assert 'unkgcp_requests_total{path="/runs/first/v1/about",status="200"}' in text


def test_names_come_from_the_folders(tmp_path):
    folders = [str(tmp_path / "a" / "one"), str(tmp_path / "b" / "two")]
    assert named_runs(folders) == dict(zip(("one", "two"), folders, strict=True))
    for given, words in (
        ([folders[0], str(tmp_path / "b" / "one")], "are both called one"),
        ([str(tmp_path / "{x}")], "cannot be part of an address"),
        (["/"], "cannot be part of an address"),
    ):
        with pytest.raises(InputError, match=words):
            named_runs(given)
