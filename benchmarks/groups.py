"""Groups by doubt, relation and degree for the methods that have nothing but a score: what they bring, and cost.

Everything happens within the training facts of PPI5k: a tenth of them calibrates, a tenth is asked, UKGE is trained on
the rest for a few epochs. Calibration and test facts of the data set are not looked at.

    python benchmarks/groups.py [--data ppi5k] [--epochs 15] [--seeds 2]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

import common
from unkgcp.evaluation.tables import Table
from unkgcp.graph.datasets import load_dataset
from unkgcp.methods import create
from unkgcp.training.config import config_for
from unkgcp.training.trainer import train

LEVEL = 0.9
METHODS = ("cp", "unkgcp", "shortest")
PER = ("none", "doubt", "relation", "doubt,relation", "degree")


def one(data: str, epochs: int, seed: int) -> dict[str, dict[str, float]]:
    """Figures of every method with all groups, by `method per`."""
    whole = load_dataset(data, seed=0).splits.train
    order, n = np.random.default_rng(seed).permutation(len(whole)), len(whole) // 10
    calibration, test, rest = whole[order[:n]], whole[order[n : 2 * n]], whole[np.sort(order[2 * n :])]
    config = replace(config_for("ukge", data, "strict"), epochs=epochs)
    model = train(rest, "ukge", seed=seed, config=config, device="cpu")
    found = {}
    for method in METHODS:
        for per in PER:
            made = create(method, per=per).calibrate(model, calibration)
            result = made.interval(test, LEVEL)
            below, above = result.lower - test.confidence, test.confidence - result.upper
            known, missed = result.code == 0, np.maximum(below, 0) + np.maximum(above, 0)
            tenths = np.array_split(np.argsort(made.doubt(test[known]), kind="stable"), 10)
            found[f"{method} {per}"] = {
                "coverage": float((missed == 0).mean()),
                "width": float(result.width.mean()),
                "interval_score": float((result.width + 2 / (1 - LEVEL) * missed).mean()),
                "worst_tenth": float(min((missed[known][rows] == 0).mean() for rows in tenths)),
            }
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", default="ppi5k")
    options.add_argument("--epochs", type=int, default=15)
    options.add_argument("--seeds", type=int, default=2)
    asked = options.parse_args()
    runs = [one(asked.data, asked.epochs, seed) for seed in range(asked.seeds)]
    columns = ["method", "groups", "coverage", "width", "interval score", "worst tenth by doubt"]
    note = f"{asked.data}, UKGE, {asked.epochs} epochs, {LEVEL:.0%}, mean of {asked.seeds} seeds, training facts alone"
    table = Table(columns, title="Groups for methods that have nothing but a score", note=note)
    for name in runs[0]:
        mean = {key: float(np.mean([run[name][key] for run in runs])) for key in runs[0][name]}
        table.add(*name.split(" "), *(f"{value:.3f}" for value in mean.values()))
    record: dict[str, Any] = {**vars(asked), "level": LEVEL, "machine": common.machine(), "runs": runs}
    common.write("groups", record, table.markdown())


if __name__ == "__main__":
    main()
