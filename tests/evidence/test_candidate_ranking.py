"""Completions by evidence: hidden facts rank first, and a stored completer answers like the original."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worlds import vocabulary
from unkgcp.evidence import candidate_ranking
from unkgcp.evidence.candidate_ranking import KNOWN, Completer, Ways, learn_completer
from unkgcp.evidence.crossfit import FOLDS, CrossFit, fold_of_rows
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import Graph

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")

ENTITIES = 300
FEW = Boosting(rounds=20, leaves=7, feature_fraction=0.5)


def draw(n: int, seed: int) -> Graph:
    """Most pairs of entities with a fact of relation 0 have one of relation 1 too; relation 2 is random."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(ENTITIES, size=(2, n))
    both = rng.random(n) < 0.9
    noise = rng.integers(ENTITIES, size=(2, n))
    columns = [
        np.concatenate([head, head[both], noise[0]]),
        np.repeat([0, 1, 2], [n, int(both.sum()), n]),
        np.concatenate([tail, tail[both], noise[1]]),
    ]
    size = len(columns[0])
    return Graph(
        *(c.astype(np.int32) for c in columns), rng.choice([0.6, 0.9], size), vocabulary(ENTITIES, 3)
    )


@pytest.fixture(scope="module")
def world() -> tuple[Graph, Graph]:
    """Training facts, and facts of relation 1 whose partners of relation 0 are among them."""
    facts = draw(1500, 0)
    hidden = (facts.relation == 1) & (np.random.default_rng(1).random(len(facts)) < 0.1)
    return facts[~hidden], facts[hidden]


@pytest.fixture(scope="module")
def completer(world: tuple[Graph, Graph]) -> Completer:
    return learn_completer(world[0], trees=FEW)


def ranks(completer: Completer, facts: Graph, at_head: bool) -> list[int]:
    found = []
    for h, r, t in zip(facts.head.tolist(), facts.relation.tolist(), facts.tail.tolist(), strict=True):
        given, wanted = (t, h) if at_head else (h, t)
        value = completer.expected(given, r, at_head)
        others = np.where(value >= KNOWN, -np.inf, value)
        found.append(1 + int((others > value[wanted]).sum()))
    return found


@pytest.mark.parametrize("at_head", [False, True])
def test_hidden_answers_stand_first(world: tuple[Graph, Graph], completer: Completer, at_head: bool) -> None:
    assert np.mean(1 / np.array(ranks(completer, world[1], at_head))) > 0.6
    chance = draw(150, 7)
    chance = chance[chance.relation == 2]
    assert np.mean(1 / np.array(ranks(completer, chance, at_head))) < 0.2


def test_training_facts_come_first_with_their_confidence(
    world: tuple[Graph, Graph], completer: Completer
) -> None:
    train = world[0]
    h, r = int(train.head[0]), int(train.relation[0])
    value = completer.expected(h, r, False)
    own = (train.head == h) & (train.relation == r)
    for tail in np.unique(train.tail[own]):
        assert value[tail] == KNOWN + train.confidence[own & (train.tail == tail)].max()
    assert (value >= KNOWN).sum() == len(np.unique(train.tail[own]))
    assert value.max() <= KNOWN + 1


def test_the_rest_is_ranked_behind(completer: Completer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = completer.expected(5, 1, False)
    monkeypatch.setattr(candidate_ranking, "SHORTLIST", 20)
    cut = completer.expected(5, 1, False)
    seen = cut >= 0
    assert 20 <= seen.sum() <= 40  # with the known ones
    np.testing.assert_array_equal(cut[seen], whole[seen])
    assert len(cut) == ENTITIES


def test_many_questions_are_each_alone(completer: Completer) -> None:
    anchor, relation = np.arange(40), np.arange(40) % 3
    together = completer.of_questions(anchor, relation, True)
    for row in (0, 17, 39):
        np.testing.assert_array_equal(together[row], completer.expected(row, row % 3, True))


def test_the_order_of_the_facts_is_of_no_consequence(world: tuple[Graph, Graph]) -> None:
    train = world[0]
    one, other = Ways.of(train), Ways.of(train[np.random.default_rng(0).permutation(len(train))])
    np.testing.assert_array_equal(one.gather(5, 2), other.gather(5, 2))


def test_a_walk_never_uses_the_fact_it_asks_for() -> None:
    """In a graph with a single fact no way leads to its tail; only the count of facts that end there is 1."""
    alone = Graph(
        np.array([0], np.int32),
        np.array([0], np.int32),
        np.array([1], np.int32),
        np.array([0.9]),
        vocabulary(3, 1),
    )
    ways = Ways.of(alone)
    assert not len(ways.keys)
    assert ways.gather(0, 0).tolist() == [[0] * 7, [1, *[0] * 6], [0] * 7]


def test_the_same_again_from_its_arrays(world: tuple[Graph, Graph], completer: Completer) -> None:
    again = Completer.restore(completer.arrays(), world[0], None)
    np.testing.assert_array_equal(again.expected(3, 1, True), completer.expected(3, 1, True))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("keys", np.array([3, 1], np.int64)),
        ("rates", np.array([0.5], np.float32)),
        ("rates", np.array([0.5, 2.0], np.float32)),
        ("trees.features", np.array(3)),
    ],
)
def test_damaged_arrays_are_refused(
    world: tuple[Graph, Graph], completer: Completer, name: str, array: np.ndarray
) -> None:
    arrays = completer.arrays() | {"keys": np.array([1, 3]), "rates": np.array([0.5, 0.1], np.float32)}
    Completer.restore(arrays, world[0], None)
    with pytest.raises(ValueError, match=r"damaged|learned|columns"):
        Completer.restore(arrays | {name: array}, world[0], None)


def test_a_graph_of_one_fact_learns_nothing_and_ranks_all_the_same() -> None:
    few = draw(20, 3)
    found = learn_completer(few[:1]).expected(int(few.head[0]), 0, False)
    assert len(found) == ENTITIES
    assert np.isfinite(found).all()


class Told:
    """A backbone that knows the facts of relation 2, which no other feature shows; its models differ by a shift."""

    def __init__(self, facts: Graph, shift: float) -> None:
        self.keys, self.shift = set(zip(facts.head.tolist(), facts.tail.tolist(), strict=True)), shift
        self.seen_entities = np.ones(ENTITIES, bool)

    def score(self, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
        pairs = zip(head.tolist(), tail.tolist(), strict=True)
        return np.array([0.5 * (pair in self.keys) + self.shift for pair in pairs], np.float32)


def test_scores_of_a_backbone_are_told_to_the_trees() -> None:
    facts = draw(1500, 0)
    hidden = (facts.relation == 2) & (np.random.default_rng(1).random(len(facts)) < 0.1)
    train, asked = facts[~hidden], facts[hidden]
    models = tuple(tuple(Told(facts, 0.01 * place) for place in range(FOLDS)) for _ in range(2))
    backbone = CrossFit(models)  # type: ignore[arg-type]
    fold = fold_of_rows(len(train), 0)
    with pytest.raises(ValueError, match="fold"):
        learn_completer(train, backbone=backbone)
    found = learn_completer(train, backbone=backbone, fold=fold, trees=FEW)
    assert np.mean(1 / np.array(ranks(found, asked[:40], False))) > 0.8
    assert np.mean(1 / np.array(ranks(learn_completer(train, trees=FEW), asked[:40], False))) < 0.2
    again = Completer.restore(found.arrays(), train, backbone)
    np.testing.assert_array_equal(again.expected(3, 2, True), found.expected(3, 2, True))
    with pytest.raises(ValueError, match="other features"):
        Completer.restore(found.arrays(), train, None)
