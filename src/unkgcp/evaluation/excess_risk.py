"""Excess risk of the target coverage (ERT): how far coverage is from the level, given what is known of a query.

A classifier is asked, from features alone, which labels their intervals cover. If every kind of query were covered
with the probability asked for, nobody could beat the answer "covered with that probability"; by how much a classifier
does is what coverage lacks (or has too much of) for some kinds of queries. With the loss used here, that gain never
exceeds, in expectation, the mean of |P(covered | features) - level|: a poor classifier sees less of it, none sees more.
Braun, Holzmüller, Jordan and Bach, arXiv 2512.11779; their package `covmetrics` is the reference of the tests.

The classifier is a small one of our own: forty trees of three cuts each, the same cuts for all branches of a tree, by
least squares on features that were cut into quantile bins. It needs NumPy alone, no exponential and no random number
but the folds, so that figures do not depend on which library is installed.

>>> rng = np.random.default_rng(0)
>>> hard = rng.random(20_000) < 0.5
>>> inside = rng.random(20_000) < np.where(hard, 0.8, 1.0)
>>> found = excess_risk(hard[:, None].astype(float), inside, 0.9, rng=rng)
>>> round(found.both, 2), round(found.below, 2)
(0.1, 0.05)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FOLDS = 5
BINS = 32
ROUNDS, DEPTH, RATE = 40, 3, 0.2
PRIOR = 20.0
"""Rows' worth of "as before" in each leaf: small leaves say little."""


class ExcessRisk(NamedTuple):
    """`both` is ERT with the absolute distance; `below` is the part of it from queries that are covered too seldom."""

    both: float
    below: float


def excess_risk(
    features: Floats, inside: NDArray[np.bool_], confidence: float, *, rng: np.random.Generator
) -> ExcessRisk:
    """ERT by cross-validation: each fifth of the rows is judged by a classifier learned from the others.

    features: (n, d); inside: (n,) whether each label was covered. NaN for fewer than ten rows.
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or inside.shape != (len(x),):
        raise ValueError(f"features must be (n, d) and inside (n,), got {x.shape} and {inside.shape}")
    if len(x) < 2 * FOLDS:
        return ExcessRisk(math.nan, math.nan)
    return risk_of(held_out_probabilities(x, inside, folds(len(x), rng)), inside, confidence)


def risk_of(probability: Floats, inside: NDArray[np.bool_], confidence: float) -> ExcessRisk:
    """ERT of probabilities (n,) of being covered that were found without the rows themselves."""
    away = inside - confidence
    over, under = probability > confidence, probability < confidence
    below = -float(np.where(under, away, 0.0).mean())
    return ExcessRisk(float(np.where(over, away, 0.0).mean()) + below, below)


def folds(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The fold of each row: (n,), sizes differ by one at most."""
    return np.asarray(rng.permutation(n) % FOLDS)


def held_out_probabilities(x: Floats, inside: NDArray[np.bool_], fold: NDArray[np.int64]) -> Floats:
    """P(covered) of each row by a classifier that was learned from the other folds: (n,)."""
    codes = np.stack([_bins(column) for column in x.T])
    target, found = inside.astype(np.float64), np.empty(len(x))
    for k in range(FOLDS):
        rest = fold != k
        found[~rest] = _boost(codes, target, rest)[~rest]
    return found


def _bins(column: Floats) -> Codes:
    """The place of each value among at most `BINS` quantile bins: (n,)."""
    inner = np.sort(column)[(np.arange(1, BINS) * len(column)) // BINS]
    return np.searchsorted(np.unique(inner), column, side="right")


def _boost(codes: Codes, target: Floats, rows: NDArray[np.bool_]) -> Floats:
    """Predictions of all rows by trees learned from some of them: (n,)."""
    prediction = np.full(len(target), target[rows].mean())
    known = codes[:, rows]
    for _ in range(ROUNDS):
        missing = (target - prediction)[rows]
        leaf, everywhere = np.zeros(len(missing), np.intp), np.zeros(len(target), np.intp)
        for _ in range(DEPTH):
            feature, cut = _best_cut(known, leaf, missing)
            leaf = 2 * leaf + (known[feature] > cut)
            everywhere = 2 * everywhere + (codes[feature] > cut)
        total = np.bincount(leaf, weights=missing, minlength=2**DEPTH)
        size = np.bincount(leaf, minlength=2**DEPTH)
        prediction += (RATE * total / (size + PRIOR))[everywhere]
    return prediction


def _best_cut(codes: Codes, leaf: Codes, missing: Floats) -> tuple[int, int]:
    """The feature and the bin after which to cut every leaf, so that most of the squared error goes."""
    leaves, best = int(leaf.max()) + 1, (-1.0, 0, 0)
    for feature, column in enumerate(codes):
        key, shape = leaf * BINS + column, (leaves, BINS)
        total = np.bincount(key, weights=missing, minlength=leaves * BINS).reshape(shape).cumsum(axis=1)
        size = np.bincount(key, minlength=leaves * BINS).reshape(shape).cumsum(axis=1)
        left, right = total[:, :-1], total[:, -1:] - total[:, :-1]
        less, more = size[:, :-1], size[:, -1:] - size[:, :-1]
        gain = (left**2 / (less + PRIOR) + right**2 / (more + PRIOR)).sum(axis=0)
        cut = int(gain.argmax())
        if gain[cut] > best[0]:
            best = (float(gain[cut]), feature, cut)
    return best[1], best[2]
