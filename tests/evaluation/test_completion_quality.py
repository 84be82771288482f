"""Ranking figures against plain loops, ties and repeats included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.worlds import random_ids, vocabulary
from unkgcp.evaluation.completion_quality import HITS, ranking
from unkgcp.graph import Graph
from unkgcp.run import calibrate
from unkgcp.training import Model, TrainConfig

ENTITIES, RELATIONS = 23, 3
VOCABULARY = vocabulary(ENTITIES, RELATIONS)


def make_model(seed: int, ties: bool) -> Model:
    rng = np.random.default_rng(seed)
    tables = {
        name: rng.normal(0, 1, shape).astype(np.float32)
        for name, shape in Model.table_shapes(TrainConfig(dimension=4), ENTITIES, RELATIONS).items()
    }
    if ties:  # few values: many candidates score the same
        tables = {name: np.sign(table).astype(np.float32) for name, table in tables.items()}
    seen = np.arange(ENTITIES) < ENTITIES - 2
    return Model(tables, VOCABULARY, TrainConfig(dimension=4), 0, seen, np.ones(RELATIONS, np.bool_))


def facts(n: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph(*random_ids(n, ENTITIES, RELATIONS, rng), rng.choice([0.0, 0.25, 0.7, 1.0], n), VOCABULARY)


def naive(model: Model, test: Graph, known: list[Graph], at_head: bool, least: float = 0.0) -> dict[str, Any]:
    mean: dict[tuple[int, int, int], list[float]] = {}
    for h, r, t, c in zip(test.head, test.relation, test.tail, test.confidence, strict=True):
        if model.seen_entities[h] and model.seen_entities[t]:
            mean.setdefault((int(h), int(r), int(t)), []).append(float(c))
    target = {triple: sum(found) / len(found) for triple, found in mean.items()}
    others = {
        (int(h), int(r), int(t)) for g in known for h, r, t in zip(g.head, g.relation, g.tail, strict=True)
    }
    groups: dict[tuple[int, int], dict[int, float]] = {}
    for (h, r, t), c in target.items():
        groups.setdefault((t, r) if at_head else (h, r), {})[h if at_head else t] = c

    def rank(value: float, rivals: list[float]) -> float:
        return 1 + sum(v > value for v in rivals) + sum(v == value for v in rivals) / 2

    gains: dict[str, list[float]] = {"ndcg_linear": [], "ndcg_exponential": []}
    weighted = []
    for (given, r), wanted in groups.items():
        row = (model.heads([r], [given]) if at_head else model.tails([given], [r]))[0]
        candidates = [
            e
            for e in range(ENTITIES)
            if model.seen_entities[e]
            and (e in wanted or ((e, r, given) if at_head else (given, r, e)) not in others)
        ]
        for name, gain in (("ndcg_linear", lambda c: c), ("ndcg_exponential", lambda c: 2**c - 1)):
            counted = {e: c for e, c in wanted.items() if c >= least}
            best = sum(
                gain(c) / math.log2(2 + i) for i, c in enumerate(sorted(counted.values(), reverse=True))
            )
            got = 0.0
            for e, c in counted.items():
                rivals = [row[x] for x in candidates if x != e]
                got += gain(c) / math.log2(1 + rank(row[e], rivals))
            if best > 0:
                gains[name].append(got / best)
        for e, c in wanted.items():
            rivals = [row[x] for x in candidates if x != e and x not in wanted]
            if c >= least:
                weighted.append((c, rank(row[e], rivals)))
    total = sum(c for c, _ in weighted)
    found: dict[str, Any] = {name: float(np.mean(values)) for name, values in gains.items()}
    found |= {
        "wmrr": sum(c / k for c, k in weighted) / total,
        "mrr": float(np.mean([1 / k for _, k in weighted])),
    }
    found["whits"] = {str(n): sum(c for c, k in weighted if k <= n) / total for n in HITS}
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("least", [0.0, 0.5, 1.0])
def test_figures_are_those_of_plain_loops(ties: bool, least: float) -> None:
    """From a confidence on only facts that have it count; what is left out of the candidates stays the same."""
    model, test, known = make_model(1, ties), facts(150, 2), [facts(200, 3), facts(0, 4), facts(50, 5)]
    result = ranking(calibrate(model, facts(50, 6), "cp"), test, known, least)
    assert 0 < result["unknown"] < result["facts"] == 150
    assert result["candidates"] == ENTITIES - 2
    for side, at_head in (("tails", False), ("heads", True)):
        for name, value in naive(model, test, known, at_head, least).items():
            assert result[side][name] == pytest.approx(value, rel=1e-12), (side, name)
