"""A promise per relation for the evidence method: held in every group, and said of every answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import unkgcp
from tests.worlds import vocabulary
from unkgcp.conformal.ranking import Standing
from unkgcp.conformal.ranks import smoothed_exceeds
from unkgcp.evaluation.metrics import summed_band
from unkgcp.evidence import EvidenceModel, learn
from unkgcp.graph import Dataset, Graph, Splits
from unkgcp.methods import create
from unkgcp.methods.evidence_method import EvidenceIntervals
from unkgcp.run import fit

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")

SIZES = np.array([4000, 2500, 60, 40, 30, 20, 0])  # training facts of each relation; the last has none
SPREAD = np.array([0.1, 0.4, 0.3, 0.05, 0.25, 0.1, 0.1])
VOCABULARY = vocabulary(100, len(SIZES))


class Seen:
    """A model that is asked for nothing but what it has seen."""

    seen_entities = np.ones(100, np.bool_)
    seen_relations = SIZES > 0

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return np.full(len(head), 0.5, np.float32)


def draw(n: int, seed: int, spread: NDArray[np.float64] = SPREAD) -> Graph:
    """A third of the confidences are 0.5: scores tie."""
    rng = np.random.default_rng(seed)
    relation = rng.choice(len(SIZES), n, p=SIZES / SIZES.sum()).astype(np.int32)
    head, tail = rng.integers(0, 100, (2, n), dtype=np.int32)
    apart = rng.uniform(-1, 1, n) * (rng.random(n) > 1 / 3)
    return Graph(head, relation, tail, np.clip(0.5 + spread[relation] * apart, 0, 1), VOCABULARY)


@cache
def model() -> EvidenceModel:
    """Learned when relation 1 was as easy as relation 0, which it no longer is for calibration and test facts."""
    before = np.where(np.arange(len(SPREAD)) == 1, SPREAD[0], SPREAD)
    return learn(draw(6000, 0, before), rounds=20)


def calibrated(**options: Any) -> EvidenceIntervals:
    made = create("evidence", evidence=model(), **options).calibrate(Seen(), draw(3000, 1))
    assert isinstance(made, EvidenceIntervals)
    return made


def inside(lower: NDArray[np.float64], upper: NDArray[np.float64], test: Graph) -> NDArray[np.bool_]:
    return (lower <= test.confidence) & (test.confidence <= upper)


def standing_of(method: EvidenceIntervals, test: Graph) -> Standing:
    """Where the score of each label stands in its group."""
    places = method.rankings.segments(method.group_columns(test) or {})
    return method.rankings.standing(method.nonconformity(test, test.confidence), places)


def test_every_group_is_covered_as_promised() -> None:
    """Bands of mass 1 - 1e-6 for coverage with ties broken at random; whole ties only add to it."""
    per, one, test = calibrated(per="relation", floor=False), calibrated(per="none"), draw(20_000, 2)
    result, pooled = per.interval(test, 0.9), one.interval(test, 0.9)
    assert per.relation_groups is not None
    found, ranking = per.rankings.partitions["relation"]
    assert found is not None
    sizes = dict(zip(found.tolist(), ranking.sizes.tolist(), strict=False))
    assert len(sizes) >= 3
    groups, standing = per.relation_groups.of(test.relation), standing_of(per, test)
    missed = []
    for group, size in sizes.items():
        rows = groups == group
        low, high = summed_band([(size, int(rows.sum()))], 0.9, 1 - 1e-6)
        assert set(standing.size[rows].tolist()) == {size}
        assert low <= smoothed_exceeds(*(column[rows] for column in standing), 0.9).mean() <= high
        assert inside(result.lower, result.upper, test)[rows].mean() >= low
        missed.append(inside(pooled.lower, pooled.upper, test)[rows].mean() < low)
    assert any(missed)  # what one threshold for all facts does to relation 1


def test_a_label_is_inside_exactly_when_its_p_value_exceeds() -> None:
    per, test = calibrated(per="relation", floor=False), draw(500, 3)
    strange, places = (
        per.nonconformity(test, test.confidence),
        per.rankings.segments(per.group_columns(test) or {}),
    )
    p_values, standing = per.rankings.p_values(strange, places), standing_of(per, test)
    levels = [0.0, 0.3, 0.8, 0.95, 0.99]
    result = per.interval(test, levels)
    assert (result.lower <= result.upper).all()
    assert (np.diff(result.upper - result.lower, axis=1) >= 0).all()
    for place, level in enumerate(levels[1:], start=1):
        counts = np.rint(p_values * (standing.size + 1)).astype(int)
        needed = [size + 1 - unkgcp.conformal.rank(level, int(size)) for size in standing.size]
        np.testing.assert_array_equal(
            inside(result.lower[:, place], result.upper[:, place], test), counts > needed
        )


def test_a_run(tmp_path: Path) -> None:
    train, calibration, test = draw(1500, 6), draw(800, 7), draw(800, 8)
    data = Dataset("made", Splits(train, calibration, test, train[:0]))
    per = fit(data, per="relation")
    per.save(tmp_path / "run")
    loaded = unkgcp.Predictor.load(tmp_path / "run")
    before, after = per.interval(test, 0.9), loaded.interval(test, 0.9)
    np.testing.assert_array_equal(before.upper, after.upper)
    np.testing.assert_array_equal(before.basis, after.basis)
    assert after.basis is not None
