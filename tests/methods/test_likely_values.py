"""Doubt in evidence answers: a value in every interval, its probability, and a second value where it is likely."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.rounding import apart, assert_within
from tests.worlds import vocabulary
from unkgcp.evidence import EvidenceModel, learn
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods import create
from unkgcp.methods.evidence_method import EvidenceIntervals
from unkgcp.methods.intervals import in_words
from unkgcp.methods.open_world import open_world

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")

ENTITIES = 300
VALUES = np.array([0.3, 0.4375, 1.0])
# the probability of each value in each relation; what is left is any confidence
SHARES = np.array([[0.0, 0.55, 0.38], [0.97, 0.0, 0.0], [0.0, 0.8, 0.1]])
LEVELS = [0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999]


class Seen:
    """A model that is asked for nothing but what it has seen: all but the last entity."""

    seen_entities = np.arange(ENTITIES) < ENTITIES - 1
    seen_relations = np.ones(3, np.bool_)

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), 0.5, np.float32)


def draw(n: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(0, ENTITIES - 1, (2, n), dtype=np.int32)
    relation = rng.integers(0, 3, n, dtype=np.int32)
    confidence = rng.random(n)
    chosen = (rng.random(n)[:, None] > SHARES[relation].cumsum(axis=1)).sum(axis=1)
    there = chosen < len(VALUES)
    confidence[there] = VALUES[chosen[there]]
    return Graph(head, relation, tail, confidence, vocabulary(ENTITIES, 3))


@cache
def model() -> EvidenceModel:
    return learn(draw(3000, 0))


@cache
def calibrated(per: str | None = None) -> EvidenceIntervals:
    method = create("evidence", evidence=model(), per=per).calibrate(Seen(), draw(2000, 1))
    assert isinstance(method, EvidenceIntervals)
    return method


def queries() -> Triples:
    """Facts of all relations; the last one is about an entity that nobody has seen."""
    facts = draw(600, 2)
    return Triples(np.append(facts.head[:-1], np.int32(ENTITIES - 1)), facts.relation, facts.tail)


def masses(method: EvidenceIntervals, asked: Triples) -> NDArray[np.float64]:
    """The mass of each of the three values in the distribution of each query: (n, 3)."""
    assert method.evidence is not None
    found = method.evidence.distribution(asked)
    pieces = [int(np.flatnonzero(found.cells.low == value)[0]) for value in VALUES]
    assert (found.cells.high[pieces] == VALUES).all()
    atoms = found.class_mass[:, found.cells.class_of_piece[pieces]] * found.cells.share[pieces]
    suggested = (found.slot_value[:, :, None] == VALUES) * found.slot_mass[:, :, None]
    return np.asarray(atoms + suggested.sum(axis=1))


def test_a_second_value_is_told_where_it_is_likely() -> None:
    asked = queries()
    found = calibrated().interval(asked, 0.9)
    assert found.value is not None
    assert found.belief is not None
    assert found.other is not None
    assert found.other_belief is not None
    known = np.flatnonzero((found.code == 0) & ~np.isnan(found.belief))
    assert len(known) > 0.95 * len(found), "medians are single values, nearly all of them"
    atoms = masses(calibrated(), Triples(*(column[known] for column in asked)))
    # the values are those that were written, to the last bit
    is_value = found.value[known][:, None] == VALUES
    assert (is_value.sum(axis=1) == 1).all()
    assert_within(found.belief[known], atoms[is_value], apart(30, 1.0))
    # no stretch between the three values ever has 15 %
    rest = np.where(is_value, 0.0, atoms)
    second, likely = rest.max(axis=1), rest.max(axis=1) > 0.15
    np.testing.assert_array_equal(found.other[known], np.where(likely, VALUES[rest.argmax(axis=1)], np.nan))
    assert_within(found.other_belief[known][likely], second[likely], apart(30, 1.0))
    assert np.isnan(found.other_belief[known][~likely]).all()
    # and they are told where they should be: in relation 0 alone a second value is common
    relation = asked.relation[known]
    assert likely[relation == 0].mean() > 0.5 > likely[relation != 0].mean()
    usual = (relation == 0) & (found.value[known] == 0.4375) & (found.other[known] == 1.0)
    row = int(known[usual][0])
    columns = (found.value, found.belief, found.other, found.other_belief)
    said = in_words(*(column[row].item() for column in columns))
    assert re.fullmatch(r"0\.4375 \(\d\d %\) or 1 \(\d\d %\)", said)


def test_in_the_open_world_it_is_about_facts() -> None:
    asked, rng = queries(), np.random.default_rng(3)
    strange = Triples(
        *(rng.integers(0, size, 500, dtype=np.int32) for size in (ENTITIES - 1, 3, ENTITIES - 1))
    )
    usual = calibrated().interval(asked, LEVELS)
    found = open_world(calibrated(), {"uniform": strange}).interval(asked, LEVELS)
    assert found.fact_lower is not None
    assert usual.value is not None
    for name in ("value", "belief", "other", "other_belief"):
        np.testing.assert_array_equal(getattr(found, name), getattr(usual, name))
    assert ((found.lower <= usual.value[:, None]) & (usual.value[:, None] <= found.upper))[:-1].all()
