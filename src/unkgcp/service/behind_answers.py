"""What is behind an answer of an evidence run: its distribution, and what single training facts did to it.

`unkgcp.run.reasons` says what is measured; here it is bounded, put into words and labels, and sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.graph.queries import to_triples
from unkgcp.methods.intervals import Intervals
from unkgcp.run.answers import answer
from unkgcp.run.reasons import Label, evidence_of, known_facts, masses, without
from unkgcp.service.knowledge import Knowledge
from unkgcp.service.request_body import DEFAULT_LEVEL, Problem

LEFT_OUT = (
    2_000_000  # training facts that one request goes through: all of them again for each that is left out
)
MOST_LEFT_OUT = 12


class Behind:
    """Answers from one run; every method may be called from several threads."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge, self._predictor = knowledge, knowledge.predictor

    def distribution(self, head: str, relation: str, tail: str) -> dict[str, Any]:
        """What the model believes of the confidence of a triple."""
        query = self._checked(head, relation, tail)
        told = answer(self._predictor, [query], DEFAULT_LEVEL)
        assert told.value is not None
        assert told.belief is not None
        cells = zip(*(column.tolist() for column in masses(self._predictor, query)), strict=True)
        return {
            "score": float(told.score[0]),
            "value": float(told.value[0]),
            "belief": float(told.belief[0]),
            "cells": [{"low": low, "high": high, "mass": min(mass, 1.0)} for low, high, mass in cells],
        }

    def without(self, head: str, relation: str, tail: str, level: float) -> dict[str, Any]:
        """What would be answered without each of the closest training facts, those that change it most first."""
        query = self._checked(head, relation, tail)
        facts = known_facts(self._predictor)
        if len(facts) > LEFT_OUT:
            raise Problem(
                422,
                f"the run has {len(facts):,} training facts; leaving one out is offered up to {LEFT_OUT:,}",
            )
        close = closest(facts, *self._ids(query))
        tried = close[: min(MOST_LEFT_OUT, LEFT_OUT // len(facts))].tolist()
        now = answer(self._predictor, [query], level)
        found = [
            {**self._named(facts, row), **_ends(other), "change": float(now.score[0]) - float(other.score[0])}
            for row, other in zip(tried, without(self._predictor, query, tried, level), strict=True)
        ]
        found.sort(key=lambda one: -abs(one["change"]))
        note = (
            f"{len(tried):,} of {len(close):,} training facts around this triple were left out, one at a time, of what "
            "the model is told; it was not learned again"
        )
        return {**_ends(now), "facts": found, "around": len(close), "note": note}

    def _checked(self, head: str, relation: str, tail: str) -> Label:
        """The triple; a label without a training fact is a `Problem`, and so is a run without a distribution."""
        try:
            evidence_of(self._predictor)
        except InputError as error:
            raise Problem(404, str(error)) from None
        self._knowledge.check(head, relation, tail)
        return head, relation, tail

    def _ids(self, query: Label) -> tuple[int, int, int]:
        head, relation, tail = to_triples([query], self._predictor.model.vocabulary)
        return int(head[0]), int(relation[0]), int(tail[0])

    def _named(self, facts: Graph, row: int) -> dict[str, Any]:
        vocabulary = self._predictor.model.vocabulary
        return {
            "head": vocabulary.entities[int(facts.head[row])].as_py(),
            "relation": vocabulary.relations[int(facts.relation[row])].as_py(),
            "tail": vocabulary.entities[int(facts.tail[row])].as_py(),
            "confidence": float(facts.confidence[row]),
        }


def _ends(answers: Intervals) -> dict[str, float]:
    """Score and interval of a single answer at one level."""
    return {
        "score": float(answers.score[0]),
        "lower": float(answers.lower[0]),
        "upper": float(answers.upper[0]),
    }


def closest(facts: Graph, head: int, relation: int, tail: int) -> NDArray[np.intp]:
    """Rows of the facts around a triple: first those between its two entities, then those of its relation with one of
    them in the same place, then all others of either; of each kind the most confident first."""
    h, r, t = facts.head, facts.relation, facts.tail
    between = ((h == head) & (t == tail)) | ((h == tail) & (t == head))
    same = (r == relation) & ((h == head) | (t == tail))
    rows = np.flatnonzero((h == head) | (t == tail) | (h == tail) | (t == head))
    order = np.lexsort((-facts.confidence[rows], ~same[rows], ~between[rows]))
    return rows[order]
