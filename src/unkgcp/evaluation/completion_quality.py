"""How well a model ranks: nDCG of tails, and confidence-weighted mean reciprocal rank and hits, filtered.

What it is: the figures the field reports for uncertain graphs, from the scores of the model alone. For a query
(h, r, ?) every entity with a training fact is a candidate, except those that make a known fact of another split
(training, validation, calibration); (?, r, t) the same way. Candidates with the same score share their mean rank.
Test facts about unknown entities or relations cannot be ranked and are counted apart. A triple that is repeated in
the test set counts once, with its mean confidence. What it is not: a judgement of intervals; see `decisions`.

With c_i the confidences of the test tails of a query and k_i their ranks among all candidates,

    DCG = sum_i g(c_i) / log2(1 + k_i),    g(c) = c (linear) or 2^c - 1 (exponential),

and nDCG is DCG over the DCG of the ranks 1, 2, 3, ... given in order of confidence, averaged over the queries. For
the others the rank of a fact is taken without the other test facts of its query:

    weighted MRR = sum_i c_i / k_i / sum_i c_i,    weighted hits@n = sum of c_i with k_i <= n / sum_i c_i.

>>> ranking(predictor.model, splits.test, [splits.train, splits.calibration])["tails"]["wmrr"]     # doctest: +SKIP
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

if TYPE_CHECKING:
    from unkgcp.graph.facts import Graph
    from unkgcp.training.model import Model

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

HITS = (1, 3, 10)
CELLS = 1 << 22  # scores looked at at once


class Facts(NamedTuple):
    """Distinct facts of one side: the place that is given, the relation, the place that is asked, (n,) each."""

    given: Integers
    relation: Integers
    asked: Integers
    confidence: Floats


class Ranks(NamedTuple):
    """Mean ranks of facts (n,): among all candidates, and without the other test facts of their query."""

    query: Integers
    among_all: Floats
    alone: Floats


def ranking(model: Model, test: Graph, known: Sequence[Graph]) -> dict[str, Any]:
    """The figures for tails and heads; `known` are the facts of the other splits."""
    ids = to_triples(test, model.vocabulary)
    code = status_codes(model, ids) == 0
    head, relation, tail = (column[code].astype(np.int64) for column in ids)
    others = [to_triples(part, model.vocabulary) for part in known if len(part)]
    filters = [
        np.concatenate([np.zeros(0, np.int64), *(part[place].astype(np.int64) for part in others)])
        for place in range(3)
    ]
    confidence = test.confidence[code]
    tails = _figures(model, _distinct(head, relation, tail, confidence), filters, at_head=False)
    heads = _figures(model, _distinct(tail, relation, head, confidence), filters[::-1], at_head=True)
    return {
        "facts": len(test),
        "unknown": int(np.count_nonzero(~code)),
        "candidates": int(np.count_nonzero(model.seen_entities)),
        "tails": tails,
        "heads": heads,
    }


def _figures(model: Model, facts: Facts, known: list[Integers], at_head: bool) -> dict[str, Any]:
    ranks = _ranks(model, facts, known, at_head)
    weight = facts.confidence
    found = {
        "queries": len(np.unique(ranks.query)),
        "facts": len(weight),
        "ndcg_linear": ndcg(ranks.query, ranks.among_all, weight),
        "ndcg_exponential": ndcg(ranks.query, ranks.among_all, np.exp2(weight) - 1),
        "wmrr": weighted_mean(1 / ranks.alone, weight),
        "mrr": weighted_mean(1 / ranks.alone, np.ones_like(weight)),
        "whits": {str(n): weighted_mean(ranks.alone <= n, weight) for n in HITS},
        "hits": {str(n): weighted_mean(ranks.alone <= n, np.ones_like(weight)) for n in HITS},
    }
    return found


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


def _ranks(model: Model, facts: Facts, known: list[Integers], at_head: bool) -> Ranks:
    relations, entities = len(model.seen_relations), len(model.seen_entities)
    key = facts.given * relations + facts.relation
    queries, query = np.unique(key, return_inverse=True)
    filtered_key = known[0] * relations + known[1]
    # only known facts of these queries matter, and not those that are test facts too
    matters = np.isin(filtered_key, queries) & (known[0] >= 0) & (known[1] >= 0) & (known[2] >= 0)
    taken = np.unique(np.stack([filtered_key[matters], known[2][matters]], axis=1), axis=0)
    own = np.isin(taken[:, 0] * entities + taken[:, 1], key * entities + facts.asked)
    taken = taken[~own]
    above, same = np.empty(len(key), np.int64), np.empty(len(key), np.int64)
    score = np.empty(len(key), np.float32)
    for some, rows in _chunks(query, max(1, CELLS // max(1, entities))):
        given, relation = queries[some] // relations, queries[some] % relations
        table = model.heads(relation, given) if at_head else model.tails(given, relation)
        score[rows] = table[query[rows] - some.start, facts.asked[rows]]
        table[:, ~model.seen_entities] = -np.inf
        first, last = np.searchsorted(taken[:, 0], queries[[some.start, some.stop - 1]], side="left")
        last = int(np.searchsorted(taken[:, 0], queries[some.stop - 1], side="right"))
        here = taken[first:last]
        table[np.searchsorted(queries[some], here[:, 0]), here[:, 1]] = -np.inf
        for row in range(rows.start, rows.stop, len(table)):  # as many facts at a time as there are queries
            part = slice(row, min(row + len(table), rows.stop))
            beside = table[query[part] - some.start]
            above[part] = np.count_nonzero(beside > score[part, None], axis=1)
            same[part] = np.count_nonzero(beside == score[part, None], axis=1)
    own_above, own_same = _within(query, score)
    return Ranks(
        query,
        1 + above + (same - 1) / 2,
        1 + (above - own_above) + (same - own_same) / 2,
    )


def _chunks(query: Integers, count: int) -> Iterator[tuple[slice, slice]]:
    """Some queries, as a range of their numbers, and the rows of their facts; facts are sorted by query."""
    n = int(query[-1]) + 1 if len(query) else 0
    for start in range(0, n, count):
        stop = min(start + count, n)
        first, last = np.searchsorted(query, [start, stop])
        yield slice(start, stop), slice(int(first), int(last))


def _within(query: Integers, score: NDArray[np.float32]) -> tuple[Integers, Integers]:
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
