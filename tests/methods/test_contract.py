"""One contract for every registered interval method, and what is particular to each."""

from __future__ import annotations

import math
import subprocess
import sys
from copy import copy
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.rounding import EXP_ULPS, apart, assert_within
from tests.worlds import random_graph, vocabulary
from unkgcp.conformal import SplitConformal
from unkgcp.conformal.cross import draw_folds
from unkgcp.conformal.ranks import rank
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods import MODULES, IntervalPredictor, create, predictor_class, register
from unkgcp.methods.intervals import MODES
from unkgcp.methods.partitions import Partitioned

ENTITIES, RELATIONS = 50, 5
LEVELS = [0.0, 0.5, 0.8, 0.83, 0.9, 0.95, 0.97, 1.0]
DISTRIBUTIONS = {"evidence"}  # methods that answer from a distribution
TAUS = [0.025, 0.05, 0.1, 0.9, 0.95, 0.975]


class Stub:
    """A scorer without torch: any function of the ids, shifted so that quantile stubs differ and cross."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift
        self.seen_entities = np.arange(ENTITIES) < 45
        self.seen_relations = np.arange(RELATIONS) < 4

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        assert self.seen_entities[head].all()
        assert self.seen_entities[tail].all()
        assert self.seen_relations[relation].all()
        wave = np.sin(head * 12.9 + relation * 3.7 + tail * 7.1 + self.shift)
        return (0.5 + 0.5 * wave).astype(np.float32)


def facts(n: int, seed: int = 0, entities: int = ENTITIES, relations: int = RELATIONS) -> Graph:
    return random_graph(n, vocabulary(ENTITIES, RELATIONS), seed, entities, relations)


def known_facts(n: int, seed: int = 0) -> Graph:
    return facts(n, seed, entities=45, relations=4)


@cache
def evidence_model() -> Any:
    from unkgcp.evidence import learn

    return learn(known_facts(600, seed=9), rounds=5)


class Member(Stub):
    """One of the models of CV+, which have to score all facts, those of entities they have not seen too."""

    def __init__(self, shift: float) -> None:
        super().__init__(shift)
        self.seen_entities, self.seen_relations = np.ones(ENTITIES, np.bool_), np.ones(RELATIONS, np.bool_)


def build(name: str, size: int = 400) -> IntervalPredictor:
    """An uncalibrated method for `size` facts, which only those that train on them need to know."""
    options = (
        {"quantiles": {tau: Stub(3 * tau) for tau in TAUS}}
        if "quantiles" in predictor_class(name).needs
        else {}
    )
    if name == "shortest":
        options = {"smallest": 100}
    if "length" in predictor_class(name).needs:
        options = {"length": Stub(5.0)}  # type: ignore[dict-item]
    if "evidence" in predictor_class(name).needs:
        pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
        options = {"evidence": evidence_model()}
    if "members" in predictor_class(name).needs:
        options = {"members": [Member(0.02 * k) for k in range(5)], "fold": draw_folds(size, 5, 0)}  # type: ignore[dict-item]
    return create(name, **options)


def ranked_rows(predictor: IntervalPredictor, n: int) -> NDArray[np.bool_]:
    """Which of n calibration facts are ranked: all but those that taught the method."""
    if predictor.name == "cv+":
        return np.arange(n) < n // 5 * 5
    if predictor.name != "shortest":
        return np.ones(n, np.bool_)
    learning = predictor.score().learning_rows(n)  # type: ignore[attr-defined]
    return ~learning


@pytest.fixture(params=list(MODULES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def predictor(name: str) -> IntervalPredictor:
    return build(name).calibrate(Stub(), facts(400))


class TestContract:
    def test_says_what_it_guarantees(self, name: str) -> None:
        text = predictor_class(name).__doc__ or ""
        assert "Guarantee:" in text
        assert "Assumption:" in text
        assert predictor_class(name).guarantee

    def test_inside_the_range_and_nested(self, predictor: IntervalPredictor) -> None:
        result = predictor.interval(facts(300, seed=1), LEVELS)
        assert result.lower.shape == result.upper.shape == (300, len(LEVELS))
        assert (result.lower >= 0).all()
        assert (result.upper <= 1).all()
        assert (result.lower <= result.upper).all()
        assert (np.diff(result.lower, axis=1) <= 0).all()
        assert (np.diff(result.upper, axis=1) >= 0).all()
        assert (result.lower[:, -1] == 0).all()
        assert (result.upper[:, -1] == 1).all()
        inside = (result.prediction >= result.lower.T) & (result.prediction <= result.upper.T)
        assert inside.all(), "the prediction lies inside at every level"

    def test_several_levels_equal_one_at_a_time(self, predictor: IntervalPredictor) -> None:
        queries = facts(200, seed=2)
        together = predictor.interval(queries, LEVELS)
        for place, level in enumerate(LEVELS):
            alone = predictor.interval(queries, level)
            assert alone.lower.shape == (200,)
            np.testing.assert_array_equal(alone.lower, together.lower[:, place])
            np.testing.assert_array_equal(alone.upper, together.upper[:, place])
            np.testing.assert_array_equal(alone.score, together.score)

    def test_a_query_is_answered_alike_in_any_company(self, predictor: IntervalPredictor) -> None:
        queries = facts(60, seed=3)
        together = predictor.interval(queries, [0.8, 0.9])
        for row in range(60):
            alone = predictor.interval(queries[row : row + 1], [0.8, 0.9])
            np.testing.assert_array_equal(alone.lower[0], together.lower[row])
            np.testing.assert_array_equal(alone.score[0], together.score[row])

    def test_deterministic_whatever_the_order_of_calibration(self, name: str) -> None:
        if not predictor_class(name).order_free:
            pytest.skip("a part of the facts, chosen by position, teaches this method")
        calibration, queries = facts(300, seed=4), facts(100, seed=5)
        shuffled = calibration[np.random.default_rng(0).permutation(300)]
        first, second = (build(name).calibrate(Stub(), part) for part in (calibration, shuffled))
        # means and deviations of 300 numbers below 1 are sums in another order; a deviation counts twice at 0.9
        bound = 3 * apart(300, 1.0, np.float64)
        assert_within(first.interval(queries, 0.9).upper, second.interval(queries, 0.9).upper, bound)

    def test_round_trip_of_the_calibration(self, name: str, predictor: IntervalPredictor) -> None:
        arrays = predictor.arrays()
        assert all(array.dtype.kind in "biufU" for array in arrays.values())
        again = build(name).restore(Stub(), arrays)
        queries = facts(200, seed=6)
        for end in ("lower", "upper"):
            np.testing.assert_array_equal(
                getattr(again.interval(queries, LEVELS), end),
                getattr(predictor.interval(queries, LEVELS), end),
            )
        assert again.size == predictor.size
        assert again.options() == predictor.options()

    def test_a_damaged_calibration_is_refused(self, name: str, predictor: IntervalPredictor) -> None:
        arrays = predictor.arrays()
        # without these answers are the same: no kind has shapes of its own here
        for missing in arrays.keys() - {"evidence.aside", "evidence.frequent", "learned/kinds"}:
            with pytest.raises(ValueError, match=r"\w+ \w+"):
                build(name).restore(Stub(), {key: value for key, value in arrays.items() if key != missing})

    def test_over_other_copies_of_its_models(self, name: str, predictor: IntervalPredictor) -> None:
        models = predictor.models()
        assert models["model"] is predictor.model
        others = {place: copy(model) for place, model in models.items()}
        moved = predictor.with_models(others)
        assert all(moved.models()[place] is model for place, model in others.items())
        assert all(predictor.models()[place] is model for place, model in models.items())
        queries = facts(200, seed=12)
        one, two = predictor.interval(queries, LEVELS), moved.interval(queries, LEVELS)
        np.testing.assert_array_equal(one.lower, two.lower)
        np.testing.assert_array_equal(one.upper, two.upper)

    def test_calibration_facts_are_scored_as_they_were_ranked(self, predictor: IntervalPredictor) -> None:
        if not predictor.ranks_scores:
            assert predictor.nonconformity(known_facts(9), np.zeros(9)) is None or predictor.needs
            pytest.skip("no single score makes its intervals")
        ranked = predictor.calibration_facts()
        assert isinstance(predictor, Partitioned)
        scores = np.asarray(predictor.nonconformity(ranked, ranked.confidence))
        scores = scores if predictor.name == "joint" else np.abs(scores)
        np.testing.assert_array_equal(np.sort(scores), predictor.rankings.scores)

    @pytest.mark.parametrize("size", [1, 8, 9, 19, 20, 400])
    def test_a_label_is_covered_as_its_rank_says(self, name: str, size: int) -> None:
        if name == "cv+":
            pytest.skip("an interval is made by the predictions of several models")
        predictor = build(name).calibrate(Stub(), known_facts(size))
        if not predictor.one_threshold:
            pytest.skip("its intervals are not made by one threshold")
        assert isinstance(predictor, Partitioned)
        queries, levels = known_facts(300, seed=10), [0.05, 0.5, 0.9, 0.97, 1.0]
        strange = np.asarray(predictor.nonconformity(queries, queries.confidence))
        strange = strange if name == "joint" else np.abs(strange)
        below, result = (
            np.searchsorted(predictor.rankings.scores, strange),
            predictor.interval(queries, levels),
        )
        for place, level in enumerate(levels):
            inside = (result.lower[:, place] <= queries.confidence) & (
                queries.confidence <= result.upper[:, place]
            )
            np.testing.assert_array_equal(inside, below < rank(level, predictor.size))

    def test_unknown_queries_get_the_whole_range(self, predictor: IntervalPredictor) -> None:
        ids = [(1, 1, 1), (-1, 1, 1), (1, 1, 47), (1, -1, 1), (1, 4, 1), (ENTITIES + 9, 1, 1), (-1, -1, -1)]
        result = predictor.interval(Triples(*np.array(ids, dtype=np.int32).T), 0.5)
        entity, relation = "unknown-entity", "unknown-relation"
        assert result.status.tolist() == ["ok", entity, entity, relation, relation, entity, entity]
        assert np.isnan(result.score).tolist() == [False] + [True] * 6
        assert result.lower[1:].tolist() == [0.0] * 6
        assert result.upper[1:].tolist() == [1.0] * 6

    def test_unknown_facts_do_not_calibrate(self, name: str) -> None:
        if "members" in predictor_class(name).needs:
            pytest.skip("it calibrates on the facts that it was trained on, and ranks them all")
        calibration, queries = facts(500, seed=7), known_facts(50)
        known = (calibration.head < 45) & (calibration.tail < 45) & (calibration.relation < 4)
        assert 0 < known.sum() < 500
        all_facts, known_only = (
            build(name).calibrate(Stub(), part) for part in (calibration, calibration[known])
        )
        assert all_facts.size == known_only.size == ranked_rows(known_only, known.sum()).sum()
        np.testing.assert_array_equal(
            all_facts.interval(queries, 0.9).lower, known_only.interval(queries, 0.9).lower
        )

    def test_nothing_known_to_calibrate_on(self, name: str) -> None:
        if "members" in predictor_class(name).needs:
            pytest.skip("it calibrates on the facts that it was trained on")
        calibration = facts(20)
        with pytest.raises(InputError, match="no calibration fact has its entities"):
            build(name).calibrate(Stub(), calibration[calibration.relation == 4])

    def test_no_queries(self, predictor: IntervalPredictor) -> None:
        result = predictor.interval(facts(0), [0.8, 0.9])
        assert result.lower.shape == (0, 2)
        assert len(result) == 0
        assert result.to_arrow().num_rows == 0

    def test_levels_outside_the_range_are_refused(self, predictor: IntervalPredictor) -> None:
        for level in (-0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match=r"confidence must be a number from 0 to 1"):
                predictor.interval(facts(1), level)

    def test_arrow(self, predictor: IntervalPredictor) -> None:
        table = predictor.interval(facts(100, seed=8), 0.9).to_arrow()
        more = ["promise"] * any(groups.name == "relation" for groups in predictor.partitions)
        more += list(MODES) if predictor.name in DISTRIBUTIONS else []
        assert table.schema.names == ["score", "lower", "upper", "status", *more, "prediction"]
        unknown = np.array(table["status"].to_pylist()) != "ok"
        assert table["score"].null_count == unknown.sum() > 0
        several = predictor.interval(facts(100, seed=8), [0.8, 0.999]).to_arrow()
        ends = ["lower_80", "upper_80", "lower_99.9", "upper_99.9"]
        assert several.schema.names == ["score", *ends, "status", *more, "prediction"]

    def test_value_and_belief_of_methods_with_a_distribution(self, predictor: IntervalPredictor) -> None:
        queries = facts(300, seed=13)
        result = predictor.interval(queries, LEVELS)
        told = (result.value, result.belief, result.other, result.other_belief)
        if predictor.name not in DISTRIBUTIONS:
            assert told == (None,) * 4
            pytest.skip("it has no distribution")
        value, belief, other, other_belief = (np.asarray(column) for column in told)
        known = result.code == 0
        assert 0 < known.sum() < 300
        for column in (value, belief, other, other_belief):
            assert column.shape == (300,)
            assert np.isnan(column[~known]).all()
        inside = (result.lower <= value[:, None]) & (value[:, None] <= result.upper)
        assert inside[known].all()
        single = ~np.isnan(belief)
        assert ((belief > 0) & (belief <= 1))[known & single].all()
        second = ~np.isnan(other)
        np.testing.assert_array_equal(second, other_belief > 0.15)
        assert (other[second] != value[second]).all()
        # whatever the level, and whoever else is asked
        for row in (0, 7, int(np.flatnonzero(~known)[0])):
            alone = predictor.interval(queries[row : row + 1], 0.8)
            for column, mine in zip(MODES, (value, belief, other, other_belief), strict=True):
                np.testing.assert_array_equal(getattr(alone, column), mine[row : row + 1])


def test_fisher_by_the_formula() -> None:
    calibration = known_facts(30)
    predictor = create("fpi").calibrate(Stub(), calibration)
    score = Stub().score(calibration.head, calibration.relation, calibration.tail).astype(np.float64)
    half = stats.t.ppf(0.75, 29) * score.std(ddof=1) * math.sqrt(30 / 29)
    result = predictor.interval(known_facts(5, seed=1), 0.5)
    np.testing.assert_allclose(result.lower, max(0, score.mean() - half), rtol=1e-12)
    np.testing.assert_allclose(result.upper, min(1, score.mean() + half), rtol=1e-12)
    assert 0 < result.lower[0] < result.upper[0] < 1


def test_fisher_with_one_fact_is_the_whole_range() -> None:
    result = create("fpi").calibrate(Stub(), known_facts(1)).interval(known_facts(2), 0.5)
    assert result.lower.tolist() == [0.0, 0.0]
    assert result.upper.tolist() == [1.0, 1.0]


class Constant(Stub):
    """Always the same score."""

    def score(self, head, relation, tail):  # type: ignore[no-untyped-def]
        return np.full(len(head), self.shift, dtype=np.float32)


def quantile_predictor() -> IntervalPredictor:
    values = {0.025: 0.375, 0.05: 0.25, 0.1: 0.75, 0.9: 0.625, 0.95: 0.5, 0.975: 0.875}
    quantiles = {tau: Constant(value) for tau, value in values.items()}
    return create("qr", quantiles=quantiles).calibrate(Stub(), known_facts(10))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0.8, (0.625, 0.75)),  # crossed: the ends change places
        (0.1, (0.625, 0.75)),  # untrained: the next larger trained level
        (0.9, (0.25, 0.75)),  # [0.25, 0.5] grown to contain the level below
        (0.85, (0.25, 0.75)),
        (0.95, (0.25, 0.875)),
        (0.951, (0.0, 1.0)),  # above the largest trained level
    ],
)
def test_quantile_regression_by_hand(level: float, expected: tuple[float, float]) -> None:
    result = quantile_predictor().interval(known_facts(3), level)
    assert set(zip(result.lower.tolist(), result.upper.tolist(), strict=True)) == {expected}


def test_quantiles_come_in_pairs() -> None:
    with pytest.raises(ValueError, match=r"quantile 0\.1 has no partner 0\.9"):
        create("qr", quantiles={0.1: Stub(), 0.95: Stub()})
    with pytest.raises(ValueError, match="at least one pair"):
        create("qr", quantiles={})
    taus = [(1 - 0.9) / 2, 1 - (1 - 0.9) / 2]
    assert list(create("qr", quantiles={tau: Stub() for tau in taus}).pairs) == [Fraction(9, 10)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("mapped", [False, True])
def test_entropy_scaling_by_hand(mapped: bool) -> None:
    def entropy(m: NDArray[np.float64]) -> NDArray[np.float64]:
        m = np.clip(0.5 * m + 0.5 if mapped else m, 1e-6, 1 - 1e-6)
        return np.maximum(-m * np.log(m) - (1 - m) * np.log(1 - m), 1e-6)

    calibration, queries = known_facts(9), known_facts(20, seed=1)
    score, centre = (
        Stub().score(part.head, part.relation, part.tail).astype(np.float64)
        for part in (calibration, queries)
    )
    scaled = np.sort(np.abs(score - calibration.confidence) / entropy(score))
    predictor = create("unkgcp", mapped_entropy=mapped).calibrate(Stub(), calibration)
    result = predictor.interval(queries, 0.7)
    half = scaled[6] * entropy(centre)
    # two entropies of logarithms (one divides, one multiplies), and the steps around them
    bound = apart(4 * EXP_ULPS + 12, 1 + half.max(), np.float64)
    assert_within(result.lower, np.maximum(0, centre - half), bound)
    assert_within(result.upper, np.minimum(1, centre + half), bound)
    assert predictor.options() == {"mapped_entropy": mapped}


def test_too_few_calibration_facts_give_the_whole_range() -> None:
    for method in ("cp", "unkgcp"):
        result = create(method).calibrate(Stub(), known_facts(8)).interval(known_facts(3, seed=1), 0.9)
        assert result.lower.tolist() == [0.0] * 3
        assert result.upper.tolist() == [1.0] * 3


def test_cautions() -> None:
    few = create("cp").calibrate(Stub(), known_facts(18))
    assert few.caution(0.9) is None
    assert few.caution(1.0) is None
    assert few.caution(0.95) == (
        "18 calibration facts are too few for confidence 0.95: every interval is the whole range"
    )
    trained = quantile_predictor()
    assert trained.caution(0.9) is None
    assert trained.caution(0.85) == (
        "no quantile models were trained for confidence 0.85: the models of 0.9 answer"
    )
    assert "the whole range answers" in str(trained.caution(0.99))
    assert create("fpi").calibrate(Stub(), known_facts(18)).caution(0.99) is None


def test_unknown_method_and_option() -> None:
    with pytest.raises(InputError, match="no interval method 'magic'; choose one of"):
        create("magic")
    with pytest.raises(InputError, match="no option 'maped_entropy'; did you mean 'mapped_entropy'"):
        create("unkgcp", maped_entropy=True)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="named 'cp' is registered already"):
        register(predictor_class("cp"))


def test_no_torch() -> None:
    code = "import sys, unkgcp.methods as p; p.create('cp'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({"training_conditional": 0.1}, {}),
        ({}, {"weight": np.linspace(1, 2, 90)}),
        ({}, {"group": np.zeros(90, np.int64)}),
    ],
)
def test_a_calibration_that_makes_another_promise_is_refused(
    settings: dict[str, Any], columns: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    prediction, truth = rng.random((2, 90))
    size = {"size": np.array(90), "kind_counts": np.array([90, 0, 0, 0])}
    plain = SplitConformal("residual").calibrate(prediction, truth)
    assert create("cp").restore(Stub(), size | plain.arrays()).one_threshold
    other = SplitConformal("residual", **settings).calibrate(prediction, truth, **columns)
    with pytest.raises(ValueError, match=r"another promise|other groups|other facts"):
        create("cp").restore(Stub(), size | other.arrays())
