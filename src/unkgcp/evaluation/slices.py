"""Coverage of parts of the facts: those that a method doubts, those about rare entities, those of one relation.

A method can keep its level on average by covering easy facts alone, and have narrow intervals because it gives up the
hard ones. These figures show that: coverage by tenth of the method's own doubt, by fifth of degree and by relation, and
ERT (`excess_risk`). Facts about unknown entities have degree 0 and no
doubt: they take part wherever they can be placed.

Each slice has a band, in which its coverage would lie if its facts were covered with the probability asked for. All
bands of a level hold together with probability `MASS` (each is widened by the number of slices, a union bound), so that
a slice is seldom outside its band by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.known_facts import degree_of, degrees

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

TENTHS, FIFTHS = 10, 5
AT_LEAST = 50  # relations with fewer test facts are no slices: their band is nearly everything
MASS = 0.99
SLACK = 1e-9  # shares of the same count computed in two ways may differ by so much


@dataclass(frozen=True, slots=True, eq=False)
class QueryFeatures:
    """What is known of n queries before their true confidence is known: every column (n,)."""

    score: Floats
    """NaN where nothing is predicted, as is `doubt`."""
    doubt: Floats
    degree: Ints
    """Training facts of the head or of the tail, whichever has fewer; 0 for an unknown entity."""
    relation: Ints
    """-1 if unknown."""
    frequency: Ints
    """Training facts of the relation."""

    @classmethod
    def of(cls, train: Graph, triples: Triples, score: Floats, doubt: Floats) -> QueryFeatures:
        """The columns of triples in the ids of the training facts, -1 for what is not in the vocabulary."""
        vocabulary, relation = train.vocabulary, triples.relation
        # the id -1 takes the last place, where there are no facts
        frequency = np.bincount(train.relation, minlength=len(vocabulary.relations) + 1)
        degree = degree_of(triples, np.append(degrees(train, len(vocabulary.entities)), 0))
        return cls(score, doubt, degree, relation, frequency[relation])

    def some(self, rows: Mask) -> QueryFeatures:
        counts = (column[rows] for column in (self.degree, self.relation, self.frequency))
        return QueryFeatures(self.score[rows], self.doubt[rows], *counts)

    @property
    def complete(self) -> Mask:
        """The queries that have all features: (n,)."""
        return ~np.isnan(self.score + self.doubt)

    def table(self) -> Floats:
        """The features for a classifier, of the queries that are `complete`: (m, 4)."""
        counts = (np.log1p(self.degree), np.log1p(self.frequency))
        return np.column_stack([self.score, self.doubt, *counts])[self.complete]


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices of the rows by the quantity `by`; `member` (n,) is the slice of each row, -1 if it is in none."""

    by: str
    about: Sequence[dict[str, Any]]
    """What each slice is, in plain values: its relation, or from where to where it reaches."""
    member: NDArray[np.intp]


def slices_of(queries: QueryFeatures, relations: Sequence[str]) -> list[Slices]:
    """Tenths of doubt, fifths of degree, and every relation with at least `AT_LEAST` rows, by its label."""
    count = np.bincount(queries.relation[queries.relation >= 0], minlength=1)
    large = np.flatnonzero(count >= AT_LEAST)
    place = np.full(len(count) + 1, -1)
    place[large] = np.arange(len(large))
    return [
        equal_slices("doubt", queries.doubt, TENTHS),
        equal_slices("degree", queries.degree.astype(np.float64), FIFTHS),
        Slices("relation", [{"relation": relations[r]} for r in large.tolist()], place[queries.relation]),
    ]


def equal_slices(by: str, values: Floats, bins: int) -> Slices:
    """Slices of equal size in ascending order; equal values stay together, and a tiny slice joins the next.

    values: (n,), NaN for rows that are in no slice.
    """
    rows = np.flatnonzero(~np.isnan(values))
    # a value belongs to the slice of the first row that has it
    first = np.searchsorted(np.sort(values[rows]), values[rows])
    member = np.unique(first * bins // max(len(rows), 1), return_inverse=True)[1]
    sizes = np.bincount(member)
    least, total, current = min(AT_LEAST, len(rows) / (2 * bins)), 0, 0
    joined = np.zeros(len(sizes), np.intp)
    for place, n in enumerate(sizes.tolist()):
        if total >= least:
            current, total = current + 1, 0
        joined[place] = current
        total += n
    if total < least and current:  # a tiny last slice joins the one before
        joined[joined == current] = current - 1
    of_all = np.full(len(values), -1)
    of_all[rows] = joined[member]
    each = [values[of_all == place] for place in range(int(of_all.max(initial=-1)) + 1)]
    return Slices(by, [{"from": float(v.min()), "to": float(v.max())} for v in each], of_all)


def judge_slices(
    queries: QueryFeatures,
    relations: Sequence[str],
    ends: tuple[Floats, Floats, Floats],
    levels: Sequence[float],
    *,
    sizes: Ints | None,
) -> list[dict[str, Any]]:
    """`slices` with their figures and bands, and `worst` coverage by each quantity, at each level.

    ends: truth, (n,) or (n, 2), then lower and upper, (n, levels). `sizes`, (n,), says how many calibration facts set
    the threshold of each row; None where no law says how coverage scatters, and then there are no bands. In `worst`,
    `most_doubtful` is the coverage of the last tenth of doubt. A figure is None where there are no rows for it.
    """
    cut = slices_of(queries, relations)
    bands = bands_of([part.member for part in cut], sizes, levels)
    (truth, lower, upper), by_level = ends, []
    for place, level in enumerate(levels):
        at = truth, lower[:, place], upper[:, place]
        columns = metrics.contains(*at), metrics.widths(*at[1:]), metrics.interval_scores(*at, level)
        rows = figures_of(cut, columns, bands[place])
        worst = {
            by: min((one["coverage"] for one in of_one_way), default=None) for by, of_one_way in rows.items()
        }
        last = rows["doubt"][-1]["coverage"] if rows["doubt"] else None
        by_level.append({"slices": rows, "worst": {"most_doubtful": last, **worst}})
    return by_level


def figures_of(
    slices: Sequence[Slices],
    columns: tuple[Mask, Floats, Floats],
    bands: Sequence[Sequence[list[float] | None]],
) -> dict[str, list[dict[str, Any]]]:
    """The figures of every slice with its band, by quantity; columns, (n,) each: covered, width, interval score."""
    by_quantity: dict[str, list[dict[str, Any]]] = {}
    for part, bands_of_way in zip(slices, bands, strict=True):
        by_quantity[part.by] = []
        for place, (about, band) in enumerate(zip(part.about, bands_of_way, strict=True)):
            rows = np.flatnonzero(part.member == place)
            share, width, score = (float(column[rows].mean()) for column in columns)
            figures = {"n": len(rows), "coverage": share, "sharpness": width}
            by_quantity[part.by].append(
                {**about, **figures, "interval_score": metrics.finite(score), "band": band}
            )
    return by_quantity


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
            [
                band if size else None
                for band, size in zip(at_level[start:end], behind[start:end], strict=True)
            ]
            for start, end in pairwise(starts)
        ]
        for at_level in every.tolist()
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
    scatters = spread > 0
    least = np.floor(1.0 / np.where(scatters, spread, 1.0) + SLACK)
    return np.where(scatters, np.maximum(least, 1.0), 0.0).astype(np.int64)


def below_band(figures: dict[str, Any]) -> bool:
    """Whether a slice, or any figures with a band, are covered less than chance allows."""
    return figures["band"] is not None and figures["coverage"] < figures["band"][0] - SLACK


def weakest(slices: dict[str, list[dict[str, Any]]]) -> tuple[str, dict[str, Any]] | None:
    """The slice with the lowest coverage, with its quantity; None if there are no slices."""
    every = [(by, one) for by, rows in slices.items() for one in rows]
    return min(every, key=lambda case: case[1]["coverage"], default=None)


# Excess risk of the target coverage (ERT): how far coverage is from the level, given what is known of a query.
#
# A classifier predicts from features alone which labels their intervals cover. If every kind of query were covered with
# the probability asked for, no classifier could beat the answer "covered with that probability". The gain of a
# classifier over this answer is therefore what coverage lacks, or has too much of, for some kinds of queries. With the
# loss used here the gain never exceeds, in expectation, the mean of |P(covered | features) - level|: a poor classifier
# finds less of it, none finds more. Braun, Holzmüller, Jordan and Bach, arXiv 2512.11779; their package `covmetrics` is
# the reference of the tests.

FOLDS, CLASSIFIED = 5, 20_000
ROUNDS = 40
BOOSTING: dict[str, Any] = {
    "objective": "l2",  # of 0 and 1, which also works where every label is covered
    "learning_rate": 0.1,
    "num_leaves": 8,
    "min_data_in_leaf": 20,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def excess_risk(features: Floats, inside: Mask, confidence: float, *, seed: int) -> dict[str, float] | None:
    """ERT by cross-validation: each fifth of the rows is judged by a classifier learned from the others; see `risk_of`.

    features: (n, d); inside: (n,) whether each label was covered. Of more than `CLASSIFIED` rows so many are drawn.
    None for fewer than ten rows, and without LightGBM.
    """
    rows = np.random.default_rng(seed).permutation(len(features))[:CLASSIFIED]
    if len(rows) < 2 * FOLDS:
        return None
    try:
        import lightgbm
    except ImportError:
        return None
    x, y, fold, probability = features[rows], inside[rows], np.arange(len(rows)) % FOLDS, np.empty(len(rows))
    for k in range(FOLDS):
        rest = fold != k
        learned = lightgbm.train(BOOSTING, lightgbm.Dataset(x[rest], y[rest].astype(np.float64)), ROUNDS)
        probability[~rest] = np.asarray(learned.predict(x[~rest]))
    return risk_of(probability, y, confidence)


def risk_of(probability: Floats, inside: Mask, confidence: float) -> dict[str, float]:
    """ERT of probabilities (n,) of being covered that were found without the rows themselves.

    `both` is ERT with the absolute distance; `below` is the part of it from queries that are covered too seldom.
    """
    away = inside - confidence
    over, under = probability > confidence, probability < confidence
    below = -float(np.where(under, away, 0.0).mean())
    return {"both": float(np.where(over, away, 0.0).mean()) + below, "below": below}
