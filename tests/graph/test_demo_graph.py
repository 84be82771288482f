"""The demo graph is what it says, and its oracle tells the truth about it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import generate
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.demo_graph import LOWEST, STEPS, infer
from unkgcp.graph.demo_world import RELATIONS


@pytest.fixture(scope="module")
def demo():
    return generate(0)


def of(graph: Graph, name: str) -> Graph:
    return graph[graph.relation == graph.vocabulary.relation_ids([name])[0]]


def test_size_shape_and_labels(demo):
    graph, _ = demo
    assert 39_000 <= len(graph) <= 41_000
    assert 2_300 <= graph.n_entities <= 2_400
    assert graph.vocabulary.relations.to_pylist() == [row.name for row in RELATIONS]
    assert len(RELATIONS) == 12
    labels = graph.vocabulary.entities.to_pylist()
    assert len(set(labels)) == len(labels)
    assert all(label.strip() == label and "\t" not in label and label for label in labels)
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=graph.n_entities)
    assert degree.min() >= 1
    assert np.percentile(degree, 99) > 10 * np.median(degree), "popular entities"
    assert np.mean(degree <= 5) > 0.03, "rare entities"
    assert 500 < len(graph) - len(np.unique(graph.keys)) < 700, "some triples are stated twice"
    assert graph.confidence.min() >= 0.05
    assert graph.confidence.max() == 1.0


def test_a_seed_gives_the_same_bytes():
    first, second, other = generate(7)[0], generate(7)[0], generate(8)[0]
    for column in ("head", "relation", "tail", "confidence"):
        assert getattr(first, column).tobytes() == getattr(second, column).tobytes()
    assert first.vocabulary == second.vocabulary
    assert first.confidence.tobytes() != other.confidence.tobytes()


def test_symmetric_facts_have_the_same_distribution_from_either_end(demo):
    graph, oracle = demo
    for row in RELATIONS:
        if row.symmetric:
            facts = of(graph, row.name)[:200]
            back = Graph(facts.tail, facts.relation, facts.head, facts.confidence, facts.vocabulary)
            assert np.allclose(oracle.cdf(facts, 0.6), oracle.cdf(back, 0.6), rtol=1e-12), row.name
    knows = of(graph, "knows")
    back = Graph(knows.tail, knows.relation, knows.head, knows.confidence, knows.vocabulary)
    assert 0.8 < np.isin(back.keys, knows.keys).mean() < 0.95, "both directions are often, not always, stated"


def test_a_composed_fact_has_a_way_over_a_company(demo):
    graph, _ = demo
    works_for, offices, works_in = (of(graph, name) for name in ("works_for", "has_office_in", "works_in"))
    cities: dict[int, set[int]] = {}
    for company, city in zip(offices.head.tolist(), offices.tail.tolist(), strict=True):
        cities.setdefault(company, set()).add(city)
    reachable: dict[int, set[int]] = {}
    for person, company in zip(works_for.head.tolist(), works_for.tail.tolist(), strict=True):
        reachable.setdefault(person, set()).update(cities.get(company, set()))
    assert all(
        city in reachable[person]
        for person, city in zip(works_in.head.tolist(), works_in.tail.tolist(), strict=True)
    )


def test_the_oracle_is_calibrated_on_the_graph_it_made(demo):
    """The randomised probability integral transform of every confidence is uniform (Kolmogorov-Smirnov)."""
    graph, oracle = demo
    upper = oracle.cdf(graph, graph.confidence)
    lower = oracle.cdf(graph, graph.confidence - 1 / STEPS)
    place = lower + np.random.default_rng(0).random(len(graph)) * (upper - lower)
    for part in [place, *(place[graph.relation == relation] for relation in range(12))]:
        distance = np.abs(np.sort(part) - (np.arange(len(part)) + 0.5) / len(part)).max()
        # the 1e-6 quantile of Kolmogorov's distribution: one false alarm in about 77,000 runs of these 13
        assert distance < 2.7 / np.sqrt(len(part))


def test_a_wrong_distribution_would_be_noticed(demo):
    graph, oracle = demo
    other = generate(1)[1]
    shifted = Graph(graph.head, graph.relation, np.roll(graph.tail, 1), graph.confidence, graph.vocabulary)
    place = oracle.cdf(shifted, graph.confidence)
    distance = np.abs(np.sort(place) - (np.arange(len(place)) + 0.5) / len(place)).max()
    assert distance > 2.7 / np.sqrt(len(place))
    assert other.world.vocabulary != oracle.world.vocabulary


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 1.0])
def test_intervals_cover_given_the_query_and_none_is_shorter(demo, confidence):
    graph, oracle = demo
    facts = graph[:300]
    ends = oracle.interval(facts, confidence)
    assert np.all(oracle.coverage(facts, ends[:, 0], ends[:, 1]) >= confidence - 1e-9)
    # brute force: every window one step shorter holds less
    steps = np.arange(LOWEST, STEPS + 1) / STEPS
    for row in range(0, 300, 10):
        one = facts[row : row + 1]
        width = round((ends[row, 1] - ends[row, 0]) * STEPS)
        if width == 0:
            continue
        starts = steps[: len(steps) - width + 1]
        many = Graph(
            np.repeat(one.head, len(starts)),
            np.repeat(one.relation, len(starts)),
            np.repeat(one.tail, len(starts)),
            np.zeros(len(starts)),
            one.vocabulary,
        )
        assert oracle.coverage(many, starts, starts + (width - 1) / STEPS).max() < confidence


def test_intervals_hold_on_fresh_confidences(demo):
    graph, oracle = demo
    facts = graph[:4000]
    ends = oracle.interval(facts, 0.9)
    expected = oracle.coverage(facts, ends[:, 0], ends[:, 1])
    generator = np.random.default_rng(5)
    hits = np.mean([_inside(oracle.draw(facts, generator), ends) for _ in range(20)], axis=0)
    # 80,000 independent trials: five standard deviations
    assert abs(hits.mean() - expected.mean()) < 5 * np.sqrt(np.sum(expected * (1 - expected)) / 20) / len(
        facts
    )


def _inside(facts: Graph, ends: np.ndarray) -> np.ndarray:
    return (facts.confidence >= ends[:, 0]) & (facts.confidence <= ends[:, 1])


def test_the_oracle_goes_by_labels(demo):
    graph, oracle = demo
    order = np.random.default_rng(0).permutation(graph.n_entities)
    inverse = np.argsort(order).astype(np.int32)
    labels = graph.vocabulary.entities.to_pylist()
    renumbered = Graph(
        inverse[graph.head],
        graph.relation,
        inverse[graph.tail],
        graph.confidence,
        Vocabulary.of([labels[position] for position in order], graph.vocabulary.relations.to_pylist()),
    )
    assert np.array_equal(oracle.cdf(graph, 0.6), oracle.cdf(renumbered, 0.6))
    stranger = Graph(*(np.zeros(1, np.int32),) * 3, np.zeros(1), Vocabulary.of(["nobody"], ["knows"]))
    with pytest.raises(ValueError, match="demo graph only"):
        oracle.cdf(stranger, 0.5)
    with pytest.raises(ValueError, match="confidence is 0"):
        oracle.interval(graph, 0)


def test_soft_logic_concludes_only_new_triples_with_honest_bounds(demo):
    graph, oracle = demo
    facts = graph[:20_000]
    softlogic = infer(facts)
    assert len(np.unique(softlogic.keys)) == len(softlogic) > 1000
    assert not np.isin(softlogic.keys, facts.keys).any()
    names = {row.name for row in RELATIONS if row.symmetric} | {"works_in"}
    found = {
        graph.vocabulary.relations[relation].as_py() for relation in np.unique(softlogic.relation).tolist()
    }
    assert found == names
    assert oracle.mean(softlogic).mean() >= softlogic.confidence.mean()
    knows, back = of(facts, "knows"), of(softlogic, "knows")
    bound = {
        (h, t): c for h, t, c in zip(back.tail.tolist(), back.head.tolist(), back.confidence, strict=True)
    }
    stated: dict[tuple[int, int], float] = {}
    for h, t, c in zip(knows.head.tolist(), knows.tail.tolist(), knows.confidence, strict=True):
        stated[h, t] = max(c, stated.get((h, t), 0.0))
    assert all(stated[pair] == pytest.approx(confidence) for pair, confidence in bound.items())
