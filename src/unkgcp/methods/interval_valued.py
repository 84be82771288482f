"""Confidences that are intervals themselves: an outer interval that contains the whole true one.

There are two methods over two models, one of the middle m of a confidence (`M`) and one of its length (`L`). Both
answer with an interval around M that contains lower *and* upper end of the true confidence with the chosen
probability. A plain number counts as an interval without length. The model of the length is trained by
`unkgcp.training.train_length`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import Ranking, Standing, rank_scores
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.conformal.scores import EntropyResidual
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor, Scorer


class IntervalValued(IntervalPredictor):
    """What both methods share: the two models, sorted scores of the calibration facts, and their relations.

    `normalised` measures errors of the middle in units of the entropy of M, as UnKGCP does, instead of plainly.
    """

    needs: tuple[str, ...] = ("length",)
    names: tuple[str, ...]
    """What the sorted scores are called in a saved calibration."""

    rankings: list[Ranking]

    def __init__(self, length: Scorer | None = None, normalised: bool = False) -> None:
        self.length, self.normalised = length, bool(normalised)

    def options(self) -> dict[str, Any]:
        return {"normalised": self.normalised}

    def models(self) -> dict[str, Scorer]:
        return super().models() | ({} if self.length is None else {"length": self.length})

    @classmethod
    def made_of(cls, models: Mapping[str, Scorer]) -> dict[str, Any]:
        return {"length": models["length"]}

    def half_length(self, triples: HasTriples) -> Floats:
        """Half of the predicted length of each known triple: (n,)."""
        if self.length is None:
            raise ValueError(f"method {self.name!r} needs a model of the length; train it with train_length")
        found = self.length.score(triples.head, triples.relation, triples.tail)
        return 0.5 * found.astype(np.float64)

    def _unit(self, score: Floats) -> Floats:
        if not self.normalised:
            return np.ones_like(score)
        return EntropyResidual().prepare(score).astype(np.float64, copy=False)

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        ends = facts.ends if facts.ends is not None else _both(facts.confidence)
        scores = self._scores(score, facts, ends)
        self.rankings = [rank_scores(column.copy()) for column in scores]
        self.relations = facts.relation[np.lexsort((facts.relation, scores[0]))]

    @abstractmethod
    def _scores(self, score: Floats, triples: HasTriples, ends: Floats) -> list[Floats]:
        """The nonconformity scores of labels with these ends (n, 2), one array (n,) for each of `names`."""

    def _thresholds(self, levels: list[Fraction]) -> Floats:
        """The k-th smallest score of each ranking at each level: (rankings, levels)."""
        return np.stack([ranking.thresholds(levels, None)[0].astype(np.float64) for ranking in self.rankings])

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1 or rank(self._level(level), self.size) <= self.size:
            return None
        return (
            f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
            "every interval is the whole range"
        )

    def _level(self, level: Fraction) -> Fraction:
        """The level at which each score is ranked so that all of them hold together at `level`."""
        return level

    def _arrays(self) -> dict[str, NDArray[Any]]:
        scores = {name: ranking.scores for name, ranking in zip(self.names, self.rankings, strict=True)}
        return {**scores, "relations": self.relations}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if set(arrays) - {"relations"} != set(self.names):
            raise ValueError(f"expected the scores {', '.join(self.names)}, found {', '.join(arrays)}")
        self.rankings = []
        for name in self.names:
            scores = np.array(arrays[name], np.float64)
            if scores.shape != (self.size,) or not self.size or not (scores[1:] >= scores[:-1]).all():
                raise ValueError(f"the scores {name} are damaged or belong to other facts")
            self.rankings.append(rank_scores(scores))
        self.relations = arrays.get("relations", np.zeros(self.size, np.int32))
        if self.relations.shape != (self.size,) or self.relations.dtype.kind != "i":
            raise ValueError("the relations of the calibration facts do not match their scores")


@register
class Joint(IntervalValued):
    """M -+ (L / 2 + t s), where t is the k-th smallest joint score of the calibration facts.

    The score of a true interval [a, b] is (max(M - a, b - M) - L / 2) / s: how far its farther end reaches beyond the
    predicted length, in units s (the entropy of M if `normalised`, else 1). One threshold makes both ends, so no
    probability is lost to a union bound, and t may be negative where the length is predicted too long.

    Guarantee: both ends of a fact's true interval lie in its interval with probability at least `confidence`, over
    calibration facts and query together, and at most 1 / (l + 1) more if no scores are tied. Assumption: calibration
    facts and query are exchangeable, and both models were trained and chosen without the calibration facts.
    """

    name: str = "joint"
    guarantee: str = (
        "both ends of the true interval are covered with at least the level, "
        "for facts exchangeable with the calibration facts"
    )
    names: tuple[str, ...] = ("joint",)
    ranks_scores: bool = True

    def _scores(self, score: Floats, triples: HasTriples, ends: Floats) -> list[Floats]:
        reach = np.maximum(score - ends[:, 0], ends[:, 1] - score)
        return [(reach - self.half_length(triples)) / self._unit(score)]

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        half, unit = self.half_length(triples), self._unit(score)
        ends = np.empty((len(score), 2, len(levels)))
        for column, threshold in enumerate(self._thresholds(levels)[0]):
            if levels[column] == 0:
                ends[:, 0, column] = ends[:, 1, column] = score
            elif threshold == np.inf:
                ends[:, 0, column], ends[:, 1, column] = 0.0, 1.0
            else:
                ends[:, :, column] = _ends_at(score, half, unit, threshold)
        return ends

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        score = self._model_scores(triples)
        return self._scores(score, triples, truth if truth.ndim == 2 else _both(truth))[0]

    def standing(self, triples: HasTriples, truth: Floats, score: Floats | None = None) -> Standing:
        return self.rankings[0].standing(self.nonconformity(triples, truth), None)

    def calibration_scores(self) -> tuple[Floats, NDArray[np.int32]]:
        return self.rankings[0].scores.astype(np.float64, copy=False), self.relations


@register
class MeanLength(IntervalValued):
    """M -+ (e + (L + f) / 2): an interval for the middle and one for the length, put together as the paper sketches.

    e is the k-th smallest |M - m| (times the entropy ratio if `normalised`) and f the k-th smallest |L - length| of
    the calibration facts, each at the level 1 - (1 - confidence) / 2. If middle and length both lie in their
    intervals, the true interval lies in the answer.

    Guarantee: both ends of a fact's true interval lie in its interval with probability at least `confidence`, by the
    union bound: each of the two fails with probability at most (1 - confidence) / 2, and usually not apart, so that
    coverage is larger and intervals wider than need be. Assumption: calibration facts and query are exchangeable, and
    both models were trained and chosen without the calibration facts.
    """

    name: str = "mean-length"
    guarantee: str = (
        "both ends of the true interval are covered with at least the level (union bound), "
        "for facts exchangeable with the calibration facts"
    )
    names: tuple[str, ...] = ("mean", "length")

    def _level(self, level: Fraction) -> Fraction:
        return 1 - (1 - level) / 2

    def _scores(self, score: Floats, triples: HasTriples, ends: Floats) -> list[Floats]:
        mean, length = ends.mean(axis=1), ends[:, 1] - ends[:, 0]
        return [np.abs(score - mean) / self._unit(score), np.abs(2 * self.half_length(triples) - length)]

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        half, unit = self.half_length(triples), self._unit(score)
        ends = np.empty((len(score), 2, len(levels)))
        for column, (mean, length) in enumerate(self._thresholds([self._level(level) for level in levels]).T):
            if levels[column] == 0:
                ends[:, 0, column] = ends[:, 1, column] = score
                continue
            # four roundings lie between the ends of a fact and the two scores it ties with
            reach = (mean * unit + half + 0.5 * length) * (1 + 1e-14) + 1e-15
            ends[:, 0, column] = np.clip(score - reach, 0.0, 1.0)
            ends[:, 1, column] = np.clip(score + reach, 0.0, 1.0)
        return ends


def _ends_at(score: Floats, half: Floats, unit: Floats, threshold: float) -> Floats:
    """Ends within which the whole label has a joint score of at most the threshold, cut to [0, 1]: (n, 2).

    If the radius is below zero, no interval conforms, and the answer is the score alone.
    """
    radius = half + threshold * unit
    # a score and its inverse round eight times; a label must lie in the interval at its own score
    radius += 4 * np.finfo(np.float64).eps * (half + np.abs(threshold) * unit)
    radius = np.maximum(radius, 0.0)
    return np.clip(np.stack([score - radius, score + radius], axis=1), 0.0, 1.0)


def _both(confidence: Floats) -> Floats:
    return np.stack([confidence, confidence], axis=1)
