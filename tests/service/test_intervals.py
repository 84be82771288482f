"""`POST /v1/intervals`: the numbers are the predictor's, and nothing a client sends is more than a sentence."""

from __future__ import annotations

import asyncio
import gzip
import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request

from unkgcp.run import calibrate
from unkgcp.service import create_app
from unkgcp.service.limits import Problem, Settings
from unkgcp.service.requests import Bodies

PATH = "/v1/intervals"


@pytest.mark.parametrize("levels", [0.9, [0.9], [0.5, 0.8, 0.95], 0, 1, [0, 1]])
def test_answers_are_the_predictors_own(client, predictor, triples, levels):
    answer = client.post(PATH, json={"triples": triples, "confidence": levels})
    assert answer.status_code == 200
    found = predictor.interval([tuple(triple) for triple in triples], levels)
    said = answer.json()
    assert said["confidence"] == levels
    assert said["status"] == found.status.tolist()
    assert set(said["status"]) == {"ok", "unknown-entity", "unknown-relation"}
    assert said["score"] == [
        None if code else float(score) for score, code in zip(found.score, found.code, strict=True)
    ]
    assert said["lower"] == found.lower.tolist()
    assert said["upper"] == found.upper.tolist()


def test_triples_may_be_objects_and_mixed(client, triples):
    places = ("head", "relation", "tail")
    named = [dict(zip(places, triple, strict=True)) if i % 2 else triple for i, triple in enumerate(triples)]
    one, other = (client.post(PATH, json={"triples": asked}) for asked in (triples, named))
    assert one.json() == other.json()


def test_the_level_is_nine_tenths_unless_asked_for(client, triples):
    one = client.post(PATH, json={"triples": triples})
    assert one.json() == client.post(PATH, json={"triples": triples, "confidence": 0.9}).json()


def test_no_triples_give_no_answers(client):
    assert client.post(PATH, json={"triples": []}).json()["score"] == []


def test_a_level_that_cannot_be_promised_is_noted(client, triples):
    noted = client.post(PATH, json={"triples": triples, "confidence": [0.9, 0.999]}).json()
    assert len(noted["notes"]) == 1
    assert "0.999" in noted["notes"][0]
    assert {(lower[1], upper[1]) for lower, upper in zip(noted["lower"], noted["upper"], strict=True)} == {
        (0, 1)
    }


DEEP = b'{"triples":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not valid JSON"),
        (b"{", 400, "not valid JSON"),
        (b'{"triples": [["a", "b", "c"]]', 400, "not valid JSON"),
        (b'{"triples": [], "confidence": NaN}', 400, "not valid JSON"),
        (b'{"triples": [], "confidence": Infinity}', 400, "not valid JSON"),
        (b'{"triples": [["\xff", "b", "c"]]}', 400, "not valid JSON"),
        (b'{"triples": [["\\ud800", "b", "c"]]}', 400, "not valid JSON"),
        (b"\xef\xbb\xbf{}", 400, "not valid JSON"),
        (DEEP, 400, "recursion"),
        (b"[" * 100_000, 400, "recursion"),
        (b"[" * 1_000_000, 413, "brackets and commas"),
        (b"[" + b"[]," * 1_000_000 + b"[]]", 413, "brackets and commas"),
        (b'{"triples": [], "confidence": [%s0.9]}' % (b"0," * 1_000_000), 413, "brackets and commas"),
        (b"1" * 5000, 400, "not valid JSON"),
        (b"null", 422, "must be an object"),
        (b"[]", 422, "must be an object"),
        (b"{}", 422, "triples is missing"),
        (b'{"triples": null}', 422, "must be a list"),
        (b'{"triples": "abc"}', 422, "must be a list"),
        (b'{"triples": {"0": ["a", "b", "c"]}}', 422, "must be a list"),
        (b'{"triples": ["abc"]}', 422, "triples[0] is 'abc'"),
        (b'{"triples": [["a", "b", "c"], ["a", "b"]]}', 422, "triples[1]"),
        (b'{"triples": [["a", "b", "c", "d"]]}', 422, "triples[0]"),
        (b'{"triples": [["a", "b", 1]]}', 422, "triples[0]"),
        (b'{"triples": [["a", "b", null]]}', 422, "triples[0]"),
        (b'{"triples": [["a", "b", ["c"]]]}', 422, "triples[0]"),
        (b'{"triples": [{"head": "a", "relation": "b"}]}', 422, "triples[0]"),
        (b'{"triples": [{"head": "a", "relation": "b", "tail": 1}]}', 422, "triples[0]"),
        (b'{"triples": [{"head": "a", "relation": "b", "tail": "c", "x": "d"}]}', 422, "triples[0]"),
        (b'{"triples": [], "confidence": 1.5}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": -0.1}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": 1e999}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": %s}' % (b"9" * 4000), 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": true}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": "0.9"}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": null}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": []}', 422, "1 to 20 levels"),
        (b'{"triples": [], "confidence": [0.9, "x"]}', 422, "from 0 to 1"),
        (b'{"triples": [], "confidence": [%s0.9]}' % (b"0.9," * 20), 422, "1 to 20 levels"),
        (b'{"triples": [], "level": 0.9}', 422, "'level' is unknown"),
        (b'{"triples": [], "%s": 0}' % (b"x" * 9999), 422, "is unknown"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(client, body, status, words):
    answer = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert set(said) == {"error"}
    assert words in said["error"]
    assert len(said["error"]) < 300
    assert "\n" not in said["error"]
    assert "Traceback" not in said["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "APPLICATION/JSON", "Content-Encoding": "identity"}, 200),
    ],
)
def test_only_plain_json_is_read(client, headers, status):
    body = b'{"triples": []}'
    if headers.get("Content-Encoding") == "gzip":
        body = gzip.compress(body)
    answer = client.post(PATH, content=body, headers=headers)
    assert answer.status_code == status
    assert status == 200 or set(answer.json()) == {"error"}


def test_more_than_allowed_is_refused(make_client):
    small = make_client(max_triples=3, max_body=2000)
    just = {"triples": [["a", "b", "c"]] * 3}
    assert small.post(PATH, json=just).status_code == 200
    too_many = small.post(PATH, json={"triples": [["a", "b", "c"]] * 4})
    assert too_many.status_code == 422
    assert "4 triples are more than 3" in too_many.json()["error"]
    padded = json.dumps(just).encode()
    padded += b" " * (2000 - len(padded))
    headers = {"Content-Type": "application/json"}
    assert small.post(PATH, content=padded, headers=headers).status_code == 200
    assert small.post(PATH, content=padded + b" ", headers=headers).status_code == 413
    # without a declared length, in pieces
    assert small.post(PATH, content=iter([padded, b" "]), headers=headers).status_code == 413


def request_of(messages: list[tuple[float, dict]], headers: dict[str, str] | None = None) -> Request:
    """A request whose body arrives in messages, each after a pause."""
    given = iter(messages)

    async def receive() -> dict:
        pause, message = next(given)
        await asyncio.sleep(pause)
        return {"type": "http.request", **message}

    sent = {"content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }
    return Request(scope, receive)


def test_a_body_that_trickles_in_is_given_up():
    slow = [(0.02, {"body": b" ", "more_body": True})] * 1000
    with pytest.raises(Problem) as raised:
        asyncio.run(Bodies(Settings(body_seconds=0.1)).read(request_of(slow)))
    assert raised.value.status == 408


def test_a_body_that_never_ends_is_not_collected():
    endless = [(0.0, {"body": b"x" * 1000, "more_body": True})] * 1000
    with pytest.raises(Problem) as raised:
        asyncio.run(Bodies(Settings(max_body=5000)).read(request_of(endless)))
    assert raised.value.status == 413


def test_a_declared_length_is_believed_before_the_body_is_read():
    lied = request_of([], {"content-length": "9" * 30})
    with pytest.raises(Problem) as raised:
        asyncio.run(Bodies(Settings()).read(lied))
    assert raised.value.status == 413


def test_a_client_that_leaves_is_no_failure():
    left = request_of([(0.0, {"type": "http.disconnect"})])
    with pytest.raises(Problem) as raised:
        asyncio.run(Bodies(Settings()).read(left))
    assert raised.value.status == 400


def test_the_open_world_says_what_may_be_no_fact(predictor, facts, triples):
    opened = calibrate(
        predictor.model,
        facts[:99].with_confidence(np.random.default_rng(0).random(99)),
        population="open",
        kinds=("uniform",),
    )
    found = opened.interval([tuple(triple) for triple in triples], [0.5, 0.9])
    with TestClient(create_app(opened, Settings())) as client:
        several = client.post(PATH, json={"triples": triples, "confidence": [0.5, 0.9]}).json()
        one = client.post(PATH, json={"triples": triples, "confidence": 0.9}).json()
    assert found.no_fact is not None
    assert 0 < found.no_fact.mean() < 1
    for name in ("no_fact", "fact_lower", "fact_upper", "lower", "upper"):
        assert several[name] == getattr(found, name).tolist()
        assert one[name] == getattr(found, name)[:, 1].tolist()


def test_asserted_facts_have_no_such_columns(client, triples):
    assert "no_fact" not in client.post(PATH, json={"triples": triples}).json()
