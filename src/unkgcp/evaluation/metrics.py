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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.ranks import Confidence, ranks
from unkgcp.graph.facts import both_ends

Floats = NDArray[np.float64]


def contains(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> NDArray[np.bool_]:
    """Which intervals contain the whole label, a number (n,) or an interval itself (n, 2), ends included: (n,) bool."""
    first, last, low, high = _columns(*both_ends(truth).T, lower, upper)
    return (low <= first) & (last <= high)


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
    width: Floats = high - low
    return np.where(np.isnan(width), 0.0, width)


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
    first, last, low, high = _columns(*both_ends(truth).T, lower, upper)
    missed = np.maximum(low - first, 0.0) + np.maximum(last - high, 0.0)
    missed = np.where(np.isnan(missed), 1.0, missed)
    if confidence >= 1.0:
        return np.where(missed > 0, math.inf, widths(low, high))
    return np.asarray(widths(low, high) + (2.0 / (1.0 - confidence)) * missed)


def knowing_nothing(training: Floats, truth: Floats, confidence: float) -> dict[str, float | None]:
    """The figures of answering every query with the same two quantiles of all known confidences, (m,) or (m, 2)."""
    if not len(training):
        return dict.fromkeys(("lower", "upper", "coverage", "sharpness", "interval_score"))
    first, last = both_ends(training).T
    low, high = np.quantile(first, (1 - confidence) / 2), np.quantile(last, (1 + confidence) / 2)
    ends = np.full(len(truth), low), np.full(len(truth), high)
    share, score = coverage(truth, *ends), interval_score(truth, *ends, confidence)
    figures = {"coverage": share, "sharpness": high - low, "interval_score": score}
    return {"lower": float(low), "upper": float(high), **{key: finite(v) for key, v in figures.items()}}


def mse(prediction: ArrayLike, truth: ArrayLike) -> float:
    """Mean squared error."""
    guess, y = _columns(prediction, truth)
    return _mean((guess - y) ** 2)


def mae(prediction: ArrayLike, truth: ArrayLike) -> float:
    """Mean absolute error."""
    guess, y = _columns(prediction, truth)
    return _mean(np.abs(guess - y))


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


# Laws of coverage: how far it may lie from the promised level by chance alone, exactly.

MASS = 0.999
"""The share of coverages that a band holds."""


def coverage_bands(
    calibration: Sequence[int], test: Sequence[int], levels: Sequence[Confidence], mass: float = MASS
) -> Floats:
    """The bands of several groups of facts, each with a threshold of its own, at several levels.

    calibration, test: facts of each group, (groups,); gives (levels, groups, 2). Groups of equal sizes, as slices of
    the test facts often are, have the same band, which is worked out once.
    """

    @cache
    def band(k: int, size: int, facts: int) -> tuple[float, float]:
        return _band_of(betabinom_pmf(k, size, facts), mass)

    bands = [[*map(band, ranks_at_level, calibration, test)] for ranks_at_level in ranks(levels, calibration)]
    return np.array(bands, np.float64).reshape(len(levels), len(calibration), 2)


def summed_band(
    cases: Sequence[tuple[int, int]], confidence: Confidence, mass: float = MASS
) -> tuple[float, float]:
    """The band of the coverage of all test facts where each group has its own threshold; cases: as in `hits_law`.

    >>> list(summed_band([(99, 50)], 0.9)) == coverage_bands([99], [50], [0.9])[0, 0].tolist()
    True
    """
    return _band_of(hits_law(cases, confidence), mass)


def hits_law(cases: Sequence[tuple[int, int]], confidence: Confidence) -> Floats:
    """The probability of each number of covered facts, where each group has its own threshold: (facts + 1,).

    cases: calibration and test facts of each group. Hits of groups are independent, each beta-binomial.
    """
    from scipy.signal import convolve

    law = np.ones(1)
    (group_ranks,) = ranks([confidence], [calibration for calibration, _ in cases])
    for k, (calibration, test) in zip(group_ranks, cases, strict=True):
        law = np.maximum(convolve(law, betabinom_pmf(k, calibration, test)), 0.0)
    return np.asarray(law)


def betabinom_pmf(k: int, calibration: int, test: int) -> Floats:
    """P(0), P(1), ... of `test` new facts covered by the k-th smallest of the calibration scores: (test + 1,)."""
    from scipy.stats import betabinom

    if not 1 <= k <= calibration:  # nothing is covered, or everything
        law = np.zeros(test + 1)
        law[-1 if k else 0] = 1.0
        return law
    return np.asarray(betabinom.pmf(np.arange(test + 1), test, k, calibration + 1 - k))


def _band_of(law: Floats, mass: float) -> tuple[float, float]:
    """The shares of facts that hold `mass`, given the probability of each number of hits: (facts + 1,)."""
    tail, test = (1 - mass) / 2, len(law) - 1
    low = int(np.searchsorted(np.cumsum(law), tail, side="right"))
    high = test - int(np.searchsorted(np.cumsum(law[::-1]), tail, side="right"))
    return low / test, high / test
