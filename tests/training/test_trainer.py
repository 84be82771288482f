"""The loop: it learns, stops early, is decided by its seed, survives what happens to long runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.rounding import assert_within, training_apart
from tests.worlds import learnable_graph
from unkgcp.backbones import MODELS
from unkgcp.errors import InputError
from unkgcp.graph.known_facts import hold_out_known
from unkgcp.training import (
    Member,
    Model,
    TrainConfig,
    TrainingError,
    train_many,
    train_quantiles,
)
from unkgcp.training import train as train_anywhere
from unkgcp.training.model import seen

train = partial(train_anywhere, device="cpu")  # a GPU adds up in any order

FACTS = learnable_graph()
QUICK = TrainConfig(dimension=8, batch_size=64, negatives=2, epochs=8, validate_every=2, learning_rate=0.02)


class InterruptAt:
    """Progress that ends the training as Ctrl-C does, in a validation."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.epochs = epoch, []

    def update(self, done: int, text: str) -> None:
        self.epochs.append(done)
        if done == self.epoch:
            raise KeyboardInterrupt


def same(first: Model, second: Model) -> bool:
    return all(torch.equal(first.parameters[name], second.parameters[name]) for name in first.parameters)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns(name: str) -> None:
    facts = learnable_graph(800)
    config = replace(
        QUICK, model=name, epochs=20, validate_every=1, learning_rate=0.01, side_regularization=0.0
    )
    trained = train(facts, config=config, device="cpu")
    errors = [entry["validation"] for entry in trained.history]
    assert min(errors) < 0.95 * errors[0]


def test_the_seed_determines_the_result() -> None:
    assert same(train(FACTS, config=QUICK, seed=3), train(FACTS, config=QUICK, seed=3))
    assert not same(train(FACTS, config=QUICK, seed=3), train(FACTS, config=QUICK, seed=4))


def test_members_trained_together_equal_members_trained_alone() -> None:
    # torch trains what has this regularization, the kernels do not
    config = replace(QUICK, model="beurre", negatives=3, epochs=4, regularization=0.01)
    together = train_many(FACTS, [Member(0), Member(1)], config, device="cpu")
    assert len(together) == 2
    for seed, member in enumerate(together):
        alone = train(FACTS, config=config, seed=seed, device="cpu")
        for name in alone.parameters:
            assert_within(
                member.parameters[name], alone.parameters[name], training_apart(config.learning_rate)
            )


def test_validation_facts_are_held_out_and_leave_no_entity_without_a_fact() -> None:
    facts = learnable_graph(300, entities=90, relations=5)
    rest, held = hold_out_known(facts, 0.2)
    assert len(held) == 60
    rows = sorted(zip(facts.keys.tolist(), facts.confidence.tolist(), strict=True))
    both = np.concatenate([rest.keys, held.keys]), np.concatenate([rest.confidence, held.confidence])
    assert sorted(zip(both[0].tolist(), both[1].tolist(), strict=True)) == rows
    for whole, part in zip(seen(facts), seen(rest), strict=True):
        assert (whole == part).all()


def test_early_stopping_keeps_the_best_model() -> None:
    config = replace(QUICK, epochs=400, patience=6, learning_rate=0.05)
    validation = learnable_graph(200, seed=9)
    trained = train(FACTS, config=config, validation=validation)
    errors = [entry["validation"] for entry in trained.history]
    best = int(np.argmin(errors))
    assert len(errors) < 200
    assert len(errors) - 1 - best == 3  # 6 epochs, validated every second one
    short = train(FACTS, config=replace(config, epochs=2 * (best + 1)), validation=validation)
    assert same(trained, short)


@pytest.mark.parametrize(("first", "second"), [(0.0, 9.0), (9.0, 1e-9)])
def test_held_out_facts_choose_whether_a_model_is_regularised(first: float, second: float) -> None:
    config = replace(QUICK, epochs=40, regularization=first, try_regularization=second)
    chosen = train(FACTS, config=config)
    assert chosen.config.regularization < 1
    assert same(chosen, train(FACTS, config=chosen.config))


def test_quantile_models_bracket_the_confidences() -> None:
    facts = learnable_graph(2000)
    models = train_quantiles(facts, levels=(0.8,), config=replace(QUICK, epochs=30))
    assert list(models) == [0.1, 0.9]
    low, high = (model.score(facts.head, facts.relation, facts.tail) for model in models.values())
    assert 0.02 < (facts.confidence < low).mean() < 0.3
    assert 0.02 < (facts.confidence > high).mean() < 0.3
    assert [model.config.quantile for model in models.values()] == [0.1, 0.9]


@pytest.mark.parametrize("name", ["ukge", "passleaf", "beurre"])
def test_resuming_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    config = replace(
        QUICK, model=name, momentum=0.9 if name == "beurre" else 0.0, pool_from=2, pool_train_from=4
    )
    undisturbed = train(FACTS, config=config)
    path = tmp_path / "run.safetensors"
    assert train(FACTS, config=config, checkpoint=path, progress=InterruptAt(4)).interrupted
    resumed = train(FACTS, config=config, checkpoint=path, resume=True)
    assert len(resumed.history) == len(undisturbed.history)
    assert same(resumed, undisturbed)


def test_ctrl_c_ends_with_the_best_model_so_far() -> None:
    trained = train(FACTS, config=QUICK, progress=InterruptAt(6))
    assert trained.interrupted
    assert same(trained, train(FACTS, config=replace(QUICK, epochs=4)))


def test_a_loss_that_is_no_number_stops_with_a_sentence(tmp_path: Path) -> None:
    config = replace(QUICK, model="ukge-rect", learning_rate=1e15, validate_every=1)
    with pytest.raises(
        TrainingError, match=r"step \d+ with learning rate 1e\+15; use a smaller learning_rate"
    ) as stop:
        train(FACTS, config=config)
    assert stop.value.model is None or np.isfinite(stop.value.model.score([0], [0], [0])).all()


def test_ctrl_c_ends_several_members_at_once() -> None:
    progress = InterruptAt(2)
    with pytest.raises(KeyboardInterrupt):
        train_many(FACTS, [Member(0), Member(1)], QUICK, device="cpu", progress=progress)
    assert progress.epochs == [2]


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"dimension": 9}, {"resume": True}, "other config"),
        ({}, {"resume": True, "seed": 1}, "other members"),
        ({}, {"resume": True, "checkpoint": "no-checkpoint"}, "damaged or foreign"),
        ({}, {"device": "cuda"}, "--device cpu"),
        ({"model": "beurre", "transitive": ("nothing",)}, {}, "relation 'nothing'"),
        ({"model": "pykeen:TransE"}, {"resume": True}, "from the beginning"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    changes: dict[str, Any],
    options: dict[str, Any],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "no-checkpoint").write_bytes(b"not a checkpoint")
    train(FACTS, config=QUICK, checkpoint="checkpoint")
    asked = {"checkpoint": "checkpoint", **options}
    with pytest.raises(InputError, match=sentence):
        train(FACTS, config=replace(QUICK, **changes), **asked)


def test_too_little_and_unfit_training_is_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        train(FACTS[:1], config=QUICK)
    with pytest.raises(InputError, match="passleaf"):
        train_quantiles(FACTS, "passleaf")
    trained = train(FACTS[:2], config=QUICK)
    known = trained.seen_entities, trained.seen_relations
    for wrong, sentence in (
        ({"map": trained.tables["map"][::-1]}, "falls somewhere"),
        ({"entity": np.zeros((3, 8), np.float32)}, "'entity' has 3 of 40"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Model.from_tensors({**trained.tables, **wrong}, FACTS.vocabulary, trained.config, 0, *known)
