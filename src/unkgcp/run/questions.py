"""Questions with an open place, (h, r, ?) or (?, r, t), and how well every entity answers them.

Completions and answer sets both begin here. `open_questions` turns a batch of questions into ids. `candidate_scores` is
what completions are ranked by. `AnswerWeights` makes weights of these scores for answer sets: a larger score has a
larger weight, and the share of a candidate in the weight of all candidates says how likely it is the answer. Entities
without a training fact are no candidates, and neither are those that answer the question in a training fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Triples, Vocabulary, contained
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.graph.objects import spelt
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import status_codes
from unkgcp.run.answers import LABELS, Calibrated
from unkgcp.tabular.arrow_arrays import numbers
from unkgcp.tabular.label_index import OPEN

if TYPE_CHECKING:
    from unkgcp.evidence.candidate_ranking import Completer

Ids = NDArray[np.int32]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FLOOR = 1e-4
"""The weight of a backbone's score is the square of the score and this. The square was chosen among several powers: it
gave the smallest sets for training facts that early stopping had held out."""
SLACK = 1e-3
"""Added to thresholds: matrix products of other shapes are off by a few roundings, which must not cost an answer."""
CELLS = 1 << 22  # weights held at once


class RankedCandidates(NamedTuple):
    """Candidates of some questions, (n,) each: the row of the question, the rank from 1, the triple, its open place.

    An unknown question has no candidates, but it has one row, so that its answer can say why. `blank` marks this row:
    its open place is shown empty.
    """

    query: Ints
    rank: Ids
    triples: Triples
    open_head: Mask
    blank: Mask


class OpenQuestions(NamedTuple):
    """Questions as ids, (n,) each.

    anchor: the entity that is given. open_head: whether the head is asked for, not the tail. answerable: whether the
    given entity and the relation are known. code: the position in `STATUSES` that says so.
    """

    anchor: Ids
    relation: Ids
    open_head: Mask
    answerable: Mask
    code: NDArray[np.int8]

    def ranked(self, entities: Sequence[NDArray[Any]]) -> RankedCandidates:
        """The candidates of all questions together, from those of each question, best first.

        An unknown question comes with one entity, which is not shown.
        """
        lengths = np.array([len(ids) for ids in entities], np.int64)
        query = np.repeat(np.arange(len(entities)), lengths)
        rank = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        other = np.concatenate([np.zeros(0, np.int32), *entities]).astype(np.int32)
        anchor, at_head = self.anchor[query], self.open_head[query]
        triples = Triples(
            np.where(at_head, other, anchor), self.relation[query], np.where(at_head, anchor, other)
        )
        return RankedCandidates(query, rank.astype(np.int32), triples, at_head, ~self.answerable[query])


def one_question(head: str | None, relation: str, tail: str | None) -> pa.RecordBatch:
    """A batch with one question."""
    labels = (head or OPEN, relation, tail or OPEN)
    return pa.record_batch([pa.array([label], pa.string()) for label in labels], names=list(LABELS))


def open_questions(predictor: Calibrated, batch: pa.RecordBatch, first: int) -> OpenQuestions:
    """What a batch of questions asks for; `first` is the number of those before it, for errors."""
    open_head = _open_heads(batch, first)
    vocabulary = predictor.model.vocabulary
    anchors = pc.if_else(numbers(open_head), *(spelt(batch.column(name)) for name in ("tail", "head")))
    anchor, relation = vocabulary.entity_ids(anchors), vocabulary.relation_ids(batch.column("relation"))
    # a question is known when its other two places are
    code = status_codes(predictor.model, Triples(anchor, relation, anchor))
    return OpenQuestions(anchor, relation, open_head, code == 0, code)


def _open_heads(batch: pa.RecordBatch, first: int) -> Mask:
    """Where the head is asked for, elsewhere the tail; InputError for both of them, none, or the relation."""
    columns = (spelt(batch.column(name)).to_pylist() for name in LABELS)
    head, relation, tail = (
        np.array([label in (None, "", OPEN) for label in labels], np.bool_) for labels in columns
    )
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


def labels_of_candidates(
    predictor: Calibrated, batch: pa.RecordBatch, candidates: RankedCandidates
) -> pa.RecordBatch:
    """head, relation and tail of the candidates of a batch of questions."""
    vocabulary, rows = predictor.model.vocabulary, numbers(candidates.query)
    labels = {}
    for name, ids, is_open in (
        ("head", candidates.triples.head, candidates.open_head),
        ("tail", candidates.triples.tail, ~candidates.open_head),
    ):
        names = vocabulary.entities.take(numbers(ids, (ids >= 0) & ~candidates.blank))
        labels[name] = pc.if_else(numbers(is_open), names, spelt(batch.column(name)).take(rows))
    labels["relation"] = spelt(batch.column("relation")).take(rows)
    return pa.record_batch([labels[name] for name in LABELS], names=list(LABELS))


def completer_of(predictor: Calibrated) -> Completer | None:
    """What ranks the candidates of an evidence run; None for others."""
    return None if predictor.method.evidence is None else predictor.method.evidence.ranking


def candidate_scores(
    predictor: Calibrated, anchor: NDArray[Any], relation: NDArray[Any], at_head: bool
) -> NDArray[Any]:
    """What the candidates of questions are ranked by, more is better: (n, entities).

    That is the score of the model, or what evidence expects of each candidate (`Completer.expected`). With a symmetric
    relation, candidates before the given entity are scored as heads and all others as tails, whatever is asked for.
    """
    scores = _scores_of_side(predictor, anchor, relation, at_head)
    rows = np.flatnonzero(predictor.model.vocabulary.symmetric[relation])
    if len(rows):
        other = _scores_of_side(predictor, anchor[rows], relation[rows], not at_head)
        is_head = np.arange(scores.shape[1]) < anchor[rows, None]
        scores = scores.copy()
        scores[rows] = np.where(is_head == at_head, scores[rows], other)
    return scores


def _scores_of_side(
    predictor: Calibrated, anchor: NDArray[Any], relation: NDArray[Any], at_head: bool
) -> NDArray[Any]:
    completer, model = completer_of(predictor), predictor.model
    if completer is None:
        return model.heads(relation, anchor) if at_head else model.tails(anchor, relation)
    return completer.of_questions(anchor, relation, at_head)


def known_answers(
    facts: KnownFacts, vocabulary: Vocabulary, anchor: int, relation: int, at_head: bool
) -> NDArray[np.int32]:
    """The entities that answer a question in one of the facts, in either direction of a symmetric relation: (n,)."""
    if vocabulary.symmetric[relation]:
        return np.concatenate([facts.heads(relation, anchor), facts.tails(anchor, relation)])
    return facts.heads(relation, anchor) if at_head else facts.tails(anchor, relation)


def training_facts(predictor: Calibrated) -> KnownFacts:
    """The training facts of a run; InputError if it does not hold them."""
    if predictor.model.facts is None:
        raise InputError(
            "this run does not hold its training facts, which are no answers of new facts; fit it again"
        )
    return predictor.model.facts


class AnswerWeights:
    """The weights of all entities as answers of questions for tails, or for heads."""

    def __init__(self, predictor: Calibrated, at_head: bool) -> None:
        model = predictor.model
        self.predictor, self.at_head, self.seen = predictor, at_head, model.seen_entities
        self.facts = training_facts(predictor)
        self.train = self.facts.graph(model.vocabulary)
        self._relations = len(model.seen_relations)

    def sides(self, facts: Graph) -> tuple[Ints, Ints]:
        """The entity that is given in the question of each fact, and the entity that answers it: (n,) each."""
        head, tail = facts.head.astype(np.int64), facts.tail.astype(np.int64)
        # of a symmetric relation either end may be asked for: which one, a number decides that is as good as random
        mixed = (head * 0x9E3779B1 ^ tail * 0x85EBCA6B) >> 16 & 1
        turned = np.where(facts.vocabulary.symmetric[facts.relation], mixed == 1, self.at_head)
        return np.where(turned, tail, head), np.where(turned, head, tail)

    @property
    def step(self) -> int:
        """How many questions are weighed at once."""
        return max(1, CELLS // max(1, len(self.seen)))

    def weights(self, anchor: NDArray[Any], relation: NDArray[Any]) -> Floats:
        """The weights of all entities for each question, -1 for those that are no candidates: (n, entities)."""
        scores = candidate_scores(self.predictor, anchor, relation, self.at_head)
        if completer_of(self.predictor) is None:
            table = np.square(scores.astype(np.float64) + FLOOR)
        else:
            from unkgcp.evidence.candidate_ranking import weights  # few runs have evidence

            table = weights(scores)
        table[:, ~self.seen] = -1.0
        for row, (entity, by) in enumerate(zip(anchor.tolist(), relation.tolist(), strict=True)):
            vocabulary = self.predictor.model.vocabulary
            table[row, known_answers(self.facts, vocabulary, entity, by, self.at_head)] = -1.0
        return table

    def blocks(self, facts: Graph) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Floats]]:
        """Facts asked as questions, each question once, some questions at a time.

        Yields the rows of the facts, the row of each fact's question in the table, and the table of weights.
        """
        anchor, _ = self.sides(facts)
        questions, inverse = np.unique(anchor * self._relations + facts.relation, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        ordered = inverse[order]
        for start in range(0, len(questions), self.step):
            some = questions[start : start + self.step]
            first, last = np.searchsorted(ordered, [start, start + len(some)])
            rows = order[first:last]
            yield rows, inverse[rows] - start, self.weights(some // self._relations, some % self._relations)

    def strangeness(self, facts: Graph) -> Floats:
        """The nonconformity s of each fact, none of which is a training fact: (n,)."""
        _, answer = self.sides(facts)
        strange = np.empty(len(facts))
        for rows, question, table in self.blocks(facts):
            of_answers = table[question, answer[rows]]
            strange[rows] = strangeness(of_answers, total(table)[question], table.max(axis=1)[question])
        return strange


def total(table: Floats) -> Floats:
    """The weight of all candidates of each question: (n,)."""
    return np.asarray(np.maximum(table, 0.0).sum(axis=1))


def strangeness(of_answers: Floats, of_all: Floats, heaviest: Floats) -> Floats:
    """The nonconformity s of answers with these weights, given the total and the largest weight of candidates: (n,)."""
    return np.where(of_answers >= heaviest, 0.0, np.log(of_all) - np.log(of_answers))


def least_weight(thresholds: Floats, of_all: Floats, heaviest: Floats) -> Floats:
    """The least weight of a candidate in the set of each question; 0 where the set is all candidates: (n,)."""
    return np.asarray(np.exp(-SLACK) * np.minimum(of_all * np.exp(-thresholds), heaviest))


def new_facts(candidates: AnswerWeights, facts: Graph, least: float) -> Graph:
    """The facts with a confidence of at least `least` whose labels are known and that are no training facts."""
    answerable = status_codes(candidates.predictor.model, facts) == 0
    facts = facts[answerable & (facts.confidence >= least)]
    return facts[~contained(facts.keys, np.sort(candidates.train.keys))]
