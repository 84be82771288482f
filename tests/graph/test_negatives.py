import numpy as np
import pytest

from tests.worlds import graph_of_ids, random_graph, vocabulary
from unkgcp.graph import Graph
from unkgcp.graph.negatives import JOINED, KINDS, corrupt


def graph(n: int = 300, entities: int = 12, seed: int = 0) -> Graph:
    return random_graph(n, vocabulary(entities, 2), seed)


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
    complete = graph_of_ids([(h, 0, t, 1.0) for h in (0, 1) for t in (0, 1)], vocabulary(2))
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


@pytest.mark.parametrize("kind", [*KINDS, JOINED])
def test_no_kind_is_known_or_the_fact_itself(kind: str) -> None:
    facts, known = graph(400, entities=300), graph(300, entities=300, seed=1)
    negatives = corrupt(facts, known, seed=5, kind=kind)
    assert len(negatives)
    assert not np.isin(negatives.keys, known.keys).any()
    assert (negatives.confidence == 0).all()
    same = corrupt(facts[:1], known[:0], seed=5, kind=kind)
    assert not np.isin(same.keys, facts[:1].keys).any()


def test_another_relation_as_often_as_it_is_known() -> None:
    rng = np.random.default_rng(0)
    words = vocabulary(300, 4)

    def some(n: int, share: list[float]) -> Graph:
        head, tail = rng.integers(0, 300, (2, n), dtype=np.int32)
        relation = rng.choice(4, n, p=share).astype(np.int32)
        return Graph(head, relation, tail, np.ones(n), words)

    facts, known = some(4000, [1, 0, 0, 0]), some(1000, [0.5, 0.4, 0.1, 0])
    negatives = corrupt(facts, known, seed=0, kind="relation")
    assert (negatives.head == facts.head).all()
    assert (negatives.tail == facts.tail).all()
    share = np.bincount(negatives.relation, minlength=4) / len(facts)
    assert share[0] == share[3] == 0
    assert share[1] == pytest.approx(0.8, abs=0.05)
    one = some(50, [1, 0, 0, 0])
    assert len(corrupt(one, one, seed=0, kind="relation")) == 0


@pytest.mark.parametrize(("kind", "steps"), [("near", 2), (JOINED, 1)])
def test_steps_along_known_facts(kind: str, steps: int) -> None:
    facts, known = graph(500, entities=60), graph(90, entities=60, seed=1)
    beside = np.zeros((60, 60), bool)
    beside[known.head, known.tail] = beside[known.tail, known.head] = True
    reached = beside if steps == 1 else (beside.astype(int) @ beside.astype(int)) > 0
    made = corrupt(facts, known, seed=3, kind=kind)
    lost = len(facts) - len(made)
    assert lost < 50  # some entities lead nowhere else
    for fact, other in (
        (facts[i : i + 1], corrupt(facts[i : i + 1], known, seed=i, kind=kind)) for i in range(200)
    ):
        if not len(other):
            continue
        h, t = int(other.head[0]), int(other.tail[0])
        assert (h == fact.head[0]) ^ (t == fact.tail[0])
        stays = t if t == fact.tail[0] else h
        if beside[stays].any():
            assert h != t
            assert reached[h, t]


def test_only_relations_with_a_direction_are_turned() -> None:
    """Relation 0 mostly goes both ways, relation 1 never does; loops are the same either way."""
    rng = np.random.default_rng(0)
    words = vocabulary(200, 3)
    head, tail = rng.permutation(200)[:100].astype(np.int32), rng.permutation(200)[:100].astype(np.int32)
    ones, zero = np.ones(100, np.int32), np.zeros(100, np.int32)
    known = Graph(
        np.concatenate([head, tail, head]),
        np.concatenate([zero, zero, ones]),
        np.concatenate([tail, head, tail]),
        np.ones(300),
        words,
    )
    loops = Graph(head, ones, head, np.ones(100), words)
    unknown = Graph(head, 2 * ones, tail, np.ones(100), words)
    both = Graph(head, zero, tail, np.ones(100), words)
    one = Graph(head, ones, tail, np.ones(100), words)
    for part in (loops, unknown, both):
        assert len(corrupt(part, known, seed=0, kind="reversed")) == 0
    turned = corrupt(one[head != tail], known, seed=0, kind="reversed")
    kept = ~np.isin(
        one.tail[head != tail].astype(np.int64) * 200 + one.head[head != tail], one.head * 200 + one.tail
    )
    assert (turned.head == one.tail[head != tail][kept]).all()
    assert (turned.tail == one.head[head != tail][kept]).all()
    assert len(turned) > 80
