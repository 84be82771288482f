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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.evaluation.excess_risk import excess_risk
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.known import degree_of, degrees
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


def describe(
    method: IntervalPredictor, training_facts: Callable[[], Graph], triples: Triples, score: Floats
) -> Queries:
    """The columns of known triples in the ids of the training facts, with the scores that the method gave them."""
    train = training_facts()
    vocabulary = train.vocabulary
    frequency = np.bincount(train.relation, minlength=len(vocabulary.relations))
    degree = degree_of(triples, degrees(train, len(vocabulary.entities)))
    doubt = method.doubt(triples, None if method.own_answers else score)
    return Queries(score, doubt, degree, triples.relation, frequency[triples.relation])


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
    levels: Sequence[float],
    *,
    sizes: Ints | None,
    seed: int,
) -> list[dict[str, Any]]:
    """`slices` with their figures and bands, `worst` coverage by each quantity, and `ert`, at each level.

    truth: (n,) or (n, 2); lower, upper: (n, levels). `sizes`, (n,), says how many calibration facts set the threshold
    of each row; None where no law says how coverage scatters, and then there are no bands. In `worst`,
    `most_doubtful` is the coverage of the last tenth of doubt. Everything is None where there is nothing to tell it
    from.
    """
    bands = bands_of([part.member for part in slices], sizes, levels)
    features, found = queries.features(), []
    for place, level in enumerate(levels):
        ends = lower[:, place], upper[:, place]
        inside = metrics.contains(truth, *ends)
        columns = inside, metrics.widths(*ends), metrics.interval_scores(truth, *ends, level)
        slab = metrics.worst_slab_coverage(
            features, inside, rng=np.random.default_rng(seed), share=SLAB_SHARE, directions=DIRECTIONS
        )
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
    return found


def figures_of(
    slices: Sequence[Slices],
    columns: tuple[NDArray[np.bool_], Floats, Floats],
    bands: Sequence[Sequence[list[float] | None]],
) -> dict[str, list[dict[str, Any]]]:
    """The figures of every slice beside its band, by quantity; columns, (n,) each: covered, width, interval score."""
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
    """Calibration facts behind the coverage of each slice, of rows whose thresholds were set by so many facts each.

    member: the slice of each row, -1 for none; sizes: (n,) too; gives (slices,). Where all rows of a slice have one
    threshold it is exactly their number. The coverage of rows with several, independent thresholds scatters like that
    of one threshold by as many facts as make 1 / l the mean of 1 / l_g, weighted with the square of each group's
    share. Rows without calibration facts have the whole range and do not scatter; 0 if all are such. Groups of equal
    size count as one, which can only widen the band.
    """
    rows = (member >= 0) & (sizes > 0)
    (of, size), count = np.unique(np.stack([member[rows], sizes[rows]]), axis=1, return_counts=True)
    share = count / np.bincount(of, weights=count, minlength=slices)[of]
    spread = np.bincount(of, weights=share**2 / size, minlength=slices)
    known = spread > 0
    least = np.floor(1.0 / np.where(known, spread, 1.0) + SLACK)
    return np.where(known, np.maximum(least, 1.0), 0.0).astype(np.int64)


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
