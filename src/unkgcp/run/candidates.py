"""What every entity weighs as the answer of (h, r, ?) or (?, r, t), beside all others: what answer sets are made of.

A weight grows with what completions are ranked by (`unkgcp.run.completion.candidate_scores`), so that the order is the
same, and the share of a candidate in the weight of all says how likely it is the answer. Entities without a
training fact, and those that answer the question by one, are no candidates. Questions are looked at in blocks, each
question once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.graph.known import KnownFacts
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import status_codes
from unkgcp.run.completion import candidate_scores, completer_of

if TYPE_CHECKING:
    from unkgcp.run.answers import Calibrated

Ints = NDArray[np.int64]

FLOOR = 1e-4
"""The square of a backbone's score and this is a weight: of several powers the one with the smallest sets for training
facts that early stopping had held out."""
SLACK = 1e-3
"""Added to thresholds: matrix products of other shapes are off by a few roundings, which must not cost an answer."""
CELLS = 1 << 22  # weights looked at at once


def training_facts(predictor: Calibrated) -> KnownFacts:
    """InputError where a run does not hold them."""
    if predictor.model.facts is None:
        raise InputError(
            "this run does not hold its training facts, which are no answers of new facts; fit it again"
        )
    return predictor.model.facts


class Candidates:
    """What every entity weighs as the answer of a question; for tails, or for heads."""

    def __init__(self, predictor: Calibrated, at_head: bool) -> None:
        model = predictor.model
        self.predictor, self.at_head, self.seen = predictor, at_head, model.seen_entities
        self.train = training_facts(predictor).graph(model.vocabulary)
        self._relations = len(model.seen_relations)
        given, answer = self.sides(self.train)
        key = given * self._relations + self.train.relation
        order = np.argsort(key, kind="stable")
        self._key, self._answer = key[order], answer[order]
        self._unseen = np.flatnonzero(~self.seen)

    def sides(self, facts: Graph) -> tuple[Ints, Ints]:
        """The entity that a fact's question gives, and its answer: (n,) each."""
        head, tail = facts.head.astype(np.int64), facts.tail.astype(np.int64)
        return (tail, head) if self.at_head else (head, tail)

    @property
    def step(self) -> int:
        """How many questions are looked at at once."""
        return max(1, CELLS // max(1, len(self.seen)))

    def weights(self, given: NDArray[Any], relation: NDArray[Any]) -> Floats:
        """The weights of all entities for each question, -1 for those that are no candidates: (n, entities)."""
        found = candidate_scores(self.predictor, given, relation, self.at_head)
        if completer_of(self.predictor) is None:
            table = np.square(found.astype(np.float64) + FLOOR)
        else:
            from unkgcp.evidence.completing import weights  # few runs have evidence

            table = weights(found)
        table[:, self._unseen] = -1.0
        row, answer = self.known(given, relation)
        table[row, answer] = -1.0
        return table

    def known(self, given: NDArray[Any], relation: NDArray[Any]) -> tuple[Ints, Ints]:
        """Rows of questions and their answers by training facts, (m,) each; one may come twice."""
        key = np.asarray(given, np.int64) * self._relations + relation
        first, last = np.searchsorted(self._key, key), np.searchsorted(self._key, key, side="right")
        count = last - first
        place = np.arange(int(count.sum())) + np.repeat(first - np.cumsum(count) + count, count)
        return np.repeat(np.arange(len(key)), count), self._answer[place]

    def blocks(self, facts: Graph) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Floats]]:
        """Facts asked as questions, each question once: rows of facts, the row of each one's question, and the weights
        of some questions."""
        given, _ = self.sides(facts)
        questions, inverse = np.unique(given * self._relations + facts.relation, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        ordered = inverse[order]
        for start in range(0, len(questions), self.step):
            some = questions[start : start + self.step]
            first, last = np.searchsorted(ordered, [start, start + len(some)])
            rows = order[first:last]
            yield rows, inverse[rows] - start, self.weights(some // self._relations, some % self._relations)

    def strangeness(self, facts: Graph) -> Floats:
        """s of each fact, none of which is a training fact: (n,)."""
        _, answer = self.sides(facts)
        found = np.empty(len(facts))
        for rows, question, table in self.blocks(facts):
            own = table[question, answer[rows]]
            found[rows] = strangeness(own, total(table)[question], table.max(axis=1)[question])
        return found


def total(table: Floats) -> Floats:
    """The weight of all candidates of each question: (n,)."""
    return np.asarray(np.maximum(table, 0.0).sum(axis=1))


def strangeness(own: Floats, of_all: Floats, most: Floats) -> Floats:
    """s of answers with these weights, beside the weight of all candidates and the largest: (n,)."""
    return np.where(own >= most, 0.0, np.log(of_all) - np.log(own))


def least_weight(thresholds: Floats, of_all: Floats, most: Floats) -> Floats:
    """What a candidate of each question must weigh to be in its set; 0 where all of them are: (n,)."""
    return np.asarray(np.exp(-SLACK) * np.minimum(of_all * np.exp(-thresholds), most))


def new_facts(candidates: Candidates, facts: Graph, least: float) -> Graph:
    """Those from a confidence on that are about known entities and relations and are no training facts."""
    known = status_codes(candidates.predictor.model, facts) == 0
    facts = facts[known & (facts.confidence >= least)]
    return facts[~np.isin(facts.keys, candidates.train.keys)]
