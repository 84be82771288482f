"""One epoch of UKGE, PASSLEAF (DistMult) and BEUrRE on PPI5k: ours beside OpenUKGE, in the same run, on two CPU cores.

Both train batches of 256, 10 + 10 negatives a fact filtered with the training facts, Adam 1e-3; d = 128, for BEUrRE 64,
with the norms of the published model. PASSLEAF's pool has its largest share, 80 %, in both. Both time whole epochs of
their own training loop after a warm one, by the clock and by the processor: on a machine that does other work besides,
the first says little, and ours, which has more to do at once, waits longer. Threads of both that have nothing to do
sleep (OMP_WAIT_POLICY=passive) instead of asking again and again, which would count as work. Writes results/train.json
and results/train.md, and exits with status 1 when ours takes more than a twelfth of the peer's processor time for UKGE,
or a tenth for the others.

    make bench-train        (needs ppi5k under $UNKGCP_DATA, or after `unkgcp data fetch ppi5k`)
    python benchmarks/train.py beurre --epochs 1        one model, in fewer epochs
    python benchmarks/train.py --starts                 our UKGE from our start values and from those of the peer

`--starts` tells what the start values are worth: squared errors with the settings above after 3 and 20 epochs, and with
the presets, which stop early, on every benchmark that is here. Writes results/start-values.json and .md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = "passive"

import peers  # noqa: E402
from unkgcp.graph.datasets import find  # noqa: E402

REQUIRED = {"ukge": 12.0, "passleaf": 10.0, "beurre": 10.0}
GOAL = 15.0
PEER = ("openukge==1.0.2", "torch")


def ours(folder: Path, name: str, epochs: int) -> dict[str, Any]:
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
        epochs=epochs + 1,
        validate_every=1,
        pool_from=0,
        pool_train_from=1,
        pool_growth=0.8,
    )
    # a few validation facts only: the peer does not validate within its epochs
    processor: list[float] = []

    def note(epoch: int, error: list[float]) -> bool:
        processor.append(time.process_time())
        return False

    validation = splits.calibration[:64]
    model = train(splits.train, config=config, validation=validation, device="cpu", callback=note)
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
        "processor_seconds": np.diff(processor).tolist(),
        "validation_mse": float(np.mean(error**2)),
    }


STARTS = {"ours": "as published: normal, deviation 0.3, w = 0", "peer's": "OpenUKGE's: Xavier, w = 1"}


def peers_start(entities: int, relations: int, dimension: int, seed: int = 0) -> dict[str, Any]:
    """Tables as OpenUKGE's UKGE and PASSLEAF have them before the first step."""
    import numpy as np

    rng, found = np.random.default_rng(seed), {}
    for name, rows in (("entity", entities), ("relation", relations)):
        bound = np.sqrt(6 / (rows + dimension))
        found[name] = rng.uniform(-bound, bound, (rows, dimension)).astype(np.float32)
    return found | {"w": np.ones((1, 1), np.float32), "b": np.zeros((1, 1), np.float32)}


def starts() -> int:
    """Our UKGE from both start values."""
    import numpy as np

    from unkgcp.graph import load_dataset
    from unkgcp.training import TrainConfig, config_for, train

    def train_both(dataset: Any, config: Any, what: str, softlogic: Any = None) -> list[dict[str, Any]]:
        splits, found = dataset.splits, []
        for start in STARTS:
            sizes = splits.train.n_entities, splits.train.n_relations, config.dimension
            initial = None if start == "ours" else peers_start(*sizes)
            model = train(splits.train, config=config, softlogic=softlogic, device="cpu", initial=initial)
            best = min(model.history, key=lambda entry: float(entry["validation"]))
            row = {"data": dataset.name, "settings": what, "start": start, "epoch": best["epoch"]}
            row["validation"] = round(best["validation"], 5)
            for name, facts in (("calibration", splits.calibration), ("negatives", dataset.negatives)):
                if facts is not None:
                    error = model.score(facts.head, facts.relation, facts.tail) - facts.confidence
                    row[name] = round(float(np.mean(error**2)), 5)
            found.append(row)
            print(row, file=sys.stderr, flush=True)
        return found

    here = [name for name in ("ppi5k", "nl27k", "cn15k") if find(name) is not None]
    rows = []
    for epochs in (3, 20) if "ppi5k" in here else ():
        config = TrainConfig("ukge", batch_size=256, epochs=epochs, validate_every=1, patience=epochs)
        rows += train_both(load_dataset("ppi5k"), config, f"{epochs} epochs, batch 256, 1e-3")
    for name in here:
        dataset = load_dataset(name)
        rows += train_both(dataset, config_for("ukge", name), "preset", dataset.softlogic_for("strict"))
    lines = [
        "# What the start values of UKGE are worth",
        "",
        *(f"Start {name}: {about}.  " for name, about in STARTS.items()),
        "Squared errors; validation is what early stopping looks at, 3 % of the training facts and two corruptions of",
        "each, calibration the calibration facts, negatives those of the benchmark. d 128, seed 0, CPU.",
        "`python benchmarks/train.py --starts`",
        "",
        "| data | settings | start | best epoch | validation | calibration | negatives |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(str(value) for value in row.values())} |" for row in rows),
    ]
    common.write("start-values", {"runs": rows, "machine": common.machine()}, "\n".join(lines) + "\n")
    return 0


def compare(folder: Path, name: str, epochs: int) -> list[dict[str, Any]]:
    """Ours, and the peer's."""
    python = peers.ensure(*PEER)
    rows = [ours(folder, name, epochs)]
    arguments = (str(folder), name, str(epochs))
    rows.append({"model": name} | peers.run(python, "openukge_epoch.py", *arguments, threads=common.CORES))
    if rows[0]["facts"] != rows[1]["facts"]:
        raise SystemExit("the two sides trained on different numbers of facts")
    # ours is short, so it is taken before and after: other work on the machine would hide in one of the two
    again = ours(folder, name, epochs)
    for key in ("seconds", "processor_seconds"):
        rows[0][key] += again[key]
    return rows


def ratio(pair: list[dict[str, Any]], key: str) -> float:
    return float(min(pair[1][key]) / min(pair[0][key]))


def table(rows: list[dict[str, Any]], epochs: int) -> str:
    lines = [
        "# One epoch on PPI5k, two CPU cores",
        "",
        "d 128 (BEUrRE 64), batch 256, 10 + 10 negatives a fact, Adam; best warm epoch of each. `make bench-train`",
        "",
        f"| model | library | seconds an epoch | processor seconds | facts a second | MSE after {epochs + 1} epochs |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = min(row["seconds"])
        lines.append(
            f"| {row['model']} | {row['name']} {row['version']} | {best:.2f} | {min(row['processor_seconds']):.2f} "
            f"| {row['facts'] / best:,.0f} | {row['validation_mse']:.4f} |"
        )
    said = [
        "UKGE and PASSLEAF start from different initial values (OpenUKGE: Xavier and w = 1; ours: as published).",
        "Processor time is that of both threads, which sleep while they wait. Load after the last: "
        f"{common.machine()['load_after']} on {common.cores()} cores.",
    ]
    for pair in (rows[i : i + 2] for i in range(0, len(rows), 2)):
        name = pair[0]["model"]
        said.append(
            f"{name}: ours is {ratio(pair, 'processor_seconds'):.1f} times as fast by the processor (required "
            f"{REQUIRED[name]:g}, goal {GOAL:g}), {ratio(pair, 'seconds'):.1f} times by the clock."
        )
    return "\n\n".join(["\n".join(lines), *said]) + "\n"


def main() -> int:
    folder = find("ppi5k")
    if folder is None:
        print("skipped: ppi5k is not here; set UNKGCP_DATA or run `unkgcp data fetch ppi5k`", file=sys.stderr)
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=[*REQUIRED], help="ukge, passleaf, beurre")
    parser.add_argument("--epochs", type=int, default=3, help="timed ones, after a warm one")
    parser.add_argument("--starts", action="store_true", help="compare start values instead")
    given = parser.parse_args()
    if given.starts:
        return starts()
    rows = list[dict[str, Any]]()
    for name in given.models:
        pair = compare(folder, name, given.epochs)
        rows += pair
        print(f"{name}: {ratio(pair, 'processor_seconds'):.1f} times as fast", file=sys.stderr, flush=True)
    result = {"required": REQUIRED, "goal": GOAL, "machine": common.machine(), "runs": rows}
    common.write("train", result, table(rows, given.epochs))
    return common.judge(
        "train",
        [
            common.Figure(
                f"one epoch of {pair[0]['model']} on PPI5k: times as fast by the processor",
                ratio(pair, "processor_seconds"),
                REQUIRED[pair[0]["model"]],
                GOAL,
                at_least=True,
                peer=f"{pair[1]['name']} {pair[1]['version']}",
            )
            for pair in (rows[i : i + 2] for i in range(0, len(rows), 2))
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
