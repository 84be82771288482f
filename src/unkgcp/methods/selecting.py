"""Where candidates stand among the calibration facts that fail a condition on their confidence.

A `Selector` joins a condition (`unkgcp.methods.ranges`) with a calibrated method: it scores the calibration facts and
every candidate by how likely the confidence passes, as the method sees it (`IntervalPredictor.passing`), and finds the
place of each candidate among the calibration facts that do not pass. Choosing itself is `unkgcp.conformal.selection`.
In the open world a candidate may also be wrong because it is no fact (its confidence is 0): each kind of non-facts that
the run was calibrated with counts apart, by the same score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.selection import UNKNOWN, Cuts, Places, Reference, Wrong
from unkgcp.errors import InputError
from unkgcp.graph.facts import HasTriples, Triples
from unkgcp.methods.method import IntervalPredictor
from unkgcp.methods.ranges import Range


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
            asked = Triples(triples.head[known], triples.relation[known], triples.tail[known])
            places[known] = self.reference.places(self.method.passing(asked, self.condition))
        return places

    def alike(self, cuts: Cuts) -> list[IntervalPredictor]:
        """The method calibrated with the facts that would have been chosen in place of a chosen candidate.

        Once for a candidate that passes and once for one that does not, see `Reference.alike`. InputError where there
        are none, or for a method that cannot do that.
        """
        facts = self.method.calibration_facts()
        pair = self.reference.alike(cuts, self.score, self.passes)
        return [self.method.among(facts[rows]) for rows in pair]
