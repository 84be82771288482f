"""Evidence intervals: the interval grown through a learned distribution, calibrated by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.predictors.base import (
    Floats,
    HasTriples,
    IntervalPredictor,
    Triples,
)
from unkgcp.conformal.predictors.registry import register
from unkgcp.conformal.ranking import Ranking, Standing, rank_scores
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.errors import InputError
from unkgcp.graph import Graph

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel
    from unkgcp.evidence.distribution import Distribution
    from unkgcp.evidence.model import Scores

CHUNK = 1 << 14


@register
class EvidenceIntervals(IntervalPredictor):
    """The interval that grows through the distribution of a query's confidence, up to a calibrated mass.

    `evidence` is what `unkgcp.evidence.learn` made of the proper training set. The nonconformity of a confidence is
    the mass that the query's interval holds just before it takes this confidence in; the threshold is the k-th
    smallest one of the calibration facts. The score is the mean of the distribution, not that of the backbone.

    Guarantee: a fact's confidence lies in its interval with probability at least `confidence`, over calibration facts
    and query together, however good or bad the distribution is. Where single values are so certain that they alone
    cover more than was asked, coverage is higher. Assumption: calibration facts and query are exchangeable, and the
    distribution was learned without the calibration facts.
    """

    name: ClassVar[str] = "evidence"
    guarantee: ClassVar[str] = (
        "coverage of at least the level, for facts exchangeable with the calibration facts"
    )
    needs_evidence: ClassVar[bool] = True

    ranking: Ranking
    relations: NDArray[np.int32]
    """The relation of each calibration score, upwards: (l,)."""

    def __init__(self, evidence: EvidenceModel | None = None, backbone: Scores | None = None) -> None:
        """`backbone`: the cross-fitted models with which a stored evidence model is restored."""
        self.evidence = evidence
        self.backbone = backbone if evidence is None else evidence.backbone

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        scores = self.nonconformity(facts, facts.confidence)
        order = np.lexsort((facts.relation, scores))
        self.relations = facts.relation[order]
        self.ranking = rank_scores(scores[order])

    def calibration_scores(self) -> tuple[Floats, NDArray[np.int32] | None]:
        return np.asarray(self.ranking.scores, np.float64), self.relations

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        """Score of a label of each known triple: (n,)."""
        parts = [
            found.scores(truth[start : start + CHUNK])
            for start, found in zip(range(0, len(truth), CHUNK), self._distributions(triples), strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def p_value(self, triples: HasTriples, label: Floats) -> Floats:
        """(1 + #{s_i >= s}) / (l + 1) of a label of each known triple: (n,)."""
        return self.ranking.p_values(self.nonconformity(triples, label), None, None)

    def standing(self, triples: HasTriples, truth: Floats) -> Standing:
        return self.ranking.standing(self.nonconformity(triples, truth), None)

    def _answers(
        self, triples: HasTriples, known: NDArray[np.intp], levels: list[Fraction]
    ) -> tuple[NDArray[np.float32], Floats]:
        n = len(triples.head)
        score = np.full(n, np.nan, dtype=np.float32)
        ends = np.empty((len(levels), 2, n)).transpose(2, 1, 0)
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        thresholds = self._thresholds(levels)
        asked = Triples(triples.head[known], triples.relation[known], triples.tail[known])
        for place, found in enumerate(self._distributions(asked)):
            rows = known[place * CHUNK : (place + 1) * CHUNK]
            score[rows] = found.mean()
            ends[rows] = self._grown(found, levels, thresholds)
        return score, ends

    def _thresholds(self, levels: list[Fraction]) -> Floats:
        return np.asarray(self.ranking.thresholds(levels, None)[0], np.float64)

    def _grown(self, found: Distribution, levels: list[Fraction], thresholds: Floats) -> Floats:
        """Ends at each level; the set at level 0 is empty, and the answer is the cell from which it grows."""
        ends = found.bounds(np.broadcast_to(np.maximum(thresholds, 0.0), (len(found), len(levels))))
        for column, threshold in enumerate(thresholds):
            if threshold == np.inf:
                ends[:, 0, column], ends[:, 1, column] = 0.0, 1.0
        return ends

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        thresholds = self._thresholds(levels)
        parts = [self._grown(found, levels, thresholds) for found in self._distributions(triples)]
        return np.concatenate(parts) if parts else np.empty((0, 2, len(levels)))

    def _distributions(self, triples: HasTriples) -> Iterator[Distribution]:
        """The distributions of consecutive chunks of the triples."""
        if self.evidence is None:
            raise InputError(
                "method 'evidence' needs an evidence model; learn one with unkgcp.evidence.learn"
            )
        for start in range(0, len(triples.head), CHUNK):
            part = slice(start, start + CHUNK)
            yield self.evidence.distribution(
                Triples(triples.head[part], triples.relation[part], triples.tail[part])
            )

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1 or rank(level, self.size) <= self.size:
            return None
        return (
            f"{self.size:,} calibration facts are too few for confidence {float(level):g}: "
            "every interval is the whole range"
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        assert self.evidence is not None
        model = {f"evidence.{name}": array for name, array in self.evidence.arrays().items()}
        return {"scores": self.ranking.scores, "relations": self.relations, **model}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        from unkgcp.evidence import EvidenceModel

        if "scores" not in arrays or "relations" not in arrays:
            raise ValueError("the calibration lacks its scores or their relations")
        scores = np.array(arrays["scores"], np.float64)
        self.relations = np.array(arrays["relations"])
        if (
            not scores.shape == self.relations.shape == (self.size,)
            or not (scores >= 0).all()
            or not self.size
        ):
            raise ValueError("the calibration scores are damaged or belong to other facts")
        if (np.diff(scores) < 0).any() or self.relations.dtype != np.int32:
            raise ValueError("the calibration scores are not in order")
        self.ranking = rank_scores(scores)
        own = {
            name.removeprefix("evidence."): array
            for name, array in arrays.items()
            if name.startswith("evidence.")
        }
        self.evidence = EvidenceModel.restore(own, self.backbone)
        seen = (len(self.model.seen_entities), len(self.model.seen_relations))
        if seen != (self.evidence.evidence.train.n_entities, self.evidence.evidence.train.n_relations):
            raise ValueError("the evidence belongs to another graph than the model")
