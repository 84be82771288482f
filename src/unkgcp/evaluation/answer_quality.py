"""How good answer sets are: whether they contain the tails and heads of test facts, and how large they are.

What it is: the figures of `unkgcp evaluate --answers`. Test facts are asked as questions, and their sets
(`unkgcp.run.answer_sets`) are judged with one threshold for all relations (`before`) and with one for each large
relation and each group of small ones (`after`): coverage beside the band that holds it 999 times in 1,000 if the
promise is kept, mean and median size (KGCP's measures), the mean distance between the coverage of a relation and the
level (CovGap of CondKGCP), and the number k for which the best k candidates contain as many of the answers, found by
looking at the test facts. No set is empty, so that coverage lies above its level where the best candidate alone is
right more often than that; the band is for the coverage with such ties broken at random, which stands beside. Left out
are test facts that no promise is for: those about unknown entities or relations, those whose triple is a training fact,
and those below the least confidence.

>>> judge_answers(predictor, splits.test, [0.9])["levels"][0]["tails"]["after"]["coverage"]         # doctest: +SKIP
0.9013
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import smoothed_exceeds
from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import summed_band
from unkgcp.evaluation.slices import AT_LEAST
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.queries import to_triples
from unkgcp.run.answer_sets import FACTS, SideSets, answer_level
from unkgcp.run.candidates import least_weight, new_facts, strangeness, total
from unkgcp.run.completion import completer_of
from unkgcp.run.predictor import Predictor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WAYS = ("before", "after")
SIDES = ("tails", "heads")


class Asked(NamedTuple):
    """Facts of one side, (n,) each: relation, and the rank among the candidates; covered, with ties broken at random
    covered with that probability, and size of the set: (n, levels, ways) each.

    calibration: facts that set the threshold, (n, ways). group: that of the relation, (n,).
    """

    relation: Ints
    rank: Ints
    covered: NDArray[np.bool_]
    smoothed: Floats
    size: Ints
    calibration: Ints
    group: Ints


def judge_answers(
    predictor: Predictor, test: Graph, levels: Sequence[float], least: float = 0.0
) -> dict[str, Any]:
    """What answer sets are worth on test facts; `both` has tails and heads together.

    An evidence run, which takes milliseconds a question, is asked about `FACTS` of them, drawn at random.
    """
    exactly = [answer_level(level) for level in levels]
    vocabulary = predictor.model.vocabulary
    ids = to_triples(test, vocabulary)
    named = np.flatnonzero((ids.head >= 0) & (ids.relation >= 0) & (ids.tail >= 0))
    facts = Graph(*Triples(*(column[named] for column in ids)), test.confidence[named], vocabulary)
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
    asked = {name: _ask(side, facts, exactly) for name, side in sides.items()}
    return {
        "facts": len(test),
        "new": usable,
        "asked": len(facts),
        "least": least,
        "candidates": int(np.count_nonzero(predictor.model.seen_entities)),
        "calibration": sides["tails"].size,
        "at_least": AT_LEAST,
        "levels": [
            {"confidence": float(level)}
            | {name: _figures([part], place, float(level)) for name, part in asked.items()}
            | {"both": _figures(list(asked.values()), place, float(level))}
            for place, level in enumerate(exactly)
        ],
    }


def _ask(side: SideSets, facts: Graph, levels: Sequence[Any]) -> Asked:
    """Facts asked as questions of one side."""
    ways = (replace(side, rankings=side.rankings.pooled(), groups=None), side)
    thresholds = np.stack(
        [[way.thresholds(facts.relation, level) for way in ways] for level in levels]
    )  # (levels, ways, n)
    _, answer = side.candidates.sides(facts)
    shape = (len(facts), len(levels), len(ways))
    rank, strange = np.empty(len(facts), np.int64), np.empty(len(facts))
    covered, smoothed, size = np.empty(shape, bool), np.empty(shape), np.empty(shape, np.int64)
    for rows, question, table in side.candidates.blocks(facts):
        of_all, most = total(table), table.max(axis=1)
        # a question has one relation, so that any of its facts knows its thresholds
        some_fact = np.empty(len(table), np.intp)
        some_fact[question] = rows
        own = table[question, answer[rows]]
        strange[rows] = strangeness(own, of_all[question], most[question])
        for place in np.ndindex(len(levels), len(ways)):
            least = least_weight(thresholds[place][some_fact], of_all, most)
            count = np.count_nonzero(table >= np.maximum(least, 0.0)[:, None], axis=1)
            size[(rows, *place)] = count[question]
            covered[(rows, *place)] = own >= least[question]
        for start in range(0, len(rows), len(table)):  # as many facts at a time as there are questions
            part = slice(start, start + len(table))
            rank[rows[part]] = np.count_nonzero(table[question[part]] >= own[part, None], axis=1)
    relation = facts.relation.astype(np.int64)
    for way, sets in enumerate(ways):
        standing = sets.standing(strange, relation)
        for at, level in enumerate(levels):
            # where a set is everything no tie decides
            whole = np.isinf(thresholds[at, way])
            smoothed[:, at, way] = np.where(whole, 1.0, smoothed_exceeds(*standing, level))
    calibration = np.stack([way.sizes(relation) for way in ways], axis=1)
    group = np.zeros_like(relation) if side.groups is None else side.groups.of(relation).astype(np.int64)
    return Asked(relation, rank, covered, smoothed, size, calibration, group)


def _figures(sides: Sequence[Asked], place: int, level: float) -> dict[str, Any]:
    """Figures of one side, or of both together, at one level."""
    relation = np.concatenate([side.relation for side in sides])
    rank = np.sort(np.concatenate([side.rank for side in sides]))
    found: dict[str, Any] = {"n": len(relation)}
    for way, name in enumerate(WAYS):
        covered = np.concatenate([side.covered[:, place, way] for side in sides])
        size = np.concatenate([side.size[:, place, way] for side in sides])
        hits = int(np.count_nonzero(covered))
        found[name] = {
            "coverage": hits / len(covered),
            "coverage_smoothed": float(np.mean([side.smoothed[:, place, way].mean() for side in sides])),
            # tails and heads of the same facts have no law together
            "band": _band(sides[0], way, level) if len(sides) == 1 else None,
            "mean_size": float(size.mean()),
            "median_size": float(np.median(size)),
            "top_k": int(rank[hits - 1]) if hits else 0,
            **_gaps(relation, covered, level),
        }
    return found


def _band(side: Asked, way: int, level: float) -> list[float]:
    group = side.group if way else np.zeros_like(side.group)
    cases = [
        (int(side.calibration[rows, way][0]), int(np.count_nonzero(rows)))
        for rows in (group == one for one in np.unique(group))
    ]
    return list(summed_band(cases, level))


def _gaps(relation: Ints, covered: NDArray[np.bool_], level: float) -> dict[str, Any]:
    """Coverage by relation: mean distance from the level, of all relations and of large ones, and the lowest there."""
    _, place, count = np.unique(relation, return_inverse=True, return_counts=True)
    share = np.bincount(place, covered) / count
    large = share[count >= AT_LEAST]
    return {
        "gap": float(np.abs(share - level).mean()),
        "relations": len(share),
        "gap_large": float(np.abs(large - level).mean()) if len(large) else None,
        "large_relations": len(large),
        "worst_coverage": float(large.min()) if len(large) else None,
    }
