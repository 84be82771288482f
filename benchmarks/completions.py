"""Completions: how high the tails and heads of test facts stand among all entities, and how long a question takes.

For each run given: mean reciprocal rank and hits of the test facts of its data with a confidence of at least 0.7, of
what completions are ranked by and, where the run has one, of its backbone alone, and the time of one question among all
entities.

    unkgcp fit nl27k -o run --method evidence --quick
    python benchmarks/completions.py run [RUN ...] [--facts 3000]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import common
from unkgcp.evaluation.completion_quality import ranking
from unkgcp.evaluation.tables import Table
from unkgcp.graph.datasets import Dataset
from unkgcp.methods import IntervalPredictor, create
from unkgcp.run import Predictor
from unkgcp.run.provenance import reload
from unkgcp.training.model import Model

LEAST = 0.7
QUESTIONS = 200


@dataclass(frozen=True)
class Backbone:
    """The backbone of a run as something that completes by its own score."""

    model: Model
    method: IntervalPredictor


def figures(name: str, data: Dataset, ranked: Any, facts: int) -> dict[str, Any]:
    splits = data.splits
    chosen = np.random.default_rng(0).permutation(len(splits.test))
    # facts that are not ranked are known ones all the same, and left out of the candidates
    asked, rest = splits.test[chosen[:facts]], splits.test[chosen[facts:]]
    start = time.monotonic()
    found = ranking(ranked, asked, [splits.train, splits.validation, splits.calibration, rest], LEAST)
    return {"run": name, "data": data.name, "seconds": round(time.monotonic() - start, 1), **found}


def latency(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """Milliseconds of `complete(k=10)`, after a first call that loads what is needed."""
    test = data.splits.test
    rows = np.random.default_rng(1).permutation(len(test))[: QUESTIONS + 1].tolist()
    names = test.vocabulary
    times = []
    for row in rows:
        head = names.entities[int(test.head[row])].as_py()
        relation = names.relations[int(test.relation[row])].as_py()
        start = time.perf_counter()
        predictor.complete(head, relation, k=10)
        times.append(1000 * (time.perf_counter() - start))
    return {"median_ms": float(np.median(times[1:])), "p95_ms": float(np.quantile(times[1:], 0.95))}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("runs", nargs="+")
    options.add_argument("--facts", type=int, default=10**9, help="ask for this many test facts only")
    asked = options.parse_args()
    common.use_two_cores()
    title = (
        f"Completions: test facts with a confidence of at least {LEAST}, filtered, tails and heads together"
    )
    table = Table(
        ["data", "ranked by", "facts", "MRR", "Hits@1", "Hits@3", "Hits@10", "raw MRR", "ms"], title=title
    )
    records = []
    for folder in asked.runs:
        predictor = Predictor.load(folder)
        data = reload(predictor.provenance.get("data", {}), folder)
        ways: dict[str, Any] = {} if predictor.method.evidence is None else {"evidence": predictor}
        if predictor.model.tables:
            score = create("cp").calibrate(predictor.model, data.splits.calibration)
            config = predictor.model.config
            ways[f"{config.model}, {config.epochs} epochs"] = Backbone(predictor.model, score)
        for name, ranked in ways.items():
            found = figures(name, data, ranked, asked.facts)
            waits = latency(predictor, data) if ranked is predictor else {}
            records.append({**found, **waits})
            both = found["both"]
            numbers = [both["mrr"], *both["hits"].values(), both["raw_mrr"]]
            wait = f"{waits['median_ms']:.0f}" if waits else ""
            table.add(data.name, name, f"{both['facts']:,}", *(f"{number:.3f}" for number in numbers), wait)
            print(table.terminal(), flush=True)
    common.write("completions", {"machine": common.machine(), "results": records}, table.markdown())


if __name__ == "__main__":
    main()
