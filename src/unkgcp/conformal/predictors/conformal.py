"""Split conformal prediction over triples: the paper's CP and UnKGCP, which differ in the score alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.predictors.base import Floats, HasTriples, IntervalPredictor, Triples
from unkgcp.conformal.predictors.registry import register
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.conformal.scores import EntropyResidual, Residual, Score
from unkgcp.conformal.split import SplitConformal
from unkgcp.conformal.storage import from_arrays, to_arrays
from unkgcp.graph import Graph


class ConformalPredictor(IntervalPredictor):
    """A nonconformity score of prediction and label, calibrated by rank; a subclass names the score."""

    guarantee: ClassVar[str] = (
        "coverage of at least the level, for facts exchangeable with the calibration facts"
    )

    calibration: SplitConformal
    relations: NDArray[np.int32] | None
    """The relation of each calibration score, upwards: (l,); None in runs of older versions."""

    @abstractmethod
    def score(self) -> Score:
        """The nonconformity score."""

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        self.calibration = SplitConformal(self.score()).calibrate(score, facts.confidence)
        scores = self.calibration.scores(score, facts.confidence)
        self.relations = facts.relation[np.lexsort((facts.relation, scores))]

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        score = self.model.score(triples.head, triples.relation, triples.tail)
        return self.calibration.scores(score.astype(np.float64), truth).astype(np.float64, copy=False)

    def calibration_scores(self) -> tuple[Floats, NDArray[np.int32] | None]:
        return self.calibration.calibration_scores.astype(np.float64, copy=False), self.relations

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        ends = self.calibration.interval(score, confidence=levels).astype(np.float64, copy=False)
        # the set at level 0 is empty; an answer is never narrower than its score
        for column in (place for place, level in enumerate(levels) if level == 0):
            ends[:, :, column] = score[:, None]
        return ends

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1 or rank(level, self.size) <= self.size:
            return None
        return (
            f"{self.size:,} calibration facts are too few for confidence {float(level):g}: "
            "every interval is the whole range"
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        kept = {} if self.relations is None else {"relations": self.relations}
        return to_arrays(self.calibration) | kept

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        rest = dict(arrays)
        self.relations = rest.pop("relations", None)
        self.calibration = from_arrays(rest)
        if self.relations is not None and (
            self.relations.shape != (self.size,) or self.relations.dtype.kind != "i"
        ):
            raise ValueError("the relations of the calibration facts do not match their scores")
        if self.calibration.size != self.size or self.calibration.score != self.score():
            raise ValueError("the calibration belongs to another method or to other facts")


@register
class AbsoluteResidual(ConformalPredictor):
    """CP: M -+ q, where q is the k-th smallest |M - c| of the calibration facts; one width for all queries.

    Guarantee: a fact's confidence lies in its interval with probability at least `confidence`, over
    calibration facts and query together, and at most 1 / (l + 1) more if no scores are tied. Assumption:
    calibration facts and query are exchangeable, and the model was trained and chosen without the
    calibration facts. It speaks of facts like those of calibration; of triples that are no facts it
    promises nothing.
    """

    name: ClassVar[str] = "cp"

    def score(self) -> Score:
        return Residual()


@register
class EntropyNormalised(ConformalPredictor):
    """UnKGCP: M -+ q H(M), where q is the k-th smallest |M - c| / H(M) of the calibration facts.

    H is the entropy of the predicted confidence, so that intervals are wide where the model is undecided.
    `mapped_entropy` takes the entropy at 0.5 M + 0.5, as the paper's experiments on CN15k did.

    Guarantee: as for CP, coverage of at least `confidence` over calibration facts and query together,
    whatever the entropy is worth as a measure of difficulty. Assumption: calibration facts and query are
    exchangeable, and the model was trained and chosen without the calibration facts.
    """

    name: ClassVar[str] = "unkgcp"

    def __init__(self, mapped_entropy: bool = False) -> None:
        self.mapped_entropy = bool(mapped_entropy)

    def score(self) -> Score:
        return EntropyResidual(slope=0.5, offset=0.5) if self.mapped_entropy else EntropyResidual()

    def options(self) -> dict[str, Any]:
        return {"mapped_entropy": self.mapped_entropy}
