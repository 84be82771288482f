"""Models of PyKEEN: trained here on confidences, or brought along."""

from __future__ import annotations

import resource
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import unkgcp
from tests.worlds import learnable_graph
from unkgcp.errors import InputError
from unkgcp.graph import Graph, Splits, Vocabulary
from unkgcp.graph.datasets import Dataset
from unkgcp.methods import predictor_class
from unkgcp.run import Predictor, fit, fit_folds
from unkgcp.run.fitting import check_model
from unkgcp.training import TrainConfig, TrainingError, train
from unkgcp.training.pykeen_models import PykeenModel, from_pykeen

GRAPH = learnable_graph(400, entities=20)
TRAIN, CALIBRATION, TEST = GRAPH[:200], GRAPH[200:320], GRAPH[320:]
TINY = TrainConfig(
    "pykeen:TransE", dimension=4, batch_size=64, epochs=2, validate_every=1, negatives=1, softlogic_weight=0.0
)


needs_pykeen = pytest.mark.skipif(
    find_spec("pykeen") is None, reason="pykeen is not installed: pip install 'unkgcp[pykeen]'"
)

# models that are brought along; what from_pykeen asks of a model is little, so that these tests do without PyKEEN


class Module:
    """Scores as a module of PyKEEN gives them: the larger, the surer."""

    device = torch.device("cpu")

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def predict_hrt(self, triples: torch.Tensor) -> torch.Tensor:
        return self.scale * (triples[:, :1] * 7 + triples[:, 2:] * 3 - triples[:, 1:2]).float()


def factory(words: Vocabulary) -> Any:
    """The same labels with other ids."""
    names = [column.to_pylist()[::-1] for column in (words.entities, words.relations)]
    return SimpleNamespace(
        **{
            f"{kind}_to_id": {label: number for number, label in enumerate(labels)}
            for kind, labels in zip(("entity", "relation"), names, strict=True)
        }
    )


def test_scores_are_mapped_and_keep_their_order() -> None:
    result = SimpleNamespace(model=Module(), training=factory(GRAPH.vocabulary))
    model = from_pykeen(result, TRAIN)
    assert model.name == "PyKEEN's Module"
    ids = np.arange(20)
    found = model.score(ids, np.zeros(20, int), np.zeros(20, int))
    assert (np.diff(found) >= 0).all()
    assert 0 <= found[0] < found[-1] <= 1
    predictor = unkgcp.calibrate(model, CALIBRATION, "cp")
    assert (predictor.interval(TEST).code == 0).all()
    # e19 is entity 0 of the model, and r2 its relation 0
    assert predictor.interval([("e19", "r2", "e19")]).score[0] == found[0]


def test_a_run_of_such_a_model_takes_it_again(tmp_path: Path) -> None:
    words = factory(GRAPH.vocabulary)
    predictor = unkgcp.calibrate(from_pykeen(Module(), TRAIN, words), CALIBRATION, "cp")
    predictor.save(tmp_path / "run")
    again = Predictor.load(tmp_path / "run", model=from_pykeen(Module(), TRAIN, words))
    np.testing.assert_array_equal(again.interval(TEST).upper, predictor.interval(TEST).upper)
    with pytest.raises(InputError, match="not the model"):
        Predictor.load(tmp_path / "run", model=from_pykeen(Module(-1), TRAIN, words))


@pytest.mark.parametrize(
    ("found", "words", "sentence"),
    [
        (Module(), factory(Vocabulary.of(["x"], ["y"])), "trained on other labels"),
        (Module(), None, "give the triples factory"),
        (Module(np.nan), factory(GRAPH.vocabulary), "no numbers"),
        (7, None, "int is no model of PyKEEN"),
    ],
    ids=["other labels", "no labels", "NaN", "no model"],
)
def test_what_cannot_be_mapped_is_refused(found: Any, words: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_pykeen(found, TRAIN, words)


# models that are trained here


@pytest.mark.parametrize("method", ["evidence", "qr", "joint"])
def test_methods_that_train_further_models_are_refused_before_training(method: str) -> None:
    with pytest.raises(InputError, match="goes with cp, unkgcp and shortest, not with"):
        check_model(TINY, predictor_class(method), "strict")


@needs_pykeen
@pytest.mark.parametrize("name", ["TransE", "RotatE", "ComplEx"])
def test_a_trained_one_scores_the_same_when_it_is_loaded(name: str, tmp_path: Path) -> None:
    config = replace(TINY, model=f"pykeen:{name}")
    before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # type: ignore[index,union-attr] # noqa: NPY002
    predictor = fit(dataset(), config, method="cp", device="cpu")
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # type: ignore[index] # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), before[1])
    predictor.save(tmp_path / "run")
    again = Predictor.load(tmp_path / "run")
    for column in ("score", "lower", "upper"):
        np.testing.assert_array_equal(
            getattr(again.interval(TEST), column), getattr(predictor.interval(TEST), column)
        )
    ids = np.arange(20)
    np.testing.assert_allclose(
        again.model.tails([3], [1])[0], again.model.score(0 * ids + 3, 0 * ids + 1, ids), atol=1e-6
    )
    same = unkgcp.train(TRAIN, config=config, device="cpu")
    np.testing.assert_array_equal(same.score(*_ids(TEST)), predictor.model.score(*_ids(TEST)))
    with pytest.raises(InputError, match="add --refit"):
        unkgcp.update(again, TEST)


@needs_pykeen
def test_folds_of_small_graphs(tmp_path: Path) -> None:
    predictor = fit_folds(dataset(), TINY, folds=2, device="cpu")
    predictor.save(tmp_path / "run")
    again = Predictor.load(tmp_path / "run")
    np.testing.assert_array_equal(again.interval(TEST).upper, predictor.interval(TEST).upper)


@needs_pykeen
@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (replace(TINY, model="pykeen:TransEE"), "PyKEEN has no model 'TransEE'; it has .*TransE"),
        (replace(TINY, momentum=0.5), "momentum is not for models of PyKEEN"),
        (replace(TINY, model="pykeen:ComplEx", learning_rate=1e30), "use a smaller learning_rate"),
    ],
    ids=["name", "setting", "no finite error"],
)
def test_what_cannot_be_trained_is_refused(config: TrainConfig, sentence: str) -> None:
    with pytest.raises((InputError, TrainingError), match=sentence):
        unkgcp.train(TRAIN, config=config, device="cpu")


@needs_pykeen
def test_tables_that_do_not_fit_are_refused_before_memory_is_taken() -> None:
    model = train(TRAIN, config=TINY, device="cpu")
    tables, known = model.tables, (model.seen_entities, model.seen_relations)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = max(tables, key=lambda name: tables[name].size)
    for wrong, config in (
        ({**tables, largest: tables[largest][:-1]}, TINY),
        ({**tables, "more": tables[largest]}, TINY),
        (tables, replace(TINY, model="pykeen:RESCAL", dimension=11_000)),  # 1.5 GB for three relations
        (tables, replace(TINY, model="pykeen:Nothing")),
    ):
        with pytest.raises(ValueError, match=r" has |missing|belong"):
            PykeenModel.from_tensors(wrong, GRAPH.vocabulary, config, 0, *known)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


def dataset() -> Dataset:
    return Dataset("small", Splits(TRAIN, CALIBRATION, TEST, TRAIN[:0]))


def _ids(graph: Graph) -> tuple[Any, Any, Any]:
    return graph.head, graph.relation, graph.tail
