"""The first answer: a whole `unkgcp predict` of fifty rows beside an interpreter that only imports NumPy and Parquet.

Two runs of the demo graph, one of evidence without a model and one of `cp` over UKGE, are asked once, so that compiled
code is in its cache, then in turns with the bare interpreter; the best of each counts, as a ratio. Required: 6 at most.

    python benchmarks/first_answer.py [--rounds 15] [--runs FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

ROWS = 50
MOST = 6.0
BARE = [sys.executable, "-c", "import numpy, pyarrow.parquet"]
RUNS = {
    "evidence": ["--method", "evidence", "--quick"],
    "cp over UKGE": ["--method", "cp", "--device", "cpu"],
}


def unkgcp(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "unkgcp", *map(str, arguments)]


def seconds(command: list[str]) -> tuple[float, float]:
    """Of the clock and of processors."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(folder: Path) -> dict[str, list[str]]:
    """What is timed, by name; runs that are not there are fitted."""
    import unkgcp as package

    test = package.load("demo").split(calibration=0.07, test=0.08, seed=0).test[:ROWS].table()
    queries = folder / "queries.tsv"
    rows = zip(*(test[name].to_pylist() for name in ("head", "relation", "tail")), strict=True)
    queries.write_text("".join("\t".join(row) + "\n" for row in rows))
    found = {"bare": BARE}
    for name, options in RUNS.items():
        run = folder / name.replace(" ", "-")
        if not run.exists():
            subprocess.run(unkgcp("fit", "demo", "-o", run, *options), check=True)
        found[name] = unkgcp("predict", run, queries, "-o", folder / "answers.tsv")
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--runs", type=Path, help="keep the runs here, or take them from here")
    asked = options.parse_args()
    common.use_two_cores()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.runs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        timed = commands(folder)
        for command in timed.values():
            seconds(command)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in timed}
        for _ in range(asked.rounds):
            for name, command in timed.items():
                times[name].append(seconds(command))
    best = {name: [min(column) for column in zip(*found, strict=True)] for name, found in times.items()}
    lines = [
        f"`unkgcp predict` of {ROWS} rows, second call on a machine, in turns with `import numpy, pyarrow.parquet`; "
        f"best of {asked.rounds}. The ratio of the clock may be {MOST:g} at most.",
        "",
        "| | seconds | times bare | processor seconds | times bare |",
        "|---|---|---|---|---|",
    ]
    record: dict[str, Any] = {"machine": common.machine(), "rounds": asked.rounds, "results": {}}
    for name, (clock, processor) in best.items():
        ratio, effort = clock / best["bare"][0], processor / best["bare"][1]
        lines.append(f"| {name} | {clock:.3f} | {ratio:.1f} | {processor:.3f} | {effort:.1f} |")
        record["results"][name] = {"seconds": clock, "ratio": ratio, "processor": processor, "effort": effort}
    common.write("first-answer", record, "\n".join(lines) + "\n")
    return common.judge(
        "first-answer",
        [
            common.Figure(
                f"predict of {ROWS} rows, {name}: times the time of importing numpy and pyarrow.parquet",
                found["ratio"],
                MOST,
                peer="bare Python",
            )
            for name, found in record["results"].items()
            if name != "bare"
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
