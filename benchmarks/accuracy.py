"""Error of the backbones on the official splits: test facts, test negatives, both together.

Trains every model on every benchmark with several seeds at once and writes what it finds after each cell, so that
an interrupted run loses one cell at most. `--table` writes docs/accuracy.md from the stored results.

    UNKGCP_DATA=data python benchmarks/accuracy.py --protocol paper --seeds 3 --device cuda
    UNKGCP_DATA=data python benchmarks/accuracy.py --protocol strict --seeds 3 --device cuda
    python benchmarks/accuracy.py --table
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
DATA = ("cn15k", "nl27k", "ppi5k")
MODELS = ("ukge", "passleaf", "beurre")
# test facts, MSE / MAE in 1e-2
PUBLISHED = {
    ("ukge", "cn15k"): (24, 41), ("ukge", "nl27k"): (5, 11), ("ukge", "ppi5k"): (1, 4),
    ("passleaf", "cn15k"): (24, 41), ("passleaf", "nl27k"): (6, 11), ("passleaf", "ppi5k"): (1, 3),
    ("beurre", "cn15k"): (12, 28), ("beurre", "nl27k"): (3, 12), ("beurre", "ppi5k"): (1, 6),
}  # fmt: skip


def errors(model: Any, facts: Any) -> tuple[float, float]:
    difference = model.score(facts.head, facts.relation, facts.tail).astype(np.float64) - facts.confidence
    return float(np.mean(difference**2)), float(np.mean(np.abs(difference)))


def cell(name: str, model: str, protocol: str, seeds: int, device: str, epochs: int | None) -> dict[str, Any]:
    import unkgcp
    from unkgcp.graph import concatenate
    from unkgcp.training import Member, config_for, train_many

    data = unkgcp.load_dataset(name)
    splits = data.splits
    config = config_for(model, name, protocol)
    if epochs:
        config = replace(config, epochs=epochs)
    start = time.monotonic()
    models = train_many(
        splits.train,
        [Member(seed) for seed in range(seeds)],
        config,
        validation=splits.calibration if protocol == "paper" else None,
        softlogic=data.softlogic_for(protocol) if config.softlogic_weight else None,
        device=device,
    )
    seconds = time.monotonic() - start
    parts = {
        "positive": splits.test,
        "negative": data.negatives,
        "mixed": concatenate([splits.test, data.negatives]),
    }
    found: dict[str, Any] = {"data": name, "model": model, "protocol": protocol, "seeds": seeds}
    for part, facts in parts.items():
        each = np.array([errors(trained, facts) for trained in models])
        found[part] = {"mse": each[:, 0].tolist(), "mae": each[:, 1].tolist()}
    best = [min(trained.history, key=lambda entry: entry["validation"])["epoch"] for trained in models]
    return found | {
        "best_epoch": best,
        "epochs": models[0].history[-1]["epoch"],
        "seconds": round(seconds, 1),
        "machine": machine(device),
        "config": config.to_dict(),
    }


def machine(device: str) -> str:
    import torch

    gpu = torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else "CPU"
    return f"{gpu}, torch {torch.__version__}, Python {platform.python_version()}"


def table() -> str:
    lines = [
        "# Error of the backbones",
        "",
        "How well the three models predict confidences, for people who compare models. MSE / MAE in 1e-2 (lower is",
        "better) on the official splits, mean over the seeds.",
        "",
        "- *Positive*: test facts (the paper's Table 2), with the paper's values beside. *Negative*: the benchmarks'",
        "  own test negatives. *Mixed*: both.",
        "- Protocol `paper`: the paper's hyperparameters; early stopping on the calibration facts, as in the published",
        "  experiments.",
        "- Protocol `strict`, our default: hyperparameters chosen for speed on any graph; early stopping on a slice",
        "  held out of the training facts, so that calibration facts stay untouched.",
        "",
        "| data | model | protocol | seeds | positive | paper | negative | mixed | best epoch | training, all seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    cells = [json.loads(path.read_text()) for path in sorted(common.RESULTS.glob("accuracy-*.json"))]
    stored = {(c["data"], c["model"], c["protocol"]): c for part in cells for c in part}
    for key in [(d, m, p) for d in DATA for m in MODELS for p in ("paper", "strict")]:
        if key not in stored:
            continue
        found = stored[key]
        part = {
            name: f"{100 * np.mean(found[name]['mse']):.2f} / {100 * np.mean(found[name]['mae']):.2f}"
            for name in ("positive", "negative", "mixed")
        }
        published = "{} / {}".format(*PUBLISHED[key[1], key[0]])
        epoch = "-".join(str(e) for e in sorted({min(found["best_epoch"]), max(found["best_epoch"])}))
        lines.append(
            f"| {key[0]} | {key[1]} | {key[2]} | {found['seeds']} | {part['positive']} | {published} "
            f"| {part['negative']} | {part['mixed']} | {epoch} | {found['seconds']:.0f} s |"
        )
    machines = sorted({found["machine"] for found in stored.values()})
    lines += [
        "",
        "Made with `python benchmarks/accuracy.py --protocol paper --seeds 3 --device cuda`, the same with",
        f"`--protocol strict`, then `--table`, on {'; '.join(machines)}. Configurations, single seeds and times are in",
        "[`benchmarks/results`](../benchmarks/results).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--protocol", choices=("paper", "strict"), default="paper")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--epochs", type=int, help="at most so many, instead of the preset")
    parser.add_argument("--results", type=Path, default=common.RESULTS)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        PAGE.write_text(table())
        return
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"accuracy-{options.protocol}.json"
    stored = {(c["data"], c["model"]): c for c in json.loads(path.read_text())} if path.exists() else {}
    for model in options.models:
        for name in options.data:
            found = cell(name, model, options.protocol, options.seeds, options.device, options.epochs)
            stored[name, model] = found
            path.write_text(json.dumps(list(stored.values()), indent=1) + "\n")
            mse, mae = (100 * np.mean(found["positive"][kind]) for kind in ("mse", "mae"))
            print(
                f"{name} {model} {options.protocol}: {mse:.3f} / {mae:.3f}  best epoch {found['best_epoch']} "
                f"of {found['epochs']}, {found['seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
