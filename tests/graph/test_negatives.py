import numpy as np
import pytest

from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.negatives import corrupt


def graph(n: int = 300, entities: int = 12, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary.of([f"e{i}" for i in range(entities)], ["r0", "r1"])
    draw = lambda high: rng.integers(high, size=n, dtype=np.int32)  # noqa: E731
    return Graph(draw(entities), draw(2), draw(entities), rng.random(n), vocabulary)


def test_corruptions_are_not_known_and_change_one_side() -> None:
    facts = graph(100)
    known = graph(150, seed=1)
    negatives = corrupt(facts, known, seed=3, per_fact=4)
    assert len(negatives) == 400
    assert not np.isin(negatives.keys, known.keys).any()
    head, tail = np.repeat(facts.head, 4), np.repeat(facts.tail, 4)
    assert ((negatives.head == head) ^ (negatives.tail == tail)).all()
    assert (negatives.relation == np.repeat(facts.relation, 4)).all()
    assert (negatives.confidence == 0).all()


def test_a_complete_graph_has_no_corruptions() -> None:
    vocabulary = Vocabulary.of(["a", "b"], ["r"])
    ids = np.array([0, 0, 1, 1], dtype=np.int32)
    complete = Graph(ids, np.zeros(4, np.int32), np.array([0, 1, 0, 1], np.int32), np.ones(4), vocabulary)
    assert len(corrupt(complete, complete, seed=0)) == 0


def test_seed_determines_the_draw() -> None:
    facts = graph()
    first, second = corrupt(facts, facts[:50], seed=7), corrupt(facts, facts[:50], seed=7)
    assert (first.keys == second.keys).all()
    assert (first.keys != corrupt(facts, facts[:50], seed=8).keys).any()


def test_same_type_corruptions_stand_on_the_side_they_are_put() -> None:
    facts, known = graph(200), graph(150, entities=12, seed=1)
    known = known[known.head < 6]  # heads of known facts are few
    negatives = corrupt(facts, known, seed=3, kind="same-type")
    changed = np.flatnonzero(negatives.head != np.resize(facts.head, len(negatives)))
    for side, column in (("head", negatives.head), ("tail", negatives.tail)):
        rows = changed if side == "head" else np.setdiff1d(np.arange(len(negatives)), changed)
        if len(negatives) == len(facts):
            for row in rows:
                same = known.relation == negatives.relation[row]
                assert column[row] in getattr(known, side)[same]
    assert not np.isin(negatives.keys, known.keys).any()


def test_a_relation_without_known_facts_gets_any_entity() -> None:
    facts = graph(100)
    negatives = corrupt(facts, facts[:0], seed=0, kind="same-type")
    assert len(negatives) == 100


def test_a_kind_nobody_knows() -> None:
    with pytest.raises(ValueError, match="same-type"):
        corrupt(graph(), graph(), seed=0, kind="odd")


def test_frequent_entities_are_drawn_as_often_as_they_stand_in_facts() -> None:
    facts, known = graph(2000), graph(300, seed=1)
    known = known[(known.head < 3) & (known.tail < 3)]
    negatives = corrupt(facts[facts.head > 5], known, seed=3, kind="frequent")
    mentioned = np.bincount(np.concatenate([known.head, known.tail]), minlength=12)
    replaced = negatives.head[negatives.head < 3]  # heads of these facts are larger
    counts = np.bincount(replaced, minlength=12)
    assert (counts[mentioned == 0] == 0).all()
    assert len(replaced) > 100
