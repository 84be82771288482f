"""Models of one's own: calibrated like trained ones, recognised when they are given again, refused if they are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import unkgcp
from tests.runs import rewritten
from tests.worlds import random_graph, random_model, vocabulary
from unkgcp.errors import InputError
from unkgcp.evaluation import report
from unkgcp.evaluation.assessment import evaluate
from unkgcp.evaluation.monitor import Monitor, describe
from unkgcp.evaluation.report import write_report
from unkgcp.graph import Graph, Splits, Vocabulary
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import predictor_class
from unkgcp.run import Predictor, calibrate
from unkgcp.run.fitting import check_model, recalibrate
from unkgcp.run.store import RUN
from unkgcp.service.gate import Metrics
from unkgcp.service.served_run import ServedRun
from unkgcp.service.settings import Settings
from unkgcp.training import TrainConfig

WORDS = vocabulary(30, 3)
TRAINED = random_model(WORDS)
FACTS, QUERIES, TRAIN = (random_graph(n, WORDS, seed) for seed, n in enumerate((200, 150, 300)))


class Ids:
    """The scores of the trained model, by ids."""

    def score(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float32]:
        assert {column.dtype for column in (head, relation, tail)} == {np.dtype(np.int64)}
        return TRAINED.score(head, relation, tail)


def by_labels(head: Any, relation: Any, tail: Any) -> list[float]:
    ids = WORDS.entity_ids(list(head)), WORDS.relation_ids(list(relation)), WORDS.entity_ids(list(tail))
    return TRAINED.score(*ids).tolist()


def answers_of(predictor: Predictor) -> list[NDArray[Any]]:
    found = predictor.interval(QUERIES, [0.8, 0.9])
    return [found.score, found.lower, found.upper]


def assert_same(one: Predictor, other: Predictor) -> None:
    for mine, theirs in zip(answers_of(one), answers_of(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("model", [Ids(), by_labels], ids=["ids", "labels"])
@pytest.mark.parametrize("method", ["cp", "unkgcp", "fpi", "shortest"])
def test_the_intervals_are_those_of_the_trained_model(model: Any, method: str) -> None:
    assert_same(calibrate(model, FACTS, method), calibrate(TRAINED, FACTS, method))


def test_groups_completions_selections_and_answer_sets_are_too() -> None:
    trained = replace(TRAINED, facts=KnownFacts.of(TRAIN))
    pair = [
        calibrate(model, FACTS, "cp", per="relation", **more)
        for model, more in ((Ids(), {"training": TRAIN}), (trained, {}))
    ]
    assert_same(*pair)
    asked = [one.complete("e1", "r1", k=5, exclude_known=True) for one in pair]
    assert asked[0].labels == asked[1].labels
    np.testing.assert_allclose(asked[0].lower, asked[1].lower, atol=1e-6)
    chosen = [one.select(QUERIES, "confidence >= 0.3", 0.4).selected["selected"] for one in pair]
    np.testing.assert_array_equal(*chosen)
    sets = [one.answers("e1", "r1", confidence=0.8) for one in pair]
    assert sets[0].size == sets[1].size


def test_the_open_world_needs_the_training_facts() -> None:
    with pytest.raises(InputError, match="training facts"):
        calibrate(Ids(), FACTS, "cp", population="open")
    own = calibrate(Ids(), FACTS, "cp", population="open", training=TRAIN)
    trained = replace(TRAINED, facts=KnownFacts.of(TRAIN))
    assert_same(own, calibrate(trained, FACTS, "cp", population="open"))


def test_facts_and_queries_with_labels_that_the_model_does_not_know() -> None:
    more = Vocabulary.of(["elsewhere", *reversed(WORDS.entities.to_pylist())], WORDS.relations.to_pylist())
    turned = Graph(
        more.entity_ids(WORDS.entities.take(FACTS.head)),
        FACTS.relation,
        more.entity_ids(WORDS.entities.take(FACTS.tail)),
        FACTS.confidence,
        more,
    )
    own = calibrate(Ids(), turned, "cp", vocabulary=WORDS)
    assert_same(own, calibrate(TRAINED, FACTS, "cp"))
    found = own.interval([("elsewhere", "r1", "e2")])
    assert (found.lower[0], found.upper[0]) == (0, 1)
    assert np.isnan(found.score[0])
    few = TRAIN[(TRAIN.head < 10) & (TRAIN.tail < 10)]
    assert calibrate(Ids(), FACTS, "cp", training=few).interval([("e1", "r1", "e20")]).code[0] != 0


class Reached(Exception):
    """The report has got as far as its figures, which are slow to draw."""


def test_it_is_judged_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'unkgcp[evidence]'")
    own = calibrate(Ids(), FACTS, "cp", training=TRAIN, name="mine")
    found = evaluate(own, Dataset("small", Splits(TRAIN, FACTS, QUERIES, TRAIN[:0])), [0.9])
    assert found["levels"][0]["positive"]["n"] == len(QUERIES)
    assert {
        found["model"],
        describe(Monitor(own))["model"],
        ServedRun("run", own, Settings(), Metrics()).about["model"],
    } == {"mine"}
    own.save(tmp_path / "run")
    unkgcp.write(QUERIES, tmp_path / "test.tsv")

    def diagnosed(predictor: Predictor, *_: Any) -> None:
        assert predictor.model.called == "mine"
        assert_same(predictor, own)
        raise Reached

    monkeypatch.setattr(report, "diagnose", diagnosed)
    with pytest.raises(Reached):
        write_report(tmp_path / "run", data=str(tmp_path / "test.tsv"), model=Ids())


# saved, loaded and recognised


def test_a_run_knows_its_model_again(tmp_path: Path) -> None:
    own = calibrate(Ids(), FACTS, "unkgcp", name="mine", training=TRAIN)
    own.save(tmp_path / "run")
    for model in (Ids(), by_labels):
        again = Predictor.load(tmp_path / "run", model=model)
        assert_same(again, own)
    assert_same(recalibrate(again, FACTS, "cp"), calibrate(Ids(), FACTS, "cp", training=TRAIN))
    again.save(tmp_path / "copy")
    assert_same(Predictor.load(tmp_path / "copy", model=Ids()), own)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (None, r"calibrated for a model of your own \(mine\), which a run does not keep"),
        (random_model(WORDS, seed=1), "not the model"),
        (random_model(vocabulary(29, 3)), "other labels"),
        (7, "no model"),
        (lambda head, relation, tail: [np.nan] * len(head), "not a number"),
    ],
    ids=["none", "another", "other labels", "no model", "NaN"],
)
def test_a_run_without_its_model_is_refused(model: Any, sentence: str, tmp_path: Path) -> None:
    calibrate(Ids(), FACTS, "cp", name="mine").save(tmp_path / "run")
    with pytest.raises(InputError, match=sentence):
        Predictor.load(tmp_path / "run", model=model)


def test_damaged_scores_are_refused(tmp_path: Path) -> None:
    own = calibrate(Ids(), FACTS, "cp")
    kept: dict[str, NDArray[Any]] = own.model.sample  # type: ignore[attr-defined]
    broken: list[dict[str, NDArray[Any]]] = [
        {name: column for name, column in kept.items() if name != left} for left in kept
    ]
    for name, column in kept.items():
        broken += [kept | {name: column[:-1]}, kept | {name: column.astype("U4")}]
        broken += [kept | {name: column[:, None]}, kept | {name: column + np.float32(0.5)}]
    broken += [kept | {"head": kept["head"] + 30}, kept | {"tail": kept["tail"] - 30}]
    broken += [kept | {"score": np.full_like(kept["score"], np.nan)}, kept | {"more": kept["score"]}]
    own.save(tmp_path / "run")
    content = (tmp_path / "run" / RUN).read_bytes()
    for sample in broken:
        (tmp_path / "run" / RUN).write_bytes(content)

        def change(arrays: dict[str, Any], about: object, sample: dict[str, Any] = sample) -> None:
            for name in kept:
                del arrays[f"given/{name}"]
            arrays |= {f"given/{name}": column for name, column in sample.items()}

        with pytest.raises(InputError, match=r"damaged|not the model"):
            Predictor.load(rewritten(tmp_path / "run", change), model=Ids())


def test_it_is_neither_trained_nor_updated() -> None:
    with pytest.raises(InputError, match="not trained here"):
        check_model(TrainConfig("given"), predictor_class("cp"), "strict")
    with pytest.raises(InputError, match="not trained here"):
        unkgcp.update(calibrate(Ids(), FACTS, "cp", training=TRAIN), QUERIES)


# models that are none


class Changing:
    """As a model with dropout is."""

    def __init__(self) -> None:
        self.chance = np.random.default_rng(0)

    def score(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float64]:
        return self.chance.random(len(head))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda head, relation, tail: np.full(len(head), np.nan), r"the score nan, not a number in \[0, 1\]$"),
        (lambda head, relation, tail: np.full(len(head), 3.5), "the score 3.5, not a number .* map its scores"),
        (lambda head, relation, tail: np.full(len(head), -0.1), "the score -0.1"),
        (lambda head, relation, tail: np.zeros(len(head) + 1), "one score a triple"),
        (lambda head, relation, tail: np.zeros((len(head), 1)), "one score a triple"),
        (lambda head, relation, tail: 0.5, "one score a triple"),
        (lambda head, relation, tail: ["a"] * len(head), "no array of numbers"),
        (lambda head, relation: [0.5] * len(head), "no array of numbers"),
        (Changing(), "must depend on the triple alone"),
        ("model.pt", "is no model"),
    ],
    ids=["NaN", "large", "small", "long", "two dimensions", "one number", "text", "arguments", "changing", "a name"],
)  # fmt: skip
def test_what_is_no_model_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        calibrate(model, FACTS, "cp")


def test_a_method_that_asks_no_model_is_loaded_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = calibrate(Ids(), FACTS, "cp", name="mine")
    own.save(tmp_path / "run")
    monkeypatch.setattr(
        type(own.method), "asks_model", False
    )  # as that of evidence, which takes long to learn
    again = Predictor.load(tmp_path / "run")
    with pytest.raises(InputError, match=r"does not keep its model \(mine\)"):
        again.model.score([0], [0], [0])
