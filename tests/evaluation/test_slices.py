"""Slices of the test facts: who is in which, their bands by the exact law, and how often they cry wolf."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import betabinom

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.conformal import SplitConformal, rank
from unkgcp.evaluation import slices
from unkgcp.evaluation.slices import Queries, below_band, effective_sizes, judge_slices, slices_of
from unkgcp.graph.facts import Triples
from unkgcp.graph.known_facts import degree_of, degrees


def queries(n: int, seed: int = 0) -> Queries:
    rng = np.random.default_rng(seed)
    relation = rng.integers(0, 4, n)
    return Queries(rng.random(n), rng.random(n), rng.integers(1, 50, n), relation, 100 + relation)


def test_degrees_count_facts_not_ends() -> None:
    facts = graph_of_ids([(0, 0, 1, 0.5), (0, 0, 2, 0.5), (3, 0, 3, 0.5), (0, 0, 1, 0.9)], vocabulary(5))
    degree = degrees(facts, 5)
    assert degree.tolist() == [3, 2, 1, 1, 0], "a self-loop is one fact, a repeat is another one"
    asked = Triples(*(np.array(ids, np.int32) for ids in ([0, 2], [0, 0], [1, 3])))
    assert degree_of(asked, degree).tolist() == [2, 1]


def test_what_is_known_of_a_query() -> None:
    facts = graph_of_ids([(0, 0, 1, 0.5), (0, 0, 2, 0.5), (1, 1, 2, 0.5)], vocabulary(4, 2))

    method = SimpleNamespace(own_answers=False, doubt=lambda triples, score: np.array([0.25, 0.75]))
    asked = Triples(*(np.array(ids, np.int32) for ids in ([0, 1], [0, 1], [2, 0])))
    found = slices.describe(method, facts, asked, np.array([0.1, 0.2]))
    assert found.degree.tolist() == [2, 2]
    assert found.frequency.tolist() == [2, 1]
    assert found.features().shape == (2, 4)
    assert found.features()[:, 1].tolist() == [0.25, 0.75]


def test_tenths_fifths_and_large_relations() -> None:
    about = queries(1000)
    about.relation[:] = np.repeat([0, 1, 2, 3], [700, 251, 49, 0])[: len(about.relation)]
    doubt, degree, relation = slices_of(about, ["a", "b", "c", "d"])
    assert [len(part.about) for part in (doubt, degree, relation)] == [10, 5, 2]
    assert np.bincount(doubt.member).tolist() == [100] * 10
    assert [row["relation"] for row in relation.about] == ["a", "b"], "the third has fewer than 50 facts"
    assert np.bincount(relation.member + 1).tolist() == [49, 700, 251]
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
    ],
)
def test_equal_values_stay_together_and_no_slice_is_tiny(values: np.ndarray, sizes: list[int] | None) -> None:
    part = slices._equal("doubt", values, 10)
    count = np.bincount(part.member)
    assert count.sum() == len(values)
    assert count.min() >= 5
    assert len(part.about) == len(count)
    for value in np.unique(values):
        assert len(np.unique(part.member[values == value])) == 1
    if sizes is not None:
        assert count.tolist() == sizes


def judged(about: Queries, inside: np.ndarray, sizes: np.ndarray | None, level: float = 0.9) -> dict:
    n = len(inside)
    truth = np.where(inside, 0.5, 0.9)
    cut = slices_of(about, list("abcd"))
    ends = np.full((n, 1), 0.4), np.full((n, 1), 0.6)
    (found,) = judge_slices(about, cut, truth, *ends, [level], sizes=sizes, seed=0)
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
    assert found["worst"]["slab"] < 0.1, "doubt is among the features of the slab"
    assert found["ert"]["below"] > 0.05, "and of the classifier"
    total = sum(map(len, found["slices"].values()))
    k = rank(0.9, 500)
    law = betabinom(100, k, 501 - k)
    low = round(last["band"][0] * 100)
    tail = 0.01 / total / 2
    assert law.cdf(low - 1) <= tail < law.cdf(low), "the band is that of the law, for all slices together"
    assert ("doubt", last) in below_band(found)
    assert judged(about, inside, None)["slices"]["doubt"][-1]["band"] is None
    assert below_band(judged(about, inside, None)) == []


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
    about: Queries, cut: list[slices.Slices], truth: np.ndarray, ends: np.ndarray, sizes: np.ndarray
) -> bool:
    """Whether some slice lies below its band at 0.9; without the slab and ERT, which take time."""
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    columns = inside, ends[:, 1] - ends[:, 0], ends[:, 1]
    (bands,) = slices.bands_of([part.member for part in cut], sizes, [0.9])
    rows = slices.figures_of(cut, columns, bands)
    return bool(below_band({"slices": rows}))


def test_tenths_of_doubt() -> None:
    doubt = np.arange(100) / 100
    assert slices.tenths_of_doubt(doubt, (doubt < 0.2) | (doubt >= 0.3)) == (1.0, 0.0)
    assert np.isnan(slices.tenths_of_doubt(np.empty(0), np.empty(0, bool))).all()
