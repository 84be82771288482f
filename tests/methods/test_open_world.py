"""Facts and non-facts are covered, each by its own calibration, without anybody saying which is which."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom

from tests.worlds import vocabulary
from unkgcp.conformal.ranks import rank
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods import create
from unkgcp.methods import open_world as module
from unkgcp.methods.open_world import _joint_threshold, open_world, restore_open_world

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
    for kind, heads in (("easy", easy), ("hard", hard)):
        alone = open_world(world.base, {kind: triples(heads)})
        limit, own = both._split([Fraction(9, 10)])[1], alone._split([Fraction(9, 10)])[1]
        assert limit >= own
    assert both._split([Fraction(9, 10)])[1] == alone._split([Fraction(9, 10)])[1]


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


scores = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.9, 1.0]), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    facts=scores,
    others=scores,
    share=st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20),
    level=st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(4, 5), Fraction(9, 10), Fraction(1)]),
)
def test_the_threshold_of_a_mixture_is_the_definition(facts, others, share, level):
    facts, others = np.sort(facts), np.sort(others)
    threshold = _joint_threshold(facts, others, share, level)
    for s in [-1.0, 0.0, 0.05, 0.1, 0.3, 0.5, 0.5000001, 0.7, 0.9, 1.0, 2.0]:
        own, none = (Fraction(1 + int((each >= s).sum()), len(each) + 1) for each in (facts, others))
        inside = share * own + (1 - share) * none > 1 - level
        # between two scores the answer is that of the larger one
        assert inside == (s <= threshold)


def without_the_unseen(facts, others, share, level):
    """A broken rule: shares of the calibration scores alone, neither the query nor the class it is not of counted."""
    scores = np.sort(np.concatenate([facts, others]))
    above = [(each[None, :] >= scores[:, None]).mean(axis=1) for each in (facts, others)]
    kept = scores[float(share) * above[0] + (1 - float(share)) * above[1] > 1 - float(level) + 1e-12]
    return kept.max(initial=-np.inf)


# how likely a score below t is, for facts and for non-facts: alike, facts lower, facts higher
MIXTURES = {"alike": (1, 1), "low": (0.5, 1), "high": (1, 0.5)}


@pytest.mark.parametrize(("n_facts", "n_others"), [(40, 10), (10, 40)])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_mixture_is_covered_however_few_calibrate(n_facts, n_others, mixture):
    """Coverage given a calibration is known exactly here; its mean may lie five standard errors below the level, which
    it does by chance about three times in ten million. The broken rule lies further below."""
    level, share, replications = Fraction(9, 10), Fraction(4, 5), 1500
    rng, scales = np.random.default_rng(5), MIXTURES[mixture]
    found = {_joint_threshold: [], without_the_unseen: []}
    for _ in range(replications):
        facts, others = (
            np.sort(scale * rng.random(n)) for scale, n in zip(scales, (n_facts, n_others), strict=True)
        )
        for rule, coverages in found.items():
            below = [np.clip(rule(facts, others, share, level) / scale, 0, 1) for scale in scales]
            coverages.append(float(share) * below[0] + float(1 - share) * below[1])
    for rule, coverages in found.items():
        far = np.mean(coverages) < level - 5 * np.std(coverages) / np.sqrt(replications)
        assert far == (rule is without_the_unseen)


def test_a_known_share_covers_the_mixture():
    level, share, replications, m = 0.9, 0.3, 120, 200
    rates = []
    for seed in range(replications):
        world, more, truth, others = drawn(seed, 199, 199, share=share)
        n = round(share * m)
        own = world.interval(triples(more[:n]), level)
        none = world.interval(triples(others[: m - n]), level)
        rates.append((covered(own, truth[more[:n]]).sum() + covered(none, 0.0).sum()) / m)
    assert np.mean(rates) >= level - 5 * np.std(rates) / np.sqrt(replications)


def test_a_level_is_worked_out_once(monkeypatch):
    world, more, _, _ = drawn(1, share=0.25)
    asked = triples(more)
    first = world.interval(asked, [0.8, 0.9])
    monkeypatch.setattr(module, "_joint_threshold", None)
    again = world.interval(asked, [0.9, 0.8])
    np.testing.assert_array_equal(again.lower, first.lower[:, ::-1])
    np.testing.assert_array_equal(again.no_fact, first.no_fact[:, ::-1])
    with pytest.raises(TypeError):
        world.interval(asked, 0.7)


def test_levels_kept_are_limited(monkeypatch):
    monkeypatch.setattr(module, "MOST_LEVELS", 3)
    world, more, _, _ = drawn(1, share=0.25)
    levels = [place / 20 for place in range(10, 18)]
    asked = triples(more)
    alone = [world.interval(asked, level).upper for level in levels]
    assert len(world._known) <= 3
    np.testing.assert_array_equal(world.interval(asked, levels).upper, np.stack(alone, axis=1))


def test_a_share_of_all_queries_is_none_of_each_relation():
    world, _, truth, others = drawn(1)
    base = create("cp", per="relation").calibrate(world.model, facts(range(1, 200), truth[1:200]))
    open_world(base, {"uniform": triples(others[:50])})
    with pytest.raises(InputError, match="leave out the share of facts, or --per"):
        open_world(base, {"uniform": triples(others[:50])}, share=0.25)


def test_stored_and_restored():
    world, more, _, _ = drawn(1, share=0.25)
    again = restore_open_world(world.base, world.nonfact_arrays())
    one, other = (each.interval(triples(more[:50]), [0.8, 0.9]) for each in (world, again))
    assert (one.lower == other.lower).all()
    assert (one.no_fact == other.no_fact).all()
    assert again.share == Fraction(1, 4)


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"scores.uniform": np.array([0.5, 0.2])},
        {"scores.uniform": np.array([0.5, np.nan])},
        {"scores.uniform": np.zeros(0)},
        {"scores.uniform": np.zeros((2, 2))},
        {"scores.uniform": np.array([0.5]), "share": np.array([3, 2])},
        {"scores.uniform": np.array([0.5]), "share": np.array([0.5])},
    ],
)
def test_damaged_arrays_are_refused(damage):
    world, *_ = drawn(1)
    with pytest.raises(ValueError, match=r"damaged|missing"):
        restore_open_world(world.base, {f"calibration/{name}": array for name, array in damage.items()})


def test_what_cannot_be_is_said():
    world, *_ = drawn(1)
    with pytest.raises(InputError, match="at least one kind"):
        open_world(world.base, {})
    with pytest.raises(InputError, match="none of the uniform"):
        open_world(world.base, {"uniform": triples([0])})
    with pytest.raises(InputError, match="between 0 and 1"):
        open_world(world.base, {"uniform": triples([5])}, share=1.0)
    with pytest.raises(InputError, match="ranks calibration facts by single confidences, which fpi does not"):
        drawn(1, method="fpi", share=0.5)
    assert "too few" in open_world(world.base, {"uniform": triples([5])}).caution(0.9)
    few = open_world(world.base, {"uniform": triples([5])}, share=0.5)
    assert str(few.caution(0.9)).startswith("confidence 0.9 is out of reach")
    assert (few.interval(triples([5, 6]), 0.9).width == 1).all()
    assert drawn(1, share=0.5)[0].caution(0.5) is None


def test_the_promise_is_said_as_it_is():
    assert "facts (uniform), without knowing which" in drawn(1)[0].guarantee
    assert "(uniform) together, where 0.25 of the queries are facts" in drawn(1, share=0.25)[0].guarantee
