"""Conditions on the confidence, and choosing by every method: what the score is, what is kept, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.test_contract import Stub, build, evidence_model, known_facts
from tests.methods.test_contract import facts as random_facts
from unkgcp.conformal.selection import Range
from unkgcp.errors import InputError
from unkgcp.graph.negatives import corrupt
from unkgcp.methods import MODULES, create
from unkgcp.methods.method import status_codes
from unkgcp.methods.open_world import open_world
from unkgcp.run.chooser import Selector

HIGH = Range.parse("confidence >= 0.7")


class TestRange:
    @pytest.mark.parametrize(
        ("text", "inside", "outside"),
        [
            ("confidence >= 0.7", [0.7, 1.0], [0.6999, 0.0]),
            ("confidence > 0.7", [0.7001, 1.0], [0.7]),
            ("confidence < 0.3", [0.0, 0.2999], [0.3, 1.0]),
            ("confidence <= 0.3", [0.3], [0.3001]),
            ("0.7 <= confidence", [0.7], [0.69]),
            ("0.3 <= confidence < 0.7", [0.3, 0.69], [0.29, 0.7]),
            ("0.7 > confidence > 0.3", [0.31, 0.69], [0.3, 0.7]),
            ("confidence >= 0.3 and confidence <= 0.3", [0.3], [0.31, 0.29]),
            ("confidence >= 1", [1.0, 0.9999999999999998], [0.999]),
        ],
    )
    def test_what_passes(self, text: str, inside: list[float], outside: list[float]) -> None:
        condition = Range.parse(text)
        assert condition.holds(np.array(inside)).all()
        assert not condition.holds(np.array(outside)).any()
        assert Range.parse(str(condition)) == condition

    @pytest.mark.parametrize(
        "text",
        [
            "", "confidence", "score >= 0.7", "lower >= 0.7", "confidence >= lower", "confidence >= 0.7 or score > 1",
            "confidence == 0.7", "confidence >= '0.7'", "confidence >= 1.5", "confidence >= -1", "0.3 < 0.7",
            "__import__('os').system('true')", "confidence >= 0.7; 1", "confidence >= True", "(" * 300,
            "confidence >= 0.7 if 1 else 0", "0.3 < confidence != 0.5",
        ],
    )  # fmt: skip
    def test_what_is_not_understood_is_a_sentence(self, text: str) -> None:
        with pytest.raises(InputError, match=r"not understood|from 0 to 1"):
            Range.parse(text)

    @pytest.mark.parametrize("text", ["confidence >= 0", "confidence <= 1", "0 <= confidence <= 1"])
    def test_nothing_to_choose(self, text: str) -> None:
        with pytest.raises(InputError, match="nothing to choose"):
            Range.parse(text)

    @pytest.mark.parametrize("text", ["0.7 < confidence < 0.3", "0.5 < confidence < 0.5", "confidence > 1"])
    def test_nothing_that_passes(self, text: str) -> None:
        with pytest.raises(InputError, match="no confidence from 0 to 1 fulfils"):
            Range.parse(text)

    @given(st.floats(0, 1), st.floats(0, 1))
    def test_a_prediction_inside_has_a_distance_of_at_least_0(self, score: float, bound: float) -> None:
        condition = Range(low=bound)
        assert (condition.distance(np.array([score]))[0] >= 0) == (score >= bound or bound == 0)


class TestEveryMethod:
    @pytest.mark.parametrize("name", sorted(set(MODULES) - {"cv+"}))
    def test_chooses(self, name: str) -> None:
        method = build(name).calibrate(Stub(), known_facts(400))
        selector = Selector(method, HIGH)
        facts = method.calibration_facts()
        assert len(facts) == method.size
        assert (selector.reference.sizes == len(facts)).all()
        (wrong,) = selector.reference.scores
        assert len(wrong) == (facts.confidence < 0.7).sum()
        asked = random_facts(50, seed=3)
        known = status_codes(method.model, asked) == 0
        places = selector.places(asked)
        assert 0 < known.sum() < len(asked)
        np.testing.assert_array_equal(places >= 0, known)
        assert places.tolist() == [selector.places(asked[row : row + 1])[0] for row in range(50)]

    def test_cv_plus_is_refused(self) -> None:
        method = build("cv+", 400).calibrate(Stub(), known_facts(400))
        with pytest.raises(InputError, match="cv\\+ run calibrates with the facts that it was trained on"):
            Selector(method, HIGH)

    def test_a_run_that_did_not_keep_its_facts(self) -> None:
        method = build("cp").calibrate(Stub(), known_facts(100))
        method.ranked = None
        with pytest.raises(InputError, match="calibrate it again with unkgcp fit --from RUN"):
            Selector(method, HIGH)

    @pytest.mark.parametrize(("value", "said"), [(0.1, "none"), (0.9, "every one")])
    def test_a_calibration_that_says_nothing_of_the_condition(self, value: float, said: str) -> None:
        facts = known_facts(100)
        method = build("cp").calibrate(Stub(), facts.with_confidence(np.full(100, value)))
        with pytest.raises(InputError, match=f"{said} of the 100 calibration facts has confidence >= 0.7"):
            Selector(method, HIGH)

    @pytest.mark.parametrize("name", ["shortest", "joint", "mean-length"])
    def test_who_cannot_be_calibrated_with_some_of_the_facts(self, name: str) -> None:
        method = build(name).calibrate(Stub(), known_facts(400))
        with pytest.raises(InputError, match="intervals after a selection are not offered"):
            method.among(known_facts(10))


class TestEvidence:
    def test_the_score_is_the_mass_of_the_range(self) -> None:
        """Counted cell by cell from the distribution, atoms and values of the query's own among them."""
        method: Any = create("evidence", evidence=evidence_model()).calibrate(Stub(), known_facts(400))
        asked = known_facts(30, seed=5)
        found = method.evidence.distribution(asked)
        above, below = method.passing(asked, HIGH), method.passing(asked, Range.parse("confidence < 0.7"))
        total = found.class_mass.sum(axis=1) + found.slot_mass.sum(axis=1)
        np.testing.assert_allclose(above + below, total, rtol=1e-12)
        # the mass up to a bound is what the distribution's own quantile says
        for row, (low, high, mass) in enumerate(zip(*found.stretches(), strict=True)):
            part = np.array([_above(a, b) for a, b in zip(low, high, strict=True)])
            np.testing.assert_allclose(above[row], (mass * part).sum(), rtol=1e-9, atol=1e-12)


def _above(low: float, high: float) -> float:
    """The part of a stretch from 0.7 on."""
    if high - low < 1e-9:
        return float(low >= 0.7 - 1e-12)
    return min(max((high - 0.7) / (high - low), 0.0), 1.0)


class TestOpenWorld:
    @pytest.fixture
    def world(self) -> Any:
        facts, train = known_facts(300), known_facts(600, seed=9)
        negatives = {kind: corrupt(facts, train, seed=1, kind=kind) for kind in ("uniform", "frequent")}
        return open_world(create("cp").calibrate(Stub(), facts), negatives)

    def test_non_facts_are_wrong_where_0_is(self, world: Any) -> None:
        assert len(Selector(world, HIGH).reference.sizes) == 3
        assert len(Selector(world, Range.parse("confidence < 0.3")).reference.sizes) == 1

    def test_p_values_are_no_smaller_than_those_for_facts(self, world: Any) -> None:
        asked = known_facts(100, seed=4)
        both, alone = Selector(world, HIGH), Selector(world.base, HIGH)
        p, q = (each.reference.p_values(each.places(asked)) for each in (both, alone))
        assert (p >= q).all()
        assert (p > q).any()

    def test_intervals_after_a_selection_are_refused(self, world: Any) -> None:
        with pytest.raises(InputError, match="without --population open"):
            world.check_subsets()

    def test_an_older_run(self, world: Any) -> None:
        world.nonfacts = None
        with pytest.raises(InputError, match="calibrate it again"):
            Selector(world, HIGH)
