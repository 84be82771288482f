"""Every kind of question keeps its promise: coverage by kind over several seeds, on graphs that nobody tuned on.

    make bench-kinds
    python benchmarks/kinds.py [--graphs health_kg,onet] [--seeds 5] [--level 0.9] [--epochs 5] [-o FOLDER]

Every graph of $UNKGCP_DATA (the zoo, and the three benchmarks with their parts joined) is one file that `unkgcp fit`
splits as it does without options: whole pairs and single rows. Each seed splits anew. `evidence` is fitted without
options, UKGE for a few epochs, since coverage does not depend on what the model is worth, and calibrated by `cp`.
`unkgcp evaluate` judges all test facts. A kind counts where it has at least SMALLEST test facts: its coverage should
lie in its band, above which groups and values shared by many facts may lift it, but never below it. The same for slices
by doubt, degree and relation. Writes results/kinds.md and results/kinds.json with command, seeds and machine; status 1
if a kind is covered less than its band allows.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import common
import zoo

SMALLEST, SMALLEST_SLICE = 200, 100
METHODS = {"evidence": (), "UKGE, cp": ("--model", "ukge", "--method", "cp")}
Row = dict[str, Any]


def judged(facts: Path, seed: int, level: float, options: tuple[object, ...]) -> dict[str, Any]:
    """What `evaluate` says at this level of a run that was fitted with this seed."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        common.timed(common.unkgcp("fit", facts, "-o", run, "--seed", seed, "--quiet", *options))
        said = common.timed(common.unkgcp("evaluate", run, "--confidence", level, "--json", "--quiet")).said
    measured: dict[str, Any] = json.loads(said)["levels"][0]["positive"]
    return measured


def slices_below(figures: dict[str, Any]) -> int:
    """How many large slices are covered less than their band allows."""
    slices = [one for by in ("doubt", "degree", "relation") for one in figures["slices"].get(by, [])]
    return sum(
        one["coverage"] < one["band"][0] for one in slices if one["n"] >= SMALLEST_SLICE and one["band"]
    )


def rows_of(graph: str, method: str, seeds: list[dict[str, Any]]) -> list[Row]:
    """One row for every kind with enough test facts, over all seeds, and one for all test facts."""
    kinds = list(dict.fromkeys(kind for figures in seeds for kind in figures["kinds"]))
    parts = {kind: [each["kinds"][kind] for each in seeds if kind in each["kinds"]] for kind in kinds}
    rows = []
    for kind, each in {**parts, "all": seeds}.items():
        large = [figures for figures in each if figures["n"] >= SMALLEST]
        if not large:
            continue
        coverage = [figures["coverage"] for figures in large]
        row = {
            "graph": graph,
            "method": method,
            "kind": kind,
            "seeds": len(large),
            "test facts": round(np.mean([figures["n"] for figures in large])),
            "coverage": float(np.mean(coverage)),
            "lowest": min(coverage),
            "width": float(np.mean([figures["sharpness"] for figures in large])),
            "interval score": float(np.mean([figures["interval_score"] for figures in large])),
            "below its band": sum(figures["verdict"] == "below" for figures in large),
        }
        if kind == "all":
            worst = (value for one in large for value in one["worst"].values() if value is not None)
            row |= {"worst slice": min(worst), "slices below": sum(map(slices_below, large))}
        rows.append(row)
    return rows


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--graphs", help="only these, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=5, help="of UKGE")
    parser.add_argument("-o", "--output", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    common.use_two_cores()
    known = zoo.graphs()
    names = options.graphs.split(",") if options.graphs else list(known)
    if not known or not all(name in known for name in names):
        print(
            f"skipped: there are no such graphs ({', '.join(known) or 'none'}); set UNKGCP_DATA to their folder"
        )
        return 0
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="unkgcp-kinds-") as temporary:
            facts, config = Path(temporary) / f"{name}.tsv", Path(temporary) / "epochs.yaml"
            facts.write_text("\n".join(zoo.lines_of(known[name])) + "\n", encoding="utf-8")
            config.write_text(f"epochs: {options.epochs}\n")
            for method, asked in METHODS.items():
                more = (*asked, "--config", config) if asked else asked
                seeds = [judged(facts, seed, options.level, more) for seed in range(options.seeds)]
                measured = rows_of(name, method, seeds)
                print(*measured, sep="\n", file=sys.stderr, flush=True)
                rows += measured
    record = {
        "command": common.command(),
        "level": options.level,
        "seeds": options.seeds,
        "machine": common.machine(),
        "rows": rows,
    }
    title = f"# Coverage by kind of question at {options.level:g}, {options.seeds} seeds"
    source = f"`{record['command']}`, {record['machine']}"
    common.write(
        "kinds", record, "\n".join([title, "", source, "", *common.markdown(rows), ""]), options.output
    )
    return int(any(row["below its band"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
