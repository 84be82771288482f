"""Completions: the best entities for (h, r, ?) or (?, r, t), each with its interval.

All of it is pure: an Arrow batch of queries with one open place each in, an Arrow batch of candidates out. Every
entity with a training fact is a candidate. `candidate_scores` is the first look at all of them, a matrix product, or
what evidence expects of each (`unkgcp.evidence.completing`); the best few are then asked like any other query, so that
a completion has the same numbers as `predict` gives. Each interval holds for one triple, not for all of a list at once,
and unless the run is for the open world it presumes that the triple is a fact, which most candidates are not.

>>> complete(predictor, head="TP53", relation="binding", k=5, rank_by="lower").to_pandas()     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.conformal.ranks import exact_levels
from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.graph.objects import spelt, to_triples
from unkgcp.methods.intervals import Floats, Intervals, Levels, as_batch
from unkgcp.methods.method import status_codes
from unkgcp.run.answers import LABELS, answer
from unkgcp.tabular.arrow_arrays import numbers
from unkgcp.tabular.label_index import OPEN

if TYPE_CHECKING:
    from unkgcp.evidence.completing import Completer
    from unkgcp.run.answers import Calibrated

RANKINGS = ("score", "lower")
SHORTLIST = 2048  # candidates asked where only the answers themselves can rank
EXPECTED = 256  # those asked of an evidence run for the lower end: the ones of which most is expected
PRESUMES = (
    "these intervals presume that a completion is a fact, which most candidates are not; "
    "fit with --population open for a promise that also holds for those that are none"
)
SPARE = 16  # candidates beyond k asked exactly: the matrix product is off by a few roundings
CELLS = 1 << 23  # scores held at once

Ids = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Found(NamedTuple):
    """Candidates of some queries, (n,) each: the row of the query, the rank from 1, the triple, and its open place.

    An unknown query has no candidates, but it has one row, so that its answer can say why. `blank` marks this row: its
    open place is shown empty. Inside, the entity that was given stands in both places of the triple; the triple is then
    unknown for the same reason as the query, and gets its status. `expected` is None where nothing expects anything.
    """

    query: NDArray[np.int64]
    rank: NDArray[np.int32]
    triples: Triples
    open_head: Mask
    blank: Mask
    expected: Floats | None


class Places(NamedTuple):
    """Questions as ids, (n,) each: the entity that is given, the relation, which place is open, whether both that is
    given are known, and the position in `STATUSES` that says so."""

    anchor: Ids
    relation: Ids
    open_head: Mask
    known: Mask
    code: NDArray[np.int8]

    def triples(self, query: NDArray[Any], entity: NDArray[Any]) -> Triples:
        """Entities put into the open places of questions, which come by their rows: (m,) each."""
        anchor, at_head, other = self.anchor[query], self.open_head[query], entity.astype(np.int32)
        return Triples(
            np.where(at_head, other, anchor), self.relation[query], np.where(at_head, anchor, other)
        )


def asked_places(predictor: Calibrated, batch: pa.RecordBatch, first: int) -> Places:
    """What a batch of questions asks for; `first` is the number of those before it, for errors."""
    open_head = _open_heads(batch, first)
    asked = to_triples(batch.select(list(LABELS)), predictor.model.vocabulary)
    anchor = np.where(open_head, asked.tail, asked.head)
    # a question is known when its other two places are
    code = status_codes(predictor.model, Triples(anchor, asked.relation, anchor))
    return Places(anchor, asked.relation, open_head, code == 0, code)


def complete(
    predictor: Calibrated,
    *,
    relation: str,
    head: str | None = None,
    tail: str | None = None,
    k: int = 10,
    confidence: Levels = 0.9,
    rank_by: str = "score",
    exclude_known: bool = False,
) -> Intervals:
    """The best k entities for the place that is not given, best first, with their labels.

    `rank_by` is `score` or `lower`, the lower end (of the first level if there are several); ties go by score, then
    by the order of the vocabulary. An evidence run ranks by what is expected of a triple that may be no fact instead of
    the score, which is about facts, and by the lower end times the probability that it is one; training facts come
    first. `exclude_known` leaves them out. If what is given is unknown the answer is one row with nothing in the open
    place, the whole range, and a status that says why.
    """
    place = {"head": head or OPEN, "relation": relation, "tail": tail or OPEN}
    query = pa.record_batch([pa.array([label], pa.string()) for label in place.values()], names=list(place))
    found = _found(predictor, query, k, confidence, rank_by, exclude_known, 0)
    return _answers(predictor, query, found, confidence)


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
    `unkgcp.methods.intervals.as_batch`. See `complete`.
    """
    found = _found(predictor, batch, k, confidence, rank_by, exclude_known, first)
    answers = _answers(predictor, batch, found, confidence)
    assert answers.labels is not None
    before = {"query": numbers(found.query + first), "rank": numbers(found.rank)}
    return as_batch(answers, before | {name: answers.labels.column(name) for name in LABELS})


def _found(
    predictor: Calibrated,
    batch: pa.RecordBatch,
    k: int,
    confidence: Levels,
    rank_by: str,
    exclude_known: bool,
    first: int,
) -> Found:
    if k < 1:
        raise InputError(f"{k} completions cannot be given; ask for at least 1")
    if rank_by not in RANKINGS:
        raise InputError(f"completions are ranked by {' or '.join(RANKINGS)}, not by {rank_by!r}")
    if exclude_known and predictor.model.facts is None:
        raise InputError(
            "this run does not hold its training facts, so they cannot be left out; fit it again"
        )
    asked = asked_places(predictor, batch, first)
    anchor, known = asked.anchor, asked.known
    search = _Search(predictor, k, confidence, rank_by, exclude_known)
    nothing = np.array([np.nan])
    chosen: list[tuple[int, Best]] = [
        (int(row), Best(anchor[row : row + 1], nothing)) for row in np.flatnonzero(~known)
    ]
    for at_head, rows in (
        (True, np.flatnonzero(known & asked.open_head)),
        (False, np.flatnonzero(known & ~asked.open_head)),
    ):
        chosen += zip(rows.tolist(), search.best(anchor[rows], asked.relation[rows], at_head), strict=True)
    chosen.sort(key=lambda found: found[0])
    lengths = np.array([len(best.ids) for _, best in chosen], np.int64)
    query = np.repeat(np.array([row for row, _ in chosen], np.int64), lengths)
    rank = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    entity = np.concatenate([np.zeros(0, np.int32), *(best.ids for _, best in chosen)])
    expected = np.concatenate([np.zeros(0), *(best.expected for _, best in chosen)])
    return Found(
        query,
        rank.astype(np.int32),
        asked.triples(query, entity),
        asked.open_head[query],
        ~known[query],
        None if completer_of(predictor) is None else expected,
    )


def _open_heads(batch: pa.RecordBatch, first: int) -> Mask:
    """Where the head is asked for, elsewhere the tail; InputError for both of them, none, or the relation."""
    places = []
    for name in LABELS:
        labels = spelt(batch.column(name)).to_pylist()
        places.append(np.array([label is None or label in ("", OPEN) for label in labels], dtype=np.bool_))
    head, relation, tail = places
    wrong = np.flatnonzero(relation | (head == tail))
    if len(wrong):
        row = int(wrong[0])
        what = (
            "its relation" if relation[row] else "neither head nor tail" if not head[row] else "head and tail"
        )
        raise InputError(
            f"query {first + row + 1} leaves {what} open; a completion needs one open place, {OPEN} as head or tail"
        )
    return head


def presumption(predictor: Calibrated) -> str | None:
    """What completions should say of their intervals; None for the open world, which promises it for non-facts too."""
    return None if predictor.method.for_open_world else PRESUMES


class Best(NamedTuple):
    """The best entities of a query, and what is expected of them, NaN where nothing is: (n,) each."""

    ids: Ids
    expected: Floats


def completer_of(predictor: Calibrated) -> Completer | None:
    """What ranks the candidates of an evidence run; None for others."""
    return None if predictor.method.evidence is None else predictor.method.evidence.completer


def candidate_scores(
    predictor: Calibrated, anchor: NDArray[Any], relation: NDArray[Any], at_head: bool
) -> NDArray[Any]:
    """What the candidates of questions are ranked by, more is better: (n, entities).

    That is the score of the model, or what evidence expects of each candidate (`Completer.expected`).
    """
    completer, model = completer_of(predictor), predictor.model
    if completer is None:
        return model.heads(relation, anchor) if at_head else model.tails(anchor, relation)
    return completer.of_questions(anchor, relation, at_head)


class _Search:
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
            # the whole order first by the lower end, then by the score
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
        from unkgcp.evidence.completing import KNOWN  # few runs have evidence

        order = np.lexsort((candidates, -value))
        # a training fact is expected to have its own confidence, and stands before the others all the same
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


def labels_of_found(predictor: Calibrated, batch: pa.RecordBatch, found: Found) -> pa.RecordBatch:
    """head, relation and tail of the candidates of a batch of questions."""
    vocabulary, rows = predictor.model.vocabulary, numbers(found.query)
    labels = {}
    for name, ids, is_open in (
        ("head", found.triples.head, found.open_head),
        ("tail", found.triples.tail, ~found.open_head),
    ):
        own = vocabulary.entities.take(numbers(ids, ids >= 0))
        own = pc.if_else(numbers(found.blank), pa.scalar(None, pa.string()), own)
        labels[name] = pc.if_else(numbers(is_open), own, spelt(batch.column(name)).take(rows))
    labels["relation"] = spelt(batch.column("relation")).take(rows)
    return pa.record_batch([labels[name] for name in LABELS], names=list(LABELS))


def _answers(predictor: Calibrated, batch: pa.RecordBatch, found: Found, confidence: Levels) -> Intervals:
    """The answers of the candidates, with labels."""
    named = labels_of_found(predictor, batch, found)
    answers = answer(predictor, found.triples, confidence)
    presumes = None if predictor.method.for_open_world else np.ones(len(answers), np.bool_)
    return replace(answers, labels=named, presumes_fact=presumes, expected=found.expected)
