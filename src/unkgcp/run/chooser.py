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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, exact_levels, percent, rank
from unkgcp.conformal.selection import UNKNOWN, Counts, Cuts, Places, Range, Reference, Wrong, check_shares
from unkgcp.errors import InputError
from unkgcp.graph.facts import HasTriples, Triples
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods.intervals import Floats, Intervals, Levels
from unkgcp.methods.method import IntervalPredictor, some_rows, status_codes

if TYPE_CHECKING:
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
        if len(self.shares) == 1:
            return ["selected"]
        return [f"selected_{percent(share)}" for share in self.shares]


class Verdict(NamedTuple):
    """p_value: (n,). selected: for each of `Choice.columns` whether a candidate is chosen, (n,)."""

    p_value: Floats
    selected: dict[str, NDArray[np.bool_]]


class Chooser:
    """A choice among the candidates of a calibrated run."""

    def __init__(self, predictor: Calibrated, choice: Choice, selector: Selector | None = None) -> None:
        """`selector`: one that was made before for the same run and condition, which takes a while."""
        self.method, self.vocabulary = predictor.method, predictor.model.vocabulary
        self.choice, self.selector = choice, selector or Selector(predictor.method, choice.condition)
        if choice.after:
            self.method.check_subsets()

    @property
    def reference(self) -> Reference:
        return self.selector.reference

    def triples(self, queries: Queries) -> Triples:
        return to_triples(queries, self.vocabulary)

    def places(self, triples: Triples) -> Places:
        """Where each candidate stands: (n,)."""
        return self.selector.places(triples, np.flatnonzero(status_codes(self.method.model, triples) == 0))

    def cuts(self, counts: Counts) -> list[Cuts]:
        """The places from which on candidates are chosen, for each share of wrong ones; counts: of all candidates."""
        return [self.reference.cuts(counts, share) for share in self.choice.shares]

    def verdict(self, places: Places, cuts: list[Cuts]) -> Verdict:
        """The p-value of candidates at these places and whether they are chosen."""
        chosen = {name: places >= each.chosen for name, each in zip(self.choice.columns, cuts, strict=True)}
        return Verdict(self.reference.p_values(places), chosen)

    @property
    def promise(self) -> str:
        """What is promised of the chosen ones, for which candidates, and what is not."""
        kinds = ", ".join(self.selector.nonfacts)
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
        return lambda triples, places: self._told(self.method.interval(triples, confidence), places, cuts)

    def cautions(self, cuts: list[Cuts], confidence: Levels) -> list[str]:
        """A sentence for each level for which there are too few calibration facts after the selection."""
        nothing = self.reference.bins - 1  # the cut that chooses no place
        if not self.choice.after or cuts[0].chosen == nothing:
            return []
        pair = self.reference.alike(cuts[0], self.selector.score, self.selector.passes)
        fewest = min(int(np.count_nonzero(alike)) for alike in pair) if cuts[0].stricter < nothing else 0
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
        methods = [self.method] if cuts.stricter == nothing else self.selector.alike(cuts)

        def answer(triples: Triples, places: Places) -> Intervals:
            if (places < cuts.chosen).any():
                raise ValueError("intervals after a selection are for the chosen candidates")
            first, *others = (method.interval(triples, levels) for method in methods)
            lower, upper = first.lower, first.upper
            for other in others:
                lower, upper = np.fmin(lower, other.lower), np.fmax(upper, other.upper)
            last = places < cuts.stricter
            lower[last], upper[last] = 0.0, 1.0
            if single:
                lower, upper = lower[:, 0], upper[:, 0]
            exactly = float(levels[0]) if single else [float(level) for level in levels]
            told = replace(first, lower=lower, upper=upper, confidence=exactly)
            return self._told(told, places, [cuts])

        return answer

    def _told(self, answers: Intervals, places: Places, cuts: list[Cuts]) -> Intervals:
        return replace(answers, **self.verdict(places, cuts)._asdict())


# The places of candidates among the calibration facts that fail a condition on their confidence.
#
# A `Selector` joins a condition with a calibrated method: it scores the calibration facts and every candidate by how
# likely the confidence passes, as the method sees it (`IntervalPredictor.passing`), and finds the place of each
# candidate among the calibration facts that do not pass. Choosing itself is `unkgcp.conformal.selection`. In the open
# world a candidate may also be wrong because it is no fact (its confidence is 0): each kind of non-facts that the run
# was calibrated with counts apart, by the same score.


class Selector:
    """A condition over a calibrated method."""

    def __init__(self, method: IntervalPredictor, condition: Range) -> None:
        """InputError where the calibration says nothing about the condition, or does not hold what is needed."""
        self.method, self.condition = method, condition
        facts = method.calibration_facts()
        self.score = method.passing(facts, condition)
        self.passes = condition.holds(facts.confidence)
        if self.passes.all() or not self.passes.any():
            all_or_none = "every one" if self.passes.all() else "none"
            raise InputError(
                f"{all_or_none} of the {len(facts):,} calibration facts has {condition}, so they say nothing about "
                "who is wrong; choose another bound, or calibrate with more facts"
            )
        nonfacts = method.wrong_nonfacts(condition)
        self.nonfacts = tuple(nonfacts)  # the kinds of triples that would be wrong because they are no facts
        self.reference = Reference.of([Wrong(self.score[~self.passes], len(facts)), *nonfacts.values()])

    def places(self, triples: HasTriples, known: NDArray[np.intp]) -> Places:
        """The place of each triple, of which the rows `known` are known: (n,)."""
        places = np.full(len(triples.head), UNKNOWN, np.int32)
        if len(known):
            passing = self.method.passing(some_rows(triples, known), self.condition)
            places[known] = self.reference.places(passing)
        return places

    def alike(self, cuts: Cuts) -> list[IntervalPredictor]:
        """The method calibrated with the facts that would have been chosen in place of a chosen candidate.

        Once for a candidate that passes and once for one that does not, see `Reference.alike`. InputError where there
        are none, or for a method that cannot do that.
        """
        facts = self.method.calibration_facts()
        pair = self.reference.alike(cuts, self.score, self.passes)
        return [self.method.among(facts[rows]) for rows in pair]
