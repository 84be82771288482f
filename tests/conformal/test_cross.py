"""CV+: the definition, coverage on graphs of 300 facts, and the mistake of ranking facts that a model has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.worlds import random_ids, vocabulary
from unkgcp.conformal import rank
from unkgcp.conformal.cross import CrossConformal, draw_folds, guaranteed
from unkgcp.conformal.scores import make_score
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.methods import create

LEVELS = [0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 1.0]


def test_folds_have_one_size_and_leave_the_rest_out() -> None:
    fold = draw_folds(103, 10, seed=3)
    assert np.bincount(fold + 1).tolist() == [3] + [10] * 10
    np.testing.assert_array_equal(fold, draw_folds(103, 10, seed=3))
    assert (fold != draw_folds(103, 10, seed=4)).any()


def test_the_guarantee_by_hand() -> None:
    assert guaranteed(0.9, 50, 50) == pytest.approx(0.8)  # the jackknife+
    assert guaranteed(0.9, 300, 10) == pytest.approx(0.8 - min(2 * 0.9 / 31, (1 - 10 / 300) / 11))
    assert guaranteed(0.95, 1000, 2) == pytest.approx(0.9 - 2 * 0.5 / 501)
    assert guaranteed(0.5, 10, 2) == 0
    assert guaranteed("0.9", 300, 10) > 0.8 - (2 / 300) ** 0.5


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(4, 40),
    folds=st.integers(2, 4),
    name=st.sampled_from(["residual", "entropy"]),
    digits=st.integers(1, 17),
)
@settings(max_examples=60, deadline=None)
def test_the_definition(seed: int, size: int, folds: int, name: str, digits: int) -> None:
    """The k-th of the ends of all points; it contains every label that cross-conformal prediction accepts."""
    rng = np.random.default_rng(seed)
    prediction, truth = np.round(rng.random((2, size)), digits)
    fold = draw_folds(size, folds, seed)
    cal = CrossConformal(name).calibrate(prediction, truth, fold)
    n = cal.size
    asked = np.round(rng.random((15, folds)), digits)
    ends = cal.interval(asked, LEVELS)
    score = make_score(name)
    kept = fold >= 0
    residual = score.score(prediction, truth, score.prepare(prediction, None))[kept]
    for row, guess in enumerate(asked):
        own = guess[fold[kept]]
        low, high = score.bounds(own, residual, score.prepare(own, None), (0.0, 1.0))
        label = np.round(rng.random(), digits)
        strange = score.score(own, np.full(n, label), score.prepare(own, None))
        for place, level in enumerate(LEVELS):
            k = rank(level, n)
            if 1 <= k <= n:
                assert ends[row, 1, place] == np.sort(high)[k - 1]
                assert ends[row, 0, place] == np.sort(low)[n - k]
            if 1 + (residual >= strange).sum() > n + 1 - k:  # its p-value exceeds 1 - level
                assert ends[row, 0, place] <= label <= ends[row, 1, place]
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()
    assert (ends[:, :, -1] == [0, 1]).all()
    core = cal.core(asked)[:, None]
    empty = ends[:, 0] > ends[:, 1]
    assert (empty | ((ends[:, 0] <= core) & (core <= ends[:, 1]))).all()


ENTITIES, RELATIONS, FACTS, QUERIES = 25, 4, 300, 200
VOCABULARY = vocabulary(ENTITIES, RELATIONS)


def draw(n: int, rng: np.random.Generator, effects: NDArray[np.float64]) -> Graph:
    head, relation, tail = random_ids(n, ENTITIES, RELATIONS, rng)
    mean = 0.5 + effects[head] + effects[ENTITIES + tail] + effects[2 * ENTITIES + relation]
    return Graph(head, relation, tail, np.clip(mean + 0.1 * rng.standard_normal(n), 0, 1), VOCABULARY)


class Ridge:
    """Additive effects of head, tail and relation: a model cheap enough to be trained thousands of times."""

    seen_entities = np.ones(ENTITIES, np.bool_)
    seen_relations = np.ones(RELATIONS, np.bool_)

    def __init__(self, facts: Graph) -> None:
        design = self._design(facts.head, facts.relation, facts.tail)
        gram = design.T @ design + 0.05 * np.eye(design.shape[1])
        self.effects = np.linalg.solve(gram, design.T @ facts.confidence)

    def _design(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float64]:
        design = np.zeros((len(head), 2 * ENTITIES + RELATIONS))
        for column in (head, ENTITIES + tail, 2 * ENTITIES + relation):
            design[np.arange(len(head)), column] += 1
        return design

    def score(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float32]:
        scores: NDArray[np.float64] = self._design(head, relation, tail) @ self.effects
        return np.clip(scores, 0, 1).astype(np.float32)


def coverages(folds: int, leak: bool, base: str, replications: int = 80) -> NDArray[np.float64]:
    """Coverage at 0.9 of 200 queries after fitting on 300 facts, one figure for each replication."""
    found = []
    for seed in range(replications):
        rng = np.random.default_rng([11, seed])
        effects = 0.15 * rng.standard_normal(2 * ENTITIES + RELATIONS)
        facts, queries = draw(FACTS, rng, effects), draw(QUERIES, rng, effects)
        fold = draw_folds(FACTS, folds, seed)
        members = [Ridge(facts if leak else facts[fold != k]) for k in range(folds)]
        predictor = create("cv+", members=members, base=base, fold=fold).calibrate(Ridge(facts), facts)
        result = predictor.interval(queries, 0.9)
        found.append(((result.lower <= queries.confidence) & (queries.confidence <= result.upper)).mean())
    return np.array(found)


@pytest.mark.parametrize(("folds", "base"), [(5, "cp"), (10, "cp"), (5, "unkgcp")])
def test_coverage_on_graphs_of_300_facts(folds: int, base: str) -> None:
    """Above the worst case that is promised, and close to the level; five standard errors, false alarm 3e-7."""
    found = coverages(folds, leak=False, base=base)
    error = found.std() / np.sqrt(len(found))
    assert found.mean() - 5 * error > guaranteed(0.9, FACTS, folds)
    assert found.mean() + 5 * error >= 0.89
    assert found.mean() - 5 * error <= 0.94


def test_members_that_saw_their_fold_are_caught() -> None:
    found = coverages(5, leak=True, base="cp")
    assert found.mean() + 5 * found.std() / np.sqrt(len(found)) < 0.89


def test_cautions_and_refusals() -> None:
    rng = np.random.default_rng(0)
    facts = draw(303, rng, np.zeros(2 * ENTITIES + RELATIONS))
    members = [Ridge(facts)] * 10
    fold = draw_folds(303, 10, seed=0)
    predictor = create("cv+", members=members, fold=fold).calibrate(Ridge(facts), facts)
    assert predictor.size == 300
    assert predictor.caution(0.9) == (
        "cv+ with 10 folds of 300 facts: at confidence 0.9 coverage is guaranteed to be at least 0.742, "
        "usually it is close to 0.9"
    )
    assert predictor.caution(1.0) is None
    assert "every interval is the whole range" in str(predictor.caution(0.999))
    with pytest.raises(InputError, match="cv\\+ goes with cp or unkgcp, not with 'fpi'"):
        create("cv+", members=members, base="fpi")
    with pytest.raises(InputError, match="cv\\+ needs at least 2 models"):
        create("cv+", members=members[:1])
    with pytest.raises(InputError, match="cv\\+ is told nothing for 303 facts"):
        create("cv+", members=members).calibrate(Ridge(facts), facts)
    with pytest.raises(InputError, match="cv\\+ is told 303 folds for 9 facts; give all facts"):
        create("cv+", members=members, fold=fold).calibrate(Ridge(facts), facts[:9])
    with pytest.raises(InputError, match="cv\\+ has 10 models, but 5 folds"):
        create("cv+", members=members, fold=fold % 5).calibrate(Ridge(facts), facts)
    with pytest.raises(InputError, match="cv\\+ has 10 models, but 9 folds"):
        create("cv+", members=members, fold=np.where(fold == 3, -1, fold)).calibrate(Ridge(facts), facts)
    with pytest.raises(ValueError, match="no nonconformity score is named 'shortest'"):
        CrossConformal("shortest")
