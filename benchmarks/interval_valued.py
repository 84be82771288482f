"""Confidences that are intervals: one joint threshold beside the paper's sketch of two, on the demo graph.

    python benchmarks/interval_valued.py

The true interval of a fact spans two independent draws of its confidence from the demo graph's oracle, which
therefore knows the best possible outer intervals. Models are trained as `unkgcp fit` trains them on the demo graph.
Figures go to benchmarks/results/interval-valued.{json,md}.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import common
from unkgcp.evaluation import metrics
from unkgcp.graph.demo_graph import generate
from unkgcp.methods.interval_valued import Joint, MeanLength
from unkgcp.training import config_for, train, train_length

SEEDS = (0, 1, 2)
LEVELS = (0.8, 0.9, 0.95)


def measure(seed: int) -> list[dict[str, Any]]:
    graph, oracle = generate(seed=0)
    splits = oracle.draw_intervals(graph, np.random.default_rng([5, seed])).split(seed=seed)
    config = config_for("ukge", "demo")
    model = train(splits.train, config=config, seed=seed, device="cpu")
    length = train_length(splits.train, config=config, seed=seed, device="cpu")
    test = splits.test
    rows = []
    for level in LEVELS:
        best = oracle.interval(test, level**0.5)
        truth = metrics.contains(test.truth, best[:, 0], best[:, 1])
        rows.append(row("oracle", None, level, seed, truth, best[:, 1] - best[:, 0]))
    for method in (Joint, MeanLength):
        for normalised in (False, True):
            predictor = method(length, normalised).calibrate(model, splits.calibration)
            answers = predictor.interval(test, list(LEVELS))
            for place, level in enumerate(LEVELS):
                lower, upper = answers.lower[:, place], answers.upper[:, place]
                inside = metrics.contains(test.truth, lower, upper)
                rows.append(row(method.name, normalised, level, seed, inside, upper - lower))
    return rows


def row(
    method: str, normalised: bool | None, level: float, seed: int, inside: Any, width: Any
) -> dict[str, Any]:
    return {
        "method": method,
        "normalised": normalised,
        "confidence": level,
        "seed": seed,
        "coverage": float(inside.mean()),
        "width": float(width.mean()),
    }


def main() -> None:
    rows = [found for seed in SEEDS for found in measure(seed)]
    lines = [
        f"Joint coverage / mean width of outer intervals on test facts of the demo graph, mean of {len(SEEDS)} seeds.",
        "",
        f"| method | {' | '.join(f'{level:g}' for level in LEVELS)} |",
        "|---|" + "---|" * len(LEVELS),
    ]
    for method, normalised in dict.fromkeys((found["method"], found["normalised"]) for found in rows):
        cells = []
        for level in LEVELS:
            own = [
                f
                for f in rows
                if (f["method"], f["normalised"], f["confidence"]) == (method, normalised, level)
            ]
            mean = {name: np.mean([f[name] for f in own]) for name in ("coverage", "width")}
            cells.append(f"{mean['coverage']:.3f} / {mean['width']:.3f}")
        unit = {None: "best possible", True: "in units of the entropy", False: "plain"}[normalised]
        lines.append(f"| {method}, {unit} | {' | '.join(cells)} |")
    common.write("interval-valued", {"seeds": SEEDS, "rows": rows}, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
