"""Evidence on the official splits of the benchmarks: coverage, width, interval score, error, worst slices, time.

    make bench-evidence
    python benchmarks/evidence.py [--seeds 5] [--data nl27k,...] [--levels 0.8,0.9,0.95] [--no-peer]

For every seed `unkgcp fit DATA --method evidence`, which learns from the training facts and calibrates on val, and
`unkgcp evaluate`, which judges the test facts. Then the time of one fit beside ten epochs of OpenUKGE's UKGE on the
same data in the same run (one epoch after a warm one, times ten). Writes results/evidence.md and, with command and
machine, results/evidence.json; status 1 if a requirement at 90 % is missed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import common
import peers

EPOCHS = 10
PEER = ("openukge==1.0.2", "torch")
# at 90 %: interval score required and aimed at, MSE and MAE
TARGETS = {
    "cn15k": (0.46, 0.40, 0.027, 0.115),
    "nl27k": (0.10, 0.070, 0.0085, 0.045),
    "ppi5k": (0.031, 0.022, 0.0013, 0.011),
}
# at 90 %: the least coverage of the worst slice
LEAST = {"doubt": 0.88, "degree": 0.88, "relation": 0.85}
FIGURES = ("coverage", "sharpness", "interval_score", "mse", "mae")
Row = dict[str, Any]


def fitted(data: str, seed: int, levels: str) -> tuple[list[Row], common.Took]:
    """What `evaluate` says of the test facts at each level, and what the fit took."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        took = common.timed(common.unkgcp("fit", data, "-o", run, "--method", "evidence", "--seed", seed))
        said = common.timed(common.unkgcp("evaluate", run, "--confidence", levels, "--json")).said
    found = []
    for each in json.loads(said)["levels"]:
        facts = each["positive"]
        worst = {f"worst {by}": facts["worst"].get(by) for by in LEAST}
        found.append({"level": each["confidence"], **{name: facts[name] for name in FIGURES}, **worst})
    return found, took


def means(found: list[list[Row]]) -> list[Row]:
    """Means over seeds at each level; None where a seed has none."""
    rows = []
    for same in zip(*found, strict=True):
        columns = {name: [row[name] for row in same] for name in same[0]}
        rows.append({name: None if None in some else float(np.mean(some)) for name, some in columns.items()})
    return rows


def limits(data: str, row: Row) -> list[common.Figure]:
    """What has to be reached at 90 %."""
    title, (required, goal, mse, mae) = f"evidence, {data}, 90 %", TARGETS[data]
    found = [
        common.Figure(f"{title}: interval score", row["interval_score"], required, goal),
        common.Figure(f"{title}: MSE", row["mse"], mse),
        common.Figure(f"{title}: MAE", row["mae"], mae),
    ]
    return found + [
        common.Figure(
            f"{title}: coverage of the worst slice by {by}", row[f"worst {by}"], least, at_least=True
        )
        for by, least in LEAST.items()
        if row[f"worst {by}"] is not None
    ]


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--data", default=",".join(TARGETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--levels", default="0.8,0.9,0.95")
    parser.add_argument("--no-peer", action="store_true", help="do not time OpenUKGE")
    options = parser.parse_args()
    common.use_two_cores()
    rows: list[Row] = []
    figures: list[common.Figure] = []
    for data in options.data.split(","):
        folder = common.data_folder(data)
        if folder is None:
            continue
        runs = [fitted(data, seed, options.levels) for seed in range(options.seeds)]
        seconds = min(took.clock for _, took in runs)
        for row in means([found for found, _ in runs]):
            rows.append({"data": data, "seeds": options.seeds, **row, "seconds of fit": seconds})
            figures += limits(data, row) if row["level"] == 0.9 else []
        if not options.no_peer:
            python = peers.ensure(*PEER)
            peer = peers.run(python, "openukge_epoch.py", str(folder), "ukge", "1", threads=common.CORES)
            what, ratio = f"evidence, {data}: time of fit over ten epochs of the peer", seconds / EPOCHS
            name = f"{peer['name']} {peer['version']}"
            figures.append(common.Figure(what, ratio / min(peer["seconds"]), 1, peer=name))
    if not rows:
        return 0
    text = ["# Evidence intervals on the benchmarks", "", "Official splits, test facts, mean over seeds.", ""]
    text += common.markdown(rows)
    record = {"command": common.command(), "machine": common.machine(), "rows": rows}
    common.write("evidence", record, "\n".join([*text, "", f"`{common.command()}`", ""]))
    return common.judge("evidence", figures)


if __name__ == "__main__":
    sys.exit(main())
