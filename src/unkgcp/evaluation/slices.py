"""Coverage where it matters: among the facts that a method doubts, those about rare entities, those of one relation.

A method can keep its level on average by being right about easy facts alone, and have narrow intervals because it gives
up the hard ones. What is asked here shows that: coverage by tenth of the method's own doubt, by fifth of degree and
by relation, in the worst slab of what is known of a query, and ERT (`excess_risk`). Facts about unknown entities or
relations take no part: they have the whole range, which always covers, and no doubt.

Each slice has a band: where coverage would lie if its facts were covered with the probability asked for. All bands of
a level hold together with probability `MASS` (each is widened by the number of slices, a union bound), so that a slice
outside its band is seldom a matter of chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.evaluation.excess_risk import excess_risk
from unkgcp.graph.facts import Graph, Triples, degree_of, degrees
from unkgcp.methods.method import IntervalPredictor

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

TENTHS, FIFTHS = 10, 5
AT_LEAST = 50
"""Relations with fewer test facts are no slices: their band is nearly everything."""
SLAB_SHARE, DIRECTIONS = 0.1, 100
MASS = 0.99
SLACK = 1e-9
"""Shares of the same count computed in two ways may differ by so much."""


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """What is known of n facts before their confidence is: every column (n,)."""

    score: Floats
    doubt: Floats
    degree: Ints
    """Training facts of the head or of the tail, whichever has fewer."""
    relation: Ints
    frequency: Ints
    """Training facts of the relation."""

    def features(self) -> Floats:
        """What slabs and classifiers look at: (n, 4)."""
        counts = (np.log1p(self.degree), np.log1p(self.frequency))
        return np.column_stack([self.score, self.doubt, *counts])


def describe(method: IntervalPredictor, train: Graph, triples: Triples, score: Floats) -> Queries:
    """The columns of known triples in the ids of the training facts, with the scores that the method gave them."""
    frequency = np.bincount(train.relation, minlength=train.n_relations)
    return Queries(
        np.asarray(score, np.float64),
        method.doubt(triples),
        degree_of(triples, degrees(train, train.n_entities)),
        triples.relation,
        frequency[triples.relation],
    )


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices of the rows by one quantity, in its order: `member` (n,) says to which one a row belongs, -1 to none."""

    by: str
    about: Sequence[dict[str, Any]]
    """What tells each slice from the others, in plain values."""
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
    """Slices of equal size, upwards; equal values stay together, and a slice that this leaves tiny joins the next."""
    lowest, member = np.unique(metrics.equal_bins(values, bins), return_inverse=True)
    count = np.bincount(member, minlength=len(lowest))
    least, total = min(AT_LEAST, len(values) / (2 * bins)), 0
    joined, current = np.zeros(len(lowest), np.intp), 0
    for place, n in enumerate(count.tolist()):
        if total >= least:
            current, total = current + 1, 0
        joined[place] = current
        total += n
    if total < least and current:  # what is left at the upper end joins the one before
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
    confidence: float,
    *,
    sizes: Ints | None,
    seed: int,
) -> dict[str, Any]:
    """`slices` with their figures and bands, `worst` coverage by each quantity, and `ert`, at one level.

    truth: (n,) or (n, 2); lower, upper: (n,). `sizes`, (n,), says how many calibration facts set the threshold of each
    row; None where no law says how coverage scatters, and then there are no bands. In `worst`, `most_doubtful` is the
    coverage of the last tenth of doubt. Everything is None where there is nothing to tell it from.
    """
    inside = metrics.contains(truth, lower, upper)
    columns = inside, metrics.widths(lower, upper), metrics.interval_scores(truth, lower, upper, confidence)
    total = sum(len(part.about) for part in slices)
    found = {
        part.by: [
            _slice(about, part.member == place, columns, confidence, sizes, total)
            for place, about in enumerate(part.about)
        ]
        for part in slices
    }
    features = queries.features()
    slab = metrics.worst_slab_coverage(
        features, inside, rng=np.random.default_rng(seed), share=SLAB_SHARE, directions=DIRECTIONS
    )
    risk = excess_risk(features, inside, confidence, rng=np.random.default_rng(seed))
    worst = {by: min((one["coverage"] for one in rows), default=None) for by, rows in found.items()}
    last = found["doubt"][-1]["coverage"] if found.get("doubt") else None
    return {
        "slices": found,
        "worst": {"most_doubtful": last, **worst, "slab": metrics.finite(slab)},
        "ert": {"both": metrics.finite(risk.both), "below": metrics.finite(risk.below)},
    }


def _slice(
    about: dict[str, Any],
    rows: NDArray[np.bool_],
    columns: tuple[NDArray[np.bool_], Floats, Floats],
    confidence: float,
    sizes: Ints | None,
    total: int,
) -> dict[str, Any]:
    n = int(rows.sum())
    share, width, score = (float(column[rows].mean()) for column in columns)
    band = None
    if sizes is not None and (size := effective_size(sizes[rows])) is not None:
        mass = 1 - (1 - MASS) / total
        band = list(metrics.coverage_band(size, n, confidence, mass))
    return {
        **about,
        "n": n,
        "coverage": share,
        "sharpness": width,
        "interval_score": metrics.finite(score),
        "band": band,
    }


def effective_size(sizes: Ints) -> int | None:
    """Calibration facts behind the coverage of rows whose thresholds were set by so many facts each: (n,).

    Where all rows have one threshold it is exactly their number. The coverage of rows with several, independent
    thresholds scatters like that of one threshold by as many facts as make 1 / l the mean of 1 / l_g, weighted with
    the square of each group's share. Rows without calibration facts have the whole range and do not scatter; None if
    all are such. Groups of equal size count as one, which can only widen the band.
    """
    known, count = np.unique(sizes[sizes > 0], return_counts=True)
    if not len(known):
        return None
    share = count / count.sum()
    return max(1, math.floor(1.0 / float((share**2 / known).sum()) + SLACK))


def below_band(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The slices of `judge_slices` that are covered less than chance allows, each with what it is by."""
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
