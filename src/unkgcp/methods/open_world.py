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

from unkgcp.conformal.ranks import Confidence, exact, exact_levels, rank
from unkgcp.conformal.selection import Range, Wrong
from unkgcp.errors import InputError
from unkgcp.evidence.evidence_model import EvidenceModel
from unkgcp.evidence.nonfacts import FactLikeness
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.graph.known_facts import facts_to_arrays
from unkgcp.graph.negatives import ALL_KINDS
from unkgcp.methods.intervals import Floats, Intervals, Levels
from unkgcp.methods.method import NOT_KEPT, IntervalPredictor, Scorer, some_rows, status_codes, stored_facts
from unkgcp.methods.partitions import partition_names

MOST_LEVELS = 1024
"""Levels at which the thresholds of a known share of facts are kept."""
ONE_THRESHOLD = (
    "a share of facts is known for all queries together, not for each group of them: "
    "leave out the share of facts, or --per"
)
SCORES, SHARE, LIKENESS = "calibration/scores.", "calibration/share", "likeness/"
TRIPLES = "calibration/triples/"
"""How the arrays of a saved calibration on non-facts are named."""


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
    kind of non-facts it was calibrated with, whatever share the classes have. With a known `share` of facts among the
    queries the promise is one over both classes together, not for each of them, and the sets are mostly smaller.
    Assumption: facts are exchangeable with the calibration facts, non-facts with the corrupted ones of one of the
    kinds, and each query is a fact with probability `share`, if that is given.
    """

    own_answers: bool = True
    for_open_world: bool = True

    def __init__(
        self,
        base: IntervalPredictor,
        likeness: Likeness,
        scores: Mapping[str, Floats],
        share: Fraction | None = None,
        nonfacts: Mapping[str, Graph] | None = None,
    ) -> None:
        """`scores`: for each kind of non-facts the likeness of the calibration ones, upwards.

        `nonfacts`: the same triples in any order, None in runs of older versions.
        """
        self.base, self.likeness, self.share = base, likeness, share
        self.scores, self.nonfacts, self.nonfact_kinds = dict(scores), nonfacts, tuple(scores)
        self._known: dict[Fraction, tuple[Fraction, float]] = {}  # results of `_joint_pair` by level
        self.name, self.needs, self.order_free = base.name, base.needs, base.order_free
        self.asks_model = base.asks_model
        self.model, self.size, self.evidence = base.model, base.size, base.evidence
        self.partitions, self.ranked, self.waiting = base.partitions, base.ranked, base.waiting
        self.guarantee = self._guarantee()

    def _guarantee(self) -> str:
        kinds = ", ".join(self.scores)
        if self.share is None:
            return (
                f"coverage of at least the level, for facts and for triples that are no facts ({kinds}), "
                "without knowing which"
            )
        return (
            f"coverage of at least the level over facts and triples that are no facts ({kinds}) together, "
            f"where {float(self.share):g} of the queries are facts: one threshold for all of them"
        )

    @property
    def one_threshold(self) -> bool:
        return self.share is None and self.base.one_threshold

    @property
    def within(self) -> str:
        within = self.base.within if self.share is None else ""
        return f"and for facts {within}" if within else ""

    def models(self) -> dict[str, Scorer]:
        return self.base.models()

    def with_models(self, models: Mapping[str, Scorer]) -> OpenWorld:
        return restore_open_world(self.base.with_models(models), self.nonfact_arrays())

    def interval(self, triples: HasTriples, confidence: Levels = 0.9) -> Intervals:
        """Score and hull of each triple, whether it may be no fact, and its interval if it is one."""
        levels, single = exact_levels(confidence)
        own, limits = self._split(levels)
        fact = self.base.interval(triples, own)
        known = np.flatnonzero(fact.code == 0)
        flags = np.ones((len(fact), len(levels)), bool)
        if len(known):
            asked = some_rows(triples, known)
            flags[known] = self.likeness(asked)[:, None] <= limits
        lower = np.where(flags, 0.0, fact.lower)
        upper = np.where(flags & np.isnan(fact.upper), 0.0, fact.upper)  # nothing but "no fact" is left
        told: dict[str, Any] = {"lower": lower, "upper": upper, "no_fact": flags}
        told |= {"fact_lower": fact.lower, "fact_upper": fact.upper}
        if single:
            told = {name: column[:, 0] for name, column in told.items()}
        told["confidence"] = float(levels[0]) if single else [float(level) for level in levels]
        return replace(fact, **told)

    def _split(self, levels: list[Fraction]) -> tuple[list[Fraction], Floats]:
        """For each level: the one to ask the method for facts at, and the largest likeness of a non-fact (levels,)."""
        if self.share is None:
            limits = [
                max(_smallest(found, rank(level, len(found))) for found in self.scores.values())
                for level in levels
            ]
            return levels, np.array(limits)
        pairs = []
        for level in levels:
            pair = self._known.get(level)
            if pair is None:
                pair = self._joint_pair(self.share, level)
                if len(self._known) >= MOST_LEVELS:
                    self._known.clear()
                self._known[level] = pair
            pairs.append(pair)
        return [asked for asked, _ in pairs], np.array([limit for _, limit in pairs])

    def _joint_pair(self, share: Fraction, level: Fraction) -> tuple[Fraction, float]:
        """What `_split` gives for one level, with a known share of facts."""
        facts = self._fact_scores()
        # with the largest threshold of all kinds the promise holds whichever kind the queries are of
        limit = max(_joint_threshold(facts, others, share, level) for others in self.scores.values())
        # the method for facts is asked by rank: that of the first score that reaches the threshold
        k = int(np.searchsorted(facts, limit)) + 1
        return Fraction(min(k, len(facts) + 1), len(facts) + 1), limit

    def _fact_scores(self) -> Floats:
        found = self.base.calibration_scores()
        assert found is not None
        return np.sort(np.abs(found[0]))

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if self.share is not None:
            (asked,), _ = self._split([level])
            if asked < 1 or level == 1:
                return self.base.caution(asked)
            return (
                f"confidence {float(level)} is out of reach with these calibration facts and non-facts and this share "
                "of facts: every interval is the whole range"
            )
        few = [found for found in self.scores.values() if level < 1 and rank(level, len(found)) > len(found)]
        if few:
            return (
                f"{len(few[0]):,} calibration non-facts are too few for confidence {float(level)}: "
                "no query is told from a non-fact"
            )
        return self.base.caution(confidence)

    def doubt(self, triples: HasTriples, score: Floats | None = None) -> Floats:
        return self.base.doubt(triples, score)

    def passing(self, triples: HasTriples, condition: Range) -> Floats:
        """The probability that the confidence passes, where that of a non-fact is 0: (n,).

        With a method whose score is no probability it is that score: a low one stands for low facts and non-facts
        alike. Facts and non-facts have the same score, so that p-values of both fall together as it rises.
        """
        found = self.base.passing(triples, condition)
        if not isinstance(self.likeness, FactLikeness):
            return found
        fact = self.likeness(triples)
        return fact * found + (1 - fact) * float(condition.holds(np.zeros(1))[0])

    def calibration_facts(self) -> Graph:
        return self.base.calibration_facts()

    def wrong_nonfacts(self, condition: Range) -> dict[str, Wrong]:
        if condition.holds(np.zeros(1))[0]:
            return {}
        if self.nonfacts is None:
            raise InputError(NOT_KEPT)
        scores = {kind: self.passing(triples, condition) for kind, triples in self.nonfacts.items()}
        return {kind: Wrong(found, len(found)) for kind, found in scores.items()}

    def likeness_over(self, evidence: EvidenceModel) -> FactLikeness | None:
        return replace(self.likeness, model=evidence) if isinstance(self.likeness, FactLikeness) else None

    def check_subsets(self) -> None:
        raise InputError(
            "intervals after a selection are offered for runs that take every query for a fact; "
            "fit one without --population open"
        )

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> NDArray[np.int64] | None:
        """Those of the method for facts, whose intervals lie in the hulls; None if facts have no promise alone."""
        return None if self.share is not None else self.base.threshold_sizes(triples, doubt)

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats | None:
        return self.base.nonconformity(triples, truth)

    def calibration_scores(self) -> tuple[Floats, NDArray[np.int32] | None] | None:
        return self.base.calibration_scores()

    def options(self) -> dict[str, Any]:
        return self.base.options()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Those of the method for facts; `nonfact_arrays` has the rest."""
        return self.base.arrays()

    def nonfact_arrays(self) -> dict[str, NDArray[Any]]:
        """Scores of every kind, the share of facts as numerator and denominator, and what the likeness learned."""
        found: dict[str, NDArray[Any]] = {f"{SCORES}{kind}": scores for kind, scores in self.scores.items()}
        if self.share is not None:
            found[SHARE] = np.array([self.share.numerator, self.share.denominator], np.int64)
        found |= facts_to_arrays({f"{TRIPLES}{kind}/": own for kind, own in (self.nonfacts or {}).items()})
        return found | {f"{LIKENESS}{name}": array for name, array in self.likeness.arrays().items()}

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
    share: float | Fraction | None = None,
) -> OpenWorld:
    """Join a calibrated method for facts with a calibration on triples that are no facts, kind by kind.

    `likeness` is by default how strange the confidence 0 is to the method itself, or the model's score.
    """
    likeness = likeness or ScoreLikeness(base)
    scores, kept = {}, {}
    for kind, triples in negatives.items():
        known = np.flatnonzero(status_codes(base.model, triples) == 0)
        if not len(known):
            raise InputError(
                f"none of the {kind} non-facts for calibration has its entities and its relation in the training "
                "facts: calibrate with more facts"
            )
        scores[kind] = np.sort(np.asarray(likeness(some_rows(triples, known)), np.float64))
        if isinstance(triples, Graph):
            kept[kind] = triples[known]
    if not scores:
        raise InputError(
            "the open world needs at least one kind of non-facts: name one in the setting non_facts"
        )
    exactly = None if share is None else check_share(share, type(base))
    if exactly is not None and not base.one_threshold:
        raise InputError(ONE_THRESHOLD)
    return OpenWorld(base, likeness, scores, exactly, kept if len(kept) == len(scores) else None)


def restore_open_world(base: IntervalPredictor, arrays: Mapping[str, NDArray[Any]]) -> OpenWorld:
    """The same again from `nonfact_arrays`; ValueError if they do not fit."""
    scores: dict[str, NDArray[Any]] = {}
    learned: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if name.startswith(SCORES):
            scores[name.removeprefix(SCORES)] = np.array(array)
        elif name.startswith(LIKENESS):
            learned[name.removeprefix(LIKENESS)] = array
        elif name != SHARE and not name.startswith(TRIPLES):
            raise ValueError(f"the calibration holds {name}, which nobody knows")
    likeness: Likeness = ScoreLikeness(base)
    if learned:
        if base.evidence is None:
            raise ValueError("the calibration holds trees for a method that has none")
        likeness = FactLikeness.restore(base.evidence, learned)
    for found in scores.values():
        if found.dtype != np.float64 or found.ndim != 1 or not len(found) or not (np.diff(found) >= 0).all():
            raise ValueError("the scores of the calibration non-facts are damaged")
    if not scores:
        raise ValueError("the scores of the calibration non-facts are missing")
    # a file has its arrays in another order
    scores = {kind: scores[kind] for kind in [*ALL_KINDS, *scores] if kind in scores}
    share = None
    if SHARE in arrays:
        pair = np.array(arrays[SHARE])
        if pair.shape != (2,) or pair.dtype != np.int64 or not 0 < pair[0] < pair[1]:
            raise ValueError("the share of facts is damaged")
        share = Fraction(int(pair[0]), int(pair[1]))
    return OpenWorld(base, likeness, scores, share, _nonfacts(base, scores, arrays))


def _nonfacts(
    base: IntervalPredictor, scores: Mapping[str, Floats], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, Graph] | None:
    """The stored triples of each kind, None if there are none; ValueError if they are not those of the scores."""
    if not any(name.startswith(TRIPLES) for name in arrays):
        return None
    found = stored_facts(base.model, arrays, [f"{TRIPLES}{kind}/" for kind in scores])
    triples = {kind: graph for kind, graph in zip(scores, found, strict=True) if graph is not None}
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


def check_share(share: float | Fraction, method: type[IntervalPredictor], per: str | None = None) -> Fraction:
    """The share of facts among the queries as a fraction; InputError if it is none, or of no use to the method.

    per: the groups that were asked for, None if nothing was said of them.
    """
    if partition_names(per):
        raise InputError(ONE_THRESHOLD)
    # facts and non-facts are compared by one score that is 0 at best: that of an interval-valued fact may be below
    if method.calibration_scores is IntervalPredictor.calibration_scores or "length" in method.needs:
        raise InputError(
            "a share of facts needs a method that ranks calibration facts by single confidences, which "
            f"{method.name} does not"
        )
    try:
        # p-values are fractions: a share to the millionth is more than anybody knows
        found = exact(share).limit_denominator(1_000_000)
    except ValueError:
        found = Fraction(0)
    if not 0 < found < 1:
        raise InputError(f"the share of facts among the queries is {share} but must lie between 0 and 1")
    return found


def _smallest(scores: Floats, k: int) -> float:
    """The k-th smallest of sorted scores; minus or plus infinity where there is no such rank."""
    if k < 1:
        return -np.inf
    return np.inf if k > len(scores) else float(scores[k - 1])


def _joint_threshold(facts: Floats, others: Floats, share: Fraction, level: Fraction) -> float:
    """Largest score whose p-value exceeds 1 - level, inf if all do: scores of facts and of non-facts, upwards.

    p(s) = share (1 + #{facts >= s}) / (l + 1) + (1 - share) (1 + #{others >= s}) / (m + 1), the mean of the p-values
    in the two classes. The 1 in the class that a query is not of stands for one more member that nobody has seen.
    """

    def kept(score: float) -> bool:
        above = [1 + len(each) - int(np.searchsorted(each, score)) for each in (facts, others)]
        found = share * Fraction(above[0], len(facts) + 1) + (1 - share) * Fraction(above[1], len(others) + 1)
        return found > 1 - level

    if kept(np.inf):
        return np.inf
    scores = np.sort(np.concatenate([facts, others]))
    # p falls from score to score: the first `low` are kept, those from `high` on are not
    low, high = 0, len(scores)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if kept(scores[middle]) else (low, middle)
    return float(scores[low - 1]) if low else -np.inf
