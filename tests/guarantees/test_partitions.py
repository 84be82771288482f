"""Several partitions at once: coverage in every group of each, and groups that calibration labels have no say in.

Two partitions overlap. Given how many calibration points a group has, hits of its queries at its own threshold are
beta-binomial, exactly; a larger threshold can only add hits. So the place of the hits in that law, made continuous by a
random number, is uniform in a group whose own threshold decides for all its members, and shifted upwards in the others.
The mean place over seeded repetitions is compared with 1/2 by five standard errors of a mean of uniform numbers: one
that is right lies further below about three times in ten million. The mutants are the threshold of all points together,
which favours easy groups, and the smaller one of the two thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.worlds import vocabulary
from unkgcp.conformal import SplitConformal, rank
from unkgcp.evidence import EvidenceModel
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods import IntervalPredictor, create
from unkgcp.methods.partitions import LEAST, group_degrees, group_doubt

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[np.int64]]

LEVEL, SIZE, ASKED, REPETITIONS = 0.9, 300, 300, 300
SPREAD = {(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.15, (1, 1): 0.9}
"""How far scores reach, by the groups of a point: group 1 of the partition `right` is much the hardest."""
HARDEST = ("right", 1)
EDGE = 5 * (1 / 12 / REPETITIONS) ** 0.5


def drawn(rng: np.random.Generator, n: int) -> tuple[Floats, Columns]:
    left, right = (rng.random(n) < 0.5).astype(int), (rng.random(n) < 0.3).astype(int)
    reach = np.array([SPREAD[pair] for pair in zip(left.tolist(), right.tolist(), strict=True)])
    return rng.random(n) * reach, {"left": left, "right": right}


def together(scores: Floats, groups: Columns, asked: Columns) -> Floats:
    """The upper ends of intervals around 0, whose labels are the scores: the largest threshold."""
    cal = SplitConformal().calibrate(np.zeros(len(scores)), scores, group=groups)
    return np.asarray(cal.interval(np.zeros(ASKED), group=asked, confidence=LEVEL)[:, 1])


def pooled(scores: Floats, groups: Columns, asked: Columns) -> Floats:
    cal = SplitConformal().calibrate(np.zeros(len(scores)), scores)
    return np.asarray(cal.interval(np.zeros(ASKED), confidence=LEVEL)[:, 1])


def smaller(scores: Floats, groups: Columns, asked: Columns) -> Floats:
    ends = [
        SplitConformal()
        .calibrate(np.zeros(len(scores)), scores, group=groups[name])
        .interval(np.zeros(ASKED), group=asked[name], confidence=LEVEL)[:, 1]
        for name in groups
    ]
    return np.minimum(*ends)


def place_in_law(hits: int, asked: int, k: int, size: int, uniform: float) -> float:
    """Where the hits among so many asked lie in their law, from 0 to 1; their own probability is shared at random."""
    mass = stats.betabinom.pmf(np.arange(hits + 1), asked, k, size + 1 - k)
    return float(mass[:-1].sum() + uniform * mass[-1])


def mean_places(rule: Callable[[Floats, Columns, Columns], Floats]) -> dict[tuple[str, int], float]:
    """The mean place of the hits of every group of both partitions in the law of that group's own threshold."""
    found: dict[tuple[str, int], list[float]] = {}
    for seed in range(REPETITIONS):
        rng = np.random.default_rng(seed)
        scores, groups = drawn(rng, SIZE)
        labels, asked = drawn(rng, ASKED)
        inside = labels <= rule(scores, groups, asked)
        for name in groups:
            for group in (0, 1):
                rows, size = asked[name] == group, int((groups[name] == group).sum())
                k, hits = rank(LEVEL, size), int(inside[rows].sum())
                place = place_in_law(hits, int(rows.sum()), k, size, rng.random())
                found.setdefault((name, group), []).append(place)
    return {group: float(np.mean(places)) for group, places in found.items()}


def test_every_group_of_both_partitions_is_covered() -> None:
    places = mean_places(together)
    assert len(places) == 4
    assert all(place >= 0.5 - EDGE for place in places.values()), places
    # where its own threshold decides for all its members, the law is met exactly
    assert abs(places[HARDEST] - 0.5) <= EDGE


@pytest.mark.parametrize("rule", [pooled, smaller])
def test_other_thresholds_do_not_cover_them(rule: Callable[[Floats, Columns, Columns], Floats]) -> None:
    assert min(mean_places(rule).values()) < 0.5 - 3 * EDGE


# The same for facts and the evidence method, whose groups are those of doubt and of relations.

RELATIONS, ENTITIES = 4, 40
VOCABULARY = vocabulary(ENTITIES, RELATIONS)


class Seen:
    """A model that is asked for nothing but what it has seen."""

    seen_entities, seen_relations = np.ones(ENTITIES, np.bool_), np.ones(RELATIONS, np.bool_)

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), 0.5, np.float32)


def facts(n: int, seed: int) -> Graph:
    """Relations 0 and 1 say 0.5 nearly always or half of the time, and otherwise anything; 2 and 3 say anything."""
    rng = np.random.default_rng(seed)
    relation = rng.choice(RELATIONS, n, p=[0.6, 0.2, 0.15, 0.05]).astype(np.int32)
    head, tail = rng.integers(0, ENTITIES, (2, n), dtype=np.int32)
    usual = rng.random(n) < np.array([0.95, 0.5, 0.0, 0.0])[relation]
    return Graph(head, relation, tail, np.where(usual, 0.5, rng.random(n)), VOCABULARY)


@cache
def model() -> Any:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    from unkgcp.evidence import learn

    return learn(facts(3000, 0), rounds=20)


@cache
def of_seed(seed: int) -> tuple[Graph, Graph, Any, Any]:
    """Calibration facts, test facts, and the groups of both, which are the same for every way of making intervals."""
    groups: Any = groups_of_the_default()
    calibration, test = facts(1500, 100 + seed), facts(1000, 1000 + seed)
    return calibration, test, groups.group_columns(calibration), groups.group_columns(test)


@cache
def groups_of_the_default() -> IntervalPredictor:
    made = create("evidence", evidence=model(), per="doubt,relation,degree")
    return made.calibrate(Seen(), facts(1500, 1))


@pytest.fixture(scope="module")
def _each_query_once() -> Iterator[None]:
    """What the model believes of a query is worked out once, however many ways of making intervals ask for it."""
    usual = EvidenceModel.distribution

    @cache
    def remembered(head: bytes, relation: bytes, tail: bytes) -> Any:
        return usual(model(), Triples(*(np.frombuffer(ids, np.int32) for ids in (head, relation, tail))))

    def distribution(self: EvidenceModel, triples: Any) -> Any:
        assert self is model()
        return remembered(*(ids.tobytes() for ids in (triples.head, triples.relation, triples.tail)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvidenceModel, "distribution", distribution)
        yield


@pytest.mark.usefixtures("_each_query_once")
@pytest.mark.parametrize("options", [{}, {"floor": False}, {"per": "doubt,degree"}, {"per": "none"}])
def test_facts_of_every_group_are_covered(options: dict[str, Any]) -> None:
    """Every group of the default, whatever the intervals are made by; one threshold for all is the mutant."""
    found: dict[tuple[str, int], list[float]] = {}
    for seed in range(40):
        made = create("evidence", evidence=model(), **options)
        calibration, test, columns, own = of_seed(seed)
        result = made.calibrate(Seen(), calibration).interval(test, LEVEL)
        inside = (result.lower <= test.confidence) & (test.confidence <= result.upper)
        rng = np.random.default_rng(seed)
        for name in columns:
            for group in np.unique(own[name]).tolist():
                rows, size = own[name] == group, int((columns[name] == group).sum())
                k, hits = rank(LEVEL, size), int(inside[rows].sum())
                place = place_in_law(hits, int(rows.sum()), k, size, rng.random())
                found.setdefault((name, group), []).append(place)
    promised = getattr(made, "per", ())
    edge = 5 * (1 / 12 / 40) ** 0.5
    below = {group for group, places in found.items() if np.mean(places) < 0.5 - edge}
    assert len({group for name, group in found if name == "doubt"}) >= 3
    assert {name for name, _ in below if name in promised} == set()
    assert bool(below) == (promised == ())


def test_calibration_labels_have_no_say_in_groups_trees_and_cells() -> None:
    """Other labels, and the facts in another order: whatever was learned or grouped is the same, bit for bit."""
    rng = np.random.default_rng(5)
    calibration = facts(1200, 6)
    others = calibration.with_confidence(rng.random(1200))[rng.permutation(1200)]
    first, second = (
        create("evidence", evidence=model(), per="doubt,relation,degree").calibrate(Seen(), part).arrays()
        for part in (calibration, others)
    )
    # the calibration facts' scores in order, and the facts themselves, which a selection needs
    of_labels = {f"{name}/{place}/scores" for name in ("ranking", "floor") for place in range(3)}
    of_labels |= {name for name in first if name.startswith("ranked.")}
    assert of_labels < first.keys() == second.keys()
    groups = {"doubt_edges", "relation_groups", "relation_own", "degree_facts", "degree_edges"}
    assert groups < first.keys()
    assert {"evidence.cells.low", "evidence.location0.threshold", "evidence.elsewhere.leaf"} < first.keys()
    for name in first.keys() - of_labels:
        assert first[name].tobytes() == second[name].tobytes(), name
    assert first["ranking/0/scores"].tobytes() != second["ranking/0/scores"].tobytes()
    assert {"ranking/0/groups", "ranking/2/sizes"} < first.keys(), "as many facts as ever are in each group"


def test_groups_are_joined_until_they_expect_enough() -> None:
    doubt, kind = np.repeat([0.0, 0.125, 0.5, 1.0], [700, 100, 150, 50]), np.zeros(1000, np.int8)

    def edges(*calibration: int) -> list[list[float]]:
        return group_doubt(doubt, kind, np.array(calibration)).edges.tolist()

    # a group ends between different figures
    assert edges(10_000) == [[0.0625, 0.3125, 0.75]]
    # 1,000 facts to come: the last 50 join the 150 beside them, and so do the 100 those that are sure
    assert edges(1000) == [[0.3125]]
    assert edges(150) == [[]]
    # each kind has the groups that its own number of facts can fill
    assert edges(10_000, 1000, 0) == [[0.0625, 0.3125, 0.75], [0.3125, np.inf, np.inf], [np.inf] * 3]
    assert group_doubt(np.zeros(0), kind[:0], np.array([1000])).edges.tolist() == [[]]
    train, same = facts(3000, 0), np.zeros(3000, np.int8)
    made = group_degrees(train, ENTITIES, same, np.array([10_000]))
    assert made.count == 10
    stands_in = np.array([((train.head == e) | (train.tail == e)).sum() for e in range(ENTITIES)])
    np.testing.assert_array_equal(made.facts, stands_in)
    shares = np.bincount(made.codes(train, same, None), minlength=made.count) / len(train)
    assert (shares >= LEAST / 10_000).all()
    assert group_degrees(train, ENTITIES, same, np.array([500])).count == 3
    assert group_degrees(train, ENTITIES, same, np.array([250])).count == 1
