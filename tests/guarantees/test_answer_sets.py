"""Answer sets contain the answer of a new fact as often as promised, counted over seeded repetitions.

With l calibration facts and no ties a set at a level contains the answer with probability k / (l + 1) exactly,
k = ceil(level (l + 1)), over calibration facts and new ones together; with ties at least that often. Means of the
repetitions are compared with it by the normal law at a false-alarm rate of 1e-6 a check (4.75 standard errors). Sets
that make the usual mistakes must fail: a rank that forgets the new fact, and answers that are left out because a
calibration fact gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.worlds import random_model, vocabulary
from unkgcp.conformal.ranks import exact
from unkgcp.conformal.ranks import rank as true_rank
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answer_sets import SideSets, calibrated

ERRORS = float(stats.norm.isf(1e-6))
REPETITIONS, NEW, FACTS, LEVEL = 200, 30, 10, exact(0.9)
EXACT = true_rank(LEVEL, FACTS) / (FACTS + 1)

World = Callable[[np.random.Generator, int], Graph]


def world(entities: int, noise: float) -> tuple[Predictor, World]:
    """A run over random scores, and facts whose tails score high, none of which is a training fact.

    In the last relation facts are drawn without regard to the score, so that answers are hard to find there.
    """
    words = vocabulary(entities, 2)
    model = random_model(words, dimension=6, spread=0.7)
    rng = np.random.default_rng(5)
    heads, relations = np.divmod(np.arange(2 * entities), 2)
    logits = np.log(model.tails(heads, relations).astype(np.float64) + 1e-3) / noise
    logits[relations == 1] = 0
    taken = (
        rng.random(logits.shape) < 0.03
    )  # training facts: what these questions are known to have for an answer
    logits[taken] = -np.inf
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    steps = np.cumsum(chance, axis=1)
    steps /= steps[:, -1:]

    def facts(rng: np.random.Generator, n: int) -> Graph:
        question = rng.integers(0, len(heads), n)
        tail = (steps[question] < rng.random((n, 1))).sum(axis=1)
        columns = (heads[question], relations[question], tail)
        return Graph(*(column.astype(np.int32) for column in columns), rng.random(n), words)

    row, tail = np.nonzero(taken)
    train = Graph(
        *(column.astype(np.int32) for column in (heads[row], relations[row], tail)), np.ones(len(row)), words
    )
    known = replace(model, facts=KnownFacts.of(train))
    return calibrate(known, facts(rng, 20), "cp"), facts


SPARSE, CROWDED = world(100, 0.05), world(12, 0.1)


def with_facts(predictor: Predictor, facts: Graph) -> Predictor:
    """The same run with other calibration facts; answer sets look at nothing else of the method."""
    method = copy(predictor.method)
    method.ranked = facts
    return replace(predictor, method=method)


def contained(sets: SideSets, facts: Graph) -> NDArray[np.bool_]:
    given, answer = sets.candidates.sides(facts)
    found = sets.find(given, facts.relation, LEVEL, None)
    return np.array([one in members.ids for one, members in zip(answer, found, strict=True)])


def coverages(
    setting: tuple[Predictor, World],
    at_head: bool = False,
    per: str = "none",
    asked: Callable[[SideSets, Graph], SideSets] = lambda sets, facts: sets,
    size: int = FACTS,
    only: int | None = None,
) -> NDArray[np.float64]:
    """The share of new facts whose answer is in its set, in each repetition; `only` those of one relation."""
    predictor, facts = setting
    rng, shares = np.random.default_rng(17), []
    for _ in range(REPETITIONS):
        calibration, new = facts(rng, size), facts(rng, NEW)
        sets = calibrated(with_facts(predictor, calibration), at_head, 0.0, per)
        inside = contained(asked(sets, calibration), new)
        shares.append(inside[new.relation == only].mean() if only is not None else inside.mean())
    return np.array(shares)


def error(found: NDArray[np.float64]) -> float:
    return ERRORS * float(found.std()) / math.sqrt(len(found))


def at_least(found: NDArray[np.float64], level: float) -> bool:
    """Whether the mean may well be that large; wrongly denied with probability 1e-6."""
    return bool(found.mean() >= level - error(found))


@pytest.mark.parametrize("at_head", [False, True])
def test_the_exact_law(at_head: bool) -> None:
    found = coverages(SPARSE, at_head)
    assert (
        abs(found.mean() - EXACT) <= error(found) + 0.002
    )  # what the slack of a threshold and a few ties add


def test_answers_that_tie_and_repeat_are_contained_at_least_as_often() -> None:
    assert at_least(coverages(CROWDED), EXACT)


def test_a_rank_that_forgets_the_new_fact_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = lambda level, size: math.ceil(exact(level) * size)  # noqa: E731
    monkeypatch.setattr("unkgcp.conformal.ranking.rank", wrong)
    found = coverages(SPARSE)
    assert not at_least(found, EXACT)
    assert not at_least(found, float(LEVEL))


def without_calibration_facts(sets: SideSets, facts: Graph) -> SideSets:
    """The mistake of filtered rankings: what calibration facts say is no candidate any more."""
    train = sets.candidates.train
    both = [np.concatenate(pair) for pair in zip(_columns(train), _columns(facts), strict=True)]
    more = KnownFacts.of(Graph(*both, train.vocabulary))
    predictor = sets.candidates.predictor
    again = replace(predictor, model=replace(predictor.model, facts=more))  # type: ignore[type-var]
    return replace(sets, candidates=type(sets.candidates)(again, sets.candidates.at_head))


def _columns(facts: Graph) -> tuple[NDArray[Any], ...]:
    return facts.head, facts.relation, facts.tail, facts.confidence


def test_leaving_out_what_calibration_facts_say_fails() -> None:
    found = coverages(CROWDED, asked=without_calibration_facts)
    assert not at_least(found, float(LEVEL))


def test_the_promise_holds_in_every_relation_where_it_is_made_there() -> None:
    hard = {per: coverages(SPARSE, per=per, size=450, only=1) for per in ("relation", "none")}
    assert at_least(hard["relation"], float(LEVEL))
    assert not at_least(hard["none"], float(LEVEL))
