"""Completions: the best entities for (h, r, ?) or (?, r, t), each with its interval.

All of it is pure: an Arrow batch of queries with one open place each in, an Arrow batch of candidates out. Every
entity with a training fact is a candidate. All of them are scored at once (`unkgcp.run.questions.candidate_scores`);
the best few are then asked like any other query, so that a completion has the same numbers as `predict` gives. Each
interval holds for one triple, not for all of a list at once, and unless the run is for the open world it presumes that
the triple is a fact, which most candidates are not.

>>> complete_batch(predictor, questions, k=5, rank_by="lower").column("tail")     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranks import exact_levels
from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.methods.intervals import Floats, Intervals, Levels, as_batch
from unkgcp.run.answers import LABELS, answer
from unkgcp.run.questions import (
    Found,
    Ids,
    asked_places,
    candidate_scores,
    completer_of,
    labels_of_found,
)
from unkgcp.tabular.arrow_arrays import numbers

if TYPE_CHECKING:
    from unkgcp.run.answers import Calibrated

RANKINGS = ("score", "lower")
SHORTLIST = 2048  # candidates asked exactly where the order of the answers is not that of the scores
EXPECTED = 256  # candidates asked exactly of an evidence run that ranks by the lower end
PRESUMES = (
    "these intervals presume that a completion is a fact, which most candidates are not; "
    "fit with --population open for a promise that also holds for those that are none"
)
SPARE = 16  # candidates beyond k asked exactly: the matrix product is off by a few roundings
CELLS = 1 << 23  # scores held at once


def complete_batch(
    predictor: Calibrated,
    batch: pa.RecordBatch,
    k: int,
    confidence: Levels = 0.9,
    *,
    rank_by: str = "score",
    exclude_known: bool = False,
    first: int = 0,
) -> pa.RecordBatch:
    """Candidates of every query of a batch with columns head, relation, tail; `?`, empty or null is the open place.

    Columns query (the row of the query, counted from `first`), rank (from 1), head, relation, tail, and those of
    `unkgcp.methods.intervals.as_batch`. See `Predictor.complete`.
    """
    found, answers = complete(predictor, batch, k, confidence, rank_by, exclude_known, first)
    assert answers.labels is not None
    before = {"query": numbers(found.query + first), "rank": numbers(found.rank)}
    return as_batch(answers, before | {name: answers.labels.column(name) for name in LABELS})


def complete(
    predictor: Calibrated,
    batch: pa.RecordBatch,
    k: int,
    confidence: Levels,
    rank_by: str,
    exclude_known: bool,
    first: int = 0,
) -> tuple[Found, Intervals]:
    """The best candidates of a batch of questions, and their answers with labels; see `Predictor.complete`."""
    if k < 1:
        raise InputError(f"{k} completions cannot be given; ask for at least 1")
    if rank_by not in RANKINGS:
        raise InputError(f"completions are ranked by {' or '.join(RANKINGS)}, not by {rank_by!r}")
    if exclude_known and predictor.model.facts is None:
        raise InputError(
            "this run does not hold its training facts, so they cannot be left out; fit it again"
        )
    asked = asked_places(predictor, batch, first)
    search = _Search(predictor, k, confidence, rank_by, exclude_known)
    # in the one row of an unknown question the given entity stands in both places: the triple is then unknown for the
    # same reason as the question, and gets its status
    best = [Best(asked.anchor[row : row + 1], np.array([np.nan])) for row in range(len(batch))]
    for at_head in (True, False):
        rows = np.flatnonzero(asked.known & (asked.open_head == at_head))
        chosen = search.best(asked.anchor[rows], asked.relation[rows], at_head)
        for row, own in zip(rows.tolist(), chosen, strict=True):
            best[row] = own
    found = asked.found([own.ids for own in best])
    answers = answer(predictor, found.triples, confidence)
    expected = np.concatenate([np.zeros(0), *(own.expected for own in best)])
    return found, replace(
        answers,
        labels=labels_of_found(predictor, batch, found),
        presumes_fact=None if predictor.method.for_open_world else np.ones(len(answers), np.bool_),
        expected=None if completer_of(predictor) is None else expected,
    )


def presumption(predictor: Calibrated) -> str | None:
    """What users should be told of the intervals; None for the open world, whose promise holds for non-facts too."""
    return None if predictor.method.for_open_world else PRESUMES


class Best(NamedTuple):
    """The best entities of a query, and the confidences that evidence expects of them, else NaN: (n,) each."""

    ids: Ids
    expected: Floats


class _Search:
    """The search for the best candidates of questions."""

    def __init__(
        self, predictor: Calibrated, k: int, confidence: Levels, rank_by: str, exclude_known: bool
    ) -> None:
        self.predictor, self.method, self.model = predictor, predictor.method, predictor.model
        self.level = exact_levels(confidence)[0][0]
        self.rank_by, self.facts = rank_by, predictor.model.facts if exclude_known else None
        self.candidates = np.flatnonzero(self.model.seen_entities).astype(np.int32)
        self.k = min(k, len(self.candidates))
        self.expects = completer_of(predictor) is not None

    def best(self, anchor: Ids, relation: Ids, at_head: bool) -> Iterator[Best]:
        """The best entities of each query, at most k, best first."""
        step = max(1, CELLS // max(1, len(self.model.seen_entities)))
        for start in range(0, len(anchor), step):
            some, by = anchor[start : start + step], relation[start : start + step]
            scores = candidate_scores(self.predictor, some, by, at_head)
            for row, (entity, relation_id) in enumerate(zip(some.tolist(), by.tolist(), strict=True)):
                yield self._best(scores[row], entity, relation_id, at_head)

    def _best(self, scores: NDArray[Any], anchor: int, relation: int, at_head: bool) -> Best:
        candidates = self.candidates
        if self.facts is not None:
            known = self.facts.heads(relation, anchor) if at_head else self.facts.tails(anchor, relation)
            candidates = candidates[~np.isin(candidates, known)]
        value = scores[candidates].astype(np.float64)
        if self.expects:
            return self._most_expected(candidates, value, anchor, relation, at_head)
        wanted = self.k + SPARE
        if self.method.own_answers:
            wanted = max(wanted, SHORTLIST)
        elif self.rank_by == "lower":
            triples = _triples(candidates, anchor, relation, at_head)
            # all candidates, first by the lower end, then by the score
            lower = self.method._ends(value, triples, [self.level])[:, 0, 0] if len(candidates) else value
            candidates = candidates[np.lexsort((-value, -lower))[:wanted]]
            return self._ordered(candidates, anchor, relation, at_head)
        if wanted < len(candidates):
            last = np.partition(-value, wanted - 1)[wanted - 1]
            better, tied = candidates[-value < last], candidates[-value == last]
            candidates = np.concatenate([better, tied[: wanted - len(better)]])
        return self._ordered(candidates, anchor, relation, at_head)

    def _ordered(self, candidates: Ids, anchor: int, relation: int, at_head: bool) -> Best:
        """The best k of a few candidates, by their exact answers."""
        found = self.method.interval(_triples(candidates, anchor, relation, at_head), self.level)
        keys = (
            (candidates, -found.score, -found.lower)
            if self.rank_by == "lower"
            else (candidates, -found.score)
        )
        best: Ids = candidates[np.lexsort(keys)[: self.k]]
        return Best(best, np.full(len(best), np.nan))

    def _most_expected(
        self, candidates: Ids, value: Floats, anchor: int, relation: int, at_head: bool
    ) -> Best:
        """The best k by what is expected of them, or by the lower end times the probability of a fact."""
        from unkgcp.evidence.candidate_ranking import KNOWN  # few runs have evidence

        order = np.lexsort((candidates, -value))
        # the values of training facts lie above all others by `KNOWN`; what is expected of them is their own confidence
        expected = np.where(value >= KNOWN, value - KNOWN, np.clip(value, 0.0, 1.0))
        if self.rank_by == "lower":
            some = order[: max(self.k, EXPECTED)]
            found = self.method.interval(_triples(candidates[some], anchor, relation, at_head), self.level)
            fact = np.minimum(expected[some] / np.maximum(found.score, 1e-9), 1.0)
            fact[value[some] >= KNOWN] = 1.0
            order = some[np.lexsort((candidates[some], -value[some], -fact * np.nan_to_num(found.lower)))]
        order = order[: self.k]
        return Best(candidates[order], expected[order])


def _triples(candidates: Ids, anchor: int, relation: int, at_head: bool) -> Triples:
    same = np.full(len(candidates), anchor, np.int32)
    between = np.full(len(candidates), relation, np.int32)
    return Triples(candidates, between, same) if at_head else Triples(same, between, candidates)
