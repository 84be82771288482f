"""Choosing among candidates with a bound on the share of wrong ones, in two passes over them.

The first pass finds the place of each candidate (`Chooser.places`) and counts the places, the second answers with the
p-value of each and whether it is chosen. Places of several batches are counted together, so that any number of
candidates can be streamed, and the answer does not depend on how they are cut into batches.

>>> predictor.select(queries, "confidence >= 0.7", fdr=0.1).selected["selected"]      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, exact_levels, percent, rank
from unkgcp.conformal.selection import Counts, Cuts, Places, Range, Reference, Wrong, check_shares
from unkgcp.errors import InputError
from unkgcp.graph.facts import HasTriples, Triples
from unkgcp.graph.kinds import KINDS
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods.intervals import Intervals, Levels
from unkgcp.methods.method import IntervalPredictor, some_rows, status_codes
from unkgcp.run.answers import Calibrated

Answer = Callable[[Triples, Places], Intervals]
"""Candidates and their places -> their answers."""


class Choice(NamedTuple):
    """What is asked for: the condition, and the allowed shares of wrong ones.

    after: whether intervals are to hold for the chosen candidates, which are then the only ones that are answered.
    """

    condition: Range
    shares: tuple[Fraction, ...]
    after: bool = False

    @classmethod
    def of(cls, condition: str, fdr: Confidence | Iterable[Confidence], after: bool = False) -> Choice:
        shares, _ = check_shares(fdr)
        if after and len(shares) > 1:
            raise InputError(
                "intervals that hold after a selection go with one share of wrong ones; name one"
            )
        return cls(Range.parse(condition), tuple(shares), after)

    @property
    def columns(self) -> list[str]:
        """What the columns are called that say whether a candidate is chosen: `selected`, or `selected_10`, ..."""
        several = len(self.shares) > 1
        return [f"selected_{percent(share)}" if several else "selected" for share in self.shares]


# The places of candidates among the calibration facts that fail a condition on their confidence.
#
# A `Selector` joins a condition with a calibrated method: it scores the calibration facts and every candidate by how
# likely the confidence passes, as the method sees it (`IntervalPredictor.passing`), and finds the place of each
# candidate among the calibration facts of its kind that do not pass. A candidate of a kind without calibration facts is
# not judged, which follows from its labels and the training facts alone. Choosing itself is
# `unkgcp.conformal.selection`. In the open world a candidate may also be wrong because it is no fact (its confidence is
# 0): each kind of non-facts that the run was calibrated with counts apart, by the same score and for queries of all
# kinds. Non-facts are about known entities and relations, and so must candidates be then.


class Selector:
    """A condition over a calibrated method."""

    def __init__(self, method: IntervalPredictor, condition: Range) -> None:
        """InputError where the calibration says nothing about the condition, or does not hold what is needed."""
        self.method, self.condition = method, condition
        facts = method.calibration_facts()
        self.score, self.passes = method.passing(facts, condition), condition.holds(facts.confidence)
        if self.passes.all() or not self.passes.any():
            all_or_none = "every one" if self.passes.all() else "none"
            raise InputError(
                f"{all_or_none} of the {len(facts):,} calibration facts has {condition}, so they say nothing about "
                "who is wrong; choose another bound, or calibrate with more facts"
            )
        nonfacts = method.wrong_nonfacts(condition)
        self.nonfacts = tuple(nonfacts)  # the kinds of triples that would be wrong because they are no facts
        calibrated = np.bincount(method.kinds(facts), minlength=len(KINDS)) > 0
        # the number of each kind among those with calibration facts, -1 for another
        self._stratum = np.where(calibrated, np.cumsum(calibrated) - 1, -1)
        strata = self._strata(facts)
        wrong = [
            Wrong(self.score[~self.passes & (strata == stratum)], int(np.count_nonzero(strata == stratum)))
            for stratum in range(int(self._stratum.max()) + 1)
        ]
        self.reference = Reference.of(*([each, *nonfacts.values()] for each in wrong))
        self.calibration_places = self.reference.places(self.score, strata)

    def _strata(self, triples: HasTriples) -> NDArray[np.int64]:
        """What each triple is compared with: the number of its kind, -1 where it cannot be judged: (n,)."""
        strata: NDArray[np.int64] = self._stratum[self.method.kinds(triples)]
        if self.method.tells_kinds and not self.nonfacts:
            return strata
        return np.where(status_codes(self.method.model, triples) == 0, strata, -1)

    def places(self, triples: HasTriples) -> Places:
        """The place of each triple: (n,)."""
        strata = self._strata(triples)
        judged = np.flatnonzero(strata >= 0)
        score = np.full(len(strata), np.nan)
        if len(judged):
            score[judged] = self.method.passing(some_rows(triples, judged), self.condition)
        return self.reference.places(score, strata)

    def alike(self, cuts: Cuts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which calibration facts would have been chosen in place of a chosen candidate; see `Reference.alike`."""
        return self.reference.alike(cuts, self.calibration_places, self.passes)

    def methods_alike(self, cuts: Cuts) -> list[IntervalPredictor]:
        """The method calibrated with these facts.

        Once for a candidate that passes and once for one that does not. InputError where there are none, or for a
        method that cannot do that.
        """
        facts = self.method.calibration_facts()
        return [self.method.among(facts[rows]) for rows in self.alike(cuts)]


# Choosing, given the places.


class Chooser(Selector):
    """A choice among the candidates of a calibrated run."""

    def __init__(self, predictor: Calibrated, choice: Choice) -> None:
        super().__init__(predictor.method, choice.condition)
        self.vocabulary, self.choice = predictor.model.vocabulary, choice
        if choice.after:
            self.method.check_subsets()

    def triples(self, queries: Queries) -> Triples:
        return to_triples(queries, self.vocabulary)

    def cuts(self, counts: Counts) -> list[Cuts]:
        """The places from which on candidates are chosen, for each share of wrong ones; counts: of all candidates."""
        return [self.reference.cuts(counts, share) for share in self.choice.shares]

    def verdict(self, places: Places, cuts: list[Cuts]) -> dict[str, Any]:
        """The columns `p_value` (n,) and `selected`, by `Choice.columns` whether a candidate is chosen: (n,) each."""
        chosen = {name: places >= each.chosen for name, each in zip(self.choice.columns, cuts, strict=True)}
        return {"p_value": self.reference.p_values(places), "selected": chosen}

    @property
    def promise(self) -> str:
        """What is promised of the chosen ones, for which candidates, and what is not."""
        kinds = ", ".join(self.nonfacts)
        who = (
            f"the calibration facts or with the non-facts of a calibrated kind ({kinds})"
            if kinds
            else "the calibration facts"
        )
        but = "" if kinds else ", and not of candidates that are no facts"
        return (
            "on average over calibration facts and candidates, at most the allowed share of the selected does not "
            f"have {self.choice.condition}, if each candidate is exchangeable with {who}; nothing is promised of a "
            f"single one, nor of a part of the selected that is picked afterwards{but}"
        )

    def answering(self, cuts: list[Cuts], confidence: Levels) -> Answer:
        """The function of the second pass, from candidates and their places to answers.

        With intervals that hold after a selection it must be asked for chosen candidates only.
        """
        if self.choice.after:
            return self._after(cuts[0], confidence)
        return lambda triples, places: self._with_verdict(
            self.method.interval(triples, confidence), places, cuts
        )

    def cautions(self, cuts: list[Cuts], confidence: Levels) -> list[str]:
        """A sentence for each level for which there are too few calibration facts after the selection."""
        nothing = self.reference.bins - 1  # the cut that chooses no place
        if not self.choice.after or cuts[0].chosen == nothing:
            return []
        strata = self.reference.stratum[self.calibration_places]
        pair = [np.bincount(strata[alike]) for alike in self.alike(cuts[0])]
        counts = [each[each > 0].min(initial=len(strata)) for each in pair if each.any()]
        fewest = int(min(counts)) if len(counts) == 2 and (cuts[0].stricter < nothing).any() else 0
        return [
            f"{fewest:,} calibration facts would have been chosen in the place of a chosen triple, too few for "
            f"confidence {float(level)}: intervals after this selection are the whole range; choose more"
            for level in exact_levels(confidence).levels
            if fewest < rank(level, fewest) and level < 1
        ]

    def _after(self, cuts: Cuts, confidence: Levels) -> Answer:
        """Each interval is the hull of two: one holds if the confidence passes, the other if it does not.

        For candidates at the last places that are chosen nothing is known for the second case, and the answer is the
        whole range.
        """
        levels, single = exact_levels(confidence)
        nothing = self.reference.bins - 1  # the cut that chooses no place
        # where the answer is the whole range, or there is none, it does not matter which method is asked
        methods = [self.method] if (cuts.stricter == nothing).all() else self.methods_alike(cuts)

        def answer(triples: Triples, places: Places) -> Intervals:
            if (places < cuts.chosen).any():
                raise ValueError("intervals after a selection are for the chosen candidates")
            first, *others = (method.interval(triples, levels) for method in methods)
            lower, upper = first.lower, first.upper
            for other in others:
                lower, upper = np.fmin(lower, other.lower), np.fmax(upper, other.upper)
            last = places < cuts.stricter[self.reference.stratum[places]]
            lower[last], upper[last] = 0.0, 1.0
            if single:
                lower, upper = lower[:, 0], upper[:, 0]
            exactly = float(levels[0]) if single else [float(level) for level in levels]
            answers = replace(first, lower=lower, upper=upper, confidence=exactly)
            return self._with_verdict(answers, places, [cuts])

        return answer

    def _with_verdict(self, answers: Intervals, places: Places, cuts: list[Cuts]) -> Intervals:
        return replace(answers, **self.verdict(places, cuts))
