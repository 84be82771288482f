"""Methods for confidences that are intervals: their definition, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.test_contract import Stub, known_facts
from unkgcp.conformal import rank
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.methods import check_promise
from unkgcp.methods.interval_valued import Joint, MeanLength
from unkgcp.run.calibration import method_options


def valued(n: int, seed: int) -> Graph:
    """Known facts with intervals on a grid of 21 values, so that scores tie."""
    ends = np.sort(np.random.default_rng(seed).integers(0, 21, (n, 2)) / 20, axis=1)
    return known_facts(n, seed).with_ends(ends)


def contained(answer: object, facts: Graph) -> np.ndarray:  # type: ignore[type-arg]
    assert facts.ends is not None
    return (answer.lower <= facts.ends[:, 0]) & (facts.ends[:, 1] <= answer.upper)  # type: ignore[attr-defined]


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("level", [0.05, 0.3, 0.8, 0.9, 0.99])
def test_contained_exactly_when_the_score_is_within_the_threshold(normalised: bool, level: float) -> None:
    calibration, test = valued(200, 1), valued(500, 2)
    method = Joint(Stub(5.0), normalised).calibrate(Stub(), calibration)
    both = [calibration, test]
    for facts in both:
        assert facts.ends is not None
        scores = method.nonconformity(facts, facts.ends)
        k = rank(level, 200)
        expected = scores <= np.sort(method.nonconformity(calibration, calibration.truth))[k - 1]
        answer = method.interval(facts, level)
        # where no radius is left the answer is a point, which contains at most itself
        collapsed = answer.lower == answer.upper
        np.testing.assert_array_equal(contained(answer, facts)[~collapsed], expected[~collapsed])
        assert not expected[collapsed & (facts.ends[:, 0] < facts.ends[:, 1])].any()
    assert contained(method.interval(calibration, level), calibration).sum() >= rank(level, 200)


@pytest.mark.parametrize("normalised", [False, True])
def test_the_union_bound_contains_what_both_parts_hold(normalised: bool) -> None:
    calibration, test = valued(200, 3), valued(500, 4)
    method = MeanLength(Stub(5.0), normalised).calibrate(Stub(), calibration)
    for level in (0.5, 0.8, 0.9):
        thresholds = [ranking.scores[rank(1 - (1 - level) / 2, 200) - 1] for ranking in method.all_rankings]
        for facts in (calibration, test):
            assert facts.ends is not None
            point = Stub().score(facts.head, facts.relation, facts.tail).astype(np.float64)
            mean, length = method._scores(point, facts, facts.ends)
            held = (mean <= thresholds[0]) & (length <= thresholds[1])
            assert contained(method.interval(facts, level), facts)[held].all()


def test_plain_numbers_are_intervals_without_length() -> None:
    calibration, queries = known_facts(150, 5), known_facts(50, 6)
    both = np.stack([calibration.confidence] * 2, axis=1)
    for cls in (Joint, MeanLength):
        plain = cls(Stub(5.0)).calibrate(Stub(), calibration).interval(queries, 0.9)
        wide = cls(Stub(5.0)).calibrate(Stub(), calibration.with_ends(both)).interval(queries, 0.9)
        np.testing.assert_array_equal(plain.lower, wide.lower)
        np.testing.assert_array_equal(plain.upper, wide.upper)


def test_too_few_facts_for_the_level() -> None:
    few = valued(12, 7)
    assert Joint(Stub(5.0)).calibrate(Stub(), few).caution(0.9) is None
    # each half of the union bound needs 19 facts for 95 %
    caution = MeanLength(Stub(5.0)).calibrate(Stub(), few).caution(0.9)
    assert caution is not None
    assert "12 calibration facts are too few" in caution
    answer = MeanLength(Stub(5.0)).calibrate(Stub(), few).interval(few, 0.9)
    assert (answer.lower == 0).all()
    assert (answer.upper == 1).all()


def test_a_model_of_lengths_is_needed() -> None:
    with pytest.raises(ValueError, match="needs a model of the length"):
        Joint().calibrate(Stub(), valued(20, 8))


def test_it_takes_no_groups_and_tells_no_kinds_in_the_papers_protocol() -> None:
    assert method_options("joint", "facts", "paper", "none") == {"by_kind": False}
    with pytest.raises(InputError, match="method 'joint' has no promise per doubt"):
        check_promise(Joint, "doubt", "asserted", ())
