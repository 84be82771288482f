"""Time of prediction against the number of queries and the size of the graph: is it linear, is it independent?

    python benchmarks/scaling.py

Models with random tables (the time does not depend on what was learned), calibrated on 10,000 random facts;
measured is a whole call of `interval`: status of the entities, score, both ends at 90 %. Queries: 1e4 to 1e7 on a
graph of 1e5 entities, on one core: large calls use two, small ones do not, which would look like growth below linear.
Entities: 1e3 to 1e6, 1e6 queries each, on two cores. Writes results/scaling.json; status 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
DIMENSION = 64
RELATIONS = 20
CALIBRATION = 10_000
QUERIES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
ENTITIES = (1_000, 10_000, 100_000, 1_000_000)
# holds: time grows with the number of queries to a power this close to 1, a straight line explains this share of it,
# and it grows by no more than this factor from the smallest to the largest graph
POWER, STRAIGHT, FACTOR = 0.1, 0.99, 2.0


ALL = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def use_cores(count: int) -> None:
    """Where the system can pin a process."""
    if ALL:
        os.sched_setaffinity(0, ALL[:count])


def predictor(entities: int) -> Any:
    """UnKGCP over a UKGE model with random tables, calibrated on random facts."""
    import pyarrow as pa

    from unkgcp.graph import Graph, Vocabulary
    from unkgcp.run import calibrate
    from unkgcp.training import Model, config_for

    rng = np.random.default_rng(0)
    labels = pa.array(np.arange(entities)).cast(pa.string())
    vocabulary = Vocabulary(labels, pa.array([f"r{i}" for i in range(RELATIONS)]))
    config = config_for("ukge").__class__(model="ukge", dimension=DIMENSION)
    tensors = {
        "entity": rng.normal(0, 0.5, (entities, DIMENSION)).astype(np.float32),
        "relation": rng.normal(0, 0.5, (RELATIONS, DIMENSION)).astype(np.float32),
        "w": np.ones((1, 1), np.float32),
        "b": np.zeros((1, 1), np.float32),
    }
    seen = np.ones(entities, bool), np.ones(RELATIONS, bool)
    model = Model.from_tensors(tensors, vocabulary, config, 0, *seen)
    facts = Graph(*columns(rng, entities, CALIBRATION), rng.random(CALIBRATION), vocabulary)
    return calibrate(model, facts, "unkgcp").method


def columns(rng: np.random.Generator, entities: int, n: int) -> tuple[Any, Any, Any]:
    """Random triples: head, relation, tail."""
    return tuple(rng.integers(size, size=n, dtype=np.int32) for size in (entities, RELATIONS, entities))  # type: ignore[return-value]


def seconds(method: Any, entities: int, n: int, repeats: int) -> float:
    """The fastest of some calls with n queries."""
    from unkgcp.graph.facts import Triples

    queries = Triples(*columns(np.random.default_rng(1), entities, n))
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        method.interval(queries, 0.9)
        best = min(best, time.perf_counter() - start)
    return best


def scoring(method: Any, entities: int, n: int, repeats: int) -> float:
    """The part of it that looks into the tables: the model's score alone."""
    queries = columns(np.random.default_rng(1), entities, n)
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        method.model.score(*queries)
        best = min(best, time.perf_counter() - start)
    return best


def line(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """Slope, intercept and R2 of the least-squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = np.array(y) - (slope * np.array(x) + intercept)
    return float(slope), float(intercept), float(1 - (rest @ rest) / np.sum((np.array(y) - np.mean(y)) ** 2))


def measure(queries: tuple[int, ...], entities: tuple[int, ...], at: int) -> dict[str, Any]:
    use_cores(1)
    method = predictor(100_000)
    seconds(method, 100_000, queries[-1], 1)  # whatever is loaded or compiled once
    by_queries = [
        {"queries": n, "seconds": seconds(method, 100_000, n, 21 if n <= 1_000_000 else 5)} for n in queries
    ]
    x, y = [float(row["queries"]) for row in by_queries], [row["seconds"] for row in by_queries]
    slope, _, r2 = line(x, y)
    exponent, _, log_r2 = line([math.log10(v) for v in x], [math.log10(v) for v in y])
    by_entities = []
    use_cores(2)
    for n in entities:
        method = predictor(n)
        seconds(method, n, 1_000, 1)
        whole, score = seconds(method, n, at, 11), scoring(method, n, at, 11)
        by_entities.append({"entities": n, "seconds": whole, "scoring": score, "intervals": whole - score})
    times = [row["seconds"] for row in by_entities]
    power, _, _ = line([math.log10(n) for n in entities], [math.log10(v) for v in times])
    factor = max(times) / min(times)
    linear = abs(exponent - 1) <= POWER and r2 >= STRAIGHT
    flat = factor <= FACTOR
    found = {
        "holds": bool(linear and flat),
        "result": "",
        "queries": by_queries,
        "linear": {
            "seconds_a_query": slope,
            "r2": r2,
            "exponent": exponent,
            "exponent_r2": log_r2,
            "holds": linear,
        },
        "entities": by_entities,
        "independent": {"queries": at, "factor": factor, "exponent": power, "holds": flat},
        "method": "unkgcp",
        "model": f"ukge, d = {DIMENSION}",
        "machine": f"{platform.machine()}, one core by queries, two by entities, Python {platform.python_version()}",
    }
    return found | {"result": sentence(found)}


def sentence(found: dict[str, Any]) -> str:
    """The figures in words."""
    calls, graphs, linear = found["queries"], found["entities"], found["linear"]
    first, last = (1e9 * row["seconds"] / row["queries"] for row in (calls[0], calls[-1]))
    return (
        f"from {calls[0]['queries']:,} to {calls[-1]['queries']:,} queries time grows with the power "
        f"{linear['exponent']:.2f} (R2 {linear['exponent_r2']:.4f}): a query takes {first:.0f} ns in the smallest and "
        f"{last:.0f} ns in the largest call, and a straight line fits with R2 {linear['r2']:.4f}; "
        f"{found['independent']['queries']:,} queries take "
        + ", ".join(f"{row['seconds']:.2f} s with {row['entities']:,}" for row in graphs)
        + f" entities, a factor of {found['independent']['factor']:.2f} between fastest and slowest (scoring, which "
        f"looks up rows of larger tables: {_times(graphs, 'scoring')}; all else: {_times(graphs, 'intervals')})"
    )


def _times(rows: list[dict[str, Any]], part: str) -> str:
    return f"{rows[0][part]:.3f} to {rows[-1][part]:.3f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    options = parser.parse_args()
    if options.quick:
        found = measure((1_000, 10_000, 100_000), (100, 10_000), 10_000)
    else:
        found = measure(QUERIES, ENTITIES, 1_000_000)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "scaling.json").write_text(json.dumps(found, indent=1) + "\n")
    print(found["result"])
    sys.exit(0 if found["holds"] else 1)


if __name__ == "__main__":
    main()
