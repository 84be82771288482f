"""The growing interval inverts its score exactly, is nested, and ends as the whole range, for any distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rounding import apart
from unkgcp.conformal.ranking import rank_scores
from unkgcp.conformal.ranks import p_exceeds
from unkgcp.evidence.distribution import Cells, Distribution
from unkgcp.evidence.fact_groups import Values


def random_distribution(seed: int, n: int = 12, decimals: int = 2) -> tuple[Distribution, Values]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate(
        [rng.random(rng.integers(1, 60)).round(decimals), rng.choice([0.0, 0.3, 1.0], 20)]
    )
    values = Values.of(labels)
    cells = Cells.of(values, values.code(labels), atom_share=0.08, coarse=int(rng.integers(1, 6)), fine=10)
    mass = rng.random((n, cells.classes)) * (rng.random((n, cells.classes)) < 0.7)
    slots = np.array(
        [rng.permutation(len(values))[:3] if len(values) >= 3 else [0, -1, -1] for _ in range(n)]
    )
    there = (rng.random((n, 3)) < 0.6) & (slots >= 0)
    own = np.where(there, rng.random((n, 3)), 0.0)
    mass[mass.sum(1) + own.sum(1) == 0] = 1.0  # a distribution has some mass somewhere
    total = mass.sum(1) + own.sum(1)
    low, high = np.where(there, values.low[slots], 0.0), np.where(there, values.high[slots], 0.0)
    return Distribution(cells, mass / total[:, None], low, high, own / total[:, None]), values


def some_labels(values: Values, cells: Cells, rng: np.random.Generator) -> np.ndarray:
    """Atoms, cell ends, their neighbours, and anything else."""
    ends = np.concatenate([values.low, values.high, cells.low, cells.high, [0.0, 1.0]])
    near = np.concatenate([ends, np.nextafter(ends, 0.0), np.nextafter(ends, 1.0), rng.random(30)])
    return np.clip(near, 0.0, 1.0)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_label_is_inside_exactly_when_its_score_is_within_the_threshold(seed: int, empty: bool) -> None:
    found, values = random_distribution(seed)
    rng = np.random.default_rng(seed)
    labels = some_labels(values, found.cells, rng)
    scores = np.stack([found.scores(np.full(len(found), y), empty) for y in labels], axis=1)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()
    # thresholds that tie with scores, and others
    thresholds = np.concatenate([rng.choice(scores.ravel(), 6), rng.random(4), [0.0, 1.0, 2.0]])
    ends = found.bounds(np.tile(thresholds, (len(found), 1)), empty)
    inside = (ends[:, 0, None, :] <= labels[None, :, None]) & (labels[None, :, None] <= ends[:, 1, None, :])
    np.testing.assert_array_equal(inside, scores[:, :, None] <= thresholds)
    # one float further out the score is beyond the threshold
    for end, limit in ((0, 0.0), (1, 1.0)):
        beyond = np.nextafter(ends[:, end], limit)
        for level in range(len(thresholds)):
            moved = (ends[:, end, level] != limit) & ~np.isnan(ends[:, end, level])
            outside = found.scores(np.where(moved, beyond[:, level], 0.0), empty) > thresholds[level]
            assert outside[moved].all()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_nested_and_in_the_end_everything(seed: int) -> None:
    found, _ = random_distribution(seed)
    thresholds = np.sort(np.random.default_rng(seed).random(9))
    ends = found.bounds(np.tile(np.append(thresholds, 2.0), (len(found), 1)))
    assert (np.diff(ends[:, 0], axis=1) <= 0).all()
    assert (np.diff(ends[:, 1], axis=1) >= 0).all()
    assert (ends[:, 0, -1] == 0).all()
    assert (ends[:, 1, -1] == 1).all()
    assert (ends[:, 0] <= ends[:, 1]).all()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_no_more_than_the_tail_is_left_out_on_either_side(seed: int) -> None:
    found, _ = random_distribution(seed)
    levels = np.array([0.0, 0.5, 0.8, 0.9, 0.95, 1.0])
    thresholds = np.tile(np.linspace(0, 0.6, len(levels)), (len(found), 1))
    plain, tail = found.bounds(thresholds), (1 - levels) / 2
    ends = found.bounds(thresholds, tail=tail)
    assert (ends[:, 0] <= plain[:, 0]).all()
    assert (ends[:, 1] >= plain[:, 1]).all()
    assert (np.diff(ends[:, 0], axis=1) <= 0).all(), "nested"
    assert (np.diff(ends[:, 1], axis=1) >= 0).all(), "nested"
    np.testing.assert_array_equal(ends[:, :, 0], plain[:, :, 0], "the level 0 asks for nothing")
    assert (ends[:, 0, -1] == 0).all()
    assert (ends[:, 1, -1] == 1).all()
    # a sample of the distribution, from its quantiles: what lies beyond an end is no more than the tail
    steps = np.linspace(0.0005, 0.4995, 500)
    everything = np.tile(np.full(len(steps), -1.0), (len(found), 1))
    low, high = np.moveaxis(found.bounds(np.maximum(everything, 0), tail=steps), 1, 0)
    for level in range(1, len(levels)):
        for beyond in ((low < ends[:, 0, [level]]).mean(1), (high > ends[:, 1, [level]]).mean(1)):
            assert (beyond <= tail[level] * 2 + 1 / len(steps)).all()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_empty_or_the_same_interval(seed: int) -> None:
    """An interval that may be empty is either empty or the usual one: scores are in the same order."""
    found, values = random_distribution(seed)
    rng = np.random.default_rng(seed)
    labels = some_labels(values, found.cells, rng)[:20]
    usual, shifted = (
        np.stack([found.scores(np.full(len(found), y), empty) for y in labels], axis=1)
        for empty in (False, True)
    )
    first = usual == 0
    np.testing.assert_array_less(shifted[first], 1 + 1e-12)
    np.testing.assert_allclose(shifted[~first], 1 + usual[~first], rtol=0, atol=1e-12)
    doubt = found.scores(found.bounds(np.zeros((len(found), 1)))[:, 0, 0], True)
    thresholds = np.tile(rng.random(5), (len(found), 1))
    ends = found.bounds(thresholds, True)
    none = np.isnan(ends).all(axis=1)
    np.testing.assert_array_equal(none, doubt[:, None] > thresholds)
    alone = np.broadcast_to(
        found.bounds(np.zeros((len(found), 5))).transpose(0, 2, 1)[~none], (int((~none).sum()), 2)
    )
    np.testing.assert_array_equal(ends.transpose(0, 2, 1)[~none], alone)
    # beyond the first cell 1 is added to every score, which costs it the last bits
    moved = found.bounds(1.5 + 0 * thresholds, True), found.bounds(0.5 + 0 * thresholds)
    np.testing.assert_allclose(*moved, rtol=0, atol=1e-9)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_inside_exactly_when_the_p_value_exceeds(seed: int, empty: bool) -> None:
    """Ties among calibration scores included: labels are atoms."""
    found, values = random_distribution(seed, n=30)
    rng = np.random.default_rng(seed)
    ranking = rank_scores(found.scores(rng.choice(values.high, 30), empty))
    label = rng.choice(np.concatenate([values.low, rng.random(5)]), 30)
    p_value = ranking.p_values(found.scores(label, empty), None, None)
    for level in (0.3, 0.5, 0.8, 0.9, 0.95):
        from unkgcp.conformal.ranks import exact_levels

        threshold = float(ranking.thresholds(exact_levels(level)[0], None)[0, 0])
        ends = found.bounds(np.full((30, 1), min(max(threshold, 0.0), 10.0)), empty)[:, :, 0]
        inside = (ends[:, 0] <= label) & (label <= ends[:, 1])
        if threshold >= 0:
            np.testing.assert_array_equal(inside, p_exceeds(p_value, 30, level))


def by_hand() -> Distribution:
    """Atoms 0.2 (mass 0.5) and 0.8 (mass 0.3); between and around them two cells of mass 0.1."""
    values = Values.of(np.array([0.1, 0.2, 0.5, 0.8]))
    codes = np.array([1] * 5 + [3] * 3 + [0, 2])
    cells = Cells.of(values, codes, atom_share=0.25, coarse=2, fine=2)
    return Distribution(cells, np.array([[0.5, 0.3, 0.1, 0.1]]), *(np.zeros((1, 3)) for _ in range(3)))


def test_by_hand() -> None:
    found = by_hand()
    cells = found.cells
    assert cells.low.tolist() == pytest.approx([0.0, 0.2, 0.2, 0.3, 0.8, 0.8])
    assert cells.class_of_piece.tolist() == [2, 0, 2, 3, 1, 3]
    score = {y: float(found.scores(np.array([y]))[0]) for y in (0.2, 0.0, 0.25, 0.3, 0.8, 1.0)}
    # it starts at the atom 0.2 of mass 0.5, then goes up to the atom 0.8 in one stretch, then down, then up
    assert score[0.2] == 0
    assert 0.5 < score[0.25] < score[0.3] < score[0.8] < 0.5 + 0.1 + 0.1 + 1e-9
    assert score[0.0] > score[0.8] + 0.3 - 1e-9
    assert score[0.0] < 1
    np.testing.assert_allclose(found.bounds(np.array([[0.4]]))[0, :, 0], [0.2, 0.2])
    np.testing.assert_allclose(found.bounds(np.array([[0.75]]))[0, :, 0], [0.2, 0.8])
    # the first cell has mass 0.5, so the mass outside of it is 0.5
    assert found.scores(np.array([0.2]), True)[0] == 0.5
    assert found.scores(np.array([0.8]), True)[0] == pytest.approx(1 + score[0.8])
    assert np.isnan(found.bounds(np.array([[0.49, -np.inf]]), True)).all()
    np.testing.assert_allclose(found.bounds(np.array([[0.5]]), True)[0, :, 0], [0.2, 0.2])


def test_mean_and_median_by_hand() -> None:
    found = by_hand()
    shares = found.cells.share * found.class_mass[0, found.cells.class_of_piece]
    middle = (found.cells.low + found.cells.high) / 2
    assert found.mean()[0] == pytest.approx(float(shares @ middle))
    assert found.median()[0] == pytest.approx(0.2)


def test_a_suggested_value_cuts_a_cell() -> None:
    plain = by_hand()
    slot = np.array([[0.5, 0.0, 0.0]])
    found = Distribution(plain.cells, plain.class_mass * 0.2, slot, slot, np.array([[0.8, 0.0, 0.0]]))
    assert found.scores(np.array([0.5]))[0] == 0
    np.testing.assert_array_equal(found.bounds(np.array([[0.7]]))[0, :, 0], [0.5, 0.5])
    atom = np.array([[0.8, 0.0, 0.0]])
    found = Distribution(plain.cells, plain.class_mass * 0.2, atom, atom, np.array([[0.8, 0.0, 0.0]]))
    np.testing.assert_array_equal(found.bounds(np.array([[0.85]]))[0, :, 0], [0.8, 0.8])


def brute_cells(found: Distribution, row: int) -> np.ndarray:
    """Ends and mass of the cells of one query, (cells, 3), by cutting piece after piece, slot after slot."""
    cells = found.cells
    mass = found.class_mass[row, cells.class_of_piece] * cells.share
    pieces = [list(piece) for piece in zip(cells.low, cells.high, mass, strict=True)]
    for low, high, own in zip(found.slot_low[row], found.slot_high[row], found.slot_mass[row], strict=True):
        if own <= 0:
            continue
        same = [piece for piece in pieces if piece[0] == low and piece[1] == high]
        if same:
            same[0][2] += own
            continue
        around = next(
            piece for piece in pieces if piece[0] <= low and high <= piece[1] and piece[0] < piece[1]
        )
        begin, end, whole = around
        pieces.remove(around)
        rest = [[begin, low, whole * (low - begin) / (end - begin)]]
        rest += [[high, end, whole * (end - high) / (end - begin)]]
        pieces += [[low, high, own], *(piece for piece in rest if piece[0] < piece[1])]
    return np.array(pieces)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_modes_are_those_of_the_distribution(seed: int) -> None:
    found, _ = random_distribution(seed)
    first = found.bounds(np.zeros((len(found), 1)))[:, :, 0]
    modes = found.modes()
    bound = apart(
        20, 1.0, np.float64
    )  # of a mass: a few products, quotients and differences of numbers up to 1
    for row in range(len(found)):
        low, high, mass = brute_cells(found, row).T
        start = np.flatnonzero((low == first[row, 0]) & (high == first[row, 1]))
        assert len(start) == 1
        assert modes.belief[row] == pytest.approx(mass[start[0]], rel=0, abs=bound)
        assert modes.value[row] == pytest.approx(first[row].mean(), rel=0, abs=1e-9)
        mass[start[0]] = -1
        assert modes.other_belief[row] == pytest.approx(mass.max(), rel=0, abs=bound)
        heaviest = mass >= mass.max() - 2 * bound
        assert (np.abs((low + high)[heaviest] / 2 - modes.other[row]) <= 1e-9).any()


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_value_is_in_every_interval(seed: int, empty: bool) -> None:
    found, _ = random_distribution(seed, decimals=int(seed) % 12 + 1)
    value = found.modes().value[:, None]
    thresholds = np.concatenate([[0.0], np.random.default_rng(seed).random(8) * (2 if empty else 1), [2.0]])
    for floor in (None, np.linspace(0.5, 0, len(thresholds))):
        lower, upper = found.bounds(np.tile(thresholds, (len(found), 1)), empty, floor).transpose(1, 0, 2)
        assert ((lower <= value) & (value <= upper) | np.isnan(lower)).all()
    assert (found.scores(value[:, 0]) == 0).all()


def test_a_value_is_written_as_people_wrote_it() -> None:
    """0.3 is also 0.1 + 0.2 in some files; 0.7 is only there with an error in its last digit, and stays as it is."""
    off = float(np.nextafter(0.7, 1))
    labels = np.array([0.3, 0.1 + 0.2, off, 0.123456789012, 0.123456789012])
    values = Values.of(labels)
    cells = Cells.of(values, values.code(labels), atom_share=0.1, coarse=2, fine=2)
    assert cells.classes == 4  # three atoms, and the rest
    none = np.zeros((3, 1))
    found = Distribution(cells, np.eye(3, 4), none, none, none)
    assert [repr(value) for value in found.modes().value.tolist()] == ["0.123456789012", "0.3", repr(off)]
    # the same values as suggestions
    slots = values.low[:, None], values.high[:, None]
    found = Distribution(cells, np.full((3, 4), 0.01), *slots, np.full((3, 1), 0.96))
    assert [repr(value) for value in found.modes().value.tolist()] == ["0.123456789012", "0.3", repr(off)]
