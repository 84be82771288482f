"""A promise per relation: groups from training facts alone, exact coverage in each, and what the answers say of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.worlds import vocabulary
from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import summed_band
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import create
from unkgcp.methods.partitions import group_relations

SIZES = np.array([4000, 2500, 60, 40, 30, 20, 0])  # training facts of each relation; the last has none
SPREAD = np.array([0.02, 0.4, 0.3, 0.01, 0.25, 0.02, 0.1])
VOCABULARY = vocabulary(200, len(SIZES))


class Middle:
    """Scores every triple 0.5; how far labels lie from it depends on the relation."""

    seen_entities = np.ones(200, np.bool_)
    seen_relations = SIZES > 0
    vocabulary = VOCABULARY

    def __init__(self, training: Graph | None) -> None:
        self.facts = None if training is None else KnownFacts.of(training)

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), 0.5, np.float32)


def draw(n: int, seed: int, sizes: NDArray[np.int64] = SIZES) -> Graph:
    rng = np.random.default_rng(seed)
    relation = rng.choice(len(sizes), n, p=sizes / sizes.sum()).astype(np.int32)
    head, tail = rng.integers(0, 200, (2, n), dtype=np.int32)
    confidence = np.clip(0.5 + SPREAD[relation] * rng.uniform(-1, 1, n), 0, 1)
    return Graph(head, relation, tail, confidence, VOCABULARY)


def test_groups_by_hand() -> None:
    relation = np.repeat([0, 1, 2, 3, 4], [500, 20, 20, 20, 20])
    score = np.repeat([0.5, 0.1, 0.9, 0.12, 0.8], [500, 20, 20, 20, 20])
    none = [0, 0, 0]
    # 580 training facts for 5,800 calibration facts: ten each, so small ones expect 200
    alone = group_relations(relation, score, 6, np.array([5800, *none]))
    assert alone.has_own_group[0].tolist() == [True] * 5 + [False] * 2
    # at one calibration fact for two training facts they expect ten: together too few for two groups
    one = group_relations(relation, score, 6, np.array([290, *none]))
    assert one.of(np.arange(5)).tolist() == [0, 1, 1, 1, 1]
    # at 4 for one they expect 80, below the limit, and pair up with their like
    pairs = group_relations(relation, score, 6, np.array([580 * 4, *none]))
    code = pairs.of(np.arange(5)).tolist()
    assert code[1] == code[3] != code[2] == code[4]
    assert not pairs.has_own_group[0, 1:].any()


def test_an_unknown_relation_is_in_the_last_group_of_its_kind() -> None:
    groups = group_relations(
        np.repeat([0, 1], 300), np.repeat([0.1, 0.9], 300), 3, np.array([600, 600, 0, 0])
    )
    unknown = np.array([2, 9, -1], np.int32)
    triples = Triples(unknown, unknown, unknown)
    first, second = (groups.codes(triples, np.full(3, kind, np.int8), None) for kind in (0, 1))
    assert (first == groups.of(np.array([1]))[0]).all()
    assert (second > first).all(), "no group has triples of two kinds"
    assert groups.basis(unknown, np.array([40, 40, 0])).tolist() == [1, 1, 2]


def test_groups_do_not_see_the_calibration_facts() -> None:
    model, calibration = Middle(draw(6000, 0)), draw(1500, 1)
    other = calibration.with_confidence(1 - calibration.confidence**2)[np.arange(1500)[::-1]]
    first, second = (create("cp", per="relation").calibrate(model, part) for part in (calibration, other))
    np.testing.assert_array_equal(first.arrays()["relation_groups"], second.arrays()["relation_groups"])


@pytest.mark.parametrize("method", ["cp", "unkgcp", "shortest"])
def test_every_relation_is_covered_as_promised(method: str) -> None:
    """Bands of mass 1 - 1e-6; one threshold for all covers hard relations far below theirs."""
    model, calibration, test = Middle(draw(6000, 0)), draw(3000, 1), draw(20_000, 2)
    per = create(method, per="relation").calibrate(model, calibration)
    one = create(method).calibrate(model, calibration)
    result = per.interval(test, 0.9)
    pooled = one.interval(test, 0.9)
    assert result.promise is not None
    groups = per.group_columns(test)["relation"]  # type: ignore[attr-defined]
    sizes = per.calibration.group_sizes["relation"]  # type: ignore[attr-defined]
    assert len(sizes) >= 3
    missed = []
    for group, size in sizes.items():
        rows = groups == group
        low, high = summed_band([(size, int(rows.sum()))], 0.9, 1 - 1e-6)
        inside = ((result.lower <= test.confidence) & (test.confidence <= result.upper))[rows].mean()
        assert inside >= low
        if method != "shortest":  # its scores tie: more than the level is allowed
            assert inside <= high
        missed.append(
            ((pooled.lower <= test.confidence) & (test.confidence <= pooled.upper))[rows].mean() < low
        )
    # shortest intervals know the relation, and are right in each without being asked to
    assert any(missed) or method == "shortest"
    assert set(result.promise) <= {"relation", "similar relations"}


def test_answers_say_whose_promise_it_is() -> None:
    calibration = draw(700, 1)
    per = create("cp", per="relation").calibrate(Middle(None), calibration)  # nothing known of training facts
    result = per.interval(draw(500, 2), 0.9)
    assert result.promise is not None
    counts = np.bincount(calibration.relation, minlength=len(SIZES))
    size = counts[draw(500, 2).relation]
    assert 0 < size.min() < 9
    np.testing.assert_array_equal(result.promise, "relation")
    np.testing.assert_array_equal(size < 9, (result.lower == 0) & (result.upper == 1))
    table = result.to_arrow()
    assert table.schema.names == ["score", "lower", "upper", "status", "promise", "prediction"]
    few, there = int((counts < 9).sum()), len(counts)
    assert per.caution(0.9) == (
        f"{few} of {there} groups by relation have too few calibration facts for confidence 0.9: "
        "their intervals are the whole range"
    )
    alone = draw(700, 1)
    kept = create("cp", per="relation").calibrate(Middle(None), alone[alone.relation != 2])
    answer = kept.interval(draw(500, 2), [0.1, 0.9])
    np.testing.assert_array_equal(answer.promise, np.where(draw(500, 2).relation == 2, "none", "relation"))
    assert (answer.lower[answer.promise == "none"] == 0).all()
    assert (answer.upper[answer.promise == "none"] == 1).all()


def test_only_relations() -> None:
    with pytest.raises(InputError, match="a promise per 'head' is not on offer"):
        create("cp", per="head")
    with pytest.raises(InputError, match="method 'fpi' has no option 'per'"):
        create("fpi", per="relation")
