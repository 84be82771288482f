"""Evidence intervals: the interval grown through a learned distribution, calibrated by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import Codes, Ranking, Standing, group_codes, rank_groups, rank_scores
from unkgcp.conformal.ranks import Confidence, exact
from unkgcp.errors import InputError
from unkgcp.evidence.crossfit import CrossFit
from unkgcp.evidence.distribution import Distribution
from unkgcp.evidence.evidence_model import EvidenceModel
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import PerRelation, Scorer
from unkgcp.methods.registry import register
from unkgcp.methods.relation_groups import RelationGroups, group_relations

CHUNK = 1 << 14


@register
class EvidenceIntervals(PerRelation):
    """The interval that grows through the distribution of a query's confidence, up to a calibrated mass.

    `evidence` is what `unkgcp.evidence.learn` made of the proper training set. The nonconformity of a confidence is
    the mass that the query's interval holds just before it takes this confidence in; the threshold is the k-th
    smallest one of the calibration facts, or with `per="relation"` of those of the relation or of relations like it.
    The score is the mean of the distribution, not that of the backbone.

    Guarantee: a fact's confidence lies in its interval with probability at least `confidence`, over calibration facts
    and query together, however good or bad the distribution is. Where single values are so certain that they alone
    cover more than was asked, coverage is higher; with `allow_empty` the values that the model doubts most are then
    left out, their intervals are empty (NaN), and coverage is close to what was asked. The width of an interval says
    little about how likely it is to cover: one threshold answers sure and doubtful queries alike. Assumption:
    calibration facts and query are exchangeable, and the distribution was learned without the calibration facts.
    """

    name: str = "evidence"
    guarantee: str = "coverage of at least the level, for facts exchangeable with the calibration facts"
    needs: tuple[str, ...] = ("evidence",)
    own_answers: bool = True

    ranking: Ranking
    """The scores of all calibration facts, or those of each group."""
    found: NDArray[np.int32]
    """The groups that have calibration facts, upwards."""
    relations: NDArray[np.int32]
    """The relation of each calibration score, upwards: (l,)."""

    def __init__(
        self,
        evidence: EvidenceModel | None = None,
        backbone: CrossFit | None = None,
        per: str | None = None,
        allow_empty: bool = False,
    ) -> None:
        """`backbone`: the cross-fitted models with which a stored evidence model is restored."""
        super().__init__(per)
        if not isinstance(allow_empty, bool):
            raise InputError(f"allow_empty is {allow_empty!r} but must be true or false")
        self.allow_empty = allow_empty
        self.evidence = evidence
        self.backbone = backbone if evidence is None else evidence.backbone

    def models(self) -> dict[str, Scorer]:
        crossfit = self.backbone.by_name() if isinstance(self.backbone, CrossFit) else {}
        return {**super().models(), **{f"crossfit/{name}": model for name, model in crossfit.items()}}

    @classmethod
    def made_of(cls, models: Mapping[str, Any]) -> dict[str, Any]:
        crossfit = {
            name.removeprefix("crossfit/"): model
            for name, model in models.items()
            if name.startswith("crossfit/")
        }
        return {"backbone": CrossFit.from_names(crossfit)} if crossfit else {}

    def with_models(self, models: Mapping[str, Any]) -> Self:
        again = super().with_models(models)
        if self.evidence is not None:
            again.evidence = replace(self.evidence, backbone=again.backbone)
        return again

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        scores = self.nonconformity(facts, facts.confidence)
        order = np.lexsort((facts.relation, scores))
        self.relations = facts.relation[order]
        self.groups = None if self.per is None else self._relation_groups()
        self._rank(scores[order])

    def _relation_groups(self) -> RelationGroups:
        assert self.evidence is not None
        count = np.bincount(self.evidence.evidence.train.relation, minlength=len(self.model.seen_relations))
        relation, strange = self.evidence.strangeness_of_relations()
        return group_relations(relation, strange, len(count), self.size, count)

    def _rank(self, scores: Floats) -> None:
        """Put the scores, upwards and in the order of `relations`, in segments."""
        if self.groups is None:
            self.found, self.ranking = np.zeros(0, np.int32), rank_scores(scores)
            return
        group = self.groups.of(self.relations)
        self.found = np.unique(group)
        self.ranking = rank_groups(scores, group_codes(self.found, group), len(self.found))

    def options(self) -> dict[str, Any]:
        return {**super().options(), **({"allow_empty": True} if self.allow_empty else {})}

    def caution(self, confidence: Confidence) -> str | None:
        said = super().caution(confidence)
        level = exact(confidence)
        # below 1 are the scores of first cells alone
        if not self.allow_empty or not (self.ranking.thresholds([level], None) < 1).any():
            return said
        less = (
            f"facts whose value is too doubtful for confidence {float(level)} have an empty interval, no ends"
        )
        return less if said is None else f"{said}; {less}"

    def _codes(self, relation: NDArray[np.integer[Any]]) -> Codes | None:
        """The segment that answers each relation, -1 for the empty one: (n,); None without groups."""
        return None if self.groups is None else group_codes(self.found, self.groups.of(relation))

    def _group_size(self, group: NDArray[np.int32]) -> NDArray[np.int64]:
        return self.ranking.sizes[
            group_codes(self.found, group)
        ]  # code -1 is the last segment, which is empty

    def calibration_scores(self) -> tuple[Floats, NDArray[np.int32] | None]:
        return np.asarray(self.ranking.pooled().scores, np.float64), self.relations

    def doubt(self, triples: HasTriples) -> Floats:
        """The mass that the distribution gives to other values than the first one: (n,)."""
        parts = [1.0 - found.modes().belief for found in self._distributions(triples)]
        return np.clip(np.concatenate(parts), 0.0, 1.0) if parts else np.zeros(0)

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        """Score of a label of each known triple: (n,)."""
        parts = [
            found.scores(truth[start : start + CHUNK], self.allow_empty)
            for start, found in zip(range(0, len(truth), CHUNK), self._distributions(triples), strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def standing(self, triples: HasTriples, truth: Floats) -> Standing:
        return self.ranking.standing(self.nonconformity(triples, truth), self._codes(triples.relation))

    def _answers(
        self, triples: HasTriples, known: NDArray[np.intp], levels: list[Fraction]
    ) -> tuple[NDArray[np.float32], Floats]:
        n = len(triples.head)
        score = np.full(n, np.nan, dtype=np.float32)
        ends = np.empty((len(levels), 2, n)).transpose(2, 1, 0)
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        asked = Triples(triples.head[known], triples.relation[known], triples.tail[known])
        thresholds = self._thresholds(levels, self._codes(asked.relation), len(known))
        for place, found in enumerate(self._distributions(asked)):
            part = slice(place * CHUNK, (place + 1) * CHUNK)
            score[known[part]] = found.mean()
            ends[known[part]] = self._grown(found, thresholds[part])
        return score, ends

    def _thresholds(self, levels: list[Fraction], codes: Codes | None, n: int) -> Floats:
        """The threshold of each query at each level: (n, levels)."""
        table = np.asarray(self.ranking.thresholds(levels, None), np.float64)
        return np.broadcast_to(table[-1], (n, len(levels))) if codes is None else table[codes]

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        return self._ends_at(triples, self._thresholds(levels, self._codes(triples.relation), len(score)))

    def pooled(self, triples: HasTriples, confidence: Confidence) -> Floats:
        threshold = np.asarray(self.ranking.pooled().thresholds([exact(confidence)], None), np.float64)
        return self._ends_at(triples, np.repeat(threshold, len(triples.head), axis=0))[:, :, 0]

    def _ends_at(self, triples: HasTriples, thresholds: Floats) -> Floats:
        starts = range(0, len(thresholds), CHUNK)
        parts = [
            self._grown(found, thresholds[start : start + CHUNK])
            for start, found in zip(starts, self._distributions(triples), strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty((0, 2, thresholds.shape[1]))

    def _grown(self, found: Distribution, thresholds: Floats) -> Floats:
        """Ends at thresholds (n, levels): (n, 2, levels). The set at level 0 is empty.

        Unless it may be, it is the cell from which it grows.
        """
        least = -np.inf if self.allow_empty else 0.0
        ends = found.bounds(np.maximum(thresholds, least), self.allow_empty)
        whole = thresholds == np.inf
        ends[:, 0][whole], ends[:, 1][whole] = 0.0, 1.0
        return ends

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

    def _arrays(self) -> dict[str, NDArray[Any]]:
        assert self.evidence is not None
        model = {f"evidence.{name}": array for name, array in self.evidence.arrays().items()}
        scores, _ = self.calibration_scores()
        return {"scores": scores, "relations": self.relations, **self._group_arrays(), **model}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
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
        self.groups = self._restored_groups(arrays)
        self._rank(scores)
        own = {
            name.removeprefix("evidence."): array
            for name, array in arrays.items()
            if name.startswith("evidence.")
        }
        self.evidence = EvidenceModel.restore(own, self.backbone)
        seen = (len(self.model.seen_entities), len(self.model.seen_relations))
        if seen != (self.evidence.evidence.train.n_entities, self.evidence.evidence.train.n_relations):
            raise ValueError("the evidence belongs to another graph than the model")
