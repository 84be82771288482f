"""Loss terms on batches small enough to check."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.worlds import learnable_graph
from unkgcp.graph import Graph
from unkgcp.training import Member, TrainConfig
from unkgcp.training.batches import TrainingData
from unkgcp.training.losses import Corruptions, capacity, pinball, rules, share_at
from unkgcp.training.torch_engine import TorchEngine

CPU = torch.device("cpu")


def engine(config: TrainConfig, facts: Graph, members: int = 2) -> TorchEngine:
    data = TrainingData.of(facts, None, config, CPU)
    made = TorchEngine(data, config, [Member(seed) for seed in range(members)], CPU)
    made._prepare(0)
    return made


@pytest.mark.parametrize("filtered", [True, False])
def test_corruptions_change_one_side_and_respect_the_filter(filtered: bool) -> None:
    config = TrainConfig(dimension=4, batch_size=50, negatives=6)
    facts = learnable_graph(900, entities=25)
    made = engine(config, facts)
    batch = made._batch()
    drawn, usable = Corruptions(made.data, made.members, 6, filtered)(
        batch.head, batch.relation, batch.tail, batch.position
    )
    assert drawn.shape == usable.shape == (2, 50, 12)
    assert (drawn[0] != drawn[1]).any()
    relation = batch.relation[..., None].expand(2, 50, 6).numpy()
    head, tail = (side[..., None].expand(2, 50, 6).numpy() for side in (batch.head, batch.tail))
    keys = np.concatenate(
        [
            (drawn[..., :6].numpy() * 3 + relation) * 25 + tail,
            (head * 3 + relation) * 25 + drawn[..., 6:].numpy(),
        ],
        -1,
    )
    known = np.isin(keys, facts.keys)
    assert known.any()
    if filtered:
        assert (usable.numpy() == ~known).all()
        assert known.mean() < 0.5
    else:
        assert usable.all()


def test_pinball_loss() -> None:
    loss = pinball([Member(0, 0.1), Member(0, 0.9)], CPU)
    value, target = torch.tensor([[0.5, 0.5]] * 2), torch.tensor([[0.7, 0.2]] * 2)
    expected = torch.tensor([[0.1 * 0.2, 0.9 * 0.3], [0.9 * 0.2, 0.1 * 0.3]])
    torch.testing.assert_close(loss(value, target), expected)


def test_the_pool_follows_the_papers_schedule() -> None:
    config = TrainConfig("passleaf")
    shares = [share_at(config, epoch) for epoch in (0, 20, 29, 30, 31, 69, 500)]
    assert shares == pytest.approx([0, 0, 0, 0.02, 0.04, 0.8, 0.8])
    assert capacity(config, 10**6, 512) == 10**7
    assert capacity(config, 100, 100) == 10 * 100 * 20


def test_the_pool_holds_corrupted_facts_with_the_scores_of_their_time() -> None:
    config = TrainConfig("passleaf", dimension=4, batch_size=50, negatives=3, pool_from=0, pool_train_from=1)
    facts = learnable_graph(100)
    made = engine(config, facts, members=1)
    made.run_epoch(0)
    assert made.pool.scores.shape[1] == 600
    assert torch.allclose(made.pool.scores, torch.tensor(0.5), atol=0.01)  # w = b = 0 at the start
    triples = made.pool.triples[0].numpy()
    sides = {(h, r) for h, r in zip(facts.head, facts.relation, strict=True)}
    other = {(r, t) for r, t in zip(facts.relation, facts.tail, strict=True)}
    assert all((h, r) in sides or (r, t) in other for h, r, t in triples.tolist())


def test_box_rules_move_relations_but_not_entities() -> None:
    options = {"transitive": ("r0",), "compositions": (("r0", "r1", "r2"),)}
    config = TrainConfig("beurre", dimension=4, batch_size=100, negatives=0, **options)
    made = engine(
        replace(config, side_regularization=0.0, box_regularization=0.0), learnable_graph(100), members=1
    )
    logic = rules(made.data, made.config, made.members, 100)
    assert len(logic) == 2
    batch = made._batch()
    torch.autograd.backward(torch.stack([term(batch) for term in logic]).sum())
    touched = {name for name, gradient in made.gradients.items() if (gradient != 0).any()}
    assert touched == {"head_shift", "head_scale", "tail_shift", "tail_scale"}
