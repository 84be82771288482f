"""Facts and non-facts are covered, each by its own calibration, without anybody saying which is which."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import betabinom

from tests.worlds import vocabulary
from unkgcp.conformal.ranks import rank
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods import create
from unkgcp.methods.open_world import open_world, restore_open_world

ENTITIES = 4000
VOCABULARY = vocabulary(ENTITIES)


class Table:
    """A model whose score of (h, r, t) stands in a table at h; entity 0 was never seen."""

    def __init__(self, scores):
        self.scores = scores
        self.seen_entities = np.ones(ENTITIES, bool)
        self.seen_entities[0] = False
        self.seen_relations = np.ones(1, bool)

    def score(self, head, relation, tail):
        return self.scores[head]


def triples(heads):
    heads = np.asarray(heads, np.int32)
    return Triples(heads, np.zeros_like(heads), np.ones_like(heads))


def facts(heads, confidence):
    return Graph(*triples(heads), np.asarray(confidence, float), VOCABULARY)


def drawn(seed, n_facts=99, n_others=79, method="cp", **options):
    """A calibrated open world, and functions that draw facts (with confidences) and non-facts."""
    rng = np.random.default_rng(seed)
    half = ENTITIES // 2
    scores = np.concatenate([rng.beta(4, 2, half), rng.beta(1, 4, half)]).astype(np.float32)
    model = Table(scores)
    truth = np.clip(scores[:half] + rng.normal(0, 0.1, half), 0, 1)
    order = 1 + rng.permutation(half - 1)
    others = half + rng.permutation(half)
    base = create(method).calibrate(model, facts(order[:n_facts], truth[order[:n_facts]]))
    world = open_world(base, {"uniform": triples(others[:n_others])}, **options)
    return world, order[n_facts:], truth, others[n_others:]


def covered(answer, truth):
    return (answer.lower <= truth) & (truth <= answer.upper)


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_hits_in_each_class_follow_the_exact_law(level):
    # scores are continuous: hits among m queries are beta-binomial; false alarm 1e-6 for each class
    l_facts, l_others, m, replications = 99, 79, 100, 150
    hits = {"facts": [], "others": []}
    for seed in range(replications):
        world, more, truth, others = drawn(seed, l_facts, l_others)
        # a fact whose fact interval holds its label is covered; the hull may only add to that
        answer = world.interval(triples(more[:m]), level)
        y = truth[more[:m]]
        hits["facts"].append(((answer.fact_lower <= y) & (y <= answer.fact_upper)).sum())
        assert (covered(answer, y) >= ((answer.fact_lower <= y) & (y <= answer.fact_upper))).all()
        hits["others"].append(world.interval(triples(others[:m]), level).no_fact.sum())
    for kind, size in (("facts", l_facts), ("others", l_others)):
        k = rank(level, size)
        law = betabinom(m, k, size + 1 - k)
        mean, spread = law.mean(), law.std() / np.sqrt(replications)
        if kind == "facts":  # labels cut at 0 and 1 make ties, which can only add hits
            assert np.mean(hits[kind]) >= mean - 5 * spread
        else:
            assert abs(np.mean(hits[kind]) - mean) <= 5 * spread


def test_a_threshold_off_by_one_rank_would_be_noticed():
    replications, m, size = 150, 100, 79
    k = rank(0.9, size)
    spread = betabinom(m, k, size + 1 - k).std() / np.sqrt(replications)
    hits = []
    for seed in range(replications):
        world, _, _, others = drawn(seed, 99, size)
        wrong = np.sort(world.scores["uniform"])[k - 3]  # two ranks too low
        hits.append((world.likeness(triples(others[:m])) <= wrong).sum())
    assert abs(np.mean(hits) - betabinom(m, k, size + 1 - k).mean()) > 5 * spread


def test_several_kinds_are_all_covered():
    world, _, _, others = drawn(3)
    easy, hard = others[:200], 1 + np.arange(200)  # the second look like facts
    both = open_world(world.base, {"easy": triples(easy), "hard": triples(hard)})
    asked = triples(np.concatenate([others, np.arange(1, 400)]))
    alone = [open_world(world.base, {"kind": triples(heads)}) for heads in (easy, hard)]
    flags, *flags_alone = (each.interval(asked, [0.5, 0.9]).no_fact for each in (both, *alone))
    np.testing.assert_array_equal(flags, flags_alone[0] | flags_alone[1])


def test_the_hull_joins_zero_and_the_interval():
    world, more, _, others = drawn(0)
    answer = world.interval(triples(np.concatenate([more[:50], others[:50], [0]])), [0.5, 0.8, 0.9])
    fact = world.base.interval(triples(np.concatenate([more[:50], others[:50], [0]])), [0.5, 0.8, 0.9])
    assert (answer.fact_lower == fact.lower).all()
    assert (answer.upper == fact.upper).all()
    assert (answer.lower == np.where(answer.no_fact, 0, fact.lower)).all()
    assert answer.no_fact[-1].all(), "an unknown query may be anything"
    assert (answer.lower[-1] == 0).all()
    assert (answer.upper[-1] == 1).all()
    # nested in the level
    assert (np.diff(answer.lower) <= 0).all()
    assert (np.diff(answer.upper) >= 0).all()
    assert (np.diff(answer.no_fact.astype(int)) >= 0).all()
    names = answer.to_arrow().schema.names
    assert {"lower_80", "no_fact_80", "fact_lower_80", "fact_upper_80"} <= set(names)
    single = world.interval(triples(more[:5]), 0.9)
    assert single.no_fact.shape == single.lower.shape == (5,)
    assert single.to_arrow()["no_fact"].to_pylist() == single.no_fact.tolist()


def test_stored_and_restored():
    world, more, _, _ = drawn(1)
    again = restore_open_world(world.base, world.nonfact_arrays())
    one, other = (each.interval(triples(more[:50]), [0.8, 0.9]) for each in (world, again))
    assert (one.lower == other.lower).all()
    assert (one.no_fact == other.no_fact).all()


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"scores.uniform": np.array([0.5, 0.2])},
        {"scores.uniform": np.array([0.5, np.nan])},
        {"scores.uniform": np.zeros(0)},
        {"scores.uniform": np.zeros((2, 2))},
    ],
)
def test_damaged_arrays_are_refused(damage):
    world, *_ = drawn(1)
    with pytest.raises(ValueError, match=r"missing|falls|not finite|dimensions"):
        restore_open_world(world.base, {f"calibration/{name}": array for name, array in damage.items()})


def test_what_cannot_be_is_said():
    world, *_ = drawn(1)
    with pytest.raises(InputError, match="at least one kind"):
        open_world(world.base, {})
    with pytest.raises(InputError, match="none of the uniform"):
        open_world(world.base, {"uniform": triples([0])})
    assert "too few" in open_world(world.base, {"uniform": triples([5])}).caution(0.9)
