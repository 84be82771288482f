"""Coverage relation by relation: with one threshold for all facts, and with a promise per relation.

What it is: the diagnostic behind `unkgcp evaluate RUN --per relation`. Each relation's coverage on test facts stands
beside the band in which it lies 99 times in 100 if the promise holds for that relation, exactly (beta-binomial, given
how many calibration facts set its threshold). What it is not: a test of the run as a whole; see `unkgcp monitor`.

>>> result = by_relation(predictor, dataset, 0.9)     # doctest: +SKIP
>>> result["before"]["share_in_band"], result["after"]["share_in_band"]     # doctest: +SKIP
(0.8, 0.98)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import Slices, coverage_band, coverage_by_group, widths
from unkgcp.evaluation.text import table
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.graph.queries import to_triples
from unkgcp.methods import create
from unkgcp.methods.method import PerRelation, status_codes
from unkgcp.methods.open_world import OpenWorld
from unkgcp.methods.relation_groups import BASES
from unkgcp.run import Predictor
from unkgcp.run.untrained import check_untrained

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

MASS = 0.99
AT_LEAST = 50
"""Relations with fewer test facts are listed but not counted: their band is nearly everything."""


def by_relation(predictor: Predictor, dataset: Dataset, confidence: float) -> dict[str, Any]:
    """Coverage and width of every relation with known test facts, before and after, and the share in the band.

    `before` is the threshold of all facts together, `after` the promise per relation. A run that was fitted without
    `--per relation` is calibrated anew on the data set's calibration facts for the comparison; it is not changed.
    """
    before, after = _two_ways(predictor, dataset)
    facts = dataset.splits.test
    ids = to_triples(facts, predictor.model.vocabulary)
    known = status_codes(predictor.model, ids) == 0
    ids, truth = Triples(*(column[known] for column in ids)), facts.confidence[known]
    if not len(truth):
        raise InputError(
            f"{dataset.name} has no test facts about known relations; give a data set that has some"
        )
    pooled = before.pooled(ids, confidence)
    own = after.interval(ids, confidence)
    assert own.basis is not None
    slices = [
        coverage_by_group(truth, pooled[:, 0], pooled[:, 1], ids.relation),
        coverage_by_group(truth, own.lower, own.upper, ids.relation),
    ]
    relations = slices[0].key.astype(np.int32)
    sizes, basis = after.relation_sizes(relations), after.relation_basis(relations)
    bands = [
        [coverage_band(before.size, int(n), confidence, MASS) for n in slices[0].n],
        [
            coverage_band(int(size), int(n), confidence, MASS)
            for size, n in zip(sizes, slices[0].n, strict=True)
        ],
    ]
    labels = predictor.model.vocabulary.relations
    rows = [
        {
            "relation": labels[int(relation)].as_py(),
            "n": int(slices[0].n[place]),
            "calibration": int(sizes[place]),
            "promise": BASES[basis[place]],
            "before": _figures(slices[0], bands[0], place),
            "after": _figures(slices[1], bands[1], place),
        }
        for place, relation in enumerate(relations)
    ]
    rows.sort(key=lambda row: (-row["n"], row["relation"]))
    summary = {
        when: _summary(rows, when, coverage, width)
        for when, coverage, width in (
            ("before", (pooled[:, 0] <= truth) & (truth <= pooled[:, 1]), widths(pooled[:, 0], pooled[:, 1])),
            ("after", (own.lower <= truth) & (truth <= own.upper), own.width),
        )
    }
    return {"confidence": confidence, "band": MASS, "at_least": AT_LEAST, **summary, "relations": rows}


def _two_ways(predictor: Predictor, dataset: Dataset) -> tuple[PerRelation, PerRelation]:
    """The method with one threshold and with one a relation; both hold the same calibration scores."""
    method = predictor.method
    if isinstance(method, OpenWorld):
        raise InputError(
            "a run for queries that may be no facts (--population open) has two promises; "
            "evaluate a run for asserted facts per relation"
        )
    if not isinstance(method, PerRelation):
        raise InputError(
            f"method {method.name!r} has no promise per relation; evaluate a run of cp, unkgcp, shortest or evidence"
        )
    if method.groups is not None:
        return method, method
    calibration = dataset.splits.calibration
    facts = Graph(
        *to_triples(calibration, predictor.model.vocabulary),
        calibration.confidence,
        predictor.model.vocabulary,
    )
    check_untrained(predictor.model, facts, predictor.provenance.get("protocol", "strict"))
    options = {**method.options(), "per": "relation"}
    if "evidence" in method.needs:
        options["evidence"] = method.evidence
    again = create(method.name, **options).calibrate(predictor.model, facts)
    assert isinstance(again, PerRelation)
    return method, again


def _figures(slices: Slices, bands: list[tuple[float, float]], place: int) -> dict[str, Any]:
    coverage, (low, high) = float(slices.coverage[place]), bands[place]
    slack = 1e-9  # shares of the same count computed in two ways
    return {
        "coverage": coverage,
        "sharpness": float(slices.sharpness[place]),
        "band": [low, high],
        "in_band": low - slack <= coverage <= high + slack,
    }


def _summary(
    rows: list[dict[str, Any]], when: str, covered: NDArray[np.bool_], width: NDArray[np.float64]
) -> dict[str, Any]:
    large = [row[when] for row in rows if row["n"] >= AT_LEAST]
    below = [row["coverage"] < row["band"][0] - 1e-9 for row in large]
    return {
        "coverage": float(covered.mean()),
        "sharpness": float(width.mean()),
        "relations": len(large),
        "share_in_band": float(np.mean([row["in_band"] for row in large])) if large else None,
        "share_below_band": float(np.mean(below)) if large else None,
        "worst_coverage": min((row["coverage"] for row in large), default=None),
    }


def relations_text(result: dict[str, Any], most: int = 30) -> str:
    """The object of `by_relation` for people: the largest relations, then what it comes to."""
    rows = [row for row in result["relations"] if row["n"] >= AT_LEAST] or result["relations"]

    def cells(row: dict[str, Any]) -> list[str]:
        parts = [row["relation"], f"{row['n']:,}", f"{row['calibration']:,}", row["promise"]]
        for when in ("before", "after"):
            figures = row[when]
            low, high = figures["band"]
            mark = " " if figures["in_band"] else "!"
            parts += [
                f"{figures['coverage']:.3f}{mark}",
                f"{low:.2f}-{high:.2f}",
                f"{figures['sharpness']:.3f}",
            ]
        return parts

    header = [
        "relation",
        "test",
        "calibration",
        "promise",
        "before",
        "band",
        "width",
        "after",
        "band",
        "width",
    ]
    lines = [
        f"coverage by relation at {result['confidence']:g}, with one threshold for all facts (before) and one a "
        "relation (after)",
        f"! lies outside the band that holds {result['band']:.0%} of coverages if the promise is kept",
        "",
        table(header, [cells(row) for row in rows[:most]]),
    ]
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most:,} more; --json lists all")
    for when in ("before", "after"):
        part = result[when]
        share = "-" if part["share_in_band"] is None else f"{part['share_in_band']:.1%}"
        lines.append(
            f"{when}: coverage {part['coverage']:.4f}, width {part['sharpness']:.3f}; {share} of "
            f"{part['relations']:,} relations with at least {result['at_least']} test facts lie in their band"
        )
    return "\n".join(lines)
