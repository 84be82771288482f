"""Conformal selection: p-values, Benjamini and Hochberg's rule and swaps, each against its definition."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import select
from unkgcp.conformal.selection import Reference, Wrong
from unkgcp.errors import InputError

few = st.integers(0, 6)
points = st.lists(st.tuples(few, st.booleans()), min_size=1, max_size=14)
candidates = st.lists(few, min_size=0, max_size=10)
shares = st.sampled_from([Fraction(1, 10), Fraction(1, 5), Fraction(1, 3), Fraction(1, 2), Fraction(4, 5)])


def by_definition(
    known: list[tuple[int, bool]], score: list[int], fdr: Fraction
) -> tuple[list[Fraction], list[bool]]:
    """p-values, and Benjamini and Hochberg's rule as it is written: the largest r with p_(r) <= fdr r / m."""
    p = [Fraction(1 + sum(not ok and s >= each for s, ok in known), len(known) + 1) for each in score]
    ordered = sorted(p)
    r = max((r for r in range(1, len(p) + 1) if ordered[r - 1] <= fdr * r / len(p)), default=0)
    return p, [bool(r) and each <= fdr * r / len(p) for each in p]


@given(points, candidates, shares)
@settings(deadline=None)
def test_p_values_and_choice_are_those_of_the_definition(
    known: list[tuple[int, bool]], score: list[int], fdr: Fraction
) -> None:
    found = select([s for s, _ in known], [ok for _, ok in known], score, fdr)
    p, chosen = by_definition(known, score, fdr)
    assert found.p_value.tolist() == [float(each) for each in p]
    assert found.selected.tolist() == chosen


@given(points, candidates)
@settings(deadline=None)
def test_shares_with_many_digits_are_exact_too(known: list[tuple[int, bool]], score: list[int]) -> None:
    """Shares just above and just below a p-value, with products that do not fit into 64 bits."""
    for fdr in (Fraction(1, 2) + Fraction(sign, 10**30) for sign in (-1, 1)):
        found = select([s for s, _ in known], [ok for _, ok in known], score, fdr)
        assert found.selected.tolist() == by_definition(known, score, fdr)[1]


@given(points, candidates, shares)
@settings(max_examples=200, deadline=None)
def test_the_facts_alike_are_those_chosen_after_a_swap(
    known: list[tuple[int, bool]], score: list[int], fdr: Fraction
) -> None:
    """A calibration point and a chosen candidate change places; the candidate may pass or not."""
    points = np.array([s for s, _ in known], float), np.array([ok for _, ok in known], bool)
    reference = Reference.of([Wrong(points[0][~points[1]], len(known))])
    places = reference.places(np.array(score, float))
    cuts = reference.cuts(reference.count(places), fdr)
    assert cuts.looser <= cuts.chosen <= cuts.stricter
    for j in np.flatnonzero(places >= cuts.chosen):
        for passes, alike in zip(
            (True, False), reference.alike(cuts, reference.places(points[0]), points[1]), strict=True
        ):
            if not passes and places[j] < cuts.stricter:
                continue
            for i in range(len(known)):
                swapped = [*known[:i], (score[j], passes), *known[i + 1 :]]
                asked = [*score[:j], known[i][0], *score[j + 1 :]]
                assert by_definition(swapped, asked, fdr)[1][j] == alike[i]


@given(candidates, st.lists(st.integers(1, 4), min_size=1, max_size=5))
@settings(deadline=None)
def test_counts_of_batches_add_up(score: list[int], sizes: list[int]) -> None:
    reference = Reference.of([Wrong(np.array([1.0, 3.0, 3.0]), 9), Wrong(np.array([2.0]), 4)])
    places = reference.places(np.array(score, float))
    cut = np.cumsum([0, *sizes]).clip(max=len(places))
    parts = [*(places[a:b] for a, b in pairwise(cut)), places[cut[-1] :]]
    total: NDArray[np.int64] = sum((reference.count(part) for part in parts), np.zeros(reference.bins, int))
    np.testing.assert_array_equal(total, reference.count(places))


def test_several_kinds_have_the_largest_p_value() -> None:
    reference = Reference.of([Wrong(np.array([0.2, 0.5]), 9), Wrong(np.array([0.5, 0.6, 0.7]), 3)])
    places = reference.places(np.array([0.9, 0.55, 0.5, 0.1, np.nan]))
    np.testing.assert_array_equal(reference.p_values(places), [1 / 4, 3 / 4, 1.0, 1.0, 1.0])


def test_a_candidate_without_a_score_leaves_the_family() -> None:
    known, passes = [0.0] * 9, [True] * 9
    assert select(known, passes, [1.0, *[np.nan] * 99], 0.1).selected.tolist() == [True, *[False] * 99]
    assert not select(known, passes, [1.0, np.nan], 0.09).selected.any()
    assert select(known, passes, [1.0, np.nan], 0.1).p_value.tolist() == [0.1, 1.0]


def test_several_shares_at_once_and_no_candidate() -> None:
    several = select([1, 2, 3], [0, 1, 1], [0.5, 4.0], [0.3, 0.6])
    for place, fdr in enumerate((0.3, 0.6)):
        alone = select([1, 2, 3], [0, 1, 1], [0.5, 4.0], fdr).selected
        np.testing.assert_array_equal(several.selected[:, place], alone)
    assert select([1, 2], [0, 1], [], 0.1).selected.shape == (0,)


@pytest.mark.parametrize("fdr", [0, 1, -0.1, 1.5, "x", float("nan"), [], [0.1, 0.1], [0.1, 2]])
def test_shares_that_are_none(fdr: object) -> None:
    with pytest.raises(InputError, match="share of wrong ones"):
        select([1, 2], [0, 1], [1], fdr)  # type: ignore[arg-type]


def test_bad_arrays() -> None:
    with pytest.raises(ValueError, match="calibration_passes has shape"):
        select([1, 2], [0], [1])
    with pytest.raises(ValueError, match="true or false"):
        select([1, 2], [0, 3], [1])
    with pytest.raises(ValueError, match=r"calibration_score\[1\] is nan"):
        select([1, float("nan")], [0, 1], [1])
