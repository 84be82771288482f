"""Answer sets: sets of entities that contain the answer of (h, r, ?) or (?, r, t) with a chosen probability.

Candidates are all entities with a training fact, except those that answer the question in a training fact. Each has a
weight (`unkgcp.run.questions`), and its share of the weight of all candidates is how likely it is the answer, as the
run sees it. The nonconformity of an answer to its question is

    s = -log(share), and 0 for the candidate of the largest weight.

The set at a level has all candidates with s at most the k-th smallest s of the calibration facts, asked as questions,
where k = ceil(level (l + 1)) (`unkgcp.conformal.ranks`). It then contains the tail (head) of a new fact with at least
that probability, if the fact is exchangeable with the calibration facts, is no training fact, and is about entities and
a relation that have training facts. Tails and heads are calibrated separately. Where one candidate has most of the
weight the set is small, and it is never empty. With `per` relation there is one threshold for each large relation and
for each group of small ones, and the promise holds in every one of them; groups come from training facts.

This is KGCP (Zhu et al., NAACL 2025) with another score, and CondKGCP (Zhu et al., Findings of ACL 2025) where it has
groups. It gives no probability for a single candidate, and no promise for questions that no new fact answers.

>>> predictor.answers("TP53", "binding", confidence=0.9).entities.to_pylist()           # doctest: +SKIP
['MDM2', 'EP300', 'CREBBP']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranking import Codes, GroupRankings, Standing, largest
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.errors import InputError
from unkgcp.methods.intervals import BASES, STATUSES, Floats
from unkgcp.methods.partitions import RelationGroups, group_relations
from unkgcp.run.answers import LABELS, Calibrated
from unkgcp.run.questions import (
    AnswerWeights,
    Ints,
    completer_of,
    labels_of_candidates,
    least_weight,
    new_facts,
    one_question,
    open_questions,
    total,
    training_facts,
)
from unkgcp.tabular.arrow_arrays import numbers, texts
from unkgcp.tabular.label_index import OPEN

PER = ("relation", "none")
FACTS = 5000
"""Calibration facts that an evidence run, which takes milliseconds a question, asks for tails, and again for heads."""


class SetRequest(NamedTuple):
    """What is asked for.

    k: the most answers of a set that are listed, None for all of them. least: the least confidence of the new facts
    that the promise is for. per: `relation` if it is to hold in every relation, else `none`.
    """

    level: Fraction
    k: int | None = None
    least: float = 0.0
    per: str = "relation"

    @classmethod
    def of(
        cls, confidence: Confidence, k: int | None = None, min_confidence: float = 0.0, per: str = "relation"
    ) -> SetRequest:
        """InputError for what cannot be asked."""
        if per not in PER:
            raise InputError(f"answer sets are promised per {' or '.join(PER)}, not per {per!r}")
        if k is not None and k < 1:
            raise InputError(f"{k} answers cannot be listed; ask for at least 1")
        if not 0 <= min_confidence <= 1:
            raise InputError(f"the least confidence is {min_confidence} but must lie between 0 and 1")
        return cls(answer_level(confidence), k, float(min_confidence), per)


def answer_level(confidence: Confidence) -> Fraction:
    """The level of an answer set, which lies between 0 and 1; InputError otherwise."""
    try:
        level = exact(confidence)
    except ValueError:
        level = Fraction(0)
    if not 0 < level < 1:
        raise InputError(
            f"the confidence of an answer set is {confidence} but must lie between 0 and 1, both excluded"
        )
    return level


class Members(NamedTuple):
    """The set of one question: the ids and the shares of those that are listed, best first, (n,) each.

    size: of the whole set. candidates: how many there are. known: how many training facts answer the question.
    """

    ids: NDArray[np.int64]
    share: NDArray[np.float32]
    size: int
    candidates: int
    known: int


@dataclass(frozen=True, eq=False)
class SideSets:
    """Calibrated sets of tails, or of heads; `calibrated` makes them.

    groups: the groups of relations, None if there is one threshold for all. available: how many calibration facts could
    be used, of which those in the rankings were drawn.
    """

    candidates: AnswerWeights
    rankings: GroupRankings
    groups: RelationGroups | None
    available: int

    @property
    def size(self) -> int:
        """Calibration facts that set the thresholds."""
        return int(self.rankings.first.ranking.sizes.sum())

    def thresholds(self, relation: NDArray[Any], level: Fraction) -> Floats:
        """The threshold of s for a question with each relation, inf where the set is all candidates: (n,)."""
        (thresholds,) = largest(self.rankings.tables([level]), self._segments(relation))
        return np.broadcast_to(thresholds, np.shape(relation))

    def standing(self, strange: Floats, relation: NDArray[Any]) -> Standing:
        """The place of s of answers among the calibration facts that set their thresholds: (n,) each."""
        return self.rankings.standing(strange, self._segments(relation))

    def _segments(self, relation: NDArray[Any]) -> list[Codes | None]:
        return self.rankings.segments({} if self.groups is None else {"relation": self.groups.of(relation)})

    def sizes(self, relation: NDArray[Any]) -> Ints:
        """How many calibration facts set the threshold of each relation: (n,)."""
        if self.groups is None:
            return np.full(np.shape(relation), self.size, np.int64)
        return self.rankings.sizes({"relation": self.groups.of(relation)})

    def basis(self, relation: NDArray[Any]) -> NDArray[np.int8] | None:
        """Position in `BASES` of whose calibration facts the promise stands on: (n,); None without groups."""
        return None if self.groups is None else self.groups.basis(relation, self.sizes(relation))

    def find(
        self, anchor: NDArray[Any], relation: NDArray[Any], level: Fraction, k: int | None
    ) -> Iterator[Members]:
        """The set of each question, of which at most k answers are listed."""
        thresholds, seen = self.thresholds(relation, level), int(np.count_nonzero(self.candidates.seen))
        for start in range(0, len(anchor), self.candidates.step):
            some = slice(start, start + self.candidates.step)
            table = self.candidates.weights(anchor[some], relation[some])
            of_all, heaviest = total(table), table.max(axis=1)
            least = least_weight(thresholds[some], of_all, heaviest)
            for row, weight in enumerate(table):
                inside = np.flatnonzero(weight >= max(least[row], 0.0))
                best = inside[np.lexsort((inside, -weight[inside]))[:k]]
                share = (weight[best] / of_all[row]).astype(np.float32)
                count = int(np.count_nonzero(weight >= 0))
                yield Members(best, share, len(inside), count, seen - count)

    def notes(self, level: Fraction) -> list[str]:
        """What to know about sets at this level, a sentence each."""
        sentences = []
        if self.size < self.available:
            sentences.append(
                f"calibrated with {self.size:,} of {self.available:,} calibration facts, drawn at random"
            )
        if rank(level, self.size) > self.size:
            sentences.append(
                f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
                "every set holds every candidate"
            )
        elif self.groups is not None:
            relations = np.flatnonzero(self.candidates.predictor.model.seen_relations)
            if few := sum(rank(level, size) > size for size in self.sizes(relations).tolist()):
                sentences.append(
                    f"{few:,} of {len(relations):,} relations have too few calibration facts for confidence "
                    f"{float(level)}: their sets hold every candidate"
                )
        return sentences


def calibrated(predictor: Calibrated, at_head: bool, least: float, per: str) -> SideSets:
    """Sets of heads, or of tails; InputError where the run does not hold what is needed.

    Calibration facts below the confidence `least`, and those whose triple is also a training fact, are left out.
    """
    facts, candidates = predictor.method.calibration_facts(), AnswerWeights(predictor, at_head)
    usable = new_facts(candidates, facts, least)
    if not len(usable):
        raise InputError(
            f"none of the {len(facts):,} calibration facts has a confidence of at least {least:g} and a triple that is "
            "no training fact, so nothing is known of new ones; lower --min-confidence, or calibrate with more facts"
        )
    facts = usable
    if completer_of(predictor) is not None and len(facts) > FACTS:
        # sorted first, so that a run draws the same facts after it was saved and loaded
        order = np.lexsort((facts.confidence, facts.keys))
        facts = facts[order[np.random.default_rng(0xA5E7).permutation(len(facts))[:FACTS]]]
    groups = _groups(candidates, least, len(facts)) if per == "relation" else None
    columns = None if groups is None else {"relation": groups.of(facts.relation)}
    rankings = GroupRankings.of(candidates.strangeness(facts), columns)
    return SideSets(candidates, rankings, groups, len(usable))


def _groups(candidates: AnswerWeights, least: float, calibration: int) -> RelationGroups:
    """A group for each large relation; small ones share groups with relations whose answers are as hard to guess."""
    train, relations = candidates.train, len(candidates.predictor.model.seen_relations)
    _, answer = candidates.sides(train)
    _, place, count = np.unique(
        train.relation * np.int64(len(candidates.seen)) + answer, return_inverse=True, return_counts=True
    )
    of_relation = np.bincount(train.relation, minlength=relations)
    surprise = np.log(of_relation[train.relation] / count[place])
    likely = np.bincount(train.relation[train.confidence >= least], minlength=relations)
    expected = np.maximum(likely, of_relation > 0)  # a relation that has only doubtful facts has a group, too
    counts = np.array([calibration, 0, 0, 0])
    return group_relations(train.relation, surprise, relations, counts, expected)


class AnswerSets:
    """The sets of a run for new facts of a least confidence; heads and tails are calibrated when first asked for."""

    def __init__(
        self, predictor: Calibrated, least: float = 0.0, per: str = "relation", caution: str | None = None
    ) -> None:
        """caution: what to know about the run, whatever is asked."""
        # errors about missing facts come before anything is read or written
        predictor.method.calibration_facts()
        training_facts(predictor)
        self.predictor, self.least, self.per, self._caution = predictor, least, per, caution
        self._sides: dict[bool, SideSets] = {}
        self._lock = Lock()

    def side(self, at_head: bool) -> SideSets:
        with self._lock:
            if at_head not in self._sides:
                self._sides[at_head] = calibrated(self.predictor, at_head, self.least, self.per)
            return self._sides[at_head]

    def notes(self, level: Fraction) -> list[str]:
        """What to know about the sets that were asked for, at this level; each sentence once."""
        sentences = dict.fromkeys(note for side in self._sides.values() for note in side.notes(level))
        return [*([] if self._caution is None else [self._caution]), *sentences]

    def answer(self, batch: pa.RecordBatch, request: SetRequest, first: int = 0) -> pa.RecordBatch:
        """The sets of a batch of questions with columns head, relation, tail; `?`, empty or null is the open place.

        One row an answer: query (the row of the question, counted from `first`), rank (from 1), head, relation, tail,
        share, size (of the whole set), candidates (how many entities could be in it), known (answers by training facts,
        which are not in it), calibration (facts that set its threshold), status and, with groups, promise. An unknown
        question has one row with nothing in the open place.
        """
        questions = open_questions(self.predictor, batch, first)
        rows = np.arange(len(batch))
        sets: dict[int, Members] = {}
        blank = Members(np.zeros(1, np.int64), np.full(1, np.nan, np.float32), 0, 0, 0)
        size, basis = np.zeros(len(rows), np.int64), np.full(len(rows), BASES.index("none"), np.int8)
        for at_head in (False, True):
            some = rows[questions.answerable & (questions.open_head == at_head)]
            if not len(some):
                continue
            side, relation = self.side(at_head), questions.relation[some]
            answers = side.find(questions.anchor[some], relation, request.level, request.k)
            sets.update(zip(some.tolist(), answers, strict=True))
            size[some] = side.sizes(relation)
            if (stands := side.basis(relation)) is not None:
                basis[some] = stands
        every = [sets.get(row, blank) for row in rows.tolist()]
        candidates = questions.ranked([members.ids for members in every])
        query, valid = candidates.query, ~candidates.blank
        share = np.concatenate([np.zeros(0, np.float32), *(members.share for members in every)])
        labels = labels_of_candidates(self.predictor, batch, candidates)
        counts = np.array([members[2:] for members in every], np.int64).reshape(-1, 3)[query]
        columns = {
            "query": numbers(query + first),
            "rank": numbers(candidates.rank),
            **{name: labels.column(name) for name in LABELS},
            "share": numbers(share, valid),
            "size": numbers(counts[:, 0].copy(), valid),
            "candidates": numbers(counts[:, 1].copy(), valid),
            "known": numbers(counts[:, 2].copy(), valid),
            "calibration": numbers(size[query], valid),
            "status": pa.DictionaryArray.from_arrays(numbers(questions.code[query]), texts(STATUSES)),
        }
        if self.per == "relation":
            columns["promise"] = pa.DictionaryArray.from_arrays(numbers(basis[query]), texts(BASES))
        return pa.record_batch(list(columns.values()), names=list(columns))


@dataclass(frozen=True, eq=False)
class AnswerSet:
    """The set of one question: what `Predictor.answers` gives.

    entities, share: (n,), best first, cut to the k asked for. size: of the whole set. candidates: how many entities
    could be in it. known: answers by training facts, which a new fact is none of. calibration: facts that set its
    threshold. promise: whose they are, None without groups. notes: what to know, a sentence each.
    """

    entities: pa.StringArray
    share: NDArray[np.float32]
    size: int
    candidates: int
    known: int
    confidence: float
    status: str
    calibration: int
    promise: str | None
    notes: list[str]

    def __len__(self) -> int:
        return len(self.entities)

    def to_arrow(self) -> pa.Table:
        rank = np.arange(1, len(self.entities) + 1, dtype=np.int32)
        return pa.table({"rank": numbers(rank), "entity": self.entities, "share": numbers(self.share)})


def answers_of(
    sets: AnswerSets, head: str | None, relation: str, tail: str | None, request: SetRequest
) -> AnswerSet:
    """The set of one question; an unknown one has no entities and a status that says why."""
    rows = sets.answer(one_question(head, relation, tail), request)
    one = {name: rows.column(name)[0].as_py() for name in rows.schema.names}
    listed = 0 if one["size"] is None else len(rows)
    at_head = not head or head == OPEN
    return AnswerSet(
        rows.column("head" if at_head else "tail")[:listed],
        rows.column("share").to_numpy(zero_copy_only=False)[:listed],
        one["size"] or 0,
        one["candidates"] or 0,
        one["known"] or 0,
        float(request.level),
        one["status"],
        one["calibration"] or 0,
        one.get("promise"),
        sets.notes(request.level) if one["status"] == "ok" else [],
    )
