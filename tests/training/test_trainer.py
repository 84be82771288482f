"""The loop: it learns, stops early, is decided by its seed, survives what happens to long runs."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.rounding import assert_within, scores_apart, training_apart
from tests.worlds import learnable_graph
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import hold_out_known
from unkgcp.training import (
    Member,
    Model,
    TrainConfig,
    TrainingError,
    loop,
    train,
    train_many,
    train_quantiles,
)
from unkgcp.training.config import MODELS
from unkgcp.training.model import seen

QUICK = TrainConfig(dimension=8, batch_size=64, negatives=2, epochs=8, validate_every=2, learning_rate=0.02)


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
    scores = trained.score(facts.head, facts.relation, facts.tail)
    assert scores.dtype == np.float32
    assert scores.shape == (800,)


def test_the_seed_determines_the_result(facts: Graph) -> None:
    assert same(train(facts, config=QUICK, seed=3), train(facts, config=QUICK, seed=3))
    assert not same(train(facts, config=QUICK, seed=3), train(facts, config=QUICK, seed=4))


def test_members_trained_together_equal_members_trained_alone(facts: Graph) -> None:
    config = replace(QUICK, model="beurre", negatives=3)
    together = train_many(facts, [Member(0), Member(1)], config, device="cpu")
    assert len(together) == 2
    for seed, member in enumerate(together):
        alone = train(facts, config=config, seed=seed, device="cpu")
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


def test_where_every_fact_is_the_only_one_some_are_held_out_all_the_same() -> None:
    chain = learnable_graph(2)[np.array([0, 1])]
    rest, held = hold_out_known(chain, 0.1)
    assert (len(rest), len(held)) == (1, 1)


def test_early_stopping_keeps_the_best_model(facts: Graph) -> None:
    config = replace(QUICK, epochs=400, patience=6, learning_rate=0.05)
    validation = learnable_graph(200, seed=9)
    trained = train(facts, config=config, validation=validation)
    errors = [entry["validation"] for entry in trained.history]
    best = int(np.argmin(errors))
    assert len(errors) < 200
    assert len(errors) - 1 - best == 3  # 6 epochs, validated every second one
    short = train(facts, config=replace(config, epochs=2 * (best + 1)), validation=validation)
    assert same(trained, short)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="large tables stay in memory on this system")
def test_the_best_version_of_a_large_table_lies_in_a_file_if_there_is_room(
    facts: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(facts, config=QUICK)
    monkeypatch.setattr("unkgcp.training.loop.ASIDE", 0)
    mapped, memmap = [], np.memmap
    monkeypatch.setattr(
        "numpy.memmap", lambda *given, **named: mapped.append(memmap(*given, **named)) or mapped[-1]
    )
    table = torch.arange(6.0).view(1, 2, 3)
    kept = loop.kept_aside(table, tmp_path)
    assert torch.equal(kept, table)
    kept += 1
    np.testing.assert_array_equal(mapped[0], kept.numpy())
    assert not list(tmp_path.iterdir())
    found = train(facts, config=QUICK, checkpoint=tmp_path / "checkpoint.safetensors")
    monkeypatch.setattr("os.posix_fallocate", lambda *arguments: (_ for _ in ()).throw(OSError("no room")))
    crowded = train(facts, config=QUICK)
    for name, values in expected.tables.items():
        np.testing.assert_array_equal(found.tables[name], values)
        np.testing.assert_array_equal(crowded.tables[name], values)


def test_quantile_models_bracket_the_confidences() -> None:
    facts = learnable_graph(2000)
    models = train_quantiles(facts, levels=(0.8,), config=replace(QUICK, epochs=30))
    assert list(models) == [0.1, 0.9]
    low, high = (model.score(facts.head, facts.relation, facts.tail) for model in models.values())
    assert 0.02 < (facts.confidence < low).mean() < 0.3
    assert 0.02 < (facts.confidence > high).mean() < 0.3
    assert [model.config.quantile for model in models.values()] == [0.1, 0.9]


def test_passleaf_has_no_quantile_models(facts: Graph) -> None:
    with pytest.raises(InputError, match="passleaf"):
        train_quantiles(facts, "passleaf")


@pytest.mark.parametrize("name", ["ukge", "passleaf", "beurre"])
def test_resuming_gives_the_same_bytes(name: str, facts: Graph, tmp_path: Path) -> None:
    config = replace(
        QUICK, model=name, momentum=0.9 if name == "beurre" else 0.0, pool_from=2, pool_train_from=4
    )
    undisturbed = train(facts, config=config)
    path = tmp_path / "run.safetensors"
    train(facts, config=config, checkpoint=path, callback=lambda epoch, error: epoch >= 4)
    resumed = train(facts, config=config, checkpoint=path, resume=True)
    assert len(resumed.history) == len(undisturbed.history)
    assert same(resumed, undisturbed)


def test_a_checkpoint_older_than_the_last_validation_loses_no_result(
    facts: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unkgcp.training.loop.SAVE_EVERY", float("inf"))
    path = tmp_path / "run.safetensors"
    epochs: list[int] = []

    def interrupt(epoch: int, error: list[float]) -> bool:
        epochs.append(epoch)
        if epochs == [2, 4, 6]:
            raise KeyboardInterrupt
        return False

    train(facts, config=QUICK, checkpoint=path, callback=interrupt)
    resumed = train(facts, config=QUICK, checkpoint=path, resume=True, callback=interrupt)
    assert epochs == [2, 4, 6, *range(4, QUICK.epochs + 1, 2)]  # the checkpoint was that of epoch 2
    assert same(resumed, train(facts, config=QUICK))


def test_resuming_another_run_is_refused(facts: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    train(facts, config=QUICK, checkpoint=path)
    with pytest.raises(InputError, match="other config"):
        train(facts, config=replace(QUICK, dimension=9), checkpoint=path, resume=True)
    with pytest.raises(InputError, match="other members"):
        train(facts, config=QUICK, seed=1, checkpoint=path, resume=True)


def test_a_damaged_checkpoint_is_refused(facts: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="not a checkpoint"):
        train(facts, config=QUICK, checkpoint=path, resume=True)


KILLED = """
import sys
from dataclasses import replace
sys.path.insert(0, {root!r})
from tests.worlds import learnable_graph
from tests.training.test_trainer import LONG
from unkgcp.training import loop, train
loop.SAVE_EVERY = 0.0  # however fast this machine is, there is a checkpoint in the middle
train(learnable_graph(3000), config=LONG, checkpoint={path!r}, resume=True, device="cpu")
"""
LONG = replace(QUICK, epochs=60, validate_every=1, patience=60, dimension=32)


@pytest.mark.slow
def test_kill_and_resume_ends_in_the_same_parameters(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    script = KILLED.format(root=str(Path(__file__).parents[2]), path=str(path))
    for checkpoints in (1, 3):  # seen before it is killed: so it is in the middle on quick and slow machines
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        before = path.stat().st_mtime_ns if path.exists() else 0
        while process.poll() is None and checkpoints:
            time.sleep(0.002)
            if path.exists() and path.stat().st_mtime_ns != before:
                before, checkpoints = path.stat().st_mtime_ns, checkpoints - 1
        assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    facts = learnable_graph(3000)
    resumed = train(facts, config=LONG, checkpoint=path, resume=True, device="cpu")
    assert same(resumed, train(facts, config=LONG, device="cpu"))


def test_ctrl_c_ends_with_the_best_model_so_far(facts: Graph) -> None:
    def interrupt(epoch: int, error: list[float]) -> bool:
        if epoch == 4:
            raise KeyboardInterrupt
        return False

    trained = train(facts, config=QUICK, callback=interrupt)
    assert trained.interrupted
    assert len(trained.history) == 2
    assert same(trained, train(facts, config=replace(QUICK, epochs=4)))


def test_a_loss_that_is_no_number_stops_with_a_sentence(facts: Graph, tmp_path: Path) -> None:
    config = replace(QUICK, model="ukge-rect", learning_rate=1e15, validate_every=1)
    with pytest.raises(
        TrainingError, match=r"step \d+ with learning rate 1e\+15; use a smaller learning_rate"
    ) as stop:
        train(facts, config=config)
    assert stop.value.model is None or np.isfinite(stop.value.model.score([0], [0], [0])).all()


def test_training_leaves_the_processors_arithmetic_as_it_was(facts: Graph) -> None:
    smallest = sys.float_info.min
    assert smallest / 2 > 0
    train(facts, config=QUICK)
    assert smallest / 2 > 0


def test_ctrl_c_ends_several_members_at_once(facts: Graph) -> None:
    seen_epochs = []

    def interrupt(epoch: int, error: list[float]) -> bool:
        seen_epochs.append(epoch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_many(facts, [Member(0), Member(1)], QUICK, device="cpu", callback=interrupt)
    assert len(seen_epochs) == 1


def test_two_facts_are_the_least(facts: Graph) -> None:
    with pytest.raises(InputError, match="too few"):
        train(facts[:1], config=QUICK)
    assert train(facts[:2], config=QUICK).history


def test_a_gpu_that_is_not_there(facts: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="--device cpu"):
        train(facts, config=QUICK, device="cuda")


def test_saved_tables_score_the_same(facts: Graph) -> None:
    trained = train(facts, config=QUICK)
    again = Model.from_tensors(
        trained.tables, facts.vocabulary, trained.config, 0, trained.seen_entities, trained.seen_relations
    )
    ids = facts.head, facts.relation, facts.tail
    assert (trained.score(*ids) == again.score(*ids)).all()
    tails = trained.tails(facts.head[:3], facts.relation[:3])
    assert tails.shape == (3, facts.n_entities)
    few = [column[:3] for column in ids]
    bound = scores_apart(trained.config.model, trained.tables, *few)
    assert_within(tails[np.arange(3), facts.tail[:3]], trained.score(*few), bound)
    heads = trained.heads(facts.relation[:3], facts.tail[:3])
    assert_within(heads[np.arange(3), facts.head[:3]], trained.score(*few), bound)


def test_tables_of_the_wrong_shape_are_refused(facts: Graph) -> None:
    trained = train(facts, config=QUICK)
    tensors = {**trained.tables, "entity": np.zeros((3, 8), np.float32)}
    with pytest.raises(ValueError, match=r"'entity'.*\(40, 8\)"):
        Model.from_tensors(
            tensors, facts.vocabulary, trained.config, 0, trained.seen_entities, trained.seen_relations
        )
