"""How well a run ranks: nDCG, and mean reciprocal rank and hits, plain and weighted by confidence.

What it is: the figures the field reports for uncertain graphs, from what completions are ranked by (the scores of the
model, or what evidence expects; `unkgcp.run.completion.candidate_scores`). For a query (h, r, ?) every entity with a
training fact is a candidate, except those that make a known fact of another split (training, validation, calibration);
(?, r, t) the same way. Plain mean reciprocal ranks and hits are also given raw, where nothing is left out. With a least
confidence the figures are those of test facts from there on; what is left out stays the same. Candidates with the same
score share their mean rank. Test facts about unknown entities or relations cannot be ranked and are counted apart. A
triple that is repeated in the test set counts once, with its mean confidence. What it is not: a judgement of
intervals; see `decisions`.

With c_i the confidences of the test tails of a query and k_i their ranks among all candidates,

    DCG = sum_i g(c_i) / log2(1 + k_i),    g(c) = c (linear) or 2^c - 1 (exponential),

and nDCG is DCG over the DCG of the ranks 1, 2, 3, ... given in order of confidence, averaged over the queries. For
the others the rank of a fact is taken without the other test facts of its query:

    weighted MRR = sum_i c_i / k_i / sum_i c_i,    weighted hits@n = sum of c_i with k_i <= n / sum_i c_i.

>>> ranking(predictor, splits.test, [splits.train, splits.calibration])["tails"]["wmrr"]           # doctest: +SKIP
0.41
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.queries import to_triples
from unkgcp.methods.method import status_codes
from unkgcp.run.completion import candidate_scores

if TYPE_CHECKING:
    from unkgcp.evaluation.assessment import Answers
    from unkgcp.graph.facts import Graph
    from unkgcp.run.answers import Calibrated

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

HITS = (1, 3, 10)
THRESHOLD = 0.7
"""The confidence from which on a triple is worth keeping."""
CELLS = 1 << 22  # scores looked at at once


class Facts(NamedTuple):
    """Distinct facts of one side: the place that is given, the relation, the place that is asked, (n,) each."""

    given: Integers
    relation: Integers
    asked: Integers
    confidence: Floats


class Ranks(NamedTuple):
    """Mean ranks of facts (n,): among all candidates, without the other test facts of their query, and raw."""

    query: Integers
    among_all: Floats
    alone: Floats
    raw: Floats

    def some(self, rows: NDArray[np.bool_]) -> Ranks:
        return Ranks(self.query[rows], self.among_all[rows], self.alone[rows], self.raw[rows])


def ranking(predictor: Calibrated, test: Graph, known: Sequence[Graph], least: float = 0.0) -> dict[str, Any]:
    """The figures for tails, heads and both together; `known` are the facts of the other splits.

    least: the confidence from which on a test fact counts.
    """
    model = predictor.model
    ids = to_triples(test, model.vocabulary)
    code = status_codes(model, ids) == 0
    head, relation, tail = (column[code].astype(np.int64) for column in ids)
    others = [to_triples(part, model.vocabulary) for part in known if len(part)]
    filters = [
        np.concatenate([np.zeros(0, np.int64), *(part[place].astype(np.int64) for part in others)])
        for place in range(3)
    ]
    confidence = test.confidence[code]
    sides = {}
    for name, given, asked, taken in (("tails", head, tail, filters), ("heads", tail, head, filters[::-1])):
        facts = _distinct(given, relation, asked, confidence)
        ranks = _ranks(predictor, facts, taken, at_head=name == "heads")
        counted = facts.confidence >= least
        sides[name] = ranks.some(counted), facts.confidence[counted]
    (tails, said), (heads, said_too) = sides["tails"], sides["heads"]
    first = 1 + int(tails.query.max(initial=-1))
    both = Ranks(
        np.concatenate([tails.query, heads.query + first]),
        np.concatenate([tails.among_all, heads.among_all]),
        np.concatenate([tails.alone, heads.alone]),
        np.concatenate([tails.raw, heads.raw]),
    )
    sides["both"] = both, np.concatenate([said, said_too])
    return {
        "facts": len(test),
        "unknown": int(np.count_nonzero(~code)),
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
        "raw_mrr": weighted_mean(1 / ranks.raw, same),
        "whits": {str(n): weighted_mean(ranks.alone <= n, weight) for n in HITS},
        "hits": {str(n): weighted_mean(ranks.alone <= n, same) for n in HITS},
        "raw_hits": {str(n): weighted_mean(ranks.raw <= n, same) for n in HITS},
    }


def ndcg(query: Integers, rank: Floats, gain: Floats) -> float | None:
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


def _distinct(given: Integers, relation: Integers, asked: Integers, confidence: Floats) -> Facts:
    """Each triple once, sorted by what is given, with its mean confidence."""
    triples, place = np.unique(np.stack([given, relation, asked], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)  # NumPy 2.0 gave it another shape
    counts = np.bincount(place, minlength=len(triples))
    mean = np.bincount(place, confidence, minlength=len(triples)) / np.maximum(counts, 1)
    return Facts(triples[:, 0], triples[:, 1], triples[:, 2], mean)


def _ranks(predictor: Calibrated, facts: Facts, known: list[Integers], at_head: bool) -> Ranks:
    model = predictor.model
    relations, entities = len(model.seen_relations), len(model.seen_entities)
    key = facts.given * relations + facts.relation
    queries, query = np.unique(key, return_inverse=True)
    filtered_key = known[0] * relations + known[1]
    # only known facts of these queries matter, and not those that are test facts too
    matters = np.isin(filtered_key, queries) & (known[0] >= 0) & (known[1] >= 0) & (known[2] >= 0)
    taken = np.unique(np.stack([filtered_key[matters], known[2][matters]], axis=1), axis=0)
    own = np.isin(taken[:, 0] * entities + taken[:, 1], key * entities + facts.asked)
    taken = taken[~own]
    above, same, taken_above, taken_same = (np.empty(len(key), np.int64) for _ in range(4))
    score = np.empty(len(key))
    for some, rows in _chunks(query, max(1, CELLS // max(1, entities))):
        given, relation = queries[some] // relations, queries[some] % relations
        table = candidate_scores(predictor, given, relation, at_head)
        score[rows] = table[query[rows] - some.start, facts.asked[rows]]
        table[:, ~model.seen_entities] = -np.inf
        first, last = np.searchsorted(taken[:, 0], queries[[some.start, some.stop - 1]], side="left")
        last = int(np.searchsorted(taken[:, 0], queries[some.stop - 1], side="right"))
        here = taken[first:last]
        parts = [
            slice(row, min(row + len(table), rows.stop))  # as many facts at a time as there are queries
            for row in range(rows.start, rows.stop, len(table))
        ]
        for higher, equal, left_out in ((taken_above, taken_same, False), (above, same, True)):
            if left_out:
                table[np.searchsorted(queries[some], here[:, 0]), here[:, 1]] = -np.inf
            for part in parts:
                beside = table[query[part] - some.start]
                higher[part] = np.count_nonzero(beside > score[part, None], axis=1)
                equal[part] = np.count_nonzero(beside == score[part, None], axis=1)
    own_above, own_same = _within(query, score)
    return Ranks(
        query,
        1 + above + (same - 1) / 2,
        1 + (above - own_above) + (same - own_same) / 2,
        1 + taken_above + (taken_same - 1) / 2,
    )


def _chunks(query: Integers, count: int) -> Iterator[tuple[slice, slice]]:
    """Some queries, as a range of their numbers, and the rows of their facts; facts are sorted by query."""
    n = int(query[-1]) + 1 if len(query) else 0
    for start in range(0, n, count):
        stop = min(start + count, n)
        first, last = np.searchsorted(query, [start, stop])
        yield slice(start, stop), slice(int(first), int(last))


def _within(query: Integers, score: Floats) -> tuple[Integers, Integers]:
    """For each fact how many facts of its query score higher, and how many (with itself) the same: (n,) each."""
    order = np.lexsort((-score, query))
    ordered_query, ordered = query[order], score[order]
    starts = np.searchsorted(ordered_query, ordered_query)
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]) | (ordered_query[1:] != ordered_query[:-1])
    run = np.cumsum(new) - 1
    above, same = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    above[order] = np.flatnonzero(new)[run] - starts
    same[order] = np.bincount(run, minlength=0)[run]
    return above, same


# Confidence filtering: keep triples whose whole interval is good, drop those whose whole one is not, else abstain.


def decisions(answers: Answers, threshold: float = THRESHOLD) -> dict[str, Any]:
    """Decisions about the test facts (`positive`) and about these and the negatives (`mixed`) at each level."""
    predictor, negative = answers.predictor, answers.of_negatives
    if predictor.negative is not None:  # whoever filters does not know which triples are negatives
        negative = predictor.interval(answers.negatives, answers.levels)
    parts = (answers.facts, negative)
    truth = np.concatenate([answers.dataset.splits.test.confidence, answers.negatives.confidence])
    score = np.concatenate([part.score for part in parts]).astype(np.float64)
    lower = np.concatenate([part.lower for part in parts])
    upper = np.concatenate([part.upper for part in parts])
    rows = {"positive": slice(len(answers.facts.score)), "mixed": slice(None)}
    return {
        "threshold": threshold,
        "levels": [
            {"confidence": level}
            | {
                name: decide(truth[some], lower[some, place], upper[some, place], score[some], threshold)
                for name, some in rows.items()
            }
            for place, level in enumerate(answers.levels)
        ],
    }


def decide(
    truth: Floats, lower: Floats, upper: Floats, score: Floats, threshold: float = THRESHOLD
) -> dict[str, Any]:
    """Shares and accuracies of decisions about labels (n,) with intervals (n,) and scores (n,), NaN if unknown.

    `accuracy` is the share of right decisions among those made, `precision` that of good triples among those kept,
    `wrong` the share of wrong decisions among all triples, `score_accuracy` the accuracy of the score alone, where
    an unknown triple is dropped. None where there is nothing to divide by.
    """
    good, keep, drop = truth >= threshold, lower >= threshold, upper < threshold
    decided, right = keep | drop, (keep & good) | (drop & ~good)
    by_score = np.nan_to_num(score, nan=-np.inf) >= threshold

    def share(rows: Mask, of: int) -> float | None:
        return int(rows.sum()) / of if of else None

    n = len(truth)
    return {
        "n": n,
        "kept": share(keep, n),
        "dropped": share(drop, n),
        "abstained": share(~decided, n),
        "accuracy": share(right, int(decided.sum())),
        "precision": share(keep & good, int(keep.sum())),
        "wrong": share(decided & ~right, n),
        "score_accuracy": share(by_score == good, n),
    }
