"""Shortest intervals over triples: what confidences lie beside a score is learned, then calibrated by rank."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence
from unkgcp.conformal.shortest import Shortest
from unkgcp.graph.facts import Triples
from unkgcp.methods.intervals import Floats
from unkgcp.methods.registry import register
from unkgcp.methods.split_methods import ConformalPredictor


@register
class ShortestIntervals(ConformalPredictor):
    """Shortest: the interval around the likeliest confidences of facts with such a score, widened by rank.

    One half of the calibration facts teaches how confidences lie beside scores, in all relations alike or, where that
    helps, relation by relation; the other half is ranked. The
    interval says where such facts' confidences are, so it need not contain the score itself: a model may score
    0.9 where confidences are 0.4375 or 1. With fewer than `smallest` calibration facts it is CP on all of them.

    Guarantee: as for CP, coverage of at least `confidence` over calibration facts and query together, whatever was
    learned; frequent values tie, and ties can only raise it. Assumption: calibration facts and query are exchangeable
    in the order given, and the model was trained and chosen without the calibration facts.
    """

    name: str = "shortest"
    order_free: bool = False

    def __init__(self, smallest: int = Shortest.smallest, per: str | None = None) -> None:
        super().__init__(per)
        self.smallest = int(smallest)

    def score(self) -> Shortest:
        return Shortest(smallest=self.smallest)

    def _kind(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        return relation

    def options(self) -> dict[str, Any]:
        return {"smallest": self.smallest, **super().options()}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        if self.calibration.learned and not self.calibration.takes_kind:
            raise ValueError("the learned shapes do not know of relations")

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        # at level 0 the smallest set there is: the lowest rank answers
        lowest = Fraction(1, self.size + 1)
        return self._intervals(score, triples, [max(level, lowest) for level in levels])

    def caution(self, confidence: Confidence) -> str | None:
        found = super().caution(confidence)
        if self.calibration.learned:
            return found
        few = f"{self.size:,} calibration facts are too few to learn shortest intervals from: cp answers"
        return few if found is None else f"{few}; {found}"
