"""The contract of the service, asked by its own client: a service gives the objects that `Predictor` gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unkgcp
from tests.processes import serving
from tests.worlds import random_model
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.methods import MODULES, create
from unkgcp.methods.intervals import Intervals, arrow_columns
from unkgcp.run import Predictor, calibrate


@pytest.fixture(scope="module")
def predictors(good: Predictor, evident: Predictor, others: Graph) -> dict[str, Predictor]:
    """A run of every method."""
    low_and_high = others.with_ends(np.stack([0.9 * others.confidence, others.confidence], axis=1))
    another = random_model(good.model.vocabulary, dimension=8, seed=3)
    folds = create("cv+", members=[good.model, another], fold=np.arange(len(others)) % 2)
    interval_valued = {
        name: create(name, length=another).calibrate(good.model, low_and_high)
        for name in ("joint", "mean-length")
    }
    return {
        "unkgcp": good,  # the first answers where none is named
        "cv+": replace(good, method=folds.calibrate(good.model, others)),
        "evidence": evident,
        "qr": calibrate(good.model, others, "qr", quantiles={0.05: good.model, 0.95: good.model}),
        **{name: calibrate(good.model, others, name) for name in ("cp", "fpi", "shortest")},
        **{name: replace(good, method=one) for name, one in interval_valued.items()},
    }


@pytest.fixture(scope="module")
def address(predictors: dict[str, Predictor]) -> Iterator[str]:
    with serving(predictors, max_triples=25) as place:
        yield place


def assert_same(answers: Intervals, expected: Intervals) -> None:
    assert pa.table(arrow_columns(answers)).equals(pa.table(arrow_columns(expected)))
    assert answers.labels.to_pydict() == expected.labels.to_pydict()
    assert answers.confidence == expected.confidence


@pytest.mark.parametrize("method", MODULES)
def test_every_method_answers_as_its_predictor(
    address: str, predictors: dict[str, Predictor], triples: list[list[str]], method: str
) -> None:
    client, predictor = unkgcp.Client(address, run=method), predictors[method]
    asked = [tuple(triple) for triple in triples]  # more than one request may have
    for confidence in (0.9, 0, [0.8, 0.5, 0.95, 1]):
        assert_same(client.interval(asked, confidence), predictor.interval(asked, confidence))
    for question in ({"head": "Entity 10"}, {"tail": "Entity 11"}, {"head": "nobody"}):
        options: dict[str, Any] = {**question, "relation": "relation 1", "k": 5, "exclude_known": True}
        assert_same(client.complete(**options), predictor.complete(**options))
        question = {**question, "relation": "relation 1", "confidence": 0.8, "k": 9}
        if method == "cv+":
            with pytest.raises(InputError, match="no bound on the share of wrong ones is known"):
                client.answers(**question)
            continue
        found, expected = (one.answers(**question) for one in (client, predictor))
        for field in fields(expected):
            if field.name not in ("entities", "share"):
                assert getattr(found, field.name) == getattr(expected, field.name), field.name
        assert found.entities.to_pylist() == expected.entities.to_pylist()
        np.testing.assert_array_equal(found.share, expected.share)


@pytest.mark.parametrize("fdr", [0.2, [0.05, 0.4]])
def test_selections_are_those_of_the_predictor(
    address: str, good: Predictor, triples: list[list[str]], fdr: Any
) -> None:
    asked = [tuple(triple) for triple in triples[-25:]]
    found = unkgcp.Client(address).select(asked, "confidence >= 0.7", fdr)
    assert_same(found, good.select(asked, "confidence >= 0.7", fdr))
    with pytest.raises(InputError, match="42 triples are more than 25"):
        unkgcp.Client(address).select([tuple(triple) for triple in triples], "confidence >= 0.7")


def test_a_graph_is_asked_by_its_labels(address: str, good: Predictor, facts: Graph) -> None:
    found = unkgcp.Client(address).interval(facts[:30])
    np.testing.assert_array_equal(found.lower, good.interval(facts[:30]).lower)
    assert found.labels.column("head").to_pylist() == facts[:30].table()["head"].to_pylist()
    with pytest.raises(InputError, match="labels and no ids"):
        unkgcp.Client(address).interval(np.zeros((1, 3), np.int32))


def test_long_labels_are_sent_in_smaller_requests(good: Predictor) -> None:
    asked = [("é" * 300, "relation 1", f"Entity {i}") for i in range(20)]
    with serving(good, max_body=9000) as place:
        assert_same(unkgcp.Client(place).interval(asked), good.interval(asked))


def test_what_cannot_be_asked_is_a_sentence(address: str) -> None:
    with pytest.raises(InputError, match="answers 422: confidence is 2"):
        unkgcp.Client(address).interval([("a", "b", "c")], 2)
    with pytest.raises(InputError, match="answers 404: no run called 'nobody'"):
        unkgcp.Client(address, run="nobody").interval([("a", "b", "c")])
    with pytest.raises(ConnectionError, match="no service can be reached"):
        unkgcp.Client("http://127.0.0.1:9/").interval([("a", "b", "c")])


def test_a_busy_service_is_asked_again(good: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with serving(good, max_waiting=0, token=b"secret") as place:
        with pytest.raises(ConnectionError, match="answers 503: too many triples are waiting"):
            unkgcp.Client(place, token="secret", retries=2).interval([("a", "b", "c")])
        with pytest.raises(InputError, match="401"):
            unkgcp.Client(place).interval([("a", "b", "c")])
    assert pauses == [1.0, 1.5]


@contextmanager
def replying(*replies: tuple[int, dict[str, str], str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that gives these replies, one after the other; its address, and the headers that it was sent."""
    left, sent = list(replies), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(dict(self.headers))
            status, headers, content = left.pop(0)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()


def test_a_token_is_for_one_service_and_no_error_tells_it() -> None:
    with (
        replying((200, {}, "{}")) as (other, sent_there),
        replying((302, {"Location": f"{other}/v1/about"}, "")) as (address, sent),
    ):
        assert unkgcp.Client(address, token="hunter2\n").about == {}
    assert sent[0]["Authorization"] == "Bearer hunter2"
    assert "Authorization" not in sent_there[0]
    for secret in (
        "http://user:hunter2@127.0.0.1:9",
        "http://127.0.0.1:9/?key=hunter2",
        "http://127.0.0.1:9",
    ):
        with pytest.raises(ConnectionError) as error:
            _ = unkgcp.Client(secret, token="hunter2\nhunter2").about
        assert "hunter2" not in str(error.value)


def test_what_a_proxy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many requests are asked again; a page of its own is no answer."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    replies = [
        (429, {"Retry-After": "2"}, "slower"),
        (200, {}, json.dumps({"run": "r"})),
        (200, {}, "<html>"),
    ]
    with replying(*replies) as (address, _):
        assert unkgcp.Client(address).about == {"run": "r"}
        with pytest.raises(ConnectionError, match="no service can be reached"):
            _ = unkgcp.Client(address).about
    assert pauses == [2.0]
