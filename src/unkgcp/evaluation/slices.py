"""Coverage of parts of the facts: those that a method doubts, those about rare entities, those of one relation.

A method can keep its level on average by covering easy facts alone, and have narrow intervals because it gives up the
hard ones. These figures show that: coverage by tenth of the method's own doubt, by fifth of degree and by relation, in
the worst slab of the features of a query, and ERT (`excess_risk`). Facts about unknown entities or relations take no
part: they have the whole range, which always covers, and no doubt.

Each slice has a band, in which its coverage would lie if its facts were covered with the probability asked for. All
bands of a level hold together with probability `MASS` (each is widened by the number of slices, a union bound), so that
a slice is seldom outside its band by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.known_facts import degree_of, degrees
from unkgcp.methods.method import IntervalPredictor

if TYPE_CHECKING:
    from unkgcp.progress import Progress

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
Codes = NDArray[np.intp]

TENTHS, FIFTHS = 10, 5
AT_LEAST = 50  # relations with fewer test facts are no slices: their band is nearly everything
SLAB_SHARE, DIRECTIONS, MASS = 0.1, 100, 0.99
SLACK = 1e-9  # shares of the same count computed in two ways may differ by so much


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """What is known of n queries before their true confidence is known: every column (n,)."""

    score: Floats
    doubt: Floats
    degree: Ints
    """Training facts of the head or of the tail, whichever has fewer."""
    relation: Ints
    frequency: Ints
    """Training facts of the relation."""

    def features(self) -> Floats:
        """The features for slabs and classifiers: (n, 4)."""
        counts = (np.log1p(self.degree), np.log1p(self.frequency))
        return np.column_stack([self.score, self.doubt, *counts])


def describe(method: IntervalPredictor, train: Graph, triples: Triples, score: Floats) -> Queries:
    """The columns of known triples, in the ids of the training facts; score: what the method predicted for them."""
    vocabulary = train.vocabulary
    frequency = np.bincount(train.relation, minlength=len(vocabulary.relations))
    degree = degree_of(triples, degrees(train, len(vocabulary.entities)))
    doubt = method.doubt(triples, None if method.own_answers else score)
    return Queries(score, doubt, degree, triples.relation, frequency[triples.relation])


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices of the rows by the quantity `by`; `member` (n,) is the slice of each row, -1 if it is in none."""

    by: str
    about: Sequence[dict[str, Any]]
    """What each slice is, in plain values: its relation, or from where to where it reaches."""
    member: NDArray[np.intp]


def slices_of(queries: Queries, relations: Sequence[str]) -> list[Slices]:
    """Tenths of doubt, fifths of degree, and every relation with at least `AT_LEAST` rows, by its label."""
    code, count = np.unique(queries.relation, return_counts=True)
    large = code[count >= AT_LEAST]
    place = np.searchsorted(large, queries.relation)
    inside = np.append(large, -1)[place] == queries.relation
    return [
        _equal("doubt", queries.doubt, TENTHS),
        _equal("degree", queries.degree.astype(np.float64), FIFTHS),
        Slices("relation", [{"relation": relations[r]} for r in large.tolist()], np.where(inside, place, -1)),
    ]


def _equal(by: str, values: Floats, bins: int) -> Slices:
    """Slices of equal size in ascending order; equal values stay together, and a tiny slice joins the next."""
    lowest, member = np.unique(metrics.equal_bins(values, bins), return_inverse=True)
    count = np.bincount(member, minlength=len(lowest))
    least, total = min(AT_LEAST, len(values) / (2 * bins)), 0
    joined, current = np.zeros(len(lowest), np.intp), 0
    for place, n in enumerate(count.tolist()):
        if total >= least:
            current, total = current + 1, 0
        joined[place] = current
        total += n
    if total < least and current:  # a tiny last slice joins the one before
        joined[joined == current] = current - 1
    member = joined[member]
    about = [
        {"from": float(values[member == m].min()), "to": float(values[member == m].max())}
        for m in range(len(np.unique(member)))
    ]
    return Slices(by, about, member)


def judge_slices(
    queries: Queries,
    slices: Sequence[Slices],
    truth: Floats,
    lower: Floats,
    upper: Floats,
    levels: Sequence[float],
    *,
    sizes: Ints | None,
    seed: int,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """`slices` with their figures and bands, `worst` coverage by each quantity, and `ert`, at each level.

    truth: (n,) or (n, 2); lower, upper: (n, levels). `sizes`, (n,), says how many calibration facts set the threshold
    of each row; None where no law says how coverage scatters, and then there are no bands. In `worst`,
    `most_doubtful` is the coverage of the last tenth of doubt. A figure is None where there are no rows for it.
    """
    bands = bands_of([part.member for part in slices], sizes, levels)
    features, found = queries.features(), []
    for place, level in enumerate(levels):
        ends = lower[:, place], upper[:, place]
        inside = metrics.contains(truth, *ends)
        columns = inside, metrics.widths(*ends), metrics.interval_scores(truth, *ends, level)
        slab = worst_slab_coverage(features, inside, rng=np.random.default_rng(seed))
        risk = excess_risk(features, inside, level, rng=np.random.default_rng(seed))
        rows = figures_of(slices, columns, bands[place])
        worst = {by: min((one["coverage"] for one in own), default=None) for by, own in rows.items()}
        last = rows["doubt"][-1]["coverage"] if rows.get("doubt") else None
        found.append(
            {
                "slices": rows,
                "worst": {"most_doubtful": last, **worst, "slab": metrics.finite(slab)},
                "ert": {"both": metrics.finite(risk.both), "below": metrics.finite(risk.below)},
            }
        )
        if progress is not None:
            progress.update(place + 1, "judging")
    return found


def figures_of(
    slices: Sequence[Slices],
    columns: tuple[NDArray[np.bool_], Floats, Floats],
    bands: Sequence[Sequence[list[float] | None]],
) -> dict[str, list[dict[str, Any]]]:
    """The figures of every slice with its band, by quantity; columns, (n,) each: covered, width, interval score."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part, own in zip(slices, bands, strict=True):
        found[part.by] = []
        for place, (about, band) in enumerate(zip(part.about, own, strict=True)):
            rows = np.flatnonzero(part.member == place)
            share, width, score = (float(column[rows].mean()) for column in columns)
            figures = {"n": len(rows), "coverage": share, "sharpness": width}
            more = {"interval_score": metrics.finite(score), "band": band}
            found[part.by].append({**about, **figures, **more})
    return found


def bands_of(
    members: Sequence[NDArray[np.intp]], sizes: Ints | None, levels: Sequence[float]
) -> list[list[list[list[float] | None]]]:
    """The band of every slice, level by level and way of cutting by way of cutting.

    members: for each way of cutting the slice of each row, from 0 on, -1 for none, (n,). A slice has no band where
    `sizes` is None and where none of its rows has calibration facts behind its threshold.
    """
    counts = [np.bincount(member[member >= 0]) for member in members]
    if sizes is None:
        return [[[None] * len(count) for count in counts] for _ in levels]
    pairs = zip(members, counts, strict=True)
    behind = np.concatenate([effective_sizes(member, sizes, len(count)) for member, count in pairs])
    mass = 1 - (1 - MASS) / max(len(behind), 1)
    every = metrics.coverage_bands(behind.tolist(), np.concatenate(counts).tolist(), levels, mass)
    starts = np.cumsum([0, *map(len, counts)]).tolist()
    return [
        [
            [band if size else None for band, size in zip(own[start:end], behind[start:end], strict=True)]
            for start, end in pairwise(starts)
        ]
        for own in every.tolist()
    ]


def effective_sizes(member: NDArray[np.intp], sizes: Ints, slices: int) -> NDArray[np.int64]:
    """How many calibration facts one threshold needs for its coverage to scatter as that of each slice does: (slices,).

    member: the slice of each row, -1 for none; sizes: how many calibration facts set the threshold of each row; (n,)
    both. Where all rows of a slice have one threshold, the result is its size. Coverage of rows with several,
    independent thresholds of l_g facts scatters like that of one threshold of l facts where 1 / l is the sum of
    1 / l_g times the square of each group's share. Rows without calibration facts have the whole range and do not
    scatter; a slice of such rows gets 0. Groups of equal size count as one, which can only widen the band.
    """
    rows = (member >= 0) & (sizes > 0)
    (of, size), count = np.unique(np.stack([member[rows], sizes[rows]]), axis=1, return_counts=True)
    share = count / np.bincount(of, weights=count, minlength=slices)[of]
    spread = np.bincount(of, weights=share**2 / size, minlength=slices)
    known = spread > 0
    least = np.floor(1.0 / np.where(known, spread, 1.0) + SLACK)
    return np.where(known, np.maximum(least, 1.0), 0.0).astype(np.int64)


def below_band(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The slices of `judge_slices` that are covered less than chance allows, each with its quantity."""
    return [
        (by, one)
        for by, rows in result.get("slices", {}).items()
        for one in rows
        if one["band"] is not None and one["coverage"] < one["band"][0] - SLACK
    ]


def tenths_of_doubt(doubt: Floats, inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Coverage of the most doubtful tenth, and of the worst one; NaN where there are no rows. doubt, inside: (n,)."""
    if not len(doubt):
        return math.nan, math.nan
    member = _equal("doubt", doubt, TENTHS).member
    shares = np.bincount(member, weights=inside) / np.bincount(member)
    return float(shares[-1]), float(shares.min())


# Worst-slab coverage: the lowest coverage over slabs {x : a <= v.x <= b} that hold a given share of rows.


def worst_slab_coverage(
    features: Floats,
    inside: NDArray[np.bool_],
    *,
    rng: np.random.Generator,
    share: float = SLAB_SHARE,
    directions: int = DIRECTIONS,
) -> float:
    """Coverage in the worst slab with at least `share` of the rows.

    features: (n, d), standardised here; inside: (n,) whether each label was covered. NaN when the half on
    which coverage is taken has no row in the slab.
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or inside.shape != (len(x),):
        raise ValueError(f"features must be (n, d) and inside (n,), got {x.shape} and {inside.shape}")
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    if len(x) < 2:
        return math.nan
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    order = rng.permutation(len(x))
    search, judge = order[: len(x) // 2], order[len(x) // 2 :]
    # every feature by itself, and directions between them
    drawn = np.concatenate([np.eye(x.shape[1]), rng.standard_normal((directions, x.shape[1]))])
    drawn = drawn if x.shape[1] > 1 else drawn[:1]
    best: tuple[float, float, float, Floats] = (math.inf, 0.0, 0.0, drawn[0])
    for direction in drawn:
        found = worst_window(x[search] @ direction, inside[search], share)
        if found[0] < best[0]:
            best = (*found, direction)
    position = x[judge] @ best[3]
    chosen = inside[judge][(best[1] <= position) & (position <= best[2])]
    return float(chosen.mean()) if len(chosen) else math.nan


def worst_window(position: Floats, inside: NDArray[np.bool_], share: float) -> tuple[float, float, float]:
    """(coverage, a, b) of the window [a, b] of `position` (n,) that covers least and holds at least `share`.

    Exact: Dinkelbach's iteration on the ratio hits / rows, whose step is one pass over prefix sums. Equal
    positions are never cut apart.
    """
    values, member = np.unique(position, return_inverse=True)
    rows = np.concatenate([[0], np.cumsum(np.bincount(member))])
    hits = np.concatenate([[0.0], np.cumsum(np.bincount(member, weights=inside))])
    least = max(1, math.ceil(share * len(position)))
    # for a window's end j, its start is at most the last i with rows[j] - rows[i] >= least
    last_start = np.searchsorted(rows, rows - least, side="right") - 1
    ends = np.flatnonzero(last_start >= 0)
    ratio, start, end = hits[-1] / rows[-1], 0, len(rows) - 1
    while True:
        gain = hits - ratio * rows
        top = np.maximum.accumulate(gain)
        j = int(ends[np.argmin(gain[ends] - top[last_start[ends]])])
        i = int(np.argmax(gain[: last_start[j] + 1]))
        found = (hits[j] - hits[i]) / (rows[j] - rows[i])
        if found >= ratio:
            return float(ratio), float(values[start]), float(values[end - 1])
        ratio, start, end = found, i, j


# Excess risk of the target coverage (ERT): how far coverage is from the level, given what is known of a query.
#
# A classifier predicts from features alone which labels their intervals cover. If every kind of query were covered with
# the probability asked for, no classifier could beat the answer "covered with that probability". The gain of a
# classifier over this answer is therefore what coverage lacks, or has too much of, for some kinds of queries. With the
# loss used here the gain never exceeds, in expectation, the mean of |P(covered | features) - level|: a poor classifier
# finds less of it, none finds more. Braun, Holzmüller, Jordan and Bach, arXiv 2512.11779; their package `covmetrics` is
# the reference of the tests.
# The classifier is a small one of our own: forty trees of three cuts each, the same cuts for all branches of a tree, by
# least squares on features that were cut into quantile bins. It needs NumPy alone, no exponential, and random numbers
# for the folds only, so that figures do not depend on which library is installed.

FOLDS, BINS = 5, 32
ROUNDS, DEPTH, RATE = 40, 3, 0.2
PRIOR = 20.0  # a leaf counts as having so many more rows without error, so that small leaves change little


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
