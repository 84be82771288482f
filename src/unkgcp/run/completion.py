"""Completions: the best entities for (h, r, ?) or (?, r, t), each with its interval.

All of it is pure: an Arrow batch of queries with one open place each in, an Arrow batch of candidates out. Every
entity with a training fact is a candidate. All of them are scored at once (`unkgcp.run.questions.candidate_scores`);
the best are then asked like any other query, so that a completion has the numbers that `predict` gives. Each
interval holds for one triple, not for all of a list at once, and unless the run is for the open world it presumes that
the triple is a fact, which most candidates are not.

>>> complete_batch(predictor, questions, k=5, rank_by="lower").column("tail")     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranks import exact_levels
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Triples, concatenate, in_vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.graph.objects import Queries, as_queries, to_triples
from unkgcp.methods.intervals import Floats, Intervals, Levels, as_batch
from unkgcp.run.answers import LABELS, Calibrated, answer
from unkgcp.run.questions import (
    Ids,
    RankedCandidates,
    candidate_scores,
    completer_of,
    known_answers,
    labels_of_candidates,
    open_questions,
)
from unkgcp.tabular.arrow_arrays import numbers

RANKINGS = ("score", "lower")
SHORTLIST, EXPECTED = 2048, 256
"""Candidates of the best scores that are ordered by their answers where these are not in the order of the scores, and
as many of an evidence run, whose answers take longer."""
PRESUMES = (
    "these intervals presume that a completion is a fact, which most candidates are not; "
    "fit with --population open for a promise that also holds for those that are none"
)
CELLS = 1 << 23  # scores held at once


def complete_batch(
    predictor: Calibrated,
    batch: pa.RecordBatch,
    k: int,
    confidence: Levels = 0.9,
    *,
    rank_by: str = "score",
    exclude_known: bool = False,
    exclude: KnownFacts | None = None,
    first: int = 0,
) -> pa.RecordBatch:
    """Candidates of every query of a batch with columns head, relation, tail; `?`, empty or null is the open place.

    Columns query (the row of the query, counted from `first`), rank (from 1), head, relation, tail, and those of
    `unkgcp.methods.intervals.as_batch`. See `Predictor.complete`; `exclude` is what `excluded` made, once for all
    batches.
    """
    facts = excluded(predictor, exclude_known) if exclude is None else exclude
    candidates, answers = complete(predictor, batch, k, confidence, rank_by, facts, first)
    assert answers.labels is not None
    before = {"query": numbers(candidates.query + first), "rank": numbers(candidates.rank)}
    return as_batch(answers, before | {name: answers.labels.column(name) for name in LABELS})


def complete(
    predictor: Calibrated,
    batch: pa.RecordBatch,
    k: int,
    confidence: Levels,
    rank_by: str,
    exclude: KnownFacts | None,
    first: int = 0,
) -> tuple[RankedCandidates, Intervals]:
    """The best candidates of a batch of questions, none in a fact of `exclude`, and their answers with labels."""
    if k < 1:
        raise InputError(f"{k} completions cannot be given; ask for at least 1")
    if rank_by not in RANKINGS:
        raise InputError(f"completions are ranked by {' or '.join(RANKINGS)}, not by {rank_by!r}")
    questions = open_questions(predictor, batch, first)
    search = _Search(predictor, k, confidence, rank_by, exclude)
    # in the one row of an unknown question the given entity stands in both places: the triple is then unknown for the
    # same reason as the question, and gets its status
    best = [Best(questions.anchor[row : row + 1], np.array([np.nan])) for row in range(len(batch))]
    for at_head in (True, False):
        rows = np.flatnonzero(questions.answerable & (questions.open_head == at_head))
        chosen = search.best(questions.anchor[rows], questions.relation[rows], at_head)
        for row, one in zip(rows.tolist(), chosen, strict=True):
            best[row] = one
    candidates = questions.ranked([one.ids for one in best])
    answers = answer(predictor, candidates.triples, confidence)
    expected = np.concatenate([np.zeros(0), *(one.expected for one in best)])
    return candidates, replace(
        answers,
        labels=labels_of_candidates(predictor, batch, candidates),
        presumes_fact=None if predictor.method.for_open_world else np.ones(len(answers), np.bool_),
        expected=None if completer_of(predictor) is None else expected,
    )


def excluded(predictor: Calibrated, facts_too: bool, others: Iterable[Queries] = ()) -> KnownFacts | None:
    """What completions leave out: all facts that the run knows, other triples, or both; None for neither."""
    if facts_too and predictor.model.facts is None:
        raise InputError(
            "this run does not hold its training facts, so they cannot be left out; fit it again"
        )
    vocabulary = predictor.model.vocabulary
    graphs = []
    for queries in others:
        triples = to_triples(as_queries(queries), vocabulary)
        graph = Graph(*triples, np.zeros(len(triples.head)), vocabulary)
        graphs.append(graph[in_vocabulary(graph)])
    if not graphs:
        return predictor.known if facts_too else None
    return KnownFacts.of(concatenate([*graphs, *([predictor.known.graph(vocabulary)] if facts_too else [])]))


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
        self, predictor: Calibrated, k: int, confidence: Levels, rank_by: str, exclude: KnownFacts | None
    ) -> None:
        self.predictor, self.method, self.model = predictor, predictor.method, predictor.model
        self.level = exact_levels(confidence)[0][0]
        self.rank_by, self.exclude = rank_by, exclude
        self.candidates = np.flatnonzero(self.model.seen_entities).astype(np.int32)
        self.k = min(k, len(self.candidates))

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
        if (facts := self.exclude) is not None:
            known = known_answers(facts, self.model.vocabulary, anchor, relation, at_head)
            candidates = candidates[~np.isin(candidates, known)]
        value = scores[candidates].astype(np.float64)
        by_evidence, expected = completer_of(self.predictor) is not None, np.full(len(value), np.nan)
        if by_evidence:
            from unkgcp.evidence.candidate_ranking import KNOWN  # few runs have evidence

            # values of training facts lie above all others by `KNOWN`; their own confidence is expected of them
            expected = np.where(value >= KNOWN, value - KNOWN, np.clip(value, 0.0, 1.0))
        if self.rank_by == "score" and (by_evidence or not self.method.own_answers):
            order = _largest(value, self.k)
        else:
            order = _largest(value, max(self.k, EXPECTED if by_evidence else SHORTLIST))
            triples = _triples(candidates[order], anchor, relation, at_head)
            answers = answer(self.predictor, triples, self.level)
            keys = [candidates[order], -value[order] if by_evidence else -answers.score]
            if self.rank_by == "lower":
                # the lower end times the probability that the triple is a fact, where evidence knows it
                chance = np.ones(len(order))
                if by_evidence:
                    chance = np.minimum(expected[order] / np.maximum(answers.score, 1e-9), 1.0)
                    chance[value[order] >= KNOWN] = 1.0
                keys.append(-np.nan_to_num(answers.lower) * chance)
            order = order[np.lexsort(keys)[: self.k]]
        return Best(candidates[order], expected[order])


def _largest(value: Floats, n: int) -> NDArray[np.intp]:
    """The rows of the n largest values, best first; of equal ones the first: (n,), fewer if there are fewer."""
    some = n < len(value)
    rows = np.flatnonzero(value >= -np.partition(-value, n - 1)[n - 1]) if some else np.arange(len(value))
    return rows[np.argsort(-value[rows], kind="stable")[:n]]


def _triples(candidates: Ids, anchor: int, relation: int, at_head: bool) -> Triples:
    same = np.full(len(candidates), anchor, np.int32)
    between = np.full(len(candidates), relation, np.int32)
    return Triples(candidates, between, same) if at_head else Triples(same, between, candidates)
