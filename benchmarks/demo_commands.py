"""Whole commands on the demo graph, on two cores: `fit` with BEUrRE beside UKGE, and a first small `predict`.

    make bench-demo-commands                        both parts
    python benchmarks/demo_commands.py fit          five minutes; writes results/fit-demo.md
    python benchmarks/demo_commands.py predict      writes results/first-answer.md

fit: processor time of `unkgcp fit demo` with BEUrRE and with UKGE, in turns, after a fit of each that fills the cache
    of compiled loops; the better of two counts. Threads sleep while they wait, so that processor time is work also on a
    busy machine. BEUrRE may take 8 times as long as UKGE. Its validation error after `--epochs` epochs is compared with
    that of the torch engine from the same seed, and may be larger by rounding only.
predict: fifty queries, beside an interpreter that only imports NumPy and Parquet. Two runs, one of evidence without a
    model and one of `cp` over UKGE, are asked once, so that compiled code is in its cache, then in turns with the bare
    interpreter; the best of each counts. The ratio may be 6 at most.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = "passive"

REQUIRED_TIME, REQUIRED_ERROR = 8.0, 1.001  # errors of the two engines differ in the fourth digit at most
ROWS = 50
MOST = 6.0
BARE = [sys.executable, "-c", "import numpy, pyarrow.parquet"]
RUNS = {
    "evidence": ["--method", "evidence"],
    "cp over UKGE": ["--method", "cp", "--device", "cpu"],
}


# fit


def validation_errors(epochs: int) -> dict[str, float]:
    """After so many epochs of BEUrRE, by engine."""
    from unkgcp.graph import load_dataset
    from unkgcp.training import config_for, train, trainer

    facts = load_dataset("demo").splits.train
    config = replace(config_for("beurre", "demo"), epochs=epochs, validate_every=epochs)
    compiled = train(facts, config=config, device="cpu")
    trainer.has_compiled_kernel = lambda *arguments: False
    by_torch = train(facts, config=config, device="cpu")
    return {
        "compiled": compiled.history[-1]["validation"],
        "torch": by_torch.history[-1]["validation"],
    }


def fit(asked: Any) -> int:
    seconds: dict[str, list[float]] = {"ukge": [], "beurre": []}
    for turn in range(3):
        for model, taken in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                command = common.unkgcp("fit", "demo", "--model", model, "-o", Path(folder) / "run")
                took = common.timed(command).processor
            print(f"{model}: {took:.1f} s" + (", which may have compiled" if not turn else ""), flush=True)
            taken += [took] if turn else []
    errors = validation_errors(asked.epochs)
    times = min(seconds["beurre"]) / min(seconds["ukge"])
    record: dict[str, Any] = {
        "processor_seconds": seconds,
        "validation_errors": errors,
        "epochs": asked.epochs,
        "machine": common.machine(),
    }
    text = f"""# `unkgcp fit demo`, two CPU cores

| model | processor seconds, two fits |
|---|---|
| ukge | {", ".join(f"{value:.1f}" for value in seconds["ukge"])} |
| beurre | {", ".join(f"{value:.1f}" for value in seconds["beurre"])} |

BEUrRE takes {times:.1f} times as long (required: at most {REQUIRED_TIME:g}). Its validation error after {asked.epochs}
epochs is {errors["compiled"]:.6f} with the compiled kernels and {errors["torch"]:.6f} with torch.

Load after the last: {common.machine()["load_after"]} on {common.cores()} cores.
"""
    common.write("fit-demo", record, text)
    return common.judge(
        "fit-demo",
        [
            common.Figure("fit demo, BEUrRE: processor time", times, REQUIRED_TIME, peer="UKGE"),
            common.Figure(
                f"BEUrRE on demo, compiled: validation error after {asked.epochs} epochs",
                errors["compiled"] / errors["torch"],
                REQUIRED_ERROR,
                peer="the torch engine, as a ratio",
            ),
        ],
    )


# predict


def predicting(folder: Path) -> dict[str, list[str]]:
    """The commands that are timed, by name; runs that are not there are fitted."""
    import unkgcp

    test = unkgcp.read("demo").split(calibration=0.07, test=0.08, seed=0).test[:ROWS].table()
    queries = folder / "queries.tsv"
    rows = zip(*(test[name].to_pylist() for name in ("head", "relation", "tail")), strict=True)
    queries.write_text("".join("\t".join(row) + "\n" for row in rows))
    found = {"bare": BARE}
    for name, options in RUNS.items():
        run = folder / name.replace(" ", "-")
        if not run.exists():
            subprocess.run(common.unkgcp("fit", "demo", "-o", run, *options), check=True)
        found[name] = common.unkgcp("predict", run, queries, "-o", folder / "answers.tsv")
    return found


def predict(asked: Any) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.runs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        commands = predicting(folder)
        for command in commands.values():
            common.timed(command)
        times: dict[str, list[common.Took]] = {name: [] for name in commands}
        for _ in range(asked.rounds):
            for name, command in commands.items():
                times[name].append(common.timed(command))
    best = {
        name: (min(took.clock for took in found), min(took.processor for took in found))
        for name, found in times.items()
    }
    about = (
        f"`unkgcp predict` of {ROWS} rows, second call on a machine, in turns with `import numpy, pyarrow.parquet`; "
        f"best of {asked.rounds}. The ratio of the clock may be {MOST:g} at most."
    )
    rows = [
        {
            "command": name,
            "seconds": clock,
            "times bare": clock / best["bare"][0],
            "processor seconds": processor,
            "times bare, processor": processor / best["bare"][1],
        }
        for name, (clock, processor) in best.items()
    ]
    record = {"machine": common.machine(), "rounds": asked.rounds, "results": rows}
    common.write("first-answer", record, "\n".join([about, "", *common.markdown(rows), ""]))
    return common.judge(
        "first-answer",
        [
            common.Figure(
                f"predict of {ROWS} rows, {row['command']}: times the time of importing numpy and pyarrow.parquet",
                row["times bare"],
                MOST,
                peer="bare Python",
            )
            for row in rows
            if row["command"] != "bare"
        ],
    )


def main() -> int:
    parts = {"predict": predict, "fit": fit}
    parser = common.parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART", help="fit, predict")
    parser.add_argument(
        "--epochs", type=int, default=5, help="fit: after which validation errors are compared"
    )
    parser.add_argument("--rounds", type=int, default=15, help="predict: turns")
    parser.add_argument("--runs", type=Path, help="predict: keep the runs here, or take them from here")
    asked = parser.parse_args()
    return max([parts[part](asked) for part in asked.parts or parts])


if __name__ == "__main__":
    sys.exit(main())
