"""Coverage above the band: harmless ties, or facts unlike those of calibration?

What it is: the coverage that the same scores would have if ties were broken at random. Labels that occur often make
scores tie, a tie is covered as a whole, and coverage then lies above what was asked although nothing is wrong. The
smoothed predictor covers a fact with a probability instead, which is worked out without drawing a number; for facts
like those of calibration its mean is the level exactly, and it varies no more than coverage without ties does. So if
it lies in the band too, ties explain the coverage; if not, that is strong evidence that the facts are others. What it
is not: an interval method. Intervals keep their ties whole, and cover at least as often.

>>> smoothed_coverage(Standing(np.array([0, 0]), np.array([9, 9]), np.array([9, 9])), 0.9)     # all scores are equal
0.9
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle import Predictor, to_triples
from unkgcp.conformal.predictors import Triples
from unkgcp.conformal.ranking import Standing
from unkgcp.conformal.ranks import Confidence, rank, smoothed_exceeds
from unkgcp.evaluation.bands import coverage_band
from unkgcp.evaluation.monitor.yardstick import keeps_scores
from unkgcp.graph import Graph


def smoothed_coverage(standing: Standing, confidence: Confidence, unknown: int = 0) -> float:
    """The mean probability of being covered with ties broken at random; `unknown` more facts always are."""
    covered = float(smoothed_exceeds(*standing, confidence).sum())
    return (covered + unknown) / (len(standing.below) + unknown)


def tie_figures(
    predictor: Predictor, facts: Graph, known: NDArray[np.bool_], levels: Sequence[float]
) -> list[dict[str, Any]] | None:
    """`confidence`, `coverage_smoothed` and `band` (low, high) of test facts at each level; unknown facts are covered.

    None for a method that ranks no scores, and in the open world, whose hulls have two thresholds. The band is None
    where every relation has a threshold, and where the answer at a level is no matter of rank.
    """
    ids, unknown = to_triples(facts, predictor.model.vocabulary), int((~known).sum())
    asked = Triples(*(column[known] for column in ids))
    standing = predictor.method.standing(asked, facts.truth[known]) if len(asked.head) else None
    if standing is None:
        return None
    one = keeps_scores(predictor.method)
    return [
        {
            "confidence": level,
            "coverage_smoothed": smoothed_coverage(standing, level, unknown),
            "band": _band(standing, level, unknown) if one else None,
        }
        for level in levels
    ]


def _band(standing: Standing, level: float, unknown: int) -> list[float] | None:
    known, size = len(standing.below), int(standing.size[0])
    if not 1 <= rank(level, size) <= size:
        return None
    ends = coverage_band(size, known, level)
    return [(end * known + unknown) / (known + unknown) for end in ends]
