"""Graphs of 300 facts: CV+ beside split conformal prediction, which has to set facts apart for calibration.

Each replication draws its own graph (20 entities, 4 relations, confidences made of positions and noise), fits
UKGE on 300 facts in both ways and asks 1,000 further triples of the same distribution.

    python benchmarks/small_graphs.py [--replications 40] [--folds 10]
"""

from __future__ import annotations

import argparse
import platform
import time
from datetime import UTC, datetime
from typing import Any

import numpy as np

import common
from unkgcp.conformal.cross import guaranteed
from unkgcp.evaluation.tables import Table
from unkgcp.graph import Graph, Splits, Vocabulary
from unkgcp.graph.datasets import Dataset
from unkgcp.run import fit, fit_folds
from unkgcp.training import TrainConfig

ENTITIES, RELATIONS, FACTS, QUERIES = 20, 4, 300, 1000
LEVELS = [0.8, 0.9, 0.95]
CONFIG = TrainConfig(
    dimension=8,
    epochs=150,
    validate_every=5,
    patience=40,
    batch_size=64,
    negatives=0,
    learning_rate=0.02,
    regularization=0.001,
    softlogic_weight=0.0,
    validation_fraction=0.1,
)


def draw(seed: int) -> Graph:
    """FACTS + QUERIES triples of one world; the first are facts."""
    rng = np.random.default_rng([5, seed])
    size = FACTS + QUERIES
    entity, relation = rng.normal(0, 1, (ENTITIES, 3)), rng.normal(0, 1, (RELATIONS, 3))
    head, tail = rng.integers(0, ENTITIES, (2, size), dtype=np.int32)
    kind = rng.integers(0, RELATIONS, size, dtype=np.int32)
    raw = (entity[head] * relation[kind] * entity[tail]).sum(axis=1)
    confidence = np.clip(1 / (1 + np.exp(-raw)) + 0.1 * rng.standard_normal(size), 0, 1)
    vocabulary = Vocabulary.of([f"e{i}" for i in range(ENTITIES)], [f"r{i}" for i in range(RELATIONS)])
    return Graph(head, kind, tail, confidence, vocabulary)


def one(seed: int, folds: int, method: str) -> dict[str, Any]:
    graph = draw(seed)
    facts, test = graph[:FACTS], graph[FACTS:]
    found = {}
    for name, calibration in (("split", FACTS // 5), ("cv+", 0)):
        splits = Splits(facts[calibration:], facts[:calibration], test, facts[:0])
        dataset = Dataset("small", splits)
        if name == "split":
            predictor = fit(dataset, CONFIG, method=method, seed=seed, device="cpu")
        else:
            predictor = fit_folds(dataset, CONFIG, folds=folds, method=method, seed=seed, device="cpu")
        result = predictor.interval(test, LEVELS)
        inside = (result.lower <= test.confidence[:, None]) & (test.confidence[:, None] <= result.upper)
        found[name] = {
            "coverage": inside.mean(axis=0).tolist(),
            "width": result.width.mean(axis=0).tolist(),
            "mse": float(np.nanmean((result.score - test.confidence) ** 2)),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--folds", type=int, default=10)
    options = parser.parse_args()
    start = time.monotonic()
    rows, results = [], []
    for method in ("cp", "unkgcp"):
        found = [one(seed, options.folds, method) for seed in range(options.replications)]
        for name in ("split", "cv+"):
            for place, level in enumerate(LEVELS):
                coverage = np.array([part[name]["coverage"][place] for part in found])
                width = np.array([part[name]["width"][place] for part in found])
                least = guaranteed(level, FACTS // options.folds * options.folds, options.folds)
                row = {
                    "method": method,
                    "calibration": name,
                    "confidence": level,
                    "coverage": float(coverage.mean()),
                    "standard_error": float(coverage.std(ddof=1) / np.sqrt(len(coverage))),
                    "coverage_sd": float(coverage.std(ddof=1)),
                    "lowest": float(coverage.min()),
                    "guaranteed": level if name == "split" else least,
                    "width": float(width.mean()),
                    "mse": float(np.mean([part[name]["mse"] for part in found])),
                }
                results.append(row)
                rows.append(
                    [
                        f"{method}, {name}",
                        f"{level:g}",
                        f"{row['coverage']:.3f} ± {row['standard_error']:.3f}",
                    ]
                    + [f"{row[key]:.3f}" for key in ("guaranteed", "coverage_sd", "lowest", "width", "mse")]
                )
    header = ["", "level", "coverage", "guaranteed", "sd", "lowest", "width", "MSE"]
    text = Table(header, rows).terminal()
    report = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "replications": options.replications,
        "folds": options.folds,
        "seconds": round(time.monotonic() - start, 1),
        "results": results,
    }
    page = (
        "# Graphs of 300 facts\n\n"
        f"UKGE (8 dimensions, no negatives), {options.replications} graphs of their own, 1,000 queries each. `split` "
        f"gives 60 of the 300 facts away for calibration, `cv+` trains {options.folds} models without one fold each. "
        "`sd` and `lowest` are over graphs.\n\n"
        f"```\n{text}\n```\n\nMade {report['made']} on {report['machine']} with `make bench-small-graphs`.\n"
    )
    common.write("small-graphs", report, page)


if __name__ == "__main__":
    main()
