"""How good completions are: how well a run ranks candidates, and what its answer sets are worth.

`ranking` (`unkgcp evaluate --ranking`) gives the figures that the field reports for uncertain graphs: nDCG, and mean
reciprocal rank and hits, plain and weighted by confidence. Candidates are ranked as completions are
(`unkgcp.run.questions.candidate_scores`). For a query (h, r, ?) every entity with a training fact is a candidate,
except those that make a known fact of another split (training, validation, calibration); (?, r, t) the same way. With a
least confidence the figures are those of the test facts that have it; the candidates stay the same. Candidates with the
same score share their mean rank. Test facts about unknown entities or relations cannot be ranked and are counted
separately. A triple that is repeated in the test set counts once, with its mean confidence.

With c_i the confidences of the test tails of a query and k_i their ranks among all candidates,

    DCG = sum_i g(c_i) / log2(1 + k_i),    g(c) = c (linear) or 2^c - 1 (exponential),

and nDCG is DCG over the DCG of the ranks 1, 2, 3, ... given in order of confidence, averaged over the queries. For
the others the rank of a fact is taken without the other test facts of its query:

    weighted MRR = sum_i c_i / k_i / sum_i c_i,    weighted hits@n = sum of c_i with k_i <= n / sum_i c_i.

`judge_answers` (`unkgcp evaluate --answers`) asks test facts as questions and judges their answer sets
(`unkgcp.run.answer_sets`).

>>> ranking(predictor, splits.test, [splits.train, splits.calibration])["tails"]["wmrr"]           # doctest: +SKIP
0.41
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import smoothed_exceeds
from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import Floats, summed_band
from unkgcp.evaluation.query_groups import ThresholdGroups
from unkgcp.evaluation.slices import AT_LEAST
from unkgcp.graph.facts import Graph, in_vocabulary, merge_repeats
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.graph.objects import to_triples
from unkgcp.methods.method import some_rows, status_codes
from unkgcp.run.answer_sets import FACTS, SideSets, answer_level
from unkgcp.run.answers import Calibrated
from unkgcp.run.completion import excluded
from unkgcp.run.predictor import Predictor
from unkgcp.run.questions import (
    Ints,
    candidate_scores,
    completer_of,
    known_answers,
    least_weight,
    new_facts,
    strangeness,
    total,
)

HITS = (1, 3, 10)
SIDES = ("tails", "heads")
CELLS = 1 << 22  # scores held in memory at once


class SideQuestions(NamedTuple):
    """Distinct facts as questions of one side: the given entity, the relation, the entity asked for, (n,) each."""

    anchor: Ints
    relation: NDArray[np.int32]
    answer: Ints
    confidence: Floats


class Ranks(NamedTuple):
    """The query of each fact, and its mean ranks among all candidates and without the other test facts of its query."""

    query: Ints
    among_all: Floats
    alone: Floats


def ranking(
    predictor: Calibrated, test: Graph, others: Sequence[Graph], least: float = 0.0
) -> dict[str, Any]:
    """The figures for tails, heads and both together; `others` are the facts of the other splits.

    least: the confidence that a test fact must have to count.
    """
    model = predictor.model
    ids = to_triples(test, model.vocabulary)
    ranked = np.flatnonzero(status_codes(model, ids) == 0)
    asked = Graph(*some_rows(ids, ranked), test.confidence[ranked], model.vocabulary)
    distinct, known = merge_repeats(asked), excluded(predictor, False, others)
    sides: dict[str, tuple[Ranks, Floats]] = {}
    for name in SIDES:
        facts = _questions(distinct, at_head=name == "heads")
        ranks = _ranks(predictor, facts, known, at_head=name == "heads")
        counted = facts.confidence >= least
        some = Ranks(ranks.query[counted], ranks.among_all[counted], ranks.alone[counted])
        sides[name] = some, facts.confidence[counted]
    (tails, of_tails), (heads, of_heads) = sides["tails"], sides["heads"]
    heads = heads._replace(query=heads.query + 1 + int(tails.query.max(initial=-1)))
    columns: Any = map(np.concatenate, zip(tails, heads, strict=True))
    both = Ranks(*columns)
    sides["both"] = both, np.concatenate([of_tails, of_heads])
    return {
        "facts": len(test),
        "unknown": len(test) - len(ranked),
        "least": least,
        "candidates": int(np.count_nonzero(model.seen_entities)),
        **{name: _figures(*side) for name, side in sides.items()},
    }


def _figures(ranks: Ranks, weight: Floats) -> dict[str, Any]:
    same = np.ones_like(weight)
    return {
        "queries": len(np.unique(ranks.query)),
        "facts": len(weight),
        "ndcg_linear": ndcg(ranks.query, ranks.among_all, weight),
        "ndcg_exponential": ndcg(ranks.query, ranks.among_all, np.exp2(weight) - 1),
        "wmrr": weighted_mean(1 / ranks.alone, weight),
        "mrr": weighted_mean(1 / ranks.alone, same),
        "whits": {str(n): weighted_mean(ranks.alone <= n, weight) for n in HITS},
        "hits": {str(n): weighted_mean(ranks.alone <= n, same) for n in HITS},
    }


def ndcg(query: Ints, rank: Floats, gain: Floats) -> float | None:
    """Mean over the queries of DCG over the best possible DCG; queries without any gain are left out."""
    if not len(query):
        return None
    _, query = np.unique(query, return_inverse=True)
    order = np.lexsort((-gain, query))
    starts = np.searchsorted(query[order], np.arange(query.max() + 1))
    best = np.empty(len(query))
    best[order] = np.arange(len(query)) - starts[query[order]] + 1
    reached = np.bincount(query, gain / np.log2(1 + rank))
    possible = np.bincount(query, gain / np.log2(1 + best))
    some = possible > 0
    return float(np.mean(reached[some] / possible[some])) if some.any() else None


def weighted_mean(values: NDArray[Any], weight: Floats) -> float | None:
    """Mean of values (n,) with weights (n,); None if there is no weight."""
    total = math.fsum(weight)
    return math.fsum(values * weight) / total if total > 0 else None


def _questions(facts: Graph, at_head: bool) -> SideQuestions:
    """Distinct facts as questions of one side, sorted by what is given."""
    head, tail = facts.head.astype(np.int64), facts.tail.astype(np.int64)
    anchor, answer = (tail, head) if at_head else (head, tail)
    order = np.lexsort((facts.relation, anchor))
    return SideQuestions(anchor[order], facts.relation[order], answer[order], facts.confidence[order])


def _ranks(predictor: Calibrated, facts: SideQuestions, known: KnownFacts | None, at_head: bool) -> Ranks:
    """The ranks of facts; `known` are the facts of the other splits."""
    model = predictor.model
    relations, entities = len(model.seen_relations), len(model.seen_entities)
    key = facts.anchor * relations + facts.relation
    queries, query = np.unique(key, return_inverse=True)
    above, same, score = np.empty(len(key), np.int64), np.empty(len(key), np.int64), np.empty(len(key))
    for some, rows in _chunks(query, max(1, CELLS // max(1, entities))):
        anchor, relation = queries[some] // relations, queries[some] % relations
        table = candidate_scores(predictor, anchor, relation, at_head)
        of_facts = query[rows] - some.start, facts.answer[rows]
        score[rows] = table[of_facts]
        table[:, ~model.seen_entities] = -np.inf
        if known is not None:
            for row, (entity, by) in enumerate(zip(anchor.tolist(), relation.tolist(), strict=True)):
                table[row, known_answers(known, model.vocabulary, entity, by, at_head)] = -np.inf
        table[of_facts] = score[rows]  # a test fact is a candidate also where another split has it
        for row in range(rows.start, rows.stop, len(table)):  # as many facts at a time as there are queries
            part = slice(row, min(row + len(table), rows.stop))
            beside = table[query[part] - some.start]
            above[part] = np.count_nonzero(beside > score[part, None], axis=1)
            same[part] = np.count_nonzero(beside == score[part, None], axis=1)
    above_in_query, same_in_query = _within(query, score)
    return Ranks(query, 1 + above + (same - 1) / 2, 1 + (above - above_in_query) + (same - same_in_query) / 2)


def _chunks(query: Ints, count: int) -> Iterator[tuple[slice, slice]]:
    """Some queries, as a range of their numbers, and the rows of their facts; facts are sorted by query."""
    n = int(query[-1]) + 1 if len(query) else 0
    for start in range(0, n, count):
        stop = min(start + count, n)
        first, last = np.searchsorted(query, [start, stop])
        yield slice(start, stop), slice(int(first), int(last))


def _within(query: Ints, score: Floats) -> tuple[Ints, Ints]:
    """For each fact how many facts of its query score higher, and how many (with itself) the same: (n,) each."""
    # in order of query and score: where the facts with each score begin, and how many they are
    _, place, same = np.unique(np.stack([query, -score]), axis=1, return_inverse=True, return_counts=True)
    begins, place = np.cumsum(same) - same, place.reshape(-1)
    return begins[place] - np.searchsorted(np.sort(query), query), same[place]


# Answer sets: whether they contain the tails and heads of test facts, and how large they are.
#
# They are judged as they are promised, with a threshold for each large relation and each group of small ones: coverage
# and the band that holds it 999 times in 1,000 if the promise is kept, mean and median size (KGCP's measures), and the
# mean distance between the coverage of a relation and the level (CovGap of CondKGCP). No set is empty, so that coverage
# lies above its level where the best candidate alone is right more often than that; the band is for coverage with such
# ties broken at random, which is given too. Left out are test facts that no promise is for: those about unknown
# entities or relations, those whose triple is a training fact, and those below the least confidence.


class SideAnswers(NamedTuple):
    """Facts asked as questions of one side: their relation and the group of it, (n,) each.

    `covered` says whether the set contains the answer, `smoothed` the probability of it with ties broken at random,
    `size` how large the set is: (n, levels) each. `calibration`: how many facts set the threshold, (n,).
    """

    relation: Ints
    group: Ints
    calibration: Ints
    covered: NDArray[np.bool_]
    smoothed: Floats
    size: Ints


def judge_answers(
    predictor: Predictor, test: Graph, levels: Sequence[float], least: float = 0.0
) -> dict[str, Any]:
    """Figures of answer sets on test facts; `both` has tails and heads together.

    An evidence run takes milliseconds a question and is therefore asked about `FACTS` of them, drawn at random.
    """
    exactly = [answer_level(level) for level in levels]
    vocabulary = predictor.model.vocabulary
    ids = to_triples(test, vocabulary)
    named = np.flatnonzero(in_vocabulary(ids))
    facts = Graph(*some_rows(ids, named), test.confidence[named], vocabulary)
    sets = predictor.answer_sets(least)
    sides = {name: sets.side(name == "heads") for name in SIDES}
    facts = new_facts(sides["tails"].candidates, facts, least)
    if not len(facts):
        raise InputError(
            "no test fact is new, about known entities and a known relation, and has the least confidence; "
            "give a data set that has some, or lower --min-confidence"
        )
    usable = len(facts)
    if completer_of(predictor) is not None and usable > FACTS:
        facts = facts[np.random.default_rng(0xA5E8).permutation(usable)[:FACTS]]
    answers = [_ask(side, facts, exactly) for side in sides.values()]
    of_sides = dict(zip((*SIDES, "both"), ([answers[0]], [answers[1]], answers), strict=True))
    return {
        "facts": len(test),
        "new": usable,
        "asked": len(facts),
        "least": least,
        "candidates": int(np.count_nonzero(predictor.model.seen_entities)),
        "calibration": sides["tails"].size,
        "at_least": AT_LEAST,
        "levels": [
            {"confidence": level}
            | {name: _set_figures(sides_asked, place, level) for name, sides_asked in of_sides.items()}
            for place, level in enumerate(map(float, exactly))
        ],
    }


def _ask(side: SideSets, facts: Graph, levels: Sequence[Any]) -> SideAnswers:
    """Facts asked as questions of one side."""
    relation = facts.relation.astype(np.int64)
    thresholds = np.stack([side.thresholds(facts.relation, level) for level in levels])  # (levels, n)
    _, answer = side.candidates.sides(facts)
    shape = (len(facts), len(levels))
    strange, covered, size = np.empty(len(facts)), np.empty(shape, bool), np.empty(shape, np.int64)
    for rows, question, table in side.candidates.blocks(facts):
        of_all, largest = total(table), table.max(axis=1)
        # a question has one relation, so that any of its facts has its thresholds
        some_fact = np.empty(len(table), np.intp)
        some_fact[question] = rows
        of_answers = table[question, answer[rows]]
        strange[rows] = strangeness(of_answers, of_all[question], largest[question])
        for place, threshold in enumerate(thresholds):
            weight = least_weight(threshold[some_fact], of_all, largest)
            count = np.count_nonzero(table >= np.maximum(weight, 0.0)[:, None], axis=1)
            size[rows, place], covered[rows, place] = count[question], of_answers >= weight[question]
    standing = side.standing(strange, relation)
    # a set of all candidates contains the answer, however ties are broken
    smoothed = np.stack([smoothed_exceeds(*standing, level) for level in levels], axis=1)
    smoothed[np.isinf(thresholds.T)] = 1.0
    group = np.zeros_like(relation) if side.groups is None else side.groups.of(relation).astype(np.int64)
    return SideAnswers(relation, group, side.sizes(relation), covered, smoothed, size)


def _set_figures(sides: Sequence[SideAnswers], place: int, level: float) -> dict[str, Any]:
    """Figures of one side, or of both together, at one level."""
    covered, smoothed, size = (
        np.concatenate([getattr(side, name)[:, place] for side in sides])
        for name in ("covered", "smoothed", "size")
    )
    relation = np.concatenate([side.relation for side in sides])
    _, which, count = np.unique(relation, return_inverse=True, return_counts=True)
    share = np.bincount(which, covered) / count
    large = share[count >= AT_LEAST]
    band = None
    # tails and heads of the same facts are dependent, so that no law holds for both together
    if len(sides) == 1:
        groups = ThresholdGroups(sides[0].group, sides[0].calibration)
        band = list(summed_band(groups.cases(), level))
    return {
        "n": len(covered),
        "coverage": float(covered.mean()),
        "coverage_smoothed": float(smoothed.mean()),
        "band": band,
        "mean_size": float(size.mean()),
        "median_size": float(np.median(size)),
        "gap": float(np.abs(share - level).mean()),
        "relations": len(share),
        "gap_large": float(np.abs(large - level).mean()) if len(large) else None,
        "large_relations": len(large),
        "worst_coverage": float(large.min()) if len(large) else None,
    }
