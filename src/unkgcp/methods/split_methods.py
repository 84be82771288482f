"""Split conformal prediction over triples: the paper's CP and UnKGCP, and Shortest, which differ in the score alone."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence
from unkgcp.conformal.scores import EntropyResidual, Recipe, Residual, Score, reference_of, score_of
from unkgcp.conformal.split import SmallCalibrationWarning, SmallGroupWarning, SplitConformal
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, HasTriples, Triples, concatenate
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import entropy_bits, training_facts
from unkgcp.methods.partitions import (
    KIND,
    Groups,
    KindGroups,
    Partitioned,
    each_relation,
    group_degrees,
    group_doubt,
    group_relations,
)


class ConformalPredictor(Partitioned):
    """A nonconformity score of prediction and label, calibrated by rank; a subclass names the score.

    With `per="relation"` large relations have a threshold of their own and small ones share one with relations like
    them, with `per="doubt"` there is one for every group of scores with about the same entropy, and the promise holds
    in each of these groups (`unkgcp.methods.partitions`).
    """

    guarantee: str = "coverage of at least the level, for facts exchangeable with the calibration facts"
    ranks_scores: bool = True

    calibration: SplitConformal

    @abstractmethod
    def score(self) -> Score | Recipe:
        """The nonconformity score, or the recipe by which it is learned."""

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        recipe = self.score()
        learning = recipe.learning_rows(len(facts)) if isinstance(recipe, Recipe) else None
        if learning is not None:  # facts to learn from set no threshold
            self.ranked, waiting = facts[~learning], facts[learning]
            self.size = len(self.ranked)
            self.waiting = waiting if self.waiting is None else concatenate([self.waiting, waiting])
            self.kind_counts = np.bincount(self.kinds(self.ranked), minlength=len(self.kind_counts))
        self.partitions = tuple(self._group(name) for name in self._partition_names())
        group = self._columns(facts, score)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallCalibrationWarning)  # `caution` says it
            kind = self._kind(facts.relation)
            self.calibration = SplitConformal(recipe).calibrate(
                score, facts.confidence, group=group, kind=kind
            )
        self.rankings = self.calibration.rankings

    def _group(self, name: str) -> Groups:
        """Made from the model's training facts; without them every relation is a group, and others are refused."""
        if name == KIND:
            return KindGroups()
        relations = len(self.model.seen_relations)
        train = training_facts(self.model)
        if train is None:
            if name == "relation":
                return each_relation(relations)
            raise InputError(
                f"groups by {name} are made from training facts, which the model does not know; train it again, or "
                "leave them out of --per"
            )
        # the model was trained on all of them, so they show one kind for all
        kind = np.zeros(len(train), np.int8)
        if name == "degree":
            return group_degrees(train, len(self.model.seen_entities), kind, self.kind_counts)
        guess = self.model.score(train.head, train.relation, train.tail).astype(np.float64)
        if name == "doubt":
            return group_doubt(self._doubt(guess), kind, self.kind_counts)
        score = self.score()
        plain = score.fallback() if isinstance(score, Recipe) else score
        strange = plain.score(guess, train.confidence, plain.prepare(guess, None))
        return group_relations(train.relation, strange, relations, self.kind_counts)

    def doubt(self, triples: HasTriples, score: Floats | None = None) -> Floats:
        """The entropy of the score in bits: (n,). Like the groups, it does not depend on calibration facts."""
        return self._doubt(self._model_scores(triples) if score is None else score)

    def _doubt(self, score: Floats) -> Floats:
        return entropy_bits(score)

    def _columns(self, triples: HasTriples, score: Floats) -> dict[str, NDArray[np.int32]] | None:
        """The groups of triples whose scores are known."""
        return self.group_columns(triples, self._doubt(score) if "doubt" in self.per else None)

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        score = self._model_scores(triples)
        strange = self.calibration.scores(score, truth, kind=self._kind(triples.relation))
        return strange * np.sign(truth - score)

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        group, kind = self._columns(triples, score), self._kind(triples.relation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)  # `caution` says how many groups it concerns
            ends = self.calibration.interval(score, group=group, confidence=levels, kind=kind)
        # the set at level 0 is empty; an answer is never narrower than its score
        ends[:, :, [level == 0 for level in levels]] = score[:, None, None]
        return ends

    def _kind(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]] | None:
        """What a learned score may use of a triple beside the score of the model: (n,)."""
        return None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self.calibration.arrays() | self._group_arrays()

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.partitions = self._restored_groups(arrays)
        self.calibration = SplitConformal.from_arrays(arrays)
        if self.calibration.score != self.score() or self.calibration.training_conditional is not None:
            raise ValueError("the calibration belongs to another method or makes another promise")
        self.rankings = self._checked(self.calibration.rankings)


@register
class AbsoluteResidual(ConformalPredictor):
    """CP: M -+ q, where q is the k-th smallest |M - c| of the calibration facts; one width for all queries.

    Guarantee: a fact's confidence lies in its interval with probability at least `confidence`, over
    calibration facts and query together, and at most 1 / (l + 1) more if no scores are tied. Assumption:
    calibration facts and query are exchangeable, and the model was trained and chosen without the
    calibration facts. It speaks of facts like those of calibration; of triples that are no facts it
    promises nothing. `score` names another registered nonconformity score, with which the same holds.
    """

    name: str = "cp"

    def __init__(self, score: str = Residual.name, per: str | None = None, by_kind: bool = True) -> None:
        super().__init__(per, by_kind)
        self.measure = score_of(score)

    def score(self) -> Score:
        return self.measure

    def options(self) -> dict[str, Any]:
        reference = reference_of(self.measure)
        return {**({} if reference == Residual.name else {"score": reference}), **super().options()}


@register
class EntropyNormalised(ConformalPredictor):
    """UnKGCP: M -+ q H(M), where q is the k-th smallest |M - c| / H(M) of the calibration facts.

    H is the entropy of the predicted confidence, so that intervals are wide where the model is undecided.
    `mapped_entropy` takes the entropy at 0.5 M + 0.5, as the paper's experiments on CN15k did.

    Guarantee: as for CP, coverage of at least `confidence` over calibration facts and query together,
    whatever the entropy is worth as a measure of difficulty. Assumption: calibration facts and query are
    exchangeable, and the model was trained and chosen without the calibration facts.
    """

    name: str = "unkgcp"

    def __init__(self, mapped_entropy: bool = False, per: str | None = None, by_kind: bool = True) -> None:
        super().__init__(per, by_kind)
        self.mapped_entropy = bool(mapped_entropy)

    def score(self) -> Score:
        return EntropyResidual(slope=0.5, offset=0.5) if self.mapped_entropy else EntropyResidual()

    def _doubt(self, score: Floats) -> Floats:
        return entropy_bits(0.5 * score + 0.5 if self.mapped_entropy else score)

    def options(self) -> dict[str, Any]:
        return {"mapped_entropy": self.mapped_entropy, **super().options()}


@register
class ShortestIntervals(ConformalPredictor):
    """Shortest: the interval around the likeliest confidences of facts with such a score, widened by rank.

    One half of the calibration facts teaches how confidences are distributed given the score, in all relations alike
    or, where that helps, relation by relation; the other half is ranked. The interval says where the confidences of
    such facts are, so it need not contain the score itself: a model may score 0.9 where confidences are 0.4375 or 1.
    With fewer than `smallest` calibration facts it is CP on all of them.

    Guarantee: as for CP, coverage of at least `confidence` over calibration facts and query together, whatever was
    learned; frequent values tie, and ties can only raise it. Assumption: calibration facts and query are exchangeable
    in the order given, and the model was trained and chosen without the calibration facts.
    """

    name: str = "shortest"
    order_free: bool = False

    def __init__(self, smallest: int | None = None, per: str | None = None, by_kind: bool = True) -> None:
        super().__init__(per, by_kind)
        from unkgcp.conformal.shortest import Shortest  # other methods do not need it

        self.recipe = Shortest() if smallest is None else Shortest(smallest=int(smallest))

    def score(self) -> Recipe:
        return self.recipe

    def _kind(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        return relation

    def options(self) -> dict[str, Any]:
        return {"smallest": self.recipe.smallest, **super().options()}

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        # at level 0 the answer is the smallest set there is, that of the lowest rank
        lowest = Fraction(1, self.size + 1)
        return super()._ends(score, triples, [max(level, lowest) for level in levels])

    def caution(self, confidence: Confidence) -> str | None:
        caution = super().caution(confidence)
        if self.calibration.learned:
            return caution
        few = f"{self.size:,} calibration facts are too few to learn shortest intervals from: cp answers"
        return few if caution is None else f"{few}; {caution}"
