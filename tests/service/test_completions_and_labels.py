"""Completions, evidence and labels: what the bundle and the training facts say, as JSON."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.rounding import ends_apart, scores_apart
from unkgcp.run import calibrate
from unkgcp.service import Settings, create_app


def get(client, path, **query):
    return client.get(path, params=query)


@pytest.mark.parametrize("rank_by", ["score", "lower"])
@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize("exclude", ["true", "false"])
def test_completions_are_the_best_of_all_candidates(client, predictor, facts, rank_by, side, exclude):
    entities = facts.vocabulary.entities.to_pylist()
    given, relation = entities[facts.head[0] if side == "head" else facts.tail[0]], "relation 1"
    answer = get(
        client,
        "/v1/complete",
        relation=relation,
        k=7,
        rank_by=rank_by,
        exclude_known=exclude,
        confidence=0.8,
        **{side: given},
    )
    assert answer.status_code == 200
    seen = [label for label, kept in zip(entities, predictor.model.seen_entities, strict=True) if kept]
    candidates = [(given, relation, one) if side == "head" else (one, relation, given) for one in seen]
    table = facts.table().to_pylist()
    known = {}
    for row in table:
        triple = (row["head"], row["relation"], row["tail"])
        known[triple] = max(row["confidence"], known.get(triple, 0))
    if exclude == "true":
        candidates = [triple for triple in candidates if triple not in known]
    found = predictor.interval(candidates, 0.8)
    key = found.score if rank_by == "score" else found.lower
    rows = answer.json()["answers"]
    assert len(rows) == 7
    by_triple = {triple: i for i, triple in enumerate(candidates)}
    places = [by_triple[row["head"], row["relation"], row["tail"]] for row in rows]
    # a completion takes its scores from a matrix product, whose sums run in another order
    vocabulary, triples = facts.vocabulary, list(zip(*candidates, strict=True))
    ids = [
        vocabulary.entity_ids(triples[0]),
        vocabulary.relation_ids(triples[1]),
        vocabulary.entity_ids(triples[2]),
    ]
    of_scores = scores_apart("ukge", predictor.model.tables, *ids).max()
    of_ends = ends_apart(of_scores, predictor.method.calibration.threshold(0.8))
    of_key = of_scores if rank_by == "score" else of_ends
    np.testing.assert_allclose(np.sort(key)[::-1][:7], key[places], rtol=0, atol=of_key)
    for row, place in zip(rows, places, strict=True):
        assert row["score"] == pytest.approx(float(found.score[place]), abs=of_scores)
        assert row["lower"] == pytest.approx(found.lower[place], abs=of_ends)
        assert row["upper"] == pytest.approx(found.upper[place], abs=of_ends)
        assert row["known"] == known.get(candidates[place])


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"head": "Entity 9"}, 422, "relation is missing"),
        ({"relation": "relation 0"}, 422, "either head or tail"),
        ({"relation": "relation 0", "head": "Entity 9", "tail": "Entity 8"}, 422, "either head or tail"),
        ({"relation": "relation 0", "head": "nobody"}, 404, "'nobody'"),
        ({"relation": "relation 0", "head": ""}, 404, "''"),
        ({"relation": "", "head": "Entity 9"}, 404, "''"),
        ({"relation": "relation 0", "head": "?"}, 404, "'?'"),
        ({"relation": "relation 0", "tail": "Entity 59"}, 404, "'Entity 59'"),
        ({"relation": "relation 3", "head": "Entity 9"}, 404, "'relation 3'"),
        ({"relation": "x" * 300, "head": "Entity 9"}, 404, "…"),
        ({"relation": "x" * 5000, "head": "Entity 9"}, 422, "relation is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "k": 0}, 422, "k is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "k": 10**30}, 422, "k is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "k": "many"}, 422, "k is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "rank_by": "width"}, 422, "rank_by is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "confidence": "nan"}, 422, "confidence is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "confidence": 2}, 422, "confidence is wrong"),
        ({"relation": "relation 0", "head": "Entity 9", "exclude_known": "perhaps"}, 422, "exclude_known"),
    ],
)
def test_completions_refuse_in_one_sentence(client, query, status, words):
    answer = get(client, "/v1/complete", **query)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert words in answer.json()["error"]


def listed(facts):
    return sorted((f["head"], f["relation"], f["tail"], f["confidence"]) for f in facts)


def groups_by_search(rows, h, r, t):
    def among(keep):
        return listed([row for row in rows if keep(row)])

    return {
        "same": among(lambda f: (f["head"], f["relation"], f["tail"]) == (h, r, t)),
        "pair": among(lambda f: (f["head"], f["tail"]) == (h, t) and f["relation"] != r),
        "reversed": among(lambda f: (f["head"], f["tail"]) == (t, h) and h != t),
        "head_relation": among(lambda f: (f["head"], f["relation"]) == (h, r) and f["tail"] != t),
        "relation_tail": among(lambda f: (f["relation"], f["tail"]) == (r, t) and f["head"] != h),
    }


def neighbours(rows, x):
    return {f["tail"] for f in rows if f["head"] == x} | {f["head"] for f in rows if f["tail"] == x}


def test_evidence_is_what_a_search_through_all_facts_finds(client, facts):
    rows = facts.table().to_pylist()
    asked = sorted({(row["head"], row["relation"], row["tail"]) for row in rows[:30]})
    asked.append(("Entity 10", "relation 0", "Entity 10"))
    paths = 0
    for h, r, t in asked:
        said = get(client, "/v1/evidence", head=h, relation=r, tail=t, limit=50).json()
        groups = {group["name"]: group for group in said["groups"]}
        for name, right in groups_by_search(rows, h, r, t).items():
            assert listed(groups[name]["facts"]) == right
            assert groups[name]["count"] == len(right)
            confidences = [fact["confidence"] for fact in groups[name]["facts"]]
            assert confidences == sorted(confidences, reverse=True)
            assert not right or groups[name]["mean"] == pytest.approx(np.mean([fact[3] for fact in right]))
        relation = [row["confidence"] for row in rows if row["relation"] == r]
        assert said["relation"]["count"] == len(relation)
        assert said["relation"]["mean"] == pytest.approx(np.mean(relation))
        between = (neighbours(rows, h) & neighbours(rows, t)) - {h, t}
        assert said["paths"]["count"] == len(between)
        assert len(said["paths"]["facts"]) == 2 * min(len(between), 50)
        for near, far in zip(said["paths"]["facts"][::2], said["paths"]["facts"][1::2], strict=True):
            middle = {near["head"], near["tail"]} - {h}
            assert middle <= between
            assert {far["head"], far["tail"]} == {t, *middle}
            paths += 1
    assert paths > 20


def test_evidence_around_unknown_labels_is_empty(client):
    said = get(client, "/v1/evidence", head="nobody", relation="nothing", tail="no one").json()
    assert all(group["count"] == 0 and group["mean"] is None for group in said["groups"])
    assert said["paths"] == {"count": 0, "facts": []}
    assert said["relation"] == {"count": 0, "mean": None}


def test_labels_come_with_their_facts(client, facts):
    said = get(client, "/v1/entities", prefix="eNTITY 1", limit=3).json()
    assert [one["label"] for one in said["labels"]] == ["Entity 10", "Entity 11", "Entity 12"]
    assert said["more"] is True
    entity = facts.vocabulary.entity_ids(["Entity 10"])[0]
    count = int(np.sum(facts.head == entity) + np.sum(facts.tail == entity))
    assert said["labels"][0]["facts"] == count
    relations = get(client, "/v1/relations").json()
    assert [one["label"] for one in relations["labels"]] == [f"relation {i}" for i in range(4)]
    assert relations["more"] is False
    within = get(client, "/v1/entities", prefix="script", anywhere="true").json()
    assert within["labels"][0]["label"] == "<script>alert(1)</script>"


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"limit": "x"}, {"anywhere": "1"}])
def test_labels_refuse_in_one_sentence(client, query):
    answer = get(client, "/v1/entities", **query)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("strict", "coverage of at least the level"),
        ("paper", "not strict, because the calibration facts also chose"),
    ],
)
def test_about_promises_no_more_than_the_protocol_allows(predictor, protocol, said):
    fitted = replace(predictor, provenance={"protocol": protocol})
    with TestClient(create_app(fitted, Settings())) as client:
        assert client.get("/v1/about").json()["guarantee"].startswith(said)


def test_a_method_without_a_promise_says_so_under_any_protocol(predictor):
    facts = predictor.facts.graph(predictor.model.vocabulary)
    unseen = facts.with_confidence(np.random.default_rng(5).random(len(facts)))
    none = calibrate(predictor.model, unseen, "fpi")
    assert replace(none, provenance={"protocol": "paper"}).guarantee == none.method.guarantee


def test_about_says_what_is_served(client, predictor):
    said = client.get("/v1/about").json()
    assert (said["model"], said["method"]) == ("ukge", "unkgcp")
    assert said["calibration_facts"] == predictor.method.size
    assert said["facts"] == len(predictor.facts)


def test_a_completion_that_takes_too_long_is_refused_before_it_begins(predictor):
    """Ranked by the lower end every entity is asked for; with a score alone only the best are."""
    app = create_app(predictor, Settings(answer_seconds=20))
    app.state.batchers["run"].cost.learn(1, 1, 0.5)  # half a second a triple
    with TestClient(app) as client:
        asked = {"head": "Entity 7", "relation": "relation 0", "k": 3}
        refused = client.get("/v1/complete", params={**asked, "rank_by": "lower"})
        assert refused.status_code == 422
        assert "rank by score" in refused.json()["error"]
        assert client.get("/v1/complete", params=asked).status_code == 200
