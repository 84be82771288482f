"""`POST /v1/select`: what is chosen is what `Predictor.select` chooses, in slices beside all other requests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.service.conftest import Known, asked
from unkgcp.conformal.selection import Range
from unkgcp.run import calibrate
from unkgcp.run.chooser import Choice, Chooser, Selector
from unkgcp.service import Settings, api_schema, create_app
from unkgcp.service.batching import SLICE, Batcher
from unkgcp.service.knowledge import KEPT, Candidates
from unkgcp.service.limits import Metrics, Problem
from unkgcp.service.requests import Selecting

PATH = "/v1/select"
ABOVE = "confidence >= 0.7"


@pytest.fixture(scope="module")
def good(predictor, facts):
    """A run whose scores say something about confidences, so that some candidates are chosen and some are not."""
    scores = predictor.model.score(facts.head, facts.relation, facts.tail)
    near = np.clip(scores + np.random.default_rng(5).normal(0, 0.05, len(facts)), 0.01, 0.99)
    return calibrate(predictor.model, facts.with_confidence(near))


@pytest.fixture(scope="module")
def client(good):
    with TestClient(create_app(good, Settings())) as client:
        yield client


@pytest.mark.parametrize(
    ("condition", "fdr"),
    [(ABOVE, 0.2), ("confidence < 0.6", 0.1), ("0.4 < confidence <= 0.7", [0.05, 0.4]), (ABOVE, [0.3])],
)
def test_what_is_chosen_is_what_the_predictor_chooses(client, good, triples, condition, fdr):
    body = {"triples": triples, "condition": condition, "fdr": fdr, "confidence": [0.8, 0.9]}
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200
    said = answer.json()
    api_schema.Selection.model_validate(said)
    found = good.select([tuple(triple) for triple in triples], condition, fdr, [0.8, 0.9])
    assert said["p_value"] == found.p_value.tolist()
    names = [name for name in said if name.startswith("selected")]
    assert names == list(found.selected)
    for name in names:
        assert said[name] == found.selected[name].tolist()
    unknown = [status != "ok" for status in said["status"]]
    assert any(unknown)
    assert {p for p, none in zip(said["p_value"], unknown, strict=True) if none} == {1}
    plain = client.post("/v1/intervals", json={"triples": triples, "confidence": [0.8, 0.9]}).json()
    assert {name: said[name] for name in plain} == plain
    assert (said["fdr"], said["condition"]) == (fdr, str(Range.parse(condition)))
    assert str(Range.parse(condition)) in said["guarantee"]


def test_some_are_chosen_and_some_are_not(client, triples):
    chosen = client.post(PATH, json={"triples": triples, "condition": ABOVE, "fdr": 0.2}).json()["selected"]
    assert 0 < sum(chosen) < len(chosen) - 4


def test_a_tenth_may_be_wrong_unless_told(client, triples):
    one = client.post(PATH, json={"triples": triples, "condition": ABOVE})
    assert one.json() == client.post(PATH, json={"triples": triples, "condition": ABOVE, "fdr": 0.1}).json()


def test_the_promise_says_for_whom_it_is(client, predictor, facts, good, triples):
    body = {"triples": triples[:1], "condition": ABOVE}
    assert "candidates that are no facts" in client.post(PATH, json=body).json()["guarantee"]
    chosen_by_them = replace(good, provenance={"protocol": "paper"})
    others = facts[:99].with_confidence(np.linspace(0.01234, 0.98765, 99))
    opened = calibrate(predictor.model, others, population="open", kinds=("uniform",))
    for run, words in ((opened, "non-facts of a calibrated kind (uniform)"), (chosen_by_them, "not strict")):
        with TestClient(create_app(run, Settings())) as other:
            assert words in other.post(PATH, json=body).json()["guarantee"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"triples": []}, "nothing to choose from"),
        ({"triples": [["a", "b"]]}, "triples[0]"),
        ({"condition": None}, "the field condition"),
        ({"condition": 0.7}, "the field condition"),
        ({"condition": "score >= 0.7"}, "is not understood"),
        ({"condition": "confidence >= 7"}, "a number from 0 to 1"),
        ({"condition": "confidence >= 0"}, "nothing to choose"),
        ({"condition": "confidence < 0.2 and confidence > 0.3"}, "no confidence from 0 to 1"),
        ({"condition": "confidence > 0.9999999"}, "calibration facts has"),
        ({"condition": "(" * 9999}, "is not understood"),
        ({"fdr": 0}, "between 0 and 1"),
        ({"fdr": 1}, "between 0 and 1"),
        ({"fdr": True}, "between 0 and 1"),
        ({"fdr": "0.1"}, "between 0 and 1"),
        ({"fdr": []}, "1 to 20 shares"),
        ({"fdr": [0.1] * 21}, "1 to 20 shares"),
        ({"fdr": [0.1, 0.1]}, "once"),
        ({"confidence": 2}, "from 0 to 1"),
        ({"share": 0.1}, "there are triples, confidence, condition and fdr"),
    ],
)
def test_what_cannot_be_chosen_from_is_one_sentence(client, fields, words):
    answer = client.post(PATH, json={"triples": [["a", "b", "c"]], "condition": ABOVE, **fields})
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert len(answer.json()["error"]) < 400


def test_more_than_allowed_are_for_a_file(make_client):
    body = {"triples": [["a", "b", "c"]] * 4, "condition": ABOVE}
    said = make_client(max_triples=3, max_body=2000).post(PATH, json=body)
    assert said.status_code == 422
    assert "unkgcp predict --select" in said.json()["error"]


def test_candidates_are_placed_in_slices_that_others_share(good, triples):
    """Two requests with the same chooser, one with another, one for intervals alone: all as if asked alone."""
    batcher = Batcher(good, Settings(), Metrics("0", {"run": ("m", "u")}))
    batcher.cost = Known(SLICE / 16)
    above, below = (
        Chooser(good, Choice.of(text, 0.2), Selector(good.method, Range.parse(text)))
        for text in (ABOVE, "confidence < 0.5")
    )
    sizes: list[int] = []
    for chooser in (above, below):
        real = chooser.places
        chooser.places = lambda triples, real=real: (sizes.append(len(triples.head)), real(triples))[1]  # type: ignore[method-assign]
    many = triples * 3

    async def all_of_them():
        return await asyncio.gather(
            batcher.place(asked(many), above),
            batcher.place(asked(triples), below),
            batcher.answer(asked(many)),
            batcher.place(asked(triples[::-1]), above),
        )

    first, second, plain, third = asyncio.run(all_of_them())
    batcher.close()
    assert max(sizes) <= 8  # half of what a slice answers: each is answered and placed
    assert sum(sizes) == len(many) + 2 * len(triples)
    assert first[0] == plain
    for (text, places), chooser, given in (
        (first, above, many),
        (second, below, triples),
        (third, above, triples[::-1]),
    ):
        np.testing.assert_array_equal(places, chooser.places(chooser.triples([tuple(one) for one in given])))
        assert len(json.loads(text)["score"]) == len(given)


def candidates(predictor, **settings):
    chosen = Settings(**settings)
    batcher = Batcher(predictor, chosen, Metrics("0", {"run": ("m", "u")}))
    return Candidates(predictor, batcher, chosen), batcher


def test_calibration_facts_are_scored_once_for_a_condition(good, triples, monkeypatch):
    made: list[str] = []
    monkeypatch.setattr(
        "unkgcp.run.chooser.Selector",
        lambda method, condition: (made.append(str(condition)), Selector(method, condition))[1],
    )
    choosing, batcher = candidates(good)
    conditions = [f"confidence >= 0.{i}" for i in range(40, 40 + KEPT)]
    wanted = [ABOVE, ABOVE, *conditions[1:], ABOVE, conditions[0], ABOVE, conditions[1]]

    async def all_of_them():
        for place, condition in enumerate(wanted):
            await choosing.select(Selecting(asked(triples), condition, 0.1 + place / 100))

    asyncio.run(all_of_them())
    choosing.close()
    batcher.close()
    assert made == [str(Range.parse(text)) for text in [ABOVE, *conditions[1:], conditions[0], conditions[1]]]


def test_a_run_that_takes_too_long_to_choose_says_what_to_use(good, triples):
    choosing, batcher = candidates(good, answer_seconds=1)
    batcher.cost = Known(1.0)
    with pytest.raises(Problem, match="unkgcp predict --select"):
        asyncio.run(choosing.select(Selecting(asked(triples), ABOVE, 0.1)))
    batcher.cost = Known(0.02)  # each is answered and placed, so that 42 take 1.7 seconds
    batcher._predictor = replace(good)
    choosing._predictor = replace(good, method=good.method.among(good.method.calibration_facts()[:20]))
    with pytest.raises(Problem, match="more than 1"):
        asyncio.run(choosing.select(Selecting(asked(triples), "confidence >= 0.6", 0.1)))
    choosing.close()
    batcher.close()
