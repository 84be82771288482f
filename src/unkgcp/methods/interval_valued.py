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

from unkgcp.conformal.ranking import GroupRankings
from unkgcp.conformal.scores import EntropyResidual
from unkgcp.conformal.storage import to_arrays
from unkgcp.files import joined, under
from unkgcp.graph.facts import Graph, HasTriples, Triples, both_ends
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import Scorer, some_rows, status_codes
from unkgcp.methods.partitions import Groups, KindGroups, Partitioned


class IntervalValued(Partitioned):
    """What both methods share: the two models, and the scores of the calibration facts in order.

    `normalised` measures errors of the middle in units of the entropy of M, as UnKGCP does, instead of plainly.
    """

    needs: tuple[str, ...] = ("length",)
    names: tuple[str, ...]
    """What the sorted scores are called in a saved calibration."""

    takes_groups: bool = False

    def __init__(self, length: Scorer | None = None, normalised: bool = False, by_kind: bool = True) -> None:
        super().__init__(None, by_kind)
        self.length, self.normalised = length, bool(normalised)

    def options(self) -> dict[str, Any]:
        return {"normalised": self.normalised, **super().options()}

    def models(self) -> dict[str, Scorer]:
        return super().models() | ({} if self.length is None else {"length": self.length})

    @classmethod
    def made_of(cls, models: Mapping[str, Scorer]) -> dict[str, Any]:
        return {"length": models["length"]}

    def half_length(self, triples: HasTriples) -> Floats:
        """Half of the predicted length of each triple, 0 for one with an unknown entity or relation: (n,)."""
        if self.length is None:
            raise ValueError(f"method {self.name!r} needs a model of the length; train it with train_length")
        answerable = np.flatnonzero(status_codes(self.model, triples) == 0)
        half = np.zeros(len(triples.head))
        half[answerable] = 0.5 * self.length.score(*some_rows(triples, answerable)).astype(np.float64)
        return half

    def _unit(self, score: Floats) -> Floats:
        return EntropyResidual().prepare(score) if self.normalised else np.ones_like(score)

    def _group(self, name: str) -> Groups:
        return KindGroups()

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        self.partitions = tuple(self._group(name) for name in self._partition_names())
        columns = self.group_columns(facts)
        self.all_rankings = [
            GroupRankings.of(each, columns) for each in self._scores(score, facts, both_ends(facts.truth))
        ]
        self.rankings = self.all_rankings[0]

    @abstractmethod
    def _scores(self, score: Floats, triples: HasTriples, ends: Floats) -> list[Floats]:
        """The nonconformity scores of labels with these ends (n, 2), one array (n,) for each of `names`."""

    @abstractmethod
    def _reach(self, score: Floats, triples: Triples, thresholds: list[Floats]) -> Floats:
        """How far the interval of each triple reaches on both sides, given one threshold (n,) for each ranking."""

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        ranked = [self.ranked_level(level) for level in levels]
        thresholds = [self._thresholds(each.tables(ranked), triples, None) for each in self.all_rankings]
        ends = np.empty((len(score), 2, len(levels)))
        for column, level in enumerate(levels):
            at_level = [each[:, column] for each in thresholds]
            # the set at level 0 is empty; an answer is never narrower than its score
            reach = np.zeros(len(score)) if level == 0 else self._reach(score, triples, at_level)
            ends[:, 0, column], ends[:, 1, column] = score - reach, score + reach
        return ends.clip(0.0, 1.0)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return joined({name: to_arrays(r) for name, r in zip(self.names, self.all_rankings, strict=True)})

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.partitions = self._restored_groups(arrays)
        self.all_rankings = [self._restored_rankings(under(f"{name}/", arrays)) for name in self.names]
        self.rankings = self.all_rankings[0]


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

    def _reach(self, score: Floats, triples: Triples, thresholds: list[Floats]) -> Floats:
        half, more = self.half_length(triples), thresholds[0] * self._unit(score)
        # a score and its inverse round eight times; a label must lie in the interval at its own score
        rounding = 4 * np.finfo(np.float64).eps * (half + np.abs(more))
        # if the radius is below zero, no interval conforms, and the answer is the score alone
        return np.maximum(half + more + rounding, 0.0)

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        return self._scores(self._model_scores(triples), triples, both_ends(truth))[0]


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

    def ranked_level(self, level: Fraction) -> Fraction:
        return 1 - (1 - level) / 2

    def _scores(self, score: Floats, triples: HasTriples, ends: Floats) -> list[Floats]:
        mean, length = ends.mean(axis=1), ends[:, 1] - ends[:, 0]
        return [np.abs(score - mean) / self._unit(score), np.abs(2 * self.half_length(triples) - length)]

    def _reach(self, score: Floats, triples: Triples, thresholds: list[Floats]) -> Floats:
        mean, length = thresholds
        # four roundings lie between the ends of a fact and the two scores it ties with
        return (mean * self._unit(score) + self.half_length(triples) + 0.5 * length) * (1 + 1e-14) + 1e-15

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> None:
        """None: two thresholds make an interval."""
