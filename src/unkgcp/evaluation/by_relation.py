"""Coverage relation by relation: with one threshold for all facts, and with a promise per relation.

What it is: the figures of `unkgcp evaluate RUN --per relation`. Each relation has its coverage on test facts and the
band in which coverage lies 99 times in 100 if the promise holds for that relation (exact: beta-binomial, given how many
calibration facts set its threshold). What it is not: a test of the run as a whole; see `unkgcp monitor`.

>>> (result,) = by_relation(ask(predictor, dataset, [0.9]))                 # doctest: +SKIP
>>> result["before"]["share_in_band"], result["after"]["share_in_band"]     # doctest: +SKIP
(0.8, 0.98)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import Answers, known_triples
from unkgcp.evaluation.metrics import coverage, coverage_bands, coverage_by_group, sharpness
from unkgcp.evaluation.slices import AT_LEAST, SLACK
from unkgcp.methods import create
from unkgcp.methods.intervals import BASES
from unkgcp.methods.open_world import OpenWorld
from unkgcp.methods.partitions import Partitioned
from unkgcp.run.calibration import check_untrained, only_repeats

Floats = NDArray[np.float64]

MASS = 0.99


class Way(NamedTuple):
    """One way to set thresholds: ends (n, levels) of known test facts, and the band of each relation (levels, r, 2)."""

    lower: Floats
    upper: Floats
    bands: Floats


def by_relation(answers: Answers) -> list[dict[str, Any]]:
    """Coverage and width of every relation with known test facts, and the share of relations in their band.

    Gives one object a level. `before` has one threshold for all facts, `after` one for each relation. For a run that
    was fitted without `--per relation`, `after` is calibrated here on the data set's calibration facts; the run itself
    stays as it is.
    """
    method, per_relation = _two_methods(answers)
    known, levels = answers.known, answers.levels
    ids, truth = known_triples(answers), answers.truth[known]
    if not len(truth):
        raise InputError(
            f"{answers.dataset.name} has no test facts about known relations; give a data set that has some"
        )
    relations, counts = np.unique(ids.relation, return_counts=True)
    sizes, basis = per_relation.relation_sizes(relations), per_relation.relation_basis(relations)
    own = answers.facts.lower[known], answers.facts.upper[known]
    if per_relation is method:
        pooled = np.stack([method.pooled(ids, level) for level in levels], axis=2)
        before, after = (pooled[:, 0], pooled[:, 1]), own
    else:
        again = per_relation.interval(ids, levels)
        before, after = own, (again.lower, again.upper)
    together = [method.size] * len(relations)
    ways = {
        "before": Way(*before, coverage_bands(together, counts.tolist(), levels, MASS)),
        "after": Way(*after, coverage_bands(sizes.tolist(), counts.tolist(), levels, MASS)),
    }
    labels = answers.predictor.model.vocabulary.relations
    described = [
        {"relation": labels[code].as_py(), "n": n, "calibration": size, "promise": BASES[promise]}
        for code, n, size, promise in zip(
            *(c.tolist() for c in (relations, counts, sizes, basis)), strict=True
        )
    ]
    return [
        {"confidence": level, "band": MASS, "at_least": AT_LEAST}
        | _at_level(place, level, ways, truth, ids.relation, described)
        for place, level in enumerate(levels)
    ]


def _two_methods(answers: Answers) -> tuple[Partitioned, Partitioned]:
    """The run's method and one with a promise per relation, which may be the same; both hold the same scores."""
    predictor, method = answers.predictor, answers.predictor.method
    if isinstance(method, OpenWorld):
        raise InputError(
            "a run for queries that may be no facts (--population open) has two promises; "
            "evaluate a run for asserted facts per relation"
        )
    if not isinstance(method, Partitioned):
        raise InputError(
            f"method {method.name!r} has no promise per relation; evaluate a run of cp, unkgcp, shortest or evidence"
        )
    if method.relation_groups is not None:
        return method, method
    facts = answers.dataset.splits.calibration.over(predictor.model.vocabulary)
    with only_repeats(answers.dataset.split_here):
        check_untrained(predictor.model, facts, predictor.provenance.get("protocol", "strict"))
    # the options that `fit --per relation` would take, which has no floor under the intervals
    options = {name: value for name, value in method.options().items() if name != "floor"}
    options["per"] = ",".join([*method.per, "relation"])
    if "evidence" in method.needs:
        options["evidence"] = method.evidence
    again = create(method.name, **options).calibrate(predictor.model, facts)
    assert isinstance(again, Partitioned)
    return method, again


def _at_level(
    place: int,
    level: float,
    ways: dict[str, Way],
    truth: Floats,
    relation: NDArray[np.int32],
    described: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Totals of both ways at one level, and every relation with its figures, the largest first."""
    rows = [dict(about) for about in described]
    totals = {}
    for name, way in ways.items():
        lower, upper = way.lower[:, place], way.upper[:, place]
        slices = coverage_by_group(truth, lower, upper, relation)
        bands = way.bands[place].tolist()
        for row, share, width, (low, high) in zip(
            rows, slices.coverage, slices.sharpness, bands, strict=True
        ):
            row[name] = {
                "coverage": float(share),
                "sharpness": float(width),
                "band": [low, high],
                "in_band": bool(low - SLACK <= share <= high + SLACK),
            }
        large = [row[name] for row in rows if row["n"] >= AT_LEAST]
        below = [row["coverage"] < row["band"][0] - SLACK for row in large]
        totals[name] = {
            "coverage": coverage(truth, lower, upper),
            "sharpness": sharpness(lower, upper),
            "relations": len(large),
            "share_in_band": float(np.mean([row["in_band"] for row in large])) if large else None,
            "share_below_band": float(np.mean(below)) if large else None,
            "worst_coverage": min((row["coverage"] for row in large), default=None),
        }
    rows.sort(key=lambda row: (-row["n"], row["relation"]))
    return {**totals, "relations": rows}
