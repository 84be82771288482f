"""Who may come in, what every answer carries, what is counted and logged, and how failures are said."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
from fastapi.testclient import TestClient

from unkgcp.service import Settings, create_app
from unkgcp.service.app import FILES
from unkgcp.service.gate import Gate, Metrics, access_log

TOKEN = "a-long-and-secret-token"


@pytest.mark.parametrize("path", ["/v1/about", "/metrics", "/v1/nothing", "/docs", "/runs/run/v1/about"])
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ü", f"Bearer {TOKEN} x"],
)
def test_without_the_token_there_is_no_answer(make_client, path, given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    answer = make_client(token=TOKEN.encode()).get(path, headers=headers)
    assert (answer.status_code, set(answer.json())) == (401, {"detail"})
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_token_there_is_and_the_page_needs_none(make_client):
    client, headers = make_client(token=TOKEN.encode()), {"Authorization": f"bearer {TOKEN}"}
    assert client.post("/v1/intervals", headers=headers, json={"triples": []}).status_code == 200
    for path in (*FILES, "/health", "/ready", "/openapi.json"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost", 200), ("[::1]:8000", 200), ("evil.example", 421), ("", 421),
     ("127.0.0.1.evil.example:80", 421), ("localhost:x", 421)],
)  # fmt: skip
def test_only_allowed_names_are_answered_but_probes_under_any(make_client, host, status):
    client = make_client(hosts=frozenset({"127.0.0.1", "localhost", "[::1]"}))
    assert client.get("/v1/about", headers={"Host": host}).status_code == status
    for probe in ("/health", "/ready"):
        assert client.get(probe, headers={"Host": host}).status_code == 200
        assert client.head(probe, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/about", "/nothing", "/openapi.json"])
def test_every_answer_is_guarded(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert re.findall(r"https?:|\*|unsafe", policy) == []
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")
    assert "access-control-allow-origin" not in headers


def test_the_page_is_sent_once_and_what_is_not_there_is_said(client):
    first = client.get("/explorer.js")
    again = client.get("/explorer.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "nothing at" in client.get("/v1/<script>").json()["detail"]
    wrong = client.delete("/v1/intervals")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_other_sites_may_ask_only_where_they_are_named(make_client):
    site = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    client = make_client(cors_origin=("https://app.example",), token=TOKEN.encode())
    preflight = client.options("/v1/intervals", headers=site)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, site["Origin"])
    refused = client.get("/v1/about", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("stripped", [True, False])
def test_a_proxy_may_show_it_under_a_path(predictor, stripped):
    settings = Settings(root_path="/kg", token=TOKEN.encode())
    client = TestClient(create_app(predictor, settings))
    before = "" if stripped else "/kg"
    for path in ("/", "/explorer.js", "/health"):
        assert client.get(f"{before}{path}").status_code == 200
    assert client.get(f"{before}/v1/about").status_code == 401
    answer = client.get(f"{before}/v1/about", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_a_failure_is_a_sentence_and_one_line_in_the_log(predictor, monkeypatch, caplog):
    with TestClient(create_app(predictor, Settings())) as client:
        monkeypatch.setattr("unkgcp.service.served_run.answer", lambda *_: 1 / 0)
        with caplog.at_level(logging.INFO, "unkgcp.service"):
            answer = client.post("/v1/intervals", json={"triples": [["a", "b", "c"]]})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "the service failed to answer this request; its log says why"}
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["POST /v1/intervals: ZeroDivisionError: division by zero"]


@pytest.mark.parametrize(
    ("body_arrives", "cancel", "status", "words"),
    [
        (True, False, 503, "no answer in time"),
        (False, False, 408, "the body did not arrive in time"),
        (True, True, 503, "the service is stopping"),  # uvicorn would send a failure in plain text
    ],
)
def test_what_takes_too_long_or_is_stopped_is_told_so(body_arrives, cancel, status, words):
    sent = asyncio.run(through_the_gate(body_arrives, Settings(answer_seconds=0.05), cancel))
    assert (sent[0]["status"], words in json.loads(sent[1]["body"])["detail"]) == (status, True)


async def through_the_gate(body_arrives, settings, cancel=False):
    """What the gate sends for a request that is never answered."""
    sent = []

    async def forever(scope, receive, send):
        await receive()
        await asyncio.sleep(3600)

    async def receive():
        await asyncio.sleep(0 if body_arrives else 3600)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/p", "method": "GET", "headers": []}
    task = asyncio.ensure_future(
        Gate(forever, settings, Metrics(), access_log(None), ())(scope, receive, send)
    )
    if cancel:
        await asyncio.sleep(0.01)
        task.cancel()
    await task
    return sent


def test_requests_are_counted_by_path_and_queries_by_kind_and_status(predictor, triples):
    with TestClient(create_app(predictor, Settings())) as client:
        client.get('/a"b%0A')
        client.post("/v1/intervals", json={"triples": triples})
        client.post("/runs/run/v1/intervals", json={"triples": triples[:1]})
        lines = client.get("/metrics").text.splitlines()
    assert 'unkgcp_requests_total{path="other",status="404"} 1.0' in lines
    assert 'unkgcp_requests_total{path="/v1/intervals",status="200"} 2.0' in lines
    queries = [line for line in lines if line.startswith("unkgcp_queries_total{")]
    assert sum(float(line.split()[-1]) for line in queries) == len(triples) + 1
    for status in ("ok", "unknown-entity", "unknown-relation"):
        assert any(f'status="{status}"' in line and 'run="run"' in line for line in queries)


def test_the_access_log_has_a_line_of_json_for_each_request(predictor, tmp_path):
    path = tmp_path / "access.log"
    with TestClient(create_app(predictor, Settings(access_log=str(path)))) as client:
        asked = client.post(
            "/v1/intervals", json={"triples": [["a", "b", "c"]] * 3}, headers={"X-Request-ID": "q-7"}
        )
        path.rename(tmp_path / "access.log.1")  # a rotation
        strange = client.get("/v1/nothing?secret=1", headers={"X-Request-ID": "two\twords"})
        foreign = client.get("/v1/nothing", headers={"X-Request-ID": "q-ü".encode("latin-1")})
    lines = [(tmp_path / name).read_text().splitlines() for name in ("access.log.1", "access.log")]
    first, second = (json.loads(one[0]) for one in lines)
    assert (first["id"], first["path"], first["status"], first["triples"]) == ("q-7", "/v1/intervals", 200, 3)
    assert first["ms"] > 0
    assert asked.headers["x-request-id"] == "q-7"
    assert (second["path"], second["status"]) == ("/v1/nothing", 404)
    assert second["id"] == strange.headers["x-request-id"] != "two\twords"
    assert re.fullmatch("[0-9a-f]{32}", foreign.headers["x-request-id"])
