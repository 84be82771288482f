"""Who may come in, what every answer carries, what is counted, and how failures are said."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
from fastapi.testclient import TestClient

from unkgcp.service import Settings, create_app
from unkgcp.service.app import FILES
from unkgcp.service.limits import Metrics
from unkgcp.service.requests import Middleware, host_name

TOKEN = "a-long-and-secret-token"
GUARDED = ["/v1/about", "/v1/entities", "/metrics", "/v1/nothing", "/docs"]


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN,
     "Bearer ü", f"Bearer {TOKEN} {TOKEN}"],
)  # fmt: skip
def test_without_the_token_there_is_no_answer(make_client, path, given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    answer = make_client(token=TOKEN.encode()).get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_there_is(make_client, scheme):
    client = make_client(token=TOKEN.encode())
    headers = {"Authorization": f"{scheme} {TOKEN}"}
    assert client.get("/v1/about", headers=headers).status_code == 200
    assert client.post("/v1/intervals", headers=headers, json={"triples": []}).status_code == 200
    assert client.post("/v1/intervals", json={"triples": []}).status_code == 401


@pytest.mark.parametrize("path", [*FILES, "/health", "/openapi.json"])
def test_the_page_and_the_health_need_no_token(make_client, path):
    assert make_client(token=TOKEN.encode()).get(path).status_code == 200


def test_tokens_are_compared_in_constant_time(make_client, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "unkgcp.service.requests.compare_digest", lambda one, two: compared.append((one, two)) or False
    )
    client = make_client(token=TOKEN.encode())
    for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {TOKEN}"}):
        assert client.get("/v1/about", headers=header).status_code == 401
    assert compared == [(b"", TOKEN.encode()), (b"x", TOKEN.encode()), (TOKEN.encode(), TOKEN.encode())]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost", 200), ("[::1]:8000", 200), ("evil.example", 400), ("", 400),
     ("127.0.0.1.evil.example:80", 400), ("localhost:x", 400)],
)  # fmt: skip
def test_on_loopback_only_names_of_this_machine_are_answered(make_client, host, status):
    client = make_client(hosts=frozenset({"127.0.0.1", "localhost", "[::1]"}))
    assert client.get("/health", headers={"Host": host}).status_code == status


def test_host_names():
    assert [host_name(header) for header in (b"a:1", b"[::1]", b"[::1]:80", b"A.b")] == [
        "a", "[::1]", "[::1]", "a.b"
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/health", "/v1/about", "/nothing", "/openapi.json"])
def test_every_answer_is_guarded(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"https?:|\*", policy) == []
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_the_page_is_sent_once(client):
    first = client.get("/explorer.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = client.get("/explorer.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_what_is_not_there_and_what_cannot_be_done(client):
    missing = client.get("/v1/<script>")
    assert missing.status_code == 404
    assert set(missing.json()) == {"error"}
    wrong = client.delete("/v1/intervals")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert "DELETE" in wrong.json()["error"]


def test_a_failure_is_a_sentence_and_one_line_in_the_log(predictor, monkeypatch, caplog):
    with TestClient(create_app(predictor, Settings())) as client:
        monkeypatch.setattr(type(predictor.method), "interval", lambda *_: 1 / 0)
        with caplog.at_level(logging.INFO, "unkgcp.service"):
            answer = client.post("/v1/intervals", json={"triples": [["a", "b", "c"]]})
    assert answer.status_code == 500
    assert answer.json() == {"error": "the service failed to answer this request; its log says why"}
    assert [record.getMessage() for record in caplog.records] == [
        "POST /v1/intervals: ZeroDivisionError: division by zero"
    ]


def test_a_request_that_is_given_up_when_the_service_stops_is_told_so():
    """uvicorn cancels what is not answered by the end of the grace, and would send a failure in plain text."""
    sent = []

    async def forever(scope, receive, send):
        await asyncio.sleep(3600)

    async def send(message):
        sent.append(message)

    async def stopped():
        guard = Middleware(forever, Settings(), Metrics("0", {"run": ("m", "u")}), (), ("/p",))
        scope = {"type": "http", "path": "/p", "method": "GET", "headers": []}
        task = asyncio.ensure_future(guard(scope, None, send))
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(stopped())
    assert sent[0]["status"] == 503
    assert (b"content-type", b"application/json") in sent[0]["headers"]
    assert json.loads(sent[1]["body"]) == {"error": "the service is stopping; try again later"}


@pytest.mark.parametrize("path", ["/health", "/v1/about", "/v1/intervals", "/nothing", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
def test_a_failure_anywhere_is_said_as_json(predictor, monkeypatch, path, method):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(Middleware, "_refusal", fail)
    with TestClient(create_app(predictor, Settings()), raise_server_exceptions=False) as client:
        answer = client.request(method, path)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/json"


def test_health_can_be_asked_for_its_head_alone(client):
    answer = client.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(client.get("/health").content))
    assert client.head("/v1/about").status_code == 405


SAMPLE = re.compile(r'^[a-z_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? [0-9.e+-]+$')


def test_metrics_are_in_the_format_prometheus_reads(predictor):
    with TestClient(create_app(predictor, Settings())) as client:
        client.get("/health")
        client.get('/a"b%0A')
        client.get("/c")
        client.post("/v1/intervals", json={"triples": [["a", "b", "c"]] * 3})
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    typed = {}
    for line in lines:
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            typed[name] = kind
        elif not line.startswith("# HELP"):
            assert SAMPLE.match(line), line
            name = line.split("{")[0].split(" ")[0]
            assert name in typed or typed[re.sub(r"_(bucket|sum|count)$", "", name)] == "histogram"
    assert 'unkgcp_requests_total{path="/health",status="200"} 1' in lines
    assert 'unkgcp_requests_total{path="other",status="404"} 2' in lines
    assert "unkgcp_triples_total 3" in lines
    assert "unkgcp_model_calls_total 1" in lines


def test_histograms_count_upwards():
    metrics = Metrics("0", {"run": ('a "model"', "u")})
    assert 'model="a \\"model\\"",method="u"' in metrics.text()
    for seconds in (0.0001, 0.001, 0.003, 99.0):
        metrics.request("/p", 200, seconds)
    text = metrics.text()
    counts = [
        int(count) for count in re.findall(r'request_seconds_bucket\{path="/p",le="[^"]+"\} (\d+)', text)
    ]
    assert counts[0] == 2
    assert counts == sorted(counts)
    assert counts[-2:] == [3, 4]
    assert 'unkgcp_request_seconds_count{path="/p"} 4' in text
