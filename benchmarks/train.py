"""One epoch of UKGE, PASSLEAF (DistMult) and BEUrRE on PPI5k: ours beside OpenUKGE, in the same run, on two CPU cores.

Both train batches of 256, 10 + 10 negatives a fact filtered with the training facts, Adam 1e-3; d = 128, for BEUrRE 64,
with the norms of the published model. PASSLEAF's pool has its largest share, 80 %, in both. Both time whole epochs of
their own training loop after a warm one. Writes results/train.json and results/train.md, and exits with status 1 when
ours is less than 12 times as fast for UKGE, or 10 times for the others.

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

REQUIRED = {"ukge": 12.0, "passleaf": 10.0, "beurre": 10.0}
GOAL = 15.0
PEER = ("openukge==1.0.2", "torch")
EPOCHS = 4  # a warm one and three timed ones, like the peer


def ours(folder: Path, name: str) -> dict[str, Any]:
    import numpy as np
    import torch

    import unkgcp
    from unkgcp.graph import load_dataset
    from unkgcp.training import TrainConfig, train

    torch.set_num_threads(common.CORES)
    splits = load_dataset(folder).splits
    config = TrainConfig(
        name,
        dimension=64 if name == "beurre" else 128,
        batch_size=256,
        learning_rate=1e-3,
        negatives=10,
        epochs=EPOCHS,
        validate_every=1,
        pool_from=0,
        pool_train_from=1,
        pool_growth=0.8,
    )
    # a few validation facts only: the peer does not validate within its epochs
    model = train(splits.train, config=config, validation=splits.calibration[:64], device="cpu")
    ends = [entry["seconds"] for entry in model.history]
    facts = splits.calibration
    error = model.score(facts.head, facts.relation, facts.tail) - facts.confidence
    return {
        "model": name,
        "name": "UnKGCP",
        "version": unkgcp.__version__,
        "torch": torch.__version__,
        "facts": len(splits.train),
        "seconds": np.diff(ends).tolist(),
        "validation_mse": float(np.mean(error**2)),
    }


def compare(folder: Path, name: str) -> list[dict[str, Any]]:
    """Ours, and the peer's."""
    python = peers.ensure(*PEER)
    rows = [ours(folder, name)]
    rows.append(
        {"model": name} | peers.run(python, "openukge_epoch.py", str(folder), name, threads=common.CORES)
    )
    if rows[0]["facts"] != rows[1]["facts"]:
        raise SystemExit("the two sides trained on different numbers of facts")
    # ours is short, so it is taken before and after: other work on the machine would hide in one of the two
    rows[0]["seconds"] += ours(folder, name)["seconds"]
    return rows


def table(rows: list[dict[str, Any]], ratios: dict[str, float]) -> str:
    lines = [
        "# One epoch on PPI5k, two CPU cores",
        "",
        "d 128 (BEUrRE 64), batch 256, 10 + 10 negatives a fact, Adam; best warm epoch of each. `make bench-train`",
        "",
        f"| model | library | seconds an epoch | facts a second | MSE on validation facts after {EPOCHS} epochs |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        best = min(row["seconds"])
        lines.append(
            f"| {row['model']} | {row['name']} {row['version']} | {best:.2f} | {row['facts'] / best:,.0f} "
            f"| {row['validation_mse']:.4f} |"
        )
    said = [
        f"{name}: ours is {ratio:.1f} times as fast (required {REQUIRED[name]:g}, goal {GOAL:g})."
        for name, ratio in ratios.items()
    ]
    start = "UKGE and PASSLEAF start from different initial values (OpenUKGE: Xavier and w = 1; ours: as published)."
    return "\n\n".join(["\n".join(lines), start, *said]) + "\n"


def main() -> int:
    folder = find("ppi5k")
    if folder is None:
        print("skipped: ppi5k is not here; set UNKGCP_DATA or run `unkgcp data fetch ppi5k`", file=sys.stderr)
        return 0
    rows, ratios = list[dict[str, Any]](), {}
    for name in sys.argv[1:] or REQUIRED:
        pair = compare(folder, name)
        rows += pair
        ratios[name] = min(pair[1]["seconds"]) / min(pair[0]["seconds"])
        print(f"{name}: {ratios[name]:.1f} times as fast", file=sys.stderr, flush=True)
    result = {"ratios": ratios, "required": REQUIRED, "goal": GOAL, "machine": common.machine(), "runs": rows}
    common.write("train", result, table(rows, ratios))
    peer = f"{rows[1]['name']} {rows[1]['version']}"
    return common.judge(
        "train",
        [
            common.Figure(
                f"one epoch of {name} on PPI5k: times as fast",
                ratio,
                REQUIRED[name],
                GOAL,
                at_least=True,
                peer=peer,
            )
            for name, ratio in ratios.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
