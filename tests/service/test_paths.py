"""Every path: its numbers are those of the predictor or of the training facts, and bad requests get one sentence."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from unkgcp.graph import Graph, Vocabulary
from unkgcp.run import calibrate
from unkgcp.run.answers import masses, without
from unkgcp.service import Settings, create_app, schema
from unkgcp.service.gate import Metrics
from unkgcp.service.lookups import Surroundings
from unkgcp.service.served_run import MAX_LEFT_OUT, ServedRun

QUERY = {"head": "Entity 10", "relation": "relation 1", "tail": "Entity 11"}
OPEN = {"head": "Entity 10", "relation": "relation 1"}
TRIPLE = [["a", "b", "c"]]
CHOICE = {"triples": TRIPLE, "condition": "confidence >= 0.7"}


def test_no_triples_give_no_answers_and_a_level_out_of_reach_is_noted(client, triples):
    assert client.post("/v1/intervals", json={"triples": []}).json()["notes"] == []
    noted = client.post("/v1/intervals", json={"triples": triples, "confidence": [0.9, 0.999]}).json()
    assert ["0.999" in note for note in noted["notes"]] == [True]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("intervals", b"", "must be a JSON object"),
        ("intervals", b"{", "not valid JSON"),
        ("intervals", b"[" * 100_000, "body"),
        ("intervals", b'{"triples": [["\\ud800", "b", "c"]]}', "triples[0][0]"),
        ("intervals", b"[]", "must be a JSON object"),
        ("intervals", b"{}", "triples is missing"),
        ("intervals", b'{"triples": "abc"}', "triples is 'abc'"),
        ("intervals", b'{"triples": [["a", "b", "c"], ["a", "b"]]}', "triples[1] is ['a', 'b']"),
        ("intervals", b'{"triples": [["a", "b", 1]]}', "triples[0][2] is 1"),
        ("intervals", b'{"triples": [], "confidence": 1.5}', "confidence is 1.5"),
        ("intervals", b'{"triples": [], "confidence": NaN}', "confidence is nan"),
        ("intervals", b'{"triples": [], "confidence": "0.9"}', "confidence is '0.9'"),
        ("intervals", b'{"triples": [], "confidence": true}', "confidence is True"),
        ("intervals", b'{"triples": [], "confidence": []}', "confidence is []"),
        (
            "intervals",
            b'{"triples": [], "level": 0.9, "confidence": 2}',
            "; there is no field called 'level'",
        ),
        ("select", {**CHOICE, "triples": []}, "triples is []"),
        ("select", {"triples": TRIPLE}, "condition is missing"),
        ("select", {**CHOICE, "condition": "score >= 0.7"}, "is not understood"),
        ("select", {**CHOICE, "condition": "confidence >= 7"}, "a number from 0 to 1"),
        ("select", {**CHOICE, "fdr": 1}, "fdr is 1"),
        ("select", {**CHOICE, "fdr": [0.1, 0.1]}, "once"),
        ("answers", {"relation": "relation 1"}, "leaves head and tail open"),
        ("answers", {"head": "Entity 3"}, "relation is missing"),
        ("answers", {**OPEN, "confidence": 1}, "confidence is 1"),
        ("answers", {**OPEN, "k": 10**9}, "k is 1000000000"),
        ("answers", {**OPEN, "per": "tail"}, "per is 'tail'"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(client, path, body, words):
    given = {"json": body} if isinstance(body, dict) else {"content": body}
    headers = {"Content-Type": "application/json"}
    answer = client.post(f"/v1/{path}", **given, headers=headers)
    assert 400 <= answer.status_code < 500
    assert set(answer.json()) == {"detail"}
    detail = answer.json()["detail"]
    assert words in detail
    assert len(detail) < 400
    assert "\n" not in detail


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"head": "Entity 9"}, "relation is missing"),
        ({"relation": "relation 0"}, "leaves head and tail open"),
        ({**QUERY}, "leaves neither head nor tail open"),
        ({"relation": "x" * 5000, "head": "Entity 9"}, "relation is 'xxx"),
        ({**OPEN, "k": 0}, "k is '0'"),
        ({**OPEN, "rank_by": "width"}, "rank_by is 'width'"),
        ({**OPEN, "confidence": "nan"}, "confidence[0] is 'nan'"),
    ],
)
def test_parameters_that_cannot_be_used(client, query, words):
    answer = client.get("/v1/complete", params=query)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_other_content_types_are_no_json(client):
    answer = client.post("/v1/intervals", content=b'{"triples": []}', headers={"Content-Type": "text/plain"})
    assert (answer.status_code, "Content-Type: application/json" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize("request_type", [schema.IntervalsRequest, schema.SelectRequest])
def test_a_body_of_wrong_triples_is_given_up_at_the_first(request_type):
    """Four megabytes of them took five seconds and half a gigabyte, while nobody else was answered."""
    with pytest.raises(ValidationError) as error:
        request_type.model_validate({**CHOICE, "triples": [[1, 2, 3]] * 1000})
    assert (
        len({problem["loc"][:2] for problem in error.value.errors() if problem["loc"][0] == "triples"}) == 1
    )


def test_more_than_allowed_is_refused(make_client):
    small, headers = make_client(max_triples=3, max_body=2000), {"Content-Type": "application/json"}
    assert small.post("/v1/intervals", json={"triples": TRIPLE * 3}).status_code == 200
    for path, remedy in (("intervals", "several requests"), ("select", "unkgcp predict --select")):
        answer = small.post(
            f"/v1/{path}",
            json={**CHOICE, "triples": TRIPLE * 4} if path == "select" else {"triples": TRIPLE * 4},
        )
        assert answer.status_code == 422
        assert remedy in answer.json()["detail"]
    for content in (b" " * 2001, iter([b" " * 2000, b" "])):  # declared, and in pieces
        assert small.post("/v1/intervals", content=content, headers=headers).status_code == 413


def test_requests_that_arrive_together_share_calls_and_large_ones_let_others_pass(predictor, triples):
    metrics, asked = Metrics(), [tuple(triple) for triple in triples]

    async def ask():
        run = ServedRun("run", predictor, Settings(), metrics)
        requests = [(triples * 20, 0.9), (triples[:1], 0.9), (triples, [0.5, 0.8]), (triples[::-1], 0.9)]
        return await asyncio.gather(*(run.intervals(*request) for request in requests))

    many, one, levels, backwards = asyncio.run(ask())
    expected = predictor.interval(asked, 0.9).lower.tolist()
    assert many["lower"] == expected * 20
    assert one["lower"] == expected[:1]
    assert backwards["lower"] == expected[::-1]
    assert levels["lower"] == predictor.interval(asked, [0.5, 0.8]).lower.tolist()
    samples = {
        sample.name: sample.value for family in metrics.registry.collect() for sample in family.samples
    }
    assert samples["unkgcp_batch_requests_sum"] > samples["unkgcp_batch_requests_count"] > 1


def test_too_much_that_waits_is_refused_for_a_moment(make_client, triples):
    answer = make_client(max_waiting=10).post("/v1/intervals", json={"triples": triples})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    answer = make_client(max_questions=0).get("/v1/complete", params=OPEN)
    assert answer.status_code == 503


@pytest.mark.parametrize("side", ["head", "tail"])
def test_completions_say_which_are_training_facts(client, predictor, facts, side):
    entities = facts.vocabulary.entities.to_pylist()
    given = {side: entities[facts.head[0] if side == "head" else facts.tail[0]], "relation": "relation 1"}
    said = client.get("/v1/complete", params={**given, "k": 58, "confidence": [0.8, 0.9]}).json()
    known = {
        (f["head"], f["relation"], f["tail"]): f["confidence"]
        for f in sorted(facts.table().to_pylist(), key=lambda fact: fact["confidence"])
    }
    rows = list(zip(said["head"], said["relation"], said["tail"], strict=True))
    assert said["known"] == [known.get(row) for row in rows]
    assert any(value is not None for value in said["known"])
    assert client.get("/v1/complete", params={**given, side: "nobody"}).json()["status"] == ["unknown-entity"]


def listed(facts):
    return sorted((f["head"], f["relation"], f["tail"], f["confidence"]) for f in facts)


def test_evidence_is_what_a_search_through_all_facts_finds(client, facts):
    rows = facts.table().to_pylist()
    groups = {
        "same": lambda f, h, r, t: (f["head"], f["relation"], f["tail"]) == (h, r, t),
        "pair": lambda f, h, r, t: (f["head"], f["tail"]) == (h, t) and f["relation"] != r,
        "reversed": lambda f, h, r, t: (f["head"], f["tail"]) == (t, h) and h != t,
        "head_relation": lambda f, h, r, t: (f["head"], f["relation"]) == (h, r) and f["tail"] != t,
        "relation_tail": lambda f, h, r, t: (f["relation"], f["tail"]) == (r, t) and f["head"] != h,
    }

    def near(x):
        return {f["tail"] for f in rows if f["head"] == x} | {f["head"] for f in rows if f["tail"] == x}

    asked = sorted({(row["head"], row["relation"], row["tail"]) for row in rows[:30]})
    for h, r, t in [*asked, ("Entity 10", "relation 0", "Entity 10"), ("nobody", "nothing", "no one")]:
        said = client.get("/v1/evidence", params={"head": h, "relation": r, "tail": t, "limit": 50}).json()
        *close, paths = said["groups"]
        for group in close:
            right = listed(row for row in rows if groups[group["name"]](row, h, r, t))
            assert (listed(group["facts"]), group["count"]) == (right, len(right))
        between = (near(h) & near(t)) - {h, t}
        ways = list(zip(paths["facts"][::2], paths["facts"][1::2], strict=True))
        assert paths["count"] == len(between) == len(ways)
        for one, other in ways:
            (middle,) = {one["head"], one["tail"]} - {h}
            assert middle in between
            assert {other["head"], other["tail"]} == {t, middle}


def test_labels_come_with_their_facts(client, facts):
    said = client.get("/v1/entities", params={"prefix": "eNTITY 1", "limit": 3}).json()
    assert [one["label"] for one in said["labels"]] == ["Entity 10", "Entity 11", "Entity 12"]
    assert said["more"] is True
    entity = facts.vocabulary.entity_ids(["Entity 10"])[0]
    assert said["labels"][0]["facts"] == int(np.sum(facts.head == entity) + np.sum(facts.tail == entity))
    assert client.get("/v1/entities", params={"limit": 0}).status_code == 422


def test_about_says_what_is_served_and_what_it_promises(client, predictor, facts):
    said = client.get("/v1/about").json()
    assert (said["model"], said["method"], said["facts"]) == ("ukge", "unkgcp", len(facts))
    rows = {(f["head"], f["relation"], f["tail"]) for f in facts.table().to_pylist()}
    assert 1 <= len(said["examples"]) <= 3
    assert {tuple(example) for example in said["examples"]} <= rows
    assert all(head != tail for head, _, tail in said["examples"]), "a self-loop is no example"
    figures = {"n": 10, "coverage": 0.9, "sharpness": 0.3, "interval_score": 0.4}
    levels = [
        {"confidence": level, "positive": {"kinds": {"new pair": {**figures, "mae": level}}}}
        for level in (0.8, 0.9, 0.95)
    ]
    provenance = {"protocol": "paper", "data": {"name": "/home/me/facts.tsv"}}
    fitted = replace(predictor, provenance=provenance, metrics={"levels": levels})
    said = TestClient(create_app(fitted, Settings())).get("/v1/about").json()
    assert said["guarantee"].startswith("not strict")
    assert said["data"] == "facts.tsv"
    assert said["kinds"] == {"new pair": {"confidence": 0.9, **figures}}


def test_the_distribution_and_the_effects_of_facts_are_those_of_the_run(evident, facts):
    client, query = TestClient(create_app(evident, Settings())), tuple(QUERY.values())
    said = client.get("/v1/distribution", params=QUERY).json()
    schema.DistributionDocument.model_validate(said)
    assert [cell["mass"] for cell in said["cells"]] == masses(evident, query)[2].tolist()
    said = client.get("/v1/without", params={**QUERY, "confidence": 0.8}).json()
    schema.EffectsDocument.model_validate(said)
    now, rows = evident.interval([query], 0.8), facts.table().to_pylist()
    assert (said["score"], said["lower"], said["upper"]) == (now.score[0], now.lower[0], now.upper[0])
    changes = [abs(fact["change"]) for fact in said["facts"]]
    assert changes == sorted(changes, reverse=True)
    assert 0 < len(changes) <= MAX_LEFT_OUT
    assert all({fact["head"], fact["tail"]} & set(query) for fact in said["facts"])
    for fact in said["facts"][:3]:
        place = rows.index({name: fact[name] for name in ("head", "relation", "tail", "confidence")})
        other = next(without(evident, query, [place], 0.8))
        assert (fact["score"], fact["lower"]) == (other.score[0], other.lower[0])
    for name in QUERY:
        answer = client.get("/v1/distribution", params={**QUERY, name: "nobody"})
        assert (answer.status_code, "'nobody'" in answer.json()["detail"]) == (404, True)


def test_a_run_without_a_distribution_says_so(client):
    for path in ("/v1/distribution", "/v1/without"):
        answer = client.get(path, params=QUERY)
        assert (answer.status_code, "--method evidence" in answer.json()["detail"]) == (404, True)


def test_a_fact_of_a_symmetric_relation_is_found_from_both_sides():
    vocabulary = replace(
        Vocabulary.of(["a", "b", "c"], ["meets", "likes"]), symmetric=np.array([True, False])
    )
    facts = Graph(
        *np.array([[0, 1, 0], [0, 0, 1], [1, 2, 1]], np.int32), np.array([0.5, 0.7, 0.9]), vocabulary
    )
    around = Surroundings(facts, vocabulary)
    assert around.known("b", "meets", None) == around.known(None, "meets", "b") == {"a": 0.5, "c": 0.7}
    assert (around.known("b", "likes", None), around.known(None, "likes", "b")) == ({}, {"a": 0.9})
    for triple in (("a", "meets", "b"), ("b", "meets", "a")):
        counts = {group["name"]: group["count"] for group in around.around(*triple, 5)["groups"]}
        turned = triple[0] == "b"
        beside = {
            "pair": not turned,
            "reversed": turned,
            "head_relation": turned,
            "relation_tail": not turned,
        }
        assert counts == {"same": 1, **beside, "paths": 0}


def test_each_run_answers_under_its_name_and_the_first_everywhere(predictor, others):
    runs = {"first": predictor, "the other run": calibrate(predictor.model, others, "cp")}
    client = TestClient(create_app(runs, Settings()))
    assert client.get("/v1/about").json() == client.get("/runs/first/v1/about").json()
    assert client.get("/runs/the other run/v1/about").json()["method"] == "cp"
    said = client.get("/v1/runs").json()["runs"]
    assert [(run["name"], run["method"]) for run in said] == [("first", "unkgcp"), ("the other run", "cp")]
    missing = client.get("/runs/nobody/v1/about")
    assert (missing.status_code, "'nobody'" in missing.json()["detail"]) == (404, True)
    assert "the other run" not in client.get("/openapi.json").text
