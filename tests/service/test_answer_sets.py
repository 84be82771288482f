"""`POST /v1/answers` gives the sets that Python and the command line give, and says what is wrong with a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.csv
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi.testclient import TestClient

from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.predict.stream import answer_file
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answer_sets import Asked
from unkgcp.service import Settings, create_app
from unkgcp.training import Model


@pytest.fixture(scope="module")
def asked(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> Predictor:
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    return calibrate(model, make_facts(150, seed=1))


@pytest.fixture(scope="module")
def client(asked: Predictor) -> TestClient:
    return TestClient(create_app(asked, Settings(max_k=20)))


@pytest.mark.parametrize("head", [True, False])
def test_http_python_and_files_agree(
    client: TestClient, asked: Predictor, head: bool, tmp_path: Path
) -> None:
    given = {"head": "entity 3"} if head else {"tail": "entity 5"}
    options = {"confidence": 0.8, "k": 6, "min_confidence": 0.3}
    said = client.post("/v1/answers", json={**given, "relation": "r1", **options}).json()
    found = asked.answers(relation="r1", **given, **options)
    entity = "tail" if head else "head"
    assert [row[entity] for row in said["answers"]] == found.entities.to_pylist()
    assert [row["share"] for row in said["answers"]] == pytest.approx(found.share.tolist())
    assert (said["size"], said["candidates"], said["known"]) == (found.size, found.candidates, found.known)
    assert (said["more"], said["everything"]) == (found.size > 6, False)
    assert (said["calibration_facts"], said["promise"]) == (found.calibration, found.promise)
    questions, answers = tmp_path / "questions.tsv", tmp_path / "answers.csv"
    questions.write_text("entity 3\tr1\t?\n" if head else "?\tr1\tentity 5\n")
    saved = tmp_path / "run"
    asked.save(saved)
    answer_file(
        Predictor.load(saved), str(questions), str(answers), sets=Asked.of(0.8, k=6, min_confidence=0.3)
    )
    rows = pyarrow.csv.read_csv(answers).to_pylist()
    assert [row[entity] for row in rows] == found.entities.to_pylist()
    assert [row["size"] for row in rows] == [found.size] * len(rows)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"relation": "r1"}, 422, "either head or tail"),
        ({"head": "entity 3"}, 422, "relation is missing"),
        ({"head": "entity 3", "relation": "r1", "confidence": 1}, 422, "between 0 and 1"),
        ({"head": "entity 3", "relation": "r1", "confidence": "0.9"}, 422, "between 0 and 1"),
        ({"head": "entity 3", "relation": "r1", "k": 21}, 422, "from 1 to 20"),
        ({"head": "entity 3", "relation": "r1", "min_confidence": 2}, 422, "from 0 to 1"),
        ({"head": "entity 3", "relation": "r1", "per": "tail"}, 422, "relation or none"),
        ({"head": "entity 3", "relation": "r1", "level": 0.9}, 422, "unknown"),
        ({"head": "nobody", "relation": "r1"}, 404, "no training fact has the entity"),
        ({"head": "entity 3", "relation": "nothing"}, 404, "no training fact has the relation"),
        ([], 422, "must be an object"),
    ],
)
def test_bad_requests(client: TestClient, body: object, status: int, says: str) -> None:
    answer = client.post("/v1/answers", json=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
