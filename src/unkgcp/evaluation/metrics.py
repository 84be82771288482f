"""Figures that judge intervals and point predictions, from plain arrays.

What it is: the paper's coverage and sharpness, the interval score, point errors, coverage by slice of the data, and
the laws that say how far coverage may lie from its level by chance. What it is not: it draws no samples, knows no model
and never rounds. A label counts as covered exactly when `lower <= truth <= upper`, compared as given: a label stored
with fewer digits than the calibration labels is another number. Where labels are intervals themselves, truth is (n, 2)
and a label counts as covered when all of it is. An interval whose ends are NaN is empty: it covers nothing, and its
width is 0.

>>> import numpy as np
>>> truth, lower, upper = np.array([0.2, 0.9]), np.array([0.1, 0.5]), np.array([0.4, 0.8])
>>> coverage(truth, lower, upper), round(sharpness(lower, upper), 12)
(0.5, 0.3)

Every figure of no rows is NaN: there is nothing to say about an empty set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.ranks import Confidence, rank, ranks

Floats = NDArray[np.float64]


def covered(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> NDArray[np.bool_]:
    """Which labels lie in their interval, both ends included: (n,) bool."""
    y, low, high = _columns(truth, lower, upper)
    return (low <= y) & (y <= high)


def contains(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> NDArray[np.bool_]:
    """Which intervals contain the whole label, a number (n,) or an interval itself (n, 2): (n,) bool."""
    label = np.asarray(truth, dtype=np.float64)
    if label.ndim == 1:
        return covered(label, lower, upper)
    return covered(label[:, 0], lower, upper) & covered(label[:, 1], lower, upper)


def coverage(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of labels inside their interval."""
    return _mean(contains(truth, lower, upper))


def middle(truth: ArrayLike) -> Floats:
    """The labels themselves (n,), or the middle of each that is an interval (n, 2): (n,)."""
    label = np.asarray(truth, dtype=np.float64)
    return label if label.ndim == 1 else np.asarray(label.mean(axis=1))


def sharpness(lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean width of the intervals; smaller is sharper."""
    return _mean(widths(lower, upper))


def widths(lower: ArrayLike, upper: ArrayLike) -> Floats:
    """Width of each interval, 0 if it is empty: (n,)."""
    low, high = _columns(lower, upper)
    found: Floats = high - low
    return np.where(np.isnan(found), 0.0, found)


def interval_score(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike, confidence: float) -> float:
    """Winkler's score: mean of width + 2 / (1 - confidence) times the distance by which a label is missed.

    It is proper for numbers: the true central quantiles minimise its expectation, so that neither wide intervals nor
    intervals that give up the hard labels look good. A label that is an interval is missed at both of its ends. At
    confidence 1 a miss costs infinity. An empty interval counts as missed by 1, the most there is, so that no interval
    gets better by becoming empty.
    """
    return _mean(interval_scores(truth, lower, upper, confidence))


def interval_scores(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike, confidence: float) -> Floats:
    """Winkler's score of each interval: (n,)."""
    label = np.asarray(truth, dtype=np.float64)
    ends = (label, label) if label.ndim == 1 else (label[:, 0], label[:, 1])
    first, last, low, high = _columns(*ends, lower, upper)
    missed = np.maximum(low - first, 0.0) + np.maximum(last - high, 0.0)
    missed = np.where(np.isnan(missed), 1.0, missed)
    if confidence >= 1.0:
        return np.where(missed > 0, math.inf, widths(low, high))
    scores: Floats = widths(low, high) + (2.0 / (1.0 - confidence)) * missed
    return scores


def mse(prediction: ArrayLike, truth: ArrayLike) -> float:
    """Mean squared error."""
    guess, y = _columns(prediction, truth)
    return _mean((guess - y) ** 2)


def mae(prediction: ArrayLike, truth: ArrayLike) -> float:
    """Mean absolute error."""
    guess, y = _columns(prediction, truth)
    return _mean(np.abs(guess - y))


class Groups(NamedTuple):
    """Coverage and sharpness of disjoint groups of the rows, each named by its key; every column (groups,)."""

    key: NDArray[np.generic]
    n: NDArray[np.int64]
    coverage: Floats
    sharpness: Floats


def coverage_by_group(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike, group: ArrayLike) -> Groups:
    """Coverage a group (for example a relation), groups in ascending order; group: (n,)."""
    low, high = _columns(lower, upper)
    labels = np.asarray(group)
    if labels.shape != low.shape:
        raise ValueError(f"group has shape {labels.shape}, intervals {low.shape}; they must agree")
    keys, member = np.unique(labels, return_inverse=True)
    n = np.bincount(member, minlength=len(keys))
    hits = np.bincount(member, weights=contains(truth, low, high), minlength=len(keys))
    width = np.bincount(member, weights=widths(low, high), minlength=len(keys))
    return Groups(keys, n.astype(np.int64), hits / n, width / n)


def equal_bins(values: Floats, bins: int) -> Floats:
    """The lowest value of each value's bin, of `bins` bins of equal size in which equal values stay together: (n,).

    A value belongs to the bin of the first row that has it, so that the values above a frequent one have bins of their
    own.
    """
    if not len(values):
        return values
    ordered = np.sort(values)
    starts = (np.arange(bins) * len(values)) // bins
    member = np.searchsorted(starts, np.searchsorted(ordered, values, side="left"), side="right") - 1
    lowest = np.full(bins, np.inf)
    np.minimum.at(lowest, member, values)
    return lowest[member]


def width_error_correlation(
    prediction: ArrayLike, truth: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> float:
    """Spearman's rank correlation of an interval's width with the absolute error of its prediction.

    High when wide intervals mark hard queries; NaN when all widths or all errors are equal.
    """
    guess, y, low, high = _columns(prediction, truth, lower, upper)
    width, error = _ranks(widths(low, high)), _ranks(np.abs(guess - y))
    width, error = width - _mean(width), error - _mean(error)
    norm = math.sqrt(float(width @ width) * float(error @ error))
    return float(width @ error) / norm if norm > 0 else math.nan


BINS = 30


def error_bins(error: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """`BINS` bins of equal width between the smallest and the largest error, as in the paper.

    Gives edges (bins + 1,) and the bin of each error (n,); the last bin contains its upper edge.
    """
    low, high = (float(error.min()), float(error.max())) if len(error) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1e-9, BINS + 1)
    member = np.clip(np.searchsorted(edges, error, side="right") - 1, 0, BINS - 1)
    return edges, member


def width_by_bin(
    member: NDArray[np.intp], width: Floats, inside: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.int64]]:
    """Mean width of the covering intervals in each bin, NaN where there are none, and their number: (bins,) each."""
    n = np.bincount(member[inside], minlength=BINS)
    total = np.bincount(member[inside], weights=width[inside], minlength=BINS)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan), n


def spearman_interval(rho: float, n: int) -> tuple[float, float]:
    """95 % interval of a rank correlation of n pairs: Fisher's z with Bonett and Wright's standard error.

    Approximate, for pairs drawn independently; NaN for fewer than 4 pairs.
    """
    if n < 4 or math.isnan(rho):
        return math.nan, math.nan
    if abs(rho) >= 1:
        return rho, rho
    z, half = math.atanh(rho), 1.959964 * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return math.tanh(z - half), math.tanh(z + half)


def _columns(*arrays: ArrayLike) -> tuple[Floats, ...]:
    columns = tuple(np.asarray(array, dtype=np.float64) for array in arrays)
    if any(column.ndim != 1 or column.shape != columns[0].shape for column in columns):
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(f"all columns must have one shape (n,), got {shapes}")
    return columns


def finite(value: float) -> float | None:
    """The figure as JSON can hold it: None where it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties share their mean rank: (n,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks


# Laws of coverage: how far it may lie from the promised level by chance alone, exactly.

MASS = 0.999
"""The share of coverages that a band holds."""


def coverage_band(
    calibration: int, test: int, confidence: Confidence, mass: float = MASS
) -> tuple[float, float]:
    """(low, high): coverage of `test` facts lies below low, or above high, with chance (1 - mass) / 2."""
    low, high = coverage_bands([calibration], [test], [confidence], mass)[0, 0].tolist()
    return low, high


def coverage_bands(
    calibration: Sequence[int], test: Sequence[int], levels: Sequence[Confidence], mass: float = MASS
) -> Floats:
    """The bands of several groups of facts, each with a threshold of its own, at several levels.

    calibration, test: facts of each group, (groups,); gives (levels, groups, 2). Groups of equal sizes, as slices of
    the test facts often are, have the same band, which is worked out once.
    """

    @cache
    def band(k: int, size: int, facts: int) -> tuple[float, float]:
        if 1 <= k <= size:
            return rank_band(k, size, facts, mass)
        return (0.0, 0.0) if k < 1 else (1.0, 1.0)

    found = [[*map(band, own, calibration, test)] for own in ranks(levels, calibration)]
    return np.array(found, np.float64).reshape(len(levels), len(calibration), 2)


def rank_band(k: int, calibration: int, test: int, mass: float = MASS) -> tuple[float, float]:
    """The band where the threshold is the k-th smallest of the calibration scores, 1 <= k <= calibration."""
    probability = np.exp(_log_beta_binomial(np.arange(test + 1.0), test, k, calibration))
    return _band_of(probability, test, mass)


def summed_band(
    cases: Sequence[tuple[int, int]], confidence: Confidence, mass: float = MASS
) -> tuple[float, float]:
    """The band of the coverage of all test facts where each group has its own threshold.

    cases: calibration and test facts of each group. Hits of groups are independent, each with its own law.

    >>> summed_band([(99, 50)], 0.9) == rank_band(90, 99, 50)
    True
    """
    law = np.ones(1)
    (found,) = ranks([confidence], [calibration for calibration, _ in cases])
    for k, (calibration, test) in zip(found, cases, strict=True):
        if 1 <= k <= calibration:
            own = np.exp(_log_beta_binomial(np.arange(test + 1.0), test, k, calibration))
        else:
            own = np.zeros(test + 1)
            own[-1 if k else 0] = 1.0
        law = np.convolve(law, own)
    return _band_of(law, len(law) - 1, mass)


def _band_of(probability: Floats, test: int, mass: float) -> tuple[float, float]:
    """The shares of `test` facts that hold `mass`, given the probability of each number of hits: (test + 1,)."""
    tail = (1 - mass) / 2
    low = int(np.searchsorted(np.cumsum(probability), tail, side="right"))
    high = test - int(np.searchsorted(np.cumsum(probability[::-1]), tail, side="right"))
    return low / test, high / test


def proportion_band(hits: int, of: int, mass: float = MASS) -> tuple[float, float]:
    """The shares that are compatible with so many hits among independent trials, by Clopper and Pearson.

    >>> [round(end, 4) for end in proportion_band(0, 10, 0.95)]
    [0.0, 0.3085]
    """
    from scipy.special import betaincinv

    tail = (1 - mass) / 2
    low = float(betaincinv(hits, of - hits + 1, tail)) if hits else 0.0
    return low, float(betaincinv(hits + 1, of - hits, 1 - tail)) if hits < of else 1.0


def beta_binomial_p_value(hits: int, facts: int, calibration: int, confidence: Confidence) -> float:
    """P(covered <= hits) among `facts` new ones, for l = `calibration` scores at the level `confidence`."""
    k = rank(confidence, calibration)
    if hits >= facts or k > calibration or k < 1:
        return 1.0
    return _sum_of_exponentials(_log_beta_binomial(np.arange(hits + 1.0), facts, k, calibration))


def hypergeometric_p_value(hits: int, facts: int, calibration_hits: int, calibration: int) -> float:
    """P(covered <= hits) among `facts` drawn from calibration and new facts together."""
    covered_in_all, least = hits + calibration_hits, max(0, hits + calibration_hits - calibration)
    if hits >= min(facts, covered_in_all):
        return 1.0
    covered = np.arange(least, hits + 1.0)
    return _sum_of_exponentials(
        _log_choose(facts, covered)
        + _log_choose(calibration, covered_in_all - covered)
        - _log_choose(facts + calibration, np.array(float(covered_in_all)))
    )


def _log_beta_binomial(hits: Floats, facts: int, k: int, calibration: int) -> Floats:
    """log P(hits) among `facts` new ones covered by the k-th smallest of the calibration scores: (n,)."""
    from scipy.special import betaln

    a, b = float(k), float(calibration + 1 - k)
    log_mass: Floats = _log_choose(facts, hits) + betaln(a + hits, b + facts - hits) - betaln(a, b)
    return log_mass


def _log_choose(n: float, k: Floats) -> Floats:
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1) - gammaln(n - k + 1))


def _sum_of_exponentials(log_mass: Floats) -> float:
    """A probability, from the logarithms of the probabilities of its cases."""
    top = float(log_mass.max())
    return float(min(1.0, np.exp(top) * np.exp(log_mass - top).sum()))
