"""Which entities answer (h, r, ?) or (?, r, t): every entity ranked by the confidence to be expected of its triple.

An evidence model gives the distribution of a confidence for a triple that is a fact, but nearly all candidates of a
question are not facts. Here a triple that is no fact counts as confidence 0. The expected confidence is learned: some
training facts are taken out of the graph and asked as questions. For each question boosted trees get the features of
the right answer (with its confidence) and of wrong answers (with 0), drawn from the candidates of the question.

Three kinds of ways lead from the given entity to a candidate (`neighbour_kernels`): a fact of another relation between
the two, an entity that shares a fact with the given one and has the candidate as an answer, and a walk of two facts.
Each way has a rate: how often it led to an answer of the relation. Candidates are first ordered by these rates
(`_first_look`), and the best of them by the trees; all others come after these, in the first order.

>>> completer.expected(anchor=17, relation=3, at_head=False).argmax()          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.crossfit import FOLDS, CrossFit, fold_of_queries
from unkgcp.evidence.fact_groups import AnyInts, FactOrder, Ints, position_type, smallest
from unkgcp.evidence.trees import Boosting, Trees
from unkgcp.files import under
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.known_facts import distinct, pieces, places_among
from unkgcp.loops import in_threads
from unkgcp.progress import Progress

SHORTLIST = 600  # candidates of a question that the trees order
QUESTIONS = 2000  # training facts that are asked as questions to learn from; a tenth of all facts at most
HELD_OUT = 0.1  # the share of the questions that stop the boosting
TREES = Boosting(rounds=120, leaves=15, feature_fraction=0.5)
A_KIND, WALKS = 60, 24  # rates are counted over so many questions of each kind and steps from each entity
MOST_WALKS = 12_000_000
DOUBTED = 5.0  # walks without an answer that are added to every way, so that rates of few walks are small
# all wrong answers up to the first place are learned from, `DRAWN` of those up to the second, and `DRAWN` others
STRATA, DRAWN = (12, 120), 12
BEHIND = (
    3.0  # subtracted from the first look of candidates that the trees do not order, so that they come last
)
FLOOR = 1e-4  # the weight of a candidate with expectation 0
LEAST = 1e-6  # the share of that weight that the last candidates have
KNOWN = 1.0  # added to the confidence of a training fact, so that it is above every expectation

Floats = NDArray[np.float64]
Table = NDArray[np.float32]
NAMES = ("count", "pair", "pairs", "alike", "alikes", "path", "paths")
COLUMNS = 2 * len(NAMES) + 7  # features of a candidate without backbone scores


@dataclass(frozen=True, eq=False)
class Ways:
    """The training facts as steps from entity to entity, and how often each way leads to an answer.

    A step from the head to the tail of a fact of relation r has the kind 2 r, a step from the tail to the head 2 r + 1.
    """

    entities: int
    kinds: int
    first: AnyInts
    """(entities + 1,) where the steps of each entity begin."""
    kind: AnyInts
    other: AnyInts
    """(S,) kind and end of each step, ascending within an entity."""
    value_code: AnyInts
    """(S,) the confidence of its fact, the largest if it is repeated, as a place among the values."""
    values: Floats
    """All different confidences, ascending."""
    ends_first: AnyInts
    """(kinds + 1,) where the ends of each kind begin."""
    ends: AnyInts
    count: NDArray[np.float32]
    """(M,) the entities at which steps of a kind end, and the number of these steps."""
    keys: Ints
    """(K,) ways that led to an answer, ascending: the kind asked for and the kinds of one or two steps, packed."""
    rates: NDArray[np.float32]
    """(K,) the rate of each way."""

    @classmethod
    def of(cls, train: Graph, rates: tuple[Ints, NDArray[np.float32]] | None = None) -> Ways:
        """The ways of a graph. `rates`: keys and rates, where they are known already."""
        entities, relations, values = train.n_entities, train.n_relations, distinct(train.confidence)
        value_code = places_among(values, train.confidence, smallest(len(values)))
        order = FactOrder.of(
            [
                (train.head, train.relation, 0, train.tail, value_code),
                (train.tail, train.relation, 1, train.head, value_code),
            ],
            [entities, relations, 2, entities, len(values)],
        )
        del value_code
        first, starts = order.runs(3)
        steps = order.at(first, starts[1:] - 1)  # of repeated facts the largest confidence comes last
        del order, starts
        kind, other, value_code = steps.column(1, 2), steps.column(3), steps.column(4)
        questions = steps.runs(2)
        del steps
        by_kind = FactOrder.of([(kind, other)], [2 * relations, entities])
        ends_first, starts = by_kind.runs(1)
        ends = by_kind.at(ends_first, starts[:-1]).column(1)
        del by_kind
        count = np.diff(starts).astype(np.float32)
        none = (np.zeros(0, np.int64), np.zeros(0, np.float32))
        ways = cls(
            entities, 2 * relations, first, kind, other, value_code, values, ends_first, ends, count, *none
        )
        keys, rates_of_keys = ways._rates(*questions) if rates is None else rates
        return replace(ways, keys=keys, rates=rates_of_keys)

    def _rates(self, first: AnyInts, starts: AnyInts) -> tuple[Ints, NDArray[np.float32]]:
        """The ways of known questions that led to an answer, and the share of walks along each that did.

        A known question is an entity and a kind of its steps. The questions of each entity begin at `first`, and the
        steps of each question at `starts`.
        """
        from unkgcp.evidence import neighbour_kernels as compiled

        chosen = self._some(self.kind[starts[:-1]])
        anchor = np.searchsorted(first, chosen, side="right") - 1
        chosen = anchor * self.kinds + self.kind[starts[chosen]]
        # in random order, so that no kind is left out where there are more walks than there is room for
        chosen = np.random.default_rng(0xA6).permutation(chosen)
        room = min(MOST_WALKS, len(chosen) * (WALKS + 1) * (WALKS + 1))
        keys, hits = np.empty(room, np.int64), np.empty(room, np.int8)
        questions, marked = (chosen // self.kinds, chosen % self.kinds), np.zeros(self.entities, np.int8)
        n = compiled.count_ways(*self._steps, *questions, WALKS, marked, keys, hits)
        # the last bit says whether a walk ended at an answer, so that after sorting the walks of a way are neighbours
        walks, count = np.unique(2 * keys[:n] + hits[:n], return_counts=True)
        ways, first = np.unique(walks >> 1, return_index=True)
        if not len(ways):
            return ways, np.zeros(0, np.float32)
        total, answered = np.add.reduceat(count, first), np.add.reduceat(count * (walks & 1), first)
        useful = answered > 0
        return ways[useful], (answered[useful] / (total[useful] + DOUBTED)).astype(np.float32)

    def _some(self, kind: AnyInts) -> Ints:
        """Up to `A_KIND` randomly drawn questions of each kind, in the order of kinds; `kind` is (n,)."""
        order = np.random.default_rng(0xA5).permutation(np.arange(len(kind), dtype=position_type(len(kind))))
        kept, taken = [np.zeros(0, np.int64)], np.zeros(self.kinds, np.int64)
        for rows in pieces(len(order)):
            part = order[rows]
            part = part[np.argsort(kind[part], kind="stable")]
            kind_of_row = kind[part].astype(np.int64)
            place = (
                taken[kind_of_row] + np.arange(len(kind_of_row)) - np.searchsorted(kind_of_row, kind_of_row)
            )
            kept.append(part[place < A_KIND].astype(np.int64))
            taken += np.bincount(kind_of_row, minlength=self.kinds)
        every = np.concatenate(kept)
        return every[np.argsort(kind[every], kind="stable")]

    def gather(self, anchor: int, kind: int) -> Table:
        """Counts and rates of the ways from an entity to each other one as an answer: (entities, NAMES)."""
        from unkgcp.evidence import neighbour_kernels as compiled

        table, counts = np.zeros((self.entities, len(NAMES)), np.float32), np.zeros(self.entities, np.int32)
        compiled.gather(*self._steps, self.keys, self.rates, anchor, kind, counts, table)
        of_kind = slice(self.ends_first[kind], self.ends_first[kind + 1])
        table[self.ends[of_kind], 0] = self.count[of_kind]
        return table

    @property
    def _steps(self) -> tuple[AnyInts, AnyInts, AnyInts, int]:
        return self.first, self.kind, self.other, self.kinds

    def answers(self, anchor: int, kind: int) -> tuple[AnyInts, Floats]:
        """The known answers of a question, ascending, and their confidences."""
        begin, end = int(self.first[anchor]), int(self.first[anchor + 1])
        low, high = begin + np.searchsorted(self.kind[begin:end], [kind, kind + 1])
        return self.other[low:high], self.values[self.value_code[low:high]]


def _first_look(ways_led: Table, scores: Table) -> Floats:
    """A rough expectation for every entity, from the rates alone: (entities,). Backbone scores break ties."""
    share = ways_led[:, 0] / max(float(ways_led[:, 0].sum()), 1.0)
    missed = (
        (1 - ways_led[:, 1].astype(np.float64))
        * (1 - ways_led[:, 3])
        * (1 - ways_led[:, 5])
        * (1 - 0.5 * share)
    )
    look = 1 - missed
    return look + 1e-4 * scores.mean(axis=1) if scores.shape[1] else look


@dataclass(frozen=True, eq=False)
class Completer:
    """Ranks the candidates of questions. `backbone`: cross-fitted models whose scores are features too."""

    train: Graph
    rates: tuple[Ints, NDArray[np.float32]]
    trees: Trees
    backbone: CrossFit | None = None

    @cached_property
    def ways(self) -> Ways:
        return Ways.of(self.train, self.rates)

    def expected(self, anchor: int, relation: int, at_head: bool) -> Floats:
        """The expected confidence of each entity's triple, where a triple that is no fact counts as 0: (entities,).

        Candidates that only the first look ordered are below 0. Training facts come before all others: they get `KNOWN`
        plus their confidence.
        """
        ways, kind = self.ways, 2 * relation + at_head
        scores = _scores(self.backbone, anchor, relation, at_head, None)
        ways_led = ways.gather(anchor, kind)
        look = _first_look(ways_led, scores)
        chosen = _best(look, SHORTLIST)
        table = _features(ways, ways_led, scores, anchor, kind, chosen)
        expectation = look - BEHIND
        expectation[chosen] = self.trees.probabilities(table)[:, 1]
        answers, confidences = ways.answers(anchor, kind)
        expectation[answers] = KNOWN + confidences
        return expectation

    def of_questions(self, anchor: NDArray[Any], relation: NDArray[Any], at_head: bool) -> Floats:
        """`expected` of many questions: (n, entities)."""
        out = np.empty(
            (len(anchor), self.ways.entities)
        )  # `ways` is made here, once, before the threads start

        def work(rows: slice) -> None:
            for row in range(len(out))[rows]:
                out[row] = self.expected(int(anchor[row]), int(relation[row]), at_head)

        in_threads(len(out), work, 8)
        return out

    def over(self, train: Graph) -> Completer:
        """The same rates and trees for a graph that has grown, in which earlier ids keep their meaning."""
        keys, base, wider = self.rates[0], 2 * self.train.n_relations + 1, 2 * train.n_relations + 1
        # the three digits of a key are the kind asked for and those of the steps (`neighbour_kernels.count_ways`)
        keys = (keys // base**2 * wider + keys // base % base) * wider + keys % base
        return replace(self, train=train, rates=(keys, self.rates[1]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        trees = {f"trees.{name}": array for name, array in self.trees.arrays().items()}
        return {"keys": self.rates[0], "rates": self.rates[1], **trees}

    @classmethod
    def restore(
        cls, arrays: Mapping[str, NDArray[Any]], train: Graph, backbone: CrossFit | None
    ) -> Completer:
        """The completer that `arrays` stored; ValueError if the arrays do not fit together."""
        keys, rates = np.asarray(arrays["keys"]), np.asarray(arrays["rates"])
        plain = keys.dtype == np.int64 and rates.dtype == np.float32 and keys.ndim == 1
        if (
            not (plain and keys.shape == rates.shape)
            or not (np.diff(keys) > 0).all()
            or not ((rates > 0) & (rates <= 1)).all()
        ):
            raise ValueError("the rates of ways through the graph are damaged")
        trees = Trees.restore(under("trees.", arrays))
        with_scores = COLUMNS + (0 if backbone is None else 2 * backbone.columns)
        if trees.total != 2 or trees.features not in (COLUMNS, with_scores):
            raise ValueError("the trees that rank completions were learned from other features: fit it again")
        return cls(train, (keys, rates), trees, backbone if trees.features > COLUMNS else None)


def weights(expected: Floats) -> Floats:
    """The weights of candidates as the answer of a question, from their expectations: an array of the same shape.

    Weights are in the order of the expectations. A candidate that the trees ordered has its expectation and a little
    more, all others have less than that. The weights of training facts have no meaning.
    """
    return np.where(expected >= 0, expected + FLOOR, FLOOR * (expected + BEHIND + LEAST))


def _scores(backbone: CrossFit | None, anchor: int, relation: int, at_head: bool, fold: int | None) -> Table:
    """Scores of all entities by the models of a fold, or of the fold that the hash of the question gives."""
    if backbone is None:
        return np.zeros((0, 0), np.float32)
    if fold is None:
        question = (np.array([number], np.int32) for number in (anchor, relation, at_head))
        fold = int(fold_of_queries(Triples(*question), FOLDS)[0])
    models = [variant[fold] for variant in backbone.models]
    every = np.arange(len(models[0].seen_entities), dtype=np.int32)
    one, by = np.full(len(every), anchor, np.int32), np.full(len(every), relation, np.int32)
    # triple by triple, because the last bits of a matrix product are not the same on every machine
    rows = [m.score(every, by, one) if at_head else m.score(one, by, every) for m in models]
    return np.stack(rows, axis=1)


def _best(look: Floats, size: int) -> Ints:
    """The places of the `size` largest values, in no order; of equal values the first ones."""
    if size >= len(look):
        return np.arange(len(look))
    last = -np.partition(-look, size - 1)[size - 1]
    better, tied = np.flatnonzero(look > last), np.flatnonzero(look == last)
    return np.concatenate([better, tied[: size - len(better)]])


def _features(ways: Ways, ways_led: Table, scores: Table, anchor: int, kind: int, chosen: Ints) -> Table:
    """The features of some candidates of a question: (n, columns)."""
    chosen_ways, best_rates = ways_led[chosen], ways_led[:, 1:].max(axis=0)
    total = max(float(ways_led[:, 0].sum()), 1.0)
    of_question = (
        len(ways.answers(anchor, kind)[0]),
        ways.first[anchor + 1] - ways.first[anchor],
        kind >> 1,
        kind & 1,
        total,
        ways.ends_first[kind + 1] - ways.ends_first[kind],
    )
    columns = [
        chosen_ways,
        chosen_ways[:, 1:] / np.maximum(best_rates, 1e-9),
        chosen_ways[:, :1] / total,
        (ways.first[chosen + 1] - ways.first[chosen])[:, None],
        np.broadcast_to(np.array(of_question, np.float32), (len(chosen), len(of_question))),
    ]
    if scores.shape[1]:
        chosen_scores = scores[chosen]
        columns += [chosen_scores, chosen_scores / np.maximum(scores.max(axis=0), 1e-9)]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")


def learn_completer(
    train: Graph,
    *,
    seed: int = 0,
    backbone: CrossFit | None = None,
    fold: NDArray[np.int8] | None = None,
    trees: Boosting = TREES,
    progress: Progress | None = None,
) -> Completer:
    """Learn from training facts alone: a tenth of them, `QUESTIONS` at most, are asked of a graph without them.

    Each is asked for its tail or for its head. The trees learn from the right answer and from wrong answers, none of
    which is a training fact: the best by the first look, and a sample of the others with weights. `fold` (N,), the
    folds of the backbones: a question then gets the scores of the backbone that has not seen its fact. `progress`
    counts questions.
    """
    rng = np.random.default_rng((seed, 0xC0DE))
    size = max(1, min(len(train) // 10, QUESTIONS))
    rows = rng.permutation(len(train))[:size]
    at_head = rng.random(size) < 0.5
    inside = np.ones(len(train), bool)
    inside[rows] = False
    if backbone is not None and fold is None:
        raise ValueError("backbone scores need the fold of each training fact")
    whole = Ways.of(train)
    rates = (whole.keys, whole.rates)
    head, relation, tail = train.head[rows], train.relation[rows], train.tail[rows]
    anchors, right = np.where(at_head, tail, head), np.where(at_head, head, tail)
    kinds = 2 * relation + at_head
    answers = [whole.answers(*question)[0].copy() for question in zip(anchors, kinds, strict=True)]
    del whole  # to save memory there is one index of the graph at a time
    part = Ways.of(train[inside])
    tables, weights = [np.zeros((0, 0), np.float32)] * size, [np.zeros(0)] * size
    confidence = np.asarray(train.confidence[rows], np.float64)
    done = count(1)

    def work(some: slice) -> None:
        for place in range(size)[some]:
            anchor, kind = int(anchors[place]), int(kinds[place])
            own_fold = None if fold is None else int(fold[rows[place]])
            scores = _scores(backbone, anchor, kind >> 1, bool(kind & 1), own_fold)
            ways_led = part.gather(anchor, kind)
            look = _first_look(ways_led, scores)
            look[answers[place]] = -1.0
            drawn, weight = _wrong(look, np.random.default_rng((seed, 0xC0DF, place)))
            chosen = np.concatenate([right[place : place + 1], drawn])
            tables[place] = _features(part, ways_led, scores, anchor, kind, chosen)
            weights[place] = np.concatenate([confidence[place : place + 1], weight])
            if progress is not None:
                progress.update(next(done), "completions asked")

    in_threads(size, work, 16)
    # The right answer is the first row of each question. It counts as a fact with its confidence as the weight, and, in
    # one more row for each question at the end, as no fact with the rest of the weight.
    sizes = [len(weight) for weight in weights]
    first = np.cumsum([0, *sizes[:-1]])
    table = np.concatenate(tables)
    table = np.concatenate([table, table[first]])
    weight = np.concatenate([*weights, 1 - confidence])
    question = np.concatenate([np.repeat(np.arange(size), sizes), np.arange(size)])
    label = np.zeros(len(table), np.int64)
    label[first] = 1
    held = (question >= round(size * (1 - HELD_OUT))) & (weight > 0)
    used = (question < round(size * (1 - HELD_OUT))) & (weight > 0)
    learned = replace(trees, seed=seed).learn(
        table[used], label[used], table[held], label[held], 2, (weight[used], weight[held])
    )
    return Completer(train, rates, learned, backbone)


def _wrong(look: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Wrong answers to learn from, and how many wrong answers each represents; right answers have a look below 0."""
    best = _best(look, STRATA[1])
    best = best[np.lexsort((best, -look[best]))]
    behind = np.ones(len(look), bool)
    behind[best] = False
    behind &= look >= 0
    best = best[look[best] >= 0]
    chosen, weight = [best[: STRATA[0]]], [np.ones(min(len(best), STRATA[0]))]
    for stratum in (best[STRATA[0] :], np.flatnonzero(behind)):
        some = min(DRAWN, len(stratum))
        chosen.append(rng.choice(stratum, some, replace=False))
        weight.append(np.full(some, len(stratum) / max(some, 1)))
    return np.concatenate(chosen), np.concatenate(weight)
