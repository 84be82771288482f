"""Methods with groups by doubt, by relation and by degree: what they answer, what they say of it, what is kept."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.worlds import vocabulary
from unkgcp.conformal.ranks import exact
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.graph.kinds import KINDS
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import IntervalPredictor, create, restore
from unkgcp.methods.open_world import open_world
from unkgcp.methods.partitions import NAMES, Partitioned, partition_names

ENTITIES, RELATIONS = 60, 3
VOCABULARY = vocabulary(ENTITIES, RELATIONS)
LEVELS = [0.0, 0.3, 0.8, 0.9, 0.95, 1.0]
PER = [",".join(names) for size in (1, 2, 3) for names in combinations(NAMES, size)]


class Waves:
    """Scores that depend on the ids and lie all over [0, 1]."""

    seen_entities, seen_relations = np.ones(ENTITIES, np.bool_), np.ones(RELATIONS, np.bool_)
    vocabulary = VOCABULARY

    def __init__(self, knows: bool = True) -> None:
        self.facts = KnownFacts.of(facts(3000, 0)) if knows else None

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return (0.5 + 0.5 * np.sin(head * 12.9 + relation * 3.7 + tail * 7.1)).astype(np.float32)


def facts(n: int, seed: int) -> Graph:
    """Some entities stand in many facts; half of the confidences of relation 0 are 0.5, the others are anything."""
    rng = np.random.default_rng(seed)
    relation = rng.choice(RELATIONS, n, p=[0.7, 0.27, 0.03]).astype(np.int32)
    head, tail = (ENTITIES * rng.random((2, n)) ** 2).astype(np.int32)
    usual = (rng.random(n) < 0.5) & (relation == 0)
    return Graph(head, relation, tail, np.where(usual, 0.5, rng.random(n)), VOCABULARY)


@cache
def evidence() -> Any:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    from unkgcp.evidence import learn

    return learn(facts(3000, 0), rounds=20)


def calibrated(method: str, n: int = 1500, **options: Any) -> Partitioned:
    if method == "evidence":
        options["evidence"] = evidence()
    made = create(method, **options).calibrate(Waves(), facts(n, 1))
    assert isinstance(made, Partitioned)
    return made


@pytest.mark.parametrize("method", ["cp", "unkgcp", "shortest", "evidence"])
@pytest.mark.parametrize("per", PER)
def test_any_groups_for_any_method(method: str, per: str) -> None:
    made, queries = calibrated(method, per=per), facts(400, 2)
    result = made.interval(queries, LEVELS)
    assert (np.diff(result.lower, axis=1) <= 0).all()
    assert (np.diff(result.upper, axis=1) >= 0).all()
    assert (result.promise is not None) == ("relation" in per)
    assert [groups.name for groups in made.partitions] == per.split(",")
    assert all(groups.count > 1 for groups in made.partitions)
    assert made.options()["per"] == per
    assert made.within.count("within each") == len(made.per) + made.tells_kinds
    assert not made.one_threshold
    again = restore(method, made.options(), made.models(), made.arrays())
    for one, other in zip(
        (result.lower, result.upper),
        (again.interval(queries, LEVELS).lower, again.interval(queries, LEVELS).upper),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    for name in made._group_arrays():
        damaged = {key: array for key, array in made.arrays().items() if key != name}
        with pytest.raises(ValueError, match=f"'{name}' is missing"):
            restore(method, made.options(), made.models(), damaged)


@pytest.mark.parametrize(("method", "options"), [("cp", {}), ("unkgcp", {}), ("evidence", {"floor": False})])
def test_several_partitions_are_the_largest_of_single_ones(method: str, options: dict[str, Any]) -> None:
    queries = facts(400, 2)
    together = calibrated(method, per="doubt,relation", **options).interval(queries, LEVELS)
    parts = [
        calibrated(method, per=per, **options).interval(queries, LEVELS) for per in ("doubt", "relation")
    ]
    np.testing.assert_array_equal(together.lower, np.minimum(parts[0].lower, parts[1].lower))
    np.testing.assert_array_equal(together.upper, np.maximum(parts[0].upper, parts[1].upper))


def test_the_floor_is_at_most_the_central_interval_of_the_distribution() -> None:
    queries = facts(400, 2)
    with_floor, without = calibrated("evidence"), calibrated("evidence", floor=False)
    assert with_floor.options() == {"per": "doubt,relation", "floor": True}
    wide, narrow = with_floor.interval(queries, LEVELS), without.interval(queries, LEVELS)
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    assert (wide.width > narrow.width).any()
    # what groups ask for, and where that is less than the central interval of the distribution itself at most this one
    assert with_floor.evidence is not None
    least = np.tile([float(exact(level)) for level in LEVELS], (len(queries), 1))
    central = with_floor.evidence.distribution(queries).bounds(np.where(least < 1, least, np.inf))
    answered = ~np.isnan(wide.score)
    assert (wide.lower >= np.minimum(narrow.lower, central[:, 0]))[answered].all()
    assert (wide.upper <= np.maximum(narrow.upper, central[:, 1]))[answered].all()
    alone = calibrated("evidence", per="none", floor=True)
    assert not alone.one_threshold
    assert alone.options() == {"per": "none", "floor": True}


def test_a_group_without_calibration_facts_gets_the_whole_range_and_it_is_said() -> None:
    made = create("cp", per="doubt").calibrate(Waves(), facts(1500, 1))
    assert made.caution(0.9) is None
    doubt = made.doubt(facts(1500, 1))
    sure = facts(1500, 1)[doubt < np.median(doubt)]
    few = create("cp", per="doubt").calibrate(Waves(), sure)
    assert isinstance(few, Partitioned)
    assert "groups by doubt have too few calibration facts for confidence 0.9" in str(few.caution(0.9))
    result = few.interval(facts(1500, 1), 0.5)
    assert (result.width == 1)[doubt > np.quantile(doubt, 0.95)].mean() > 0.4


def test_what_is_asked_for() -> None:
    assert partition_names(" relation ,doubt") == ("doubt", "relation")
    assert create("cp").options() == create("cp", per="none").options() == {}
    assert create("evidence").options() == {"per": "doubt,relation", "floor": True}
    assert create("evidence", per="none").options() == {"per": "none", "floor": False}
    with pytest.raises(InputError, match="floor is 'yes' but must be true or false"):
        create("evidence", floor="yes")
    for name in ("doubt", "degree"):
        with pytest.raises(InputError, match=f"groups by {name} are made from training facts"):
            create("cp", per=name).calibrate(Waves(knows=False), facts(200, 1))


def test_doubt_is_what_the_method_has() -> None:
    queries = facts(300, 2)
    score = Waves().score(queries.head, queries.relation, queries.tail).astype(float)

    def bits(p: NDArray[np.float64]) -> NDArray[np.float64]:
        p = np.clip(p, 1e-6, 1 - 1e-6)
        return np.asarray(-(p * np.log2(p) + (1 - p) * np.log2(1 - p)))

    def doubt(made: IntervalPredictor) -> NDArray[np.float64]:
        return made.calibrate(Waves(), facts(200, 1)).doubt(queries)

    for method in ("cp", "unkgcp", "shortest", "fpi"):
        np.testing.assert_allclose(doubt(create(method)), bits(score), atol=1e-12)
    mapped = doubt(create("unkgcp", mapped_entropy=True))
    np.testing.assert_allclose(mapped, bits(0.5 * score + 0.5), atol=1e-12)
    quantiles = {tau: Shifted(tau) for tau in (0.05, 0.1, 0.9, 0.95)}
    np.testing.assert_allclose(doubt(create("qr", quantiles=quantiles)), 0.9, atol=1e-6)


class Shifted(Waves):
    """The quantile of every triple is its number."""

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), self.tau, np.float32)

    def __init__(self, tau: float) -> None:
        super().__init__(knows=False)
        self.tau = tau


def test_the_open_world_keeps_the_groups_of_facts() -> None:
    base, queries = calibrated("evidence"), facts(300, 2)
    world = open_world(base, {"uniform": facts(300, 7)})
    found, alone = world.interval(queries, LEVELS), base.interval(queries, LEVELS)
    np.testing.assert_array_equal(found.fact_lower, alone.lower)
    np.testing.assert_array_equal(found.fact_upper, alone.upper)
    np.testing.assert_array_equal(found.basis, alone.basis)
    assert world.within == f"and for facts {base.within}"
    assert not world.one_threshold


def test_asking_again_does_not_go_through_all_training_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large graph that would take far longer than the answer."""
    method, known = calibrated("cp"), facts(50, 7)
    queries = Triples(
        known.head, np.full(50, 10**6, np.int32), known.tail
    )  # of a relation that nobody has seen
    method.kind_counts = np.ones(len(KINDS), np.int64)
    lower = method.interval(queries).lower
    monkeypatch.setattr(
        KnownFacts, "graph", lambda *arguments: pytest.fail("all facts were put in a graph again")
    )
    assert np.array_equal(method.interval(queries).lower, lower)
