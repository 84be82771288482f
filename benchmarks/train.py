"""One epoch of UKGE on PPI5k: ours beside OpenUKGE, in the same run, on two CPU cores.

Both train d = 128, batch 256, 10 + 10 negatives a fact filtered with the training facts, Adam 1e-3; both time
whole epochs of their own training loop after a warm one. Writes results/train.json and results/train.md, and
exits with status 1 when ours is less than 12 times as fast.

    make bench-train        (needs ppi5k under $UNKGCP_DATA, or after `unkgcp data fetch ppi5k`)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

import peers  # noqa: E402
from unkgcp.graph.datasets import find  # noqa: E402

REQUIRED, GOAL = 12.0, 15.0
PEER = ("openukge==1.0.2", "torch")
EPOCHS = 4  # a warm one and three timed ones, like the peer


def ours(folder: Path) -> dict[str, Any]:
    import numpy as np
    import torch

    import unkgcp
    from unkgcp.graph import load_dataset
    from unkgcp.training import TrainConfig, train

    torch.set_num_threads(common.CORES)
    splits = load_dataset(folder).splits
    config = TrainConfig(
        "ukge",
        dimension=128,
        batch_size=256,
        learning_rate=1e-3,
        negatives=10,
        epochs=EPOCHS,
        validate_every=1,
    )
    # a few validation facts only: the peer does not validate within its epochs
    model = train(splits.train, config=config, validation=splits.calibration[:64], device="cpu")
    ends = [entry["seconds"] for entry in model.history]
    facts = splits.calibration
    error = model.score(facts.head, facts.relation, facts.tail) - facts.confidence
    return {
        "name": "UnKGCP",
        "version": unkgcp.__version__,
        "torch": torch.__version__,
        "facts": len(splits.train),
        "seconds": np.diff(ends).tolist(),
        "validation_mse": float(np.mean(error**2)),
    }


def table(rows: list[dict[str, Any]], ratio: float) -> str:
    lines = [
        "# One epoch of UKGE on PPI5k, two CPU cores",
        "",
        "d 128, batch 256, 10 + 10 negatives a fact, Adam; best warm epoch of each. `make bench-train`",
        "",
        f"| library | seconds an epoch | facts a second | MSE on validation facts after {EPOCHS} epochs |",
        "|---|---|---|---|",
    ]
    for row in rows:
        best = min(row["seconds"])
        rate = row["facts"] / best
        lines.append(
            f"| {row['name']} {row['version']} | {best:.2f} | {rate:,.0f} | {row['validation_mse']:.4f} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            "The two start from different initial values (OpenUKGE: Xavier and w = 1; ours: as published).",
            f"Ours is {ratio:.1f} times as fast (required {REQUIRED:g}, goal {GOAL:g}).",
            "",
        ]
    )


def main() -> int:
    folder = find("ppi5k")
    if folder is None:
        print("skipped: ppi5k is not here; set UNKGCP_DATA or run `unkgcp data fetch ppi5k`", file=sys.stderr)
        return 0
    python = peers.ensure(*PEER)
    rows = [ours(folder), peers.run(python, "openukge_epoch.py", str(folder), threads=common.CORES)]
    if rows[0]["facts"] != rows[1]["facts"]:
        raise SystemExit("the two sides trained on different numbers of facts")
    # ours is short, so it is taken before and after: other work on the machine would hide in one of the two
    rows[0]["seconds"] += ours(folder)["seconds"]
    ratio = min(rows[1]["seconds"]) / min(rows[0]["seconds"])
    result = {"ratio": ratio, "required": REQUIRED, "goal": GOAL, "machine": common.machine(), "runs": rows}
    common.write("train", result, table(rows, ratio))
    return 0 if ratio >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
