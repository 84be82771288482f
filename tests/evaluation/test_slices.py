"""Slices of the test facts: who is in which, their bands by the exact law, and how often they cry wolf."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import betabinom

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.conformal import SplitConformal, rank
from unkgcp.evaluation import slices
from unkgcp.evaluation.slices import (
    QueryFeatures,
    below_band,
    effective_sizes,
    equal_slices,
    judge_slices,
    slices_of,
    weakest,
)
from unkgcp.graph.facts import Triples


def queries(n: int, seed: int = 0) -> QueryFeatures:
    rng = np.random.default_rng(seed)
    relation = rng.integers(0, 4, n)
    return QueryFeatures(rng.random(n), rng.random(n), rng.integers(1, 50, n), relation, 100 + relation)


def test_what_is_known_of_a_query() -> None:
    facts = graph_of_ids([(0, 0, 1, 0.5), (0, 0, 2, 0.5), (1, 1, 2, 0.5)], vocabulary(4, 2))
    asked = Triples(*(np.array(ids, np.int32) for ids in ([0, 1, -1, 0], [0, 1, 0, -1], [2, 0, 1, 1])))
    score = np.array([0.1, 0.2, np.nan, np.nan])
    found = QueryFeatures.of(facts, asked, score, np.array([0.25, 0.75, np.nan, np.nan]))
    assert found.degree.tolist() == [2, 2, 0, 2], "an unknown entity has no facts"
    assert found.frequency.tolist() == [2, 1, 2, 0]
    assert found.table().shape == (2, 4), "only what has all features"
    assert found.table()[:, 1].tolist() == [0.25, 0.75]
    assert found.some(found.complete).degree.tolist() == [2, 2]


def test_tenths_fifths_and_large_relations() -> None:
    about = queries(1000)
    about.relation[:] = np.repeat([0, 1, 2, -1], [640, 251, 49, 60])
    doubt, degree, relation = slices_of(about, ["a", "b", "c", "d"])
    assert [len(part.about) for part in (doubt, degree, relation)] == [10, 5, 2]
    assert np.bincount(doubt.member).tolist() == [100] * 10
    assert [row["relation"] for row in relation.about] == ["a", "b"], "the third has fewer than 50 facts"
    assert np.bincount(relation.member + 1).tolist() == [109, 640, 251]
    for part, values in ((doubt, about.doubt), (degree, about.degree)):
        for place, row in enumerate(part.about):
            inside = values[part.member == place]
            assert (row["from"], row["to"]) == (inside.min(), inside.max())
        assert all(
            left["to"] < right["from"] for left, right in zip(part.about, part.about[1:], strict=False)
        )


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        (np.zeros(100), [100]),
        (np.repeat([0.0, 1.0], [95, 5]), [95, 5]),
        # bins begin at ranks 0, 10, 20, ...: one row before a tie would be a slice by itself
        (np.concatenate([[0.0], np.full(10, 0.5), np.linspace(0.6, 1, 89)]), None),
        (np.concatenate([np.linspace(0, 0.5, 97), np.full(3, 0.9)]), None),
        (np.concatenate([np.repeat([0.0, 1.0], 50), np.full(7, np.nan)]), [50, 50]),
        (np.full(3, np.nan), []),
    ],
)
def test_equal_values_stay_together_and_no_slice_is_tiny(values: np.ndarray, sizes: list[int] | None) -> None:
    part = equal_slices("doubt", values, 10)
    placed = part.member >= 0
    assert (placed == ~np.isnan(values)).all()
    values, member = values[placed], part.member[placed]
    count = np.bincount(member)
    assert count.min(initial=5) >= 5
    assert len(part.about) == len(count)
    for value in np.unique(values):
        assert len(np.unique(member[values == value])) == 1
    if sizes is not None:
        assert count.tolist() == sizes


def judged(about: QueryFeatures, inside: np.ndarray, sizes: np.ndarray | None, level: float = 0.9) -> dict:
    n = len(inside)
    ends = np.where(inside, 0.5, 0.9), np.full((n, 1), 0.4), np.full((n, 1), 0.6)
    (found,) = judge_slices(about, list("abcd"), ends, [level], sizes=sizes)
    return found


def test_figures_of_slices_by_hand() -> None:
    about = queries(1000)
    inside = about.doubt < np.sort(about.doubt)[900]
    found = judged(about, inside, np.full(1000, 500))
    last = found["slices"]["doubt"][-1]
    assert (last["n"], last["coverage"], found["worst"]["most_doubtful"]) == (100, 0.0, 0.0)
    assert last["sharpness"] == pytest.approx(0.2)
    assert last["interval_score"] == pytest.approx(0.2 + 20 * 0.3)
    assert found["slices"]["doubt"][0]["interval_score"] == pytest.approx(0.2)
    assert found["worst"]["doubt"] == 0.0
    total = sum(map(len, found["slices"].values()))
    k = rank(0.9, 500)
    law = betabinom(100, k, 501 - k)
    low = round(last["band"][0] * 100)
    tail = 0.01 / total / 2
    assert law.cdf(low - 1) <= tail < law.cdf(low), "the band is that of the law, for all slices together"
    assert below_band(last)
    assert weakest(found["slices"]) == ("doubt", last)
    without = judged(about, inside, None)["slices"]["doubt"][-1]
    assert without["band"] is None
    assert not below_band(without)
    assert weakest({"doubt": []}) is None


@pytest.mark.parametrize(
    ("sizes", "behind"),
    [
        (np.full(10, 70), 70),
        # halves with 100 and 300 facts behind them: 1 / (0.25 / 100 + 0.25 / 300)
        (np.repeat([100, 300], 5), 300),
        (np.repeat([0, 80], 5), 80),  # rows without calibration facts do not scatter
        (np.zeros(3, int), 0),
    ],
)
def test_effective_sizes(sizes: np.ndarray, behind: int) -> None:
    alone = np.zeros(len(sizes), np.intp)
    assert effective_sizes(alone, sizes, 1).tolist() == [behind]
    # the same rows as a slice among others, between rows of none
    member = np.concatenate([[0, -1], np.full(len(sizes), 2), [0, -1]])
    among = effective_sizes(member, np.concatenate([[5, 9], sizes, [5, 9]]), 3)
    assert among.tolist() == [5, 0, behind]


@pytest.mark.parametrize("grouped", [False, True])
def test_false_alarms_are_rare(grouped: bool) -> None:
    """200 calibrations of a method that keeps its promise everywhere: some slice lies below in at most 1 in 100.

    Half of (1 - MASS) is meant for the lower side, so at most one alarm is expected; six have chance below 1e-3.
    The mutant, intervals for 0.8 judged as if they were for 0.9, must be noticed nearly always.
    """
    about, alarms, noticed = queries(2000, 1), 0, 0
    cut = slices_of(about, list("abcd"))
    rng = np.random.default_rng(0)
    group = {"group": about.relation} if grouped else {}
    for _ in range(200):
        score, strange = np.zeros(1000), rng.random(1000)
        own = {"group": rng.integers(0, 4, 1000)} if grouped else {}
        calibration = SplitConformal(bounds=None).calibrate(score, strange, **own)
        sizes = np.bincount(own["group"])[about.relation] if grouped else np.full(2000, 1000)
        truth = rng.random(2000)
        for level, counts in ((0.9, True), (0.8, False)):
            ends = calibration.interval(np.zeros(2000), confidence=level, **group)
            below = _below(about, cut, truth, ends, sizes)
            if counts:
                alarms += below
            else:
                noticed += below
    assert alarms < 6
    assert noticed > 190


def _below(
    about: QueryFeatures, cut: list[slices.Slices], truth: np.ndarray, ends: np.ndarray, sizes: np.ndarray
) -> bool:
    """Whether some slice lies below its band at 0.9; without ERT, which takes time."""
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    columns = inside, ends[:, 1] - ends[:, 0], ends[:, 1]
    (bands,) = slices.bands_of([part.member for part in cut], sizes, [0.9])
    rows = slices.figures_of(cut, columns, bands)
    return any(below_band(one) for part in rows.values() for one in part)
