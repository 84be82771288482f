"""Central intervals: a label is inside exactly when its score is within the threshold, and sets are nested."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unkgcp.evidence.distribution import IDENTITY, Cells, Distribution, actual_masses
from unkgcp.evidence.fact_groups import Values

ROUNDING = 1e-9  # of a score: ends are moved outwards by no more than this


def random_distribution(seed: int, n: int = 12, spread: bool = True) -> tuple[Distribution, Values]:
    """Atoms, cells and suggested values with random masses, and a law between atoms that differs by query."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([rng.random(rng.integers(1, 60)).round(2), rng.choice([0.0, 0.3, 1.0], 20)])
    values = Values.of(labels)
    cells = Cells.of(values, values.code(labels), atom_share=0.08, coarse=int(rng.integers(1, 6)), fine=10)
    mass = rng.random((n, cells.classes)) * (rng.random((n, cells.classes)) < 0.7)
    slots = np.array([rng.permutation(len(values))[:3] if len(values) >= 3 else [0, 0, 0] for _ in range(n)])
    there = rng.random((n, 3)) < 0.6
    there[:, 1:] &= len(values) >= 3
    own = np.where(there, rng.random((n, 3)), 0.0)
    mass[mass.sum(1) + own.sum(1) == 0] = 1.0  # a distribution has some mass somewhere
    total = mass.sum(1) + own.sum(1)
    shape = np.sort(rng.normal(size=(2, 20)), axis=1) if spread else np.zeros((1, 0))
    group = rng.integers(0, len(shape), n)
    actual = np.sort(np.append(rng.random(len(IDENTITY) - 2), [0.0, 1.0])) * 0.5 + IDENTITY * 0.5
    found = Distribution(
        cells,
        shape,
        mass / total[:, None],
        rng.random(n),
        rng.random(n) * 0.3 + 0.01,
        group,
        np.where(there, values.centre[slots], 0.0),
        own / total[:, None],
        actual,
    )
    return found, values


def labels_to_try(found: Distribution, values: Values, rng: np.random.Generator) -> np.ndarray:
    """Atoms, ends of cells, and anything else, as confidences are: with nine decimals."""
    return np.concatenate([values.centre, found.cells.low, [0.0, 1.0], rng.random(30)]).round(9)


@given(st.integers(0, 10**6), st.booleans())
@example(8985, False)  # a threshold equal but for one bit to the score of a range without mass
@settings(max_examples=60, deadline=None)
def test_a_label_is_inside_exactly_when_its_score_is_within_the_threshold(seed: int, spread: bool) -> None:
    found, values = random_distribution(seed, spread=spread)
    rng = np.random.default_rng(seed)
    labels = labels_to_try(found, values, rng)
    scores = np.stack([found.scores(np.full(len(found), y)) for y in labels], axis=1)
    assert ((scores >= 0) & (scores <= 1)).all()
    thresholds = np.concatenate([rng.choice(scores.ravel(), 6), rng.random(4), [0.0, 1.0]])
    ends = found.bounds(np.tile(thresholds, (len(found), 1)))
    inside = (ends[:, 0, None, :] <= labels[None, :, None]) & (labels[None, :, None] <= ends[:, 1, None, :])
    within = scores[:, :, None] <= thresholds
    assert inside[within].all(), "what is within the threshold is inside"
    # ends are rounded outwards: what lies inside but beyond the threshold lies less than a billionth from the end, or
    # in a range without mass, where the last bit of a sum of masses decides
    near = np.minimum(
        np.abs(ends[:, 0, None, :] - labels[None, :, None]),
        np.abs(ends[:, 1, None, :] - labels[None, :, None]),
    )
    excess = scores[:, :, None] - thresholds
    assert ((near <= 2e-9) | (excess <= ROUNDING))[inside & ~within].all()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_nested_with_the_median_inside_and_in_the_end_everything(seed: int) -> None:
    found, _ = random_distribution(seed)
    thresholds = np.append(np.sort(np.random.default_rng(seed).random(9)), np.inf)
    ends = found.bounds(np.tile(thresholds, (len(found), 1)))
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()
    assert (ends[:, 0, -1] == 0).all()
    assert (ends[:, 1, -1] == 1).all()
    median = found.centre.median[:, None]
    assert ((ends[:, 0] <= median) & (median <= ends[:, 1])).all()


@pytest.mark.parametrize("spread", [False, True])
def test_mass_and_mean_are_those_of_the_stretches(spread: bool) -> None:
    found, _ = random_distribution(3, spread=spread)
    low, high, mass = found.stretches()
    np.testing.assert_allclose(mass.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.centre.mean, (mass * (low + high) / 2).sum(axis=1), rtol=1e-9)
    above = found.mass_inside(
        lambda a, b: (np.maximum(b, 0.5) - np.maximum(a, 0.5)) / np.where(b > a, b - a, 1.0)
    )
    assert ((above >= 0) & (above <= 1 + 1e-12)).all()


def test_the_central_interval_holds_its_mass() -> None:
    """Of labels drawn from the distribution itself, at least the mass, and exactly so between atoms."""
    found, _ = random_distribution(11, n=1)
    found = replace(found, actual=IDENTITY)
    low, high, mass = (column[0] for column in found.stretches())
    rng = np.random.default_rng(0)
    piece = rng.choice(len(mass), 20_000, p=mass / mass.sum())
    drawn = low[piece] + rng.random(20_000) * (high - low)[piece]
    for level in (0.5, 0.8, 0.95):
        lower, upper = found.bounds(np.full((1, 1), level))[0, :, 0]
        assert ((lower <= drawn) & (drawn <= upper)).mean() > level - 0.02


def test_masses_that_are_right_stay_and_wrong_ones_are_put_right() -> None:
    """Labels from the law itself give the identity; a law that is twice as wide is told to hold more than it says."""
    n, rng = 6000, np.random.default_rng(1)
    values = Values.of(rng.random(300).round(3))
    cells = Cells.of(values, np.arange(len(values)), atom_share=1.1, coarse=1, fine=192)
    quantiles = np.sort(rng.normal(size=2000))[None, 5::10]
    location = 0.3 + 0.4 * rng.random(n)
    label = (location + 0.05 * rng.normal(size=n)).round(9)
    nothing = np.zeros((n, 3))

    def told(scale: float) -> np.ndarray:
        law = Distribution(
            cells, quantiles, np.ones((n, 1)), location, np.full(n, scale), np.zeros(n, np.int64), nothing, nothing,
            IDENTITY,
        )  # fmt: skip
        return actual_masses(law, label, 0)

    assert np.abs(told(0.05) - IDENTITY).max() < 0.04
    assert told(0.1)[100] > 0.75, "half of the mass holds three quarters of the labels"


def test_a_cell_of_every_value() -> None:
    cells = Cells.of(
        Values.of(np.array([0.2, 0.5, 0.9])), np.array([0, 1, 1, 1, 2]), atom_share=0.5, coarse=2
    )
    assert cells.atoms == 1
    joined = cells.joined()
    assert joined.classes == 2
    np.testing.assert_allclose(np.bincount(joined.class_of_piece, weights=joined.share), 1.0)
    joined.check(3)
    with pytest.raises(ValueError, match="do not fit"):
        replace(joined, low=joined.low + 0.1).check(3)


@pytest.mark.parametrize("seed", range(8))
def test_masses_by_errors_are_those_without_coarse_cells(seed: int) -> None:
    """All of them: the ends are those of cells joined into one. Half: the masses lie in the middle; none is lost."""
    found, _ = random_distribution(seed)
    top, levels = found.cells.atoms, np.tile([0.5, 0.9], (len(found), 1))
    rest = found.class_mass[:, top:].sum(axis=1, keepdims=True)
    one_cell = replace(
        found,
        cells=found.cells.joined(),
        class_mass=np.concatenate([found.class_mass[:, :top], rest], axis=1),
    )
    whole, half = found.blended(1.0), found.blended(0.5)
    # a hundredth of a mass is spread like the training facts, and each cell has its own share of it
    np.testing.assert_allclose(whole.width(0.9), one_cell.width(0.9), atol=0.03)
    np.testing.assert_allclose(half.class_mass, (found.class_mass + whole.class_mass) / 2, atol=1e-12)
    np.testing.assert_allclose(whole.class_mass.sum(axis=1), found.class_mass.sum(axis=1), atol=1e-12)
    assert (half.bounds(levels)[:, 0, 1] <= half.centre.median).all()
