"""Conformal selection keeps its bound on wrong ones, counted over thousands of seeded repetitions.

With one candidate the law is exact: it is chosen wrongly with probability E[min(w, k)] / (l + 1), where w of the l + 1
points fail the condition and k = floor(fdr (l + 1)). With a batch the expected share of wrong ones is bounded by fdr.
Means of N = 2,000 repetitions are compared with their bound by the normal law at a false-alarm rate of 1e-6 a check
(4.75 standard errors). Rules that make the usual mistakes, above all choosing by the predicted value alone, must fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from unkgcp.conformal import SplitConformal, select
from unkgcp.conformal.ranks import exact
from unkgcp.conformal.selection import Reference, Wrong

FALSE_ALARM = 1e-6
ERRORS = float(stats.norm.isf(FALSE_ALARM))
REPETITIONS = 2000
FACTS, CANDIDATES, BOUND = 120, 60, 0.7

Column = NDArray[Any]
Rule = Callable[[Column, Column, Column, float], Column]


def world(rng: np.random.Generator, n: int, tied: bool = False) -> tuple[Column, Column]:
    """Predicted and true confidences; the prediction is too sure of itself, as those of models are."""
    truth = rng.beta(2, 2, n)
    score = np.clip(truth + rng.normal(0.05, 0.25, n), 0, 1)
    return (np.round(score, 1) if tied else score + 1e-6 * rng.random(n)), truth


def ours(known: Column, passes: Column, score: Column, fdr: float) -> Column:
    return select(known, passes, score, fdr).selected


def by_value(known: Column, passes: Column, score: Column, fdr: float) -> Column:
    """The naive filter: what is predicted to pass is chosen."""
    return score >= BOUND


def each_alone(known: Column, passes: Column, score: Column, fdr: float) -> Column:
    """Every candidate whose own p-value is small: no correction for choosing among many."""
    return select(known, passes, score, fdr).p_value <= fdr


def without_itself(known: Column, passes: Column, score: Column, fdr: float) -> Column:
    """The share of wrong ones among calibration points that score as high, taken at its word."""
    found = np.zeros(len(score), bool)
    for threshold in np.sort(score)[::-1]:
        above = known >= threshold
        if above.any() and (above & ~passes).sum() <= fdr * above.sum():
            found |= score >= threshold
    return found


def share_of_wrong(rule: Rule, fdr: float, seed: int, tied: bool = False, size: int = FACTS) -> Column:
    """The share of wrong ones among the chosen in each repetition."""
    rng = np.random.default_rng(seed)
    shares = np.empty(REPETITIONS)
    for place in range(REPETITIONS):
        known, truth = world(rng, size, tied)
        score, hidden = world(rng, CANDIDATES, tied)
        chosen = rule(known, truth >= BOUND, score, fdr)
        shares[place] = (chosen & (hidden < BOUND)).sum() / max(chosen.sum(), 1)
    return shares


def bounded(found: Column, bound: float) -> bool:
    """Whether the mean may well be at most the bound; wrong with probability FALSE_ALARM."""
    return bool(found.mean() <= bound + ERRORS * found.std() / math.sqrt(len(found)))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("fdr", [0.05, 0.2, 0.5])
def test_the_share_of_wrong_ones_is_bounded(fdr: float, tied: bool) -> None:
    found = share_of_wrong(ours, fdr, seed=1, tied=tied)
    assert bounded(found, fdr)
    if fdr > 0.1:
        assert found.mean() > 0.5 * fdr * (1 - tied)  # not because nothing is chosen


@pytest.mark.parametrize("rule", [by_value, each_alone])
def test_the_usual_mistakes_are_caught(rule: Rule) -> None:
    assert not bounded(share_of_wrong(rule, 0.1, seed=2), 0.1)


def test_taking_the_calibration_share_at_its_word_is_caught() -> None:
    assert not bounded(share_of_wrong(without_itself, 0.1, seed=3, size=15), 0.1)
    assert bounded(share_of_wrong(ours, 0.1, seed=3, size=15), 0.1)


@pytest.mark.parametrize(("size", "fdr"), [(9, 0.3), (40, 0.1), (99, 0.2)])
def test_one_candidate_follows_the_exact_law(size: int, fdr: float) -> None:
    """P(chosen and wrong) = E[min(w, k)] / (l + 1) with w of l + 1 points wrong: a binomial count, two-sided."""
    rng = np.random.default_rng(size)
    failing = stats.beta(2, 2).cdf(BOUND)
    k = math.floor(exact(fdr) * (size + 1))
    among = np.arange(size + 2)
    law = float((np.minimum(among, k) * stats.binom(size + 1, failing).pmf(among)).sum() / (size + 1))
    hits = 0
    for _ in range(REPETITIONS):
        known, truth = world(rng, size)
        score, hidden = world(rng, 1)
        hits += int(ours(known, truth >= BOUND, score, fdr)[0] and hidden[0] < BOUND)
    assert stats.binomtest(hits, REPETITIONS, law).pvalue > FALSE_ALARM
    assert (
        stats.binomtest(hits, REPETITIONS, law * 0.5).pvalue < FALSE_ALARM
    )  # a law half as large is told apart


def test_two_kinds_of_wrong_ones_by_one_score() -> None:
    """Half of the candidates are of a second kind, always wrong, many of which score high."""
    rng = np.random.default_rng(4)
    fdr, both, facts_only = 0.2, np.empty(REPETITIONS), np.empty(REPETITIONS)
    for place in range(REPETITIONS):
        known, truth = world(rng, FACTS)
        others = rng.beta(8, 2, 80)
        score, hidden = world(rng, CANDIDATES // 2)
        asked = np.concatenate([score, rng.beta(8, 2, CANDIDATES // 2)])
        wrong = np.concatenate([hidden < BOUND, np.ones(CANDIDATES // 2, bool)])
        kinds = [Wrong(known[truth < BOUND], FACTS), Wrong(others, len(others))]
        for found, taken in ((both, kinds), (facts_only, kinds[:1])):
            reference = Reference.of(taken)
            at = reference.places(asked)
            chosen = at >= reference.cut(reference.count(at), exact(fdr))
            found[place] = (chosen & wrong).sum() / max(chosen.sum(), 1)
    assert bounded(both, fdr)
    assert both.mean() > 0.01
    assert not bounded(facts_only, fdr)


@pytest.mark.parametrize("open_world", [False, True])
def test_kinds_of_candidates_by_calibration_points_of_their_own(open_world: bool) -> None:
    """Nearly all candidates are of a kind for which the score is too sure, most calibration points of the other one.

    Four fifths more are of a kind without calibration points: they change nothing for the others. In the open world a
    tenth of the candidates are no facts, and compared with the non-facts of calibration, whatever their kind.
    """
    rng = np.random.default_rng(8)
    fdr, own, pooled, power, alone = 0.4, *np.empty((4, REPETITIONS))
    for place in range(REPETITIONS):
        kind, asked_kind = (rng.random(FACTS) < 0.1).astype(int), (rng.random(CANDIDATES) < 0.9).astype(int)
        (known, truth), (score, hidden) = world(rng, FACTS), world(rng, CANDIDATES)
        truth, hidden = (label - 0.4 * at for label, at in ((truth, kind), (hidden, asked_kind)))
        others = [Wrong(rng.beta(2, 6, 80), 80)] if open_world else []
        if open_world:
            none = rng.random(CANDIDATES) < 0.1
            score, hidden = np.where(none, rng.beta(2, 6, CANDIDATES), score), np.where(none, -1.0, hidden)
        by_kind = [
            [Wrong(known[(truth < BOUND) & (kind == at)], int((kind == at).sum())), *others] for at in (0, 1)
        ]
        together = [[Wrong(known[truth < BOUND], FACTS), *others]]
        for found, strata, at in ((own, by_kind, asked_kind), (pooled, together, 0 * asked_kind)):
            reference = Reference.of(*strata)
            places = reference.places(score, at)
            chosen = places >= reference.cut(reference.count(places), exact(fdr))
            found[place] = (chosen & (hidden < BOUND)).sum() / max(chosen.sum(), 1)
            if found is own:
                more = reference.places(
                    np.r_[score, rng.random(4 * CANDIDATES)], np.r_[at, np.full(4 * CANDIDATES, -1)]
                )
                power[place] = (more >= reference.cut(reference.count(more), exact(fdr))).sum()
                alone[place] = chosen.sum()
    assert bounded(own, fdr)
    assert not bounded(pooled, fdr)
    assert (power == alone).all()


class TestAfterChoosing:
    """Intervals of the chosen ones: P(missed and chosen) <= (1 - level) P(chosen) for every candidate."""

    LEVEL = 0.8

    def excess(self, seed: int, after: bool, tied: bool = False) -> Column:
        """In each repetition: chosen candidates whose interval misses, less the share of them that may be missed."""
        rng = np.random.default_rng(seed)
        found = np.empty(REPETITIONS)
        for place in range(REPETITIONS):
            known, truth = world(rng, FACTS, tied)
            score, hidden = world(rng, CANDIDATES, tied)
            passes = truth >= BOUND
            reference = Reference.of([Wrong(known[~passes], FACTS)])
            at = reference.places(score)
            cuts = reference.cuts(reference.count(at), exact(0.3))
            chosen = at >= cuts.chosen
            inside = np.ones(CANDIDATES, bool)
            if chosen.any():
                sets = (
                    reference.alike(cuts, reference.places(known), passes)
                    if after
                    else [np.ones(FACTS, bool)]
                )
                inside = np.zeros(CANDIDATES, bool)
                for rows in sets:
                    if not rows.any():
                        inside[:] = True
                        continue
                    cal = SplitConformal(bounds=None).calibrate(known[rows], truth[rows])
                    ends = cal.interval(score, confidence=self.LEVEL)
                    inside |= (ends[:, 0] <= hidden) & (hidden <= ends[:, 1])
                if after:
                    inside |= at < cuts.stricter
            found[place] = (chosen & ~inside).sum() - (1 - self.LEVEL) * chosen.sum()
        return found

    @pytest.mark.parametrize("tied", [False, True])
    @pytest.mark.filterwarnings("ignore")
    def test_they_hold_for_the_chosen(self, tied: bool) -> None:
        assert bounded(self.excess(5, after=True, tied=tied), 0.0)

    @pytest.mark.filterwarnings("ignore")
    def test_plain_intervals_do_not(self) -> None:
        assert not bounded(self.excess(5, after=False), 0.0)

    def filter_excess(self, after: bool) -> Column:
        """The same for a filter on the score, which looks at each candidate alone."""
        rng = np.random.default_rng(6)
        found = np.empty(REPETITIONS)
        for place in range(REPETITIONS):
            known, truth = world(rng, FACTS)
            score, hidden = world(rng, CANDIDATES)
            rows, kept = (known >= 0.8, score >= 0.8) if after else (np.ones(FACTS, bool), score >= 0.8)
            cal = SplitConformal(bounds=None).calibrate(known[rows], truth[rows])
            ends = cal.interval(score[kept], confidence=self.LEVEL)
            missed = (hidden[kept] < ends[:, 0]) | (hidden[kept] > ends[:, 1])
            found[place] = missed.sum() - (1 - self.LEVEL) * kept.sum()
        return found

    @pytest.mark.filterwarnings("ignore")
    def test_a_filter_is_calibrated_with_the_facts_that_pass_it(self) -> None:
        assert bounded(self.filter_excess(after=True), 0.0)
        assert not bounded(self.filter_excess(after=False), 0.0)
