"""`unkgcp fit demo` with BEUrRE beside UKGE: processor time, and BEUrRE's validation error beside the torch engine's.

Both are fitted by the command, in turn, after a fit each that fills the cache of compiled loops; the better of two
counts. Their threads sleep while they wait, so that processor time is work also on a busy machine. The validation error
is that of `--epochs` epochs from the same seed with the compiled kernels and with torch. Writes results/fit-demo.json
and .md, and exits with status 1 when BEUrRE takes more than 8 times as long, or errs more by more than rounding.

    make bench-fit-demo        (five minutes)
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import Any

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = "passive"

REQUIRED_TIME, REQUIRED_ERROR = 8.0, 1.001  # errors of the two engines differ in the fourth digit at most


def fitted(model: str) -> float:
    """Processor seconds of the command."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "unkgcp", "fit", "demo", "--model", model, "-o", f"{folder}/run"]
        subprocess.run(command, check=True, capture_output=True)
    return used() - before


def validation_errors(epochs: int) -> dict[str, float]:
    """After so many epochs of BEUrRE, by engine."""
    from unkgcp.graph import load_dataset
    from unkgcp.training import config_for, train, trainer

    facts = load_dataset("demo").splits.train
    config = replace(config_for("beurre", "demo"), epochs=epochs, validate_every=epochs)
    compiled = train(facts, config=config, device="cpu")
    trainer.has_kernel = lambda config, device: False
    by_torch = train(facts, config=config, device="cpu")
    return {
        "compiled": compiled.history[-1]["validation"],
        "torch": by_torch.history[-1]["validation"],
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5, help="after which validation errors are compared")
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {"ukge": [], "beurre": []}
    for turn in range(3):
        for model, taken in seconds.items():
            took = fitted(model)
            print(f"{model}: {took:.1f} s" + (", which may have compiled" if not turn else ""), flush=True)
            taken += [took] if turn else []
    errors = validation_errors(given.epochs)
    times = min(seconds["beurre"]) / min(seconds["ukge"])
    record: dict[str, Any] = {
        "processor_seconds": seconds,
        "validation_errors": errors,
        "epochs": given.epochs,
        "machine": common.machine(),
    }
    text = f"""# `unkgcp fit demo`, two CPU cores

| model | processor seconds, two fits |
|---|---|
| ukge | {", ".join(f"{value:.1f}" for value in seconds["ukge"])} |
| beurre | {", ".join(f"{value:.1f}" for value in seconds["beurre"])} |

BEUrRE takes {times:.1f} times as long (required: at most {REQUIRED_TIME:g}). Its validation error after {given.epochs}
epochs is {errors["compiled"]:.6f} with the compiled kernels and {errors["torch"]:.6f} with torch.

Load after the last: {common.machine()["load_after"]} on {common.cores()} cores.
"""
    common.write("fit-demo", record, text)
    return common.judge(
        "fit-demo",
        [
            common.Figure("fit demo, BEUrRE: processor time", times, REQUIRED_TIME, peer="UKGE"),
            common.Figure(
                f"BEUrRE on demo, compiled: validation error after {given.epochs} epochs",
                errors["compiled"] / errors["torch"],
                REQUIRED_ERROR,
                peer="the torch engine, as a ratio",
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
