"""The open world: a query may be no fact at all. There is one promise for facts, and one for each kind of non-facts.

This joins an interval method for facts with a second calibration on triples that are no facts (corrupted facts, whose
confidence is 0). A query is flagged as perhaps no fact unless it looks more like a fact than almost all of those do.
The answer is the interval of a fact, the flag, and the hull of the interval and, if the flag is set, 0. It is no
classifier: it does not say which class a query has, and each class is covered by its own calibration.

>>> open_world(create("cp").calibrate(model, facts), negatives).interval(triples).no_fact       # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import Ranking
from unkgcp.conformal.ranks import Confidence, exact, exact_levels, rank
from unkgcp.conformal.selection import Range, Wrong
from unkgcp.errors import InputError
from unkgcp.evidence.evidence_model import EvidenceModel
from unkgcp.evidence.nonfacts import FactLikeness
from unkgcp.files import Field, check_fields, under
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.graph.known_facts import facts_to_arrays
from unkgcp.graph.negatives import ALL_KINDS
from unkgcp.methods.intervals import Floats, Intervals, Levels
from unkgcp.methods.method import NOT_KEPT, IntervalPredictor, Scorer, some_rows, status_codes, stored_facts

SCORES, LIKENESS = "calibration/scores.", "likeness/"
TRIPLES = "calibration/triples/"
"""How the arrays of a saved calibration on non-facts are named."""
OF_FACTS = (
    *("models", "options", "arrays", "doubt", "calibration_facts"),
    *("threshold_sizes", "nonconformity", "floor_scores"),
)
"""What the open world has from its method for facts, whose intervals lie in the hulls."""


class Likeness(Protocol):
    """How much a known triple looks like a fact."""

    def __call__(self, triples: HasTriples) -> Floats:
        """(n,), larger for what looks more like a fact. It was learned without calibration or test facts."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it learned."""


class OpenWorld(IntervalPredictor):
    """An interval method for facts, and calibrated scores of triples that are no facts.

    Guarantee: the confidence of a fact lies in its hull with probability at least the level, and for a triple that is
    no fact (confidence 0) the flag is set, so that its hull holds 0, with probability at least the level: for each
    kind of non-facts it was calibrated with, whatever share the classes have. Assumption: facts are exchangeable with
    the calibration facts, and non-facts with the corrupted ones of one of the kinds.
    """

    own_answers: bool = True
    for_open_world: bool = True

    def __init__(
        self,
        base: IntervalPredictor,
        likeness: Likeness,
        scores: Mapping[str, Floats],
        nonfacts: Mapping[str, Graph] | None = None,
    ) -> None:
        """`scores`: for each kind of non-facts the likeness of the calibration ones, upwards.

        `nonfacts`: the same triples in any order, None if they are over no vocabulary.
        """
        self.base, self.likeness = base, likeness
        self.scores, self.nonfacts, self.nonfact_kinds = dict(scores), nonfacts, tuple(scores)
        self.name, self.needs, self.order_free = base.name, base.needs, base.order_free
        self.asks_model = base.asks_model
        self.model, self.size, self.evidence = base.model, base.size, base.evidence
        self.partitions, self.ranked, self.waiting = base.partitions, base.ranked, base.waiting
        for name in OF_FACTS:
            setattr(self, name, getattr(base, name))
        self.guarantee = (
            "coverage of at least the level, for facts and for triples that are no facts "
            f"({', '.join(self.scores)}), without knowing which"
        )

    @property
    def tells_kinds(self) -> bool:
        return self.base.tells_kinds

    @property
    def one_threshold(self) -> bool:
        return self.base.one_threshold

    @property
    def within(self) -> str:
        return f"and for facts {self.base.within}" if self.base.within else ""

    def with_models(self, models: Mapping[str, Scorer]) -> OpenWorld:
        return restore_open_world(self.base.with_models(models), self.nonfact_arrays())

    def interval(self, triples: HasTriples, confidence: Levels = 0.9) -> Intervals:
        """Score and hull of each triple, whether it may be no fact, and its interval if it is one."""
        levels, single = exact_levels(confidence)
        # with the largest threshold of all kinds the promise holds whichever kind a non-fact is of
        rankings = [Ranking(scores, np.array([len(scores)])) for scores in self.scores.values()]
        limits = np.max([ranking.thresholds(levels)[0] for ranking in rankings], axis=0)
        fact = self.base.interval(triples, levels)
        answerable = np.flatnonzero(fact.code == 0)
        flags = np.ones((len(fact), len(levels)), bool)
        if len(answerable):
            queries = some_rows(triples, answerable)
            flags[answerable] = self.likeness(queries)[:, None] <= limits
        lower = np.where(flags, 0.0, fact.lower)
        upper = np.where(flags & np.isnan(fact.upper), 0.0, fact.upper)  # nothing but "no fact" is left
        changes: dict[str, Any] = {"lower": lower, "upper": upper, "no_fact": flags}
        changes |= {"fact_lower": fact.lower, "fact_upper": fact.upper}
        if single:
            changes = {name: column[:, 0] for name, column in changes.items()}
        changes["confidence"] = float(levels[0]) if single else [float(level) for level in levels]
        return replace(fact, **changes)

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        few = [
            scores for scores in self.scores.values() if level < 1 and rank(level, len(scores)) > len(scores)
        ]
        if few:
            return (
                f"{len(few[0]):,} calibration non-facts are too few for confidence {float(level)}: "
                "no query is told from a non-fact"
            )
        return self.base.caution(confidence)

    def passing(self, triples: HasTriples, condition: Range) -> Floats:
        """The probability that the confidence passes, where that of a non-fact is 0: (n,).

        With a method whose score is no probability it is that score: a low one stands for low facts and non-facts
        alike. Facts and non-facts have the same score, so that p-values of both fall together as it rises.
        """
        passing = self.base.passing(triples, condition)
        if not isinstance(self.likeness, FactLikeness):
            return passing
        fact = self.likeness(triples)
        return fact * passing + (1 - fact) * float(condition.holds(np.zeros(1))[0])

    def wrong_nonfacts(self, condition: Range) -> dict[str, Wrong]:
        if condition.holds(np.zeros(1))[0]:
            return {}
        if self.nonfacts is None:
            raise InputError(NOT_KEPT)
        scores = {kind: self.passing(triples, condition) for kind, triples in self.nonfacts.items()}
        return {kind: Wrong(passing, len(passing)) for kind, passing in scores.items()}

    def likeness_over(self, evidence: EvidenceModel) -> FactLikeness | None:
        return replace(self.likeness, model=evidence) if isinstance(self.likeness, FactLikeness) else None

    def check_subsets(self) -> None:
        raise InputError(
            "intervals after a selection are offered for runs that take every query for a fact; "
            "fit one without --population open"
        )

    def nonfact_arrays(self) -> dict[str, NDArray[Any]]:
        """Scores of every kind, and what the likeness learned."""
        nonfacts = self.nonfacts or {}
        return {
            **{f"{SCORES}{kind}": scores for kind, scores in self.scores.items()},
            **facts_to_arrays({f"{TRIPLES}{kind}/": triples for kind, triples in nonfacts.items()}),
            **{f"{LIKENESS}{name}": array for name, array in self.likeness.arrays().items()},
        }

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        raise TypeError("the open world joins two calibrations: see open_world")

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        return self.base._ends(score, triples, levels)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self.base._arrays()

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        raise TypeError("the open world is put together from its parts: see restore_open_world")


def open_world(
    base: IntervalPredictor,
    negatives: Mapping[str, HasTriples],
    likeness: Likeness | None = None,
) -> OpenWorld:
    """Join a calibrated method for facts with a calibration on triples that are no facts, kind by kind.

    `likeness` is by default how strange the confidence 0 is to the method itself, or the model's score.
    """
    likeness = likeness or ScoreLikeness(base)
    scores, kept = {}, {}
    for kind, triples in negatives.items():
        answerable = np.flatnonzero(status_codes(base.model, triples) == 0)
        if not len(answerable):
            raise InputError(
                f"none of the {kind} non-facts for calibration has its entities and its relation in the training "
                "facts: calibrate with more facts"
            )
        scores[kind] = np.sort(np.asarray(likeness(some_rows(triples, answerable)), np.float64))
        if isinstance(triples, Graph):
            kept[kind] = triples[answerable]
    if not scores:
        raise InputError(
            "the open world needs at least one kind of non-facts: name one in the setting non_facts"
        )
    return OpenWorld(base, likeness, scores, kept if len(kept) == len(scores) else None)


def restore_open_world(base: IntervalPredictor, arrays: Mapping[str, NDArray[Any]]) -> OpenWorld:
    """The same again from `nonfact_arrays`; ValueError if they do not fit."""
    if strange := [name for name in arrays if not name.startswith((SCORES, LIKENESS, TRIPLES))]:
        raise ValueError(f"the calibration holds {strange[0]}, which nobody knows")
    scores = {kind: np.array(array) for kind, array in under(SCORES, arrays).items()}
    learned = under(LIKENESS, arrays)
    likeness: Likeness = ScoreLikeness(base)
    if learned:
        if base.evidence is None:
            raise ValueError("the calibration holds trees for a method that has none")
        likeness = FactLikeness.restore(base.evidence, learned)
    if not scores or not all(map(len, scores.values())):
        raise ValueError("the scores of the calibration non-facts are missing")
    check_fields(scores, [Field(kind, np.float64, (f"{kind} non-facts",), rising=True) for kind in scores])
    # a file has its arrays in another order
    scores = {kind: scores[kind] for kind in [*ALL_KINDS, *scores] if kind in scores}
    return OpenWorld(base, likeness, scores, _nonfacts(base, scores, arrays))


def _nonfacts(
    base: IntervalPredictor, scores: Mapping[str, Floats], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, Graph] | None:
    """The stored triples of each kind, None if there are none; ValueError if they are not those of the scores."""
    if not any(name.startswith(TRIPLES) for name in arrays):
        return None
    graphs = stored_facts(base.model, arrays, [f"{TRIPLES}{kind}/" for kind in scores])
    triples = {kind: graph for kind, graph in zip(scores, graphs, strict=True) if graph is not None}
    if any(len(graph) != len(scores[kind]) for kind, graph in triples.items()):
        raise ValueError("the calibration non-facts do not match their scores")
    return triples if len(triples) == len(scores) else None


class ScoreLikeness:
    """How strange the confidence 0 is to an interval method, or the model's score where it ranks nothing."""

    def __init__(self, base: IntervalPredictor) -> None:
        self.base = base

    def __call__(self, triples: HasTriples) -> Floats:
        strange = self.base.nonconformity(triples, np.zeros(len(triples.head)))
        if strange is None:
            return self.base.model.score(triples.head, triples.relation, triples.tail).astype(np.float64)
        return np.abs(strange)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}
