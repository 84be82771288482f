"""Asking a predictor in every form, and the round trip through a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unkgcp
from tests.runs import FILES
from unkgcp.backbones import MODELS
from unkgcp.conformal.cross import draw_folds
from unkgcp.errors import InputError
from unkgcp.graph import Graph, Splits, Vocabulary
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import Triples
from unkgcp.methods import MODULES, predictor_class
from unkgcp.run import Predictor, answer_batch, calibrate, fit, recalibrate
from unkgcp.training import Model, TrainConfig

LEVELS = [0.8, 0.9, 0.95]


@pytest.fixture(scope="session")
def evidence(make_facts: Callable[..., Graph]) -> Any:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    from unkgcp.evidence import learn

    return learn(make_facts(600, seed=9), rounds=20)


@pytest.fixture(params=list(MODULES))
def predictor(
    request: pytest.FixtureRequest,
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    quantiles: dict[float, Model],
) -> Predictor:
    method = predictor_class(request.param)
    options: dict[str, Any] = {"quantiles": quantiles} if "quantiles" in method.needs else {}
    if "length" in method.needs:
        options = {"length": make_model(3)}
    if "members" in method.needs:
        options = {"members": [make_model(k) for k in range(5)], "fold": draw_folds(200, 5, 0)}
    if "evidence" in method.needs:
        options = {"evidence": request.getfixturevalue("evidence")}
    return calibrate(make_model(), make_facts(200), request.param, **options)


def same(first: Predictor, second: Predictor, queries: Graph) -> None:
    one, two = first.interval(queries, LEVELS), second.interval(queries, LEVELS)
    for name in ("score", "lower", "upper", "code"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_round_trip(predictor: Predictor, make_facts: Callable[..., Graph], tmp_path: Path) -> None:
    predictor.save(tmp_path / "run")
    loaded = unkgcp.Predictor.load(tmp_path / "run")
    same(predictor, loaded, make_facts(300, seed=1))
    assert loaded.model.vocabulary == predictor.model.vocabulary
    assert loaded.model.config == predictor.model.config
    assert loaded.method.name == predictor.method.name
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


@pytest.mark.parametrize("backbone", list(MODELS))
def test_round_trip_of_every_backbone(
    backbone: str, make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path
) -> None:
    predictor = calibrate(make_model(model=backbone), make_facts(100))
    predictor.save(tmp_path / "run")
    same(predictor, Predictor.load(tmp_path / "run"), make_facts(50, seed=1))


def test_what_it_says_of_itself(predictor: Predictor) -> None:
    method = predictor.method
    assert repr(predictor) == (
        f"Predictor('{method.name}', {method.size} calibration facts, 40 entities, 4 relations)"
    )


def test_every_form_of_a_query_gives_the_same_answer(
    predictor: Predictor, make_facts: Callable[..., Graph]
) -> None:
    facts = make_facts(60, seed=2)
    table = facts.table()
    forms = [
        facts,
        table,
        table.combine_chunks().to_batches()[0],
        table.cast(
            pa.schema([(name, pa.large_string()) for name in table.schema.names[:3]] + [("confidence", "f8")])
        ),
        list(zip(*(table[name].to_pylist() for name in ("head", "relation", "tail")), strict=True)),
        Triples(facts.head, facts.relation, facts.tail),
        np.stack([facts.head, facts.relation, facts.tail], axis=1).astype(np.int64),
    ]
    expected = predictor.interval(facts, 0.9)
    for form in forms:
        found = predictor.interval(form, 0.9)
        for name in ("score", "lower", "upper", "code"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_graph_over_another_vocabulary_is_translated(
    predictor: Predictor, make_facts: Callable[..., Graph]
) -> None:
    facts = make_facts(60, seed=3)
    own = facts.vocabulary
    turned = Vocabulary(own.entities[::-1], own.relations)
    last = len(own.entities) - 1
    other = Graph(last - facts.head, facts.relation, last - facts.tail, facts.confidence, turned)
    np.testing.assert_array_equal(predictor.interval(other).lower, predictor.interval(facts).lower)


def test_a_fit_with_parts_over_different_vocabularies(make_facts: Callable[..., Graph]) -> None:
    """Ids of one vocabulary are never taken for those of another."""
    train, facts, queries = make_facts(300, seed=1), make_facts(60, seed=2), make_facts(20, seed=3)
    turned = Vocabulary(facts.vocabulary.entities[::-1], facts.vocabulary.relations)
    config = TrainConfig("ukge", dimension=4, epochs=1)
    found = []
    for calibration in (facts, facts.over(turned)):
        dataset = Dataset("own", Splits(train, calibration, train[:0], train[:0]), split_here=True)
        found.append(fit(dataset, config, method="cp", device="cpu").interval(queries).lower)
    np.testing.assert_array_equal(*found)


def test_unknown_labels(predictor: Predictor) -> None:
    queries = [
        ("entity 1", "r1", "entity 2"),
        ("who", "r1", "entity 2"),
        ("entity 1", "what", "who"),
        ("entity 1", "what", "entity 2"),
        ("entity 39", "r1", "entity 2"),  # listed, but without a training fact
    ]
    result = predictor.interval(queries, confidence=0.5)
    entity = "unknown-entity"
    assert result.status.tolist() == ["ok", entity, entity, "unknown-relation", entity]
    assert np.isnan(result.score[1:]).all()
    assert result.lower[1:].tolist() == [0.0] * 4
    assert result.upper[1:].tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("queries", "sentence"),
    [
        ([("a", "b")], "query 0 is"),
        ([("entity 1", "r1", "entity 2"), "abc"], "query 1 is 'abc'"),
        ([("a", 1, "b")], "expected three labels"),
        (pa.table({"head": ["a"], "tail": ["b"]}), "no column 'relation'"),
        (np.zeros((2, 2), np.int64), r"ids must be an integer array \(n, 3\)"),
        (np.zeros((2, 3)), "ids must be an integer array"),
    ],
)
def test_bad_queries(predictor: Predictor, queries: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        predictor.interval(queries)  # type: ignore[arg-type]


def test_a_null_label_is_unknown(predictor: Predictor) -> None:
    table = pa.table({"head": ["entity 1", None], "relation": ["r1", "r1"], "tail": ["entity 2", "entity 2"]})
    assert predictor.interval(table).status.tolist() == ["ok", "unknown-entity"]


def test_batch(predictor: Predictor, make_facts: Callable[..., Graph]) -> None:
    facts = make_facts(80, seed=4)
    batch = facts.table().select(["head", "relation", "tail"]).combine_chunks().to_batches()[0]
    answer = answer_batch(predictor, batch, 0.9)
    assert answer.schema.names[:7] == ["head", "relation", "tail", "score", "lower", "upper", "status"]
    assert answer.select(["head", "relation", "tail"]).equals(batch)
    expected = predictor.interval(facts, 0.9)
    np.testing.assert_array_equal(answer["lower"], expected.lower)
    assert answer["status"].to_pylist() == expected.status.tolist()
    assert answer["score"].null_count == (expected.code != 0).sum() > 0
    several = answer_batch(predictor, batch, [0.8, 0.85])
    assert several.schema.names[3:9] == ["score", "lower_80", "upper_80", "lower_85", "upper_85", "status"]
    assert answer_batch(predictor, batch.slice(0, 0)).num_rows == 0


def test_recalibrating_trains_nothing_and_keeps_the_quantile_models(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    quantiles: dict[float, Model],
    tmp_path: Path,
) -> None:
    first = calibrate(make_model(), make_facts(100), "qr", quantiles=quantiles)
    first.save(tmp_path / "run")
    loaded = Predictor.load(tmp_path / "run")
    again = recalibrate(loaded, make_facts(100), "cp")
    queries = make_facts(30, seed=1)
    same(again, calibrate(make_model(), make_facts(100), "cp"), queries)
    again.save(tmp_path / "run")
    same(recalibrate(Predictor.load(tmp_path / "run"), make_facts(100), "qr"), first, queries)


def test_quantile_regression_needs_its_models(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph]
) -> None:
    with pytest.raises(InputError, match="'qr' needs quantile models"):
        calibrate(make_model(), make_facts(10), "qr")
    with pytest.raises(InputError, match="the run has no quantile models"):
        recalibrate(calibrate(make_model(), make_facts(10), "cp"), make_facts(10), "qr")


def test_the_threshold_of_negatives_survives(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path
) -> None:
    negatives = make_facts(50, seed=9).with_confidence(np.zeros(50))
    predictor = calibrate(make_model(), make_facts(100), negatives=negatives)
    predictor.save(tmp_path / "run")
    loaded = Predictor.load(tmp_path / "run")
    assert loaded.negative is not None
    assert predictor.negative is not None
    queries = make_facts(30, seed=1)
    np.testing.assert_array_equal(
        loaded.negative.interval(queries, 0.9).upper, predictor.negative.interval(queries, 0.9).upper
    )
    same(predictor, loaded, queries)


def test_ids_that_nobody_has_are_unknown(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph]
) -> None:
    predictor = calibrate(make_model(), make_facts(200, seed=1))
    ids = np.array([[2**32 + 1, 0, 2], [1, 2**32, 2], [1, 0, -(2**32) + 2], [1, 0, 2]])
    assert predictor.interval(ids).status.tolist() == [
        "unknown-entity", "unknown-relation", "unknown-entity", "ok",
    ]  # fmt: skip
    assert predictor.interval(ids[3:].astype(np.uint64)).status.tolist() == ["ok"]
