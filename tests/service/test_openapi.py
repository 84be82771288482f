"""The OpenAPI document is true: whatever it allows is answered as it says, and nothing makes the service fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unkgcp.service import Settings, create_app

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

PATHS = {
    "/v1/intervals": "POST",
    "/v1/select": "POST",
    "/v1/complete": "GET",
    "/v1/answers": "POST",
    "/v1/evidence": "GET",
    "/v1/entities": "GET",
    "/v1/relations": "GET",
    "/v1/distribution": "GET",
    "/v1/without": "GET",
    "/v1/about": "GET",
    "/v1/runs": "GET",
    "/health": "GET",
    "/ready": "GET",
    "/v1/reload": "POST",
    "/metrics": "GET",
}
CASES = {
    "/v1/intervals": 30,
    "/v1/select": 15,
    "/v1/complete": 25,
    "/v1/answers": 15,
    "/v1/evidence": 15,
    "/v1/entities": 15,
}
TRUE = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def schema(predictor):
    app = create_app(predictor, Settings(max_triples=50))
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_answers_as_the_document_says(schema, path):
    operation = schema[path][PATHS[path]]
    kinds = [operation.as_strategy(GenerationMode.POSITIVE)]
    if path in CASES:
        kinds.append(operation.as_strategy(GenerationMode.NEGATIVE))

    @given(case=st.one_of(kinds))
    @settings(
        max_examples=CASES.get(path, 3),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        case.call_and_validate(checks=TRUE)

    check()


def test_the_document_lists_every_path(predictor):
    document = create_app(predictor, Settings(token=b"x")).openapi()
    assert set(document["paths"]) == set(PATHS)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in ("/health", "/ready"))
            assert ("401" in operation["responses"]) == (path not in ("/health", "/ready"))


def test_the_document_shows_no_label_of_the_graph(predictor):
    """It can be read without the token."""
    text = json.dumps(create_app(predictor, Settings(token=b"x")).openapi(), ensure_ascii=False)
    vocabulary = predictor.model.vocabulary
    labels = [*vocabulary.entities.to_pylist(), *vocabulary.relations.to_pylist()]
    assert [label for label in labels if json.dumps(label, ensure_ascii=False)[1:-1] in text] == []
