"""Training speed on a GPU: UKGE on PPI5k, one seed and ten at once. Writes results/gpu.json; status 1 if too slow.

    UNKGCP_DATA=data python benchmarks/gpu.py

A first short run compiles the kernels; its time is reported separately. Every other figure is a whole call of
`train_many`: moving the data, training, validation, early stopping.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

import common

SECONDS, MSE, RATIO = 4.0, 0.0054, 3.0


def main() -> None:
    import torch

    from unkgcp.graph import load_dataset
    from unkgcp.training import Member, TrainConfig, config_for, train_many

    common.parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        print("bench-gpu: skipped, this machine has no GPU")
        return
    data = load_dataset("ppi5k")

    def run(config: TrainConfig, seeds: int) -> tuple[float, Any]:
        torch.cuda.synchronize()
        start = time.monotonic()
        models = train_many(
            data.splits.train,
            [Member(seed) for seed in range(seeds)],
            config,
            softlogic=data.softlogic,
            device="cuda",
        )
        torch.cuda.synchronize()
        return time.monotonic() - start, models

    def mse(model: Any) -> float:
        test = data.splits.test
        return float(np.mean((model.score(test.head, test.relation, test.tail) - test.confidence) ** 2))

    found: dict[str, Any] = {"machine": f"{torch.cuda.get_device_name()}, torch {torch.__version__}"}
    for name in ("strict", "paper"):
        config = config_for("ukge", "ppi5k", name)
        first, _ = run(replace(config, epochs=1, validate_every=1), 1)
        if name == "strict":
            seconds, models = run(config, 1)
            history = models[0].history
            found["training"] = {
                "seconds": round(seconds, 2),
                "epochs": history[-1]["epoch"],
                "best_epoch": min(history, key=lambda entry: entry["validation"])["epoch"],
                "test_mse": mse(models[0]),
                "first_call_seconds": round(first, 2),
            }
        fixed = replace(config, epochs=20, patience=20, validate_every=10)
        times = {seeds: min(run(fixed, seeds)[0] for _ in range(2)) for seeds in (1, 3, 10)}
        found[f"seeds_{name}"] = {
            "batch_size": config.batch_size,
            "epochs": fixed.epochs,
            "seconds": {str(seeds): round(value, 2) for seeds, value in times.items()},
            "ten_over_one": round(times[10] / times[1], 2),
        }
    common.write("gpu", found)
    print(json.dumps(found, indent=1))
    device = torch.cuda.get_device_name()
    limits = [
        common.Figure(f"UKGE on PPI5k, {device}: seconds", found["training"]["seconds"], SECONDS),
        common.Figure(f"UKGE on PPI5k, {device}: MSE of test facts", found["training"]["test_mse"], MSE),
    ]
    limits += [
        common.Figure(
            f"ten seeds at once over one, {name}, {device}", found[f"seeds_{name}"]["ten_over_one"], RATIO
        )
        for name in ("strict", "paper")
    ]
    sys.exit(common.judge("gpu", limits))


if __name__ == "__main__":
    main()
