"""Calibrating and predicting intervals: ours beside crepes and MAPIE, in the same run, on two CPU cores.

Every measurement is a process of its own (peers/conformal_case.py): the same data, one cold call and then
repeats, of which the fastest counts. Ours and theirs take turns, so that other work on the machine meets both.
Checks that the numbers agree, that predicting is at least 3 times as fast as with the faster peer, and
that memory stays within input + output + 20 %. Writes results/conformal.json and results/conformal.md, and exits
with status 1 when a target is missed.

    make bench-conformal
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

import numpy as np  # noqa: E402

import peers  # noqa: E402

# the peers get our NumPy: what is compared is the code above it
PEERS = ("crepes==0.9.1", "mapie==1.6.0", f"numpy=={np.__version__}")
REQUIRED, MEMORY = 3.0, 1.2
TURNS = 3
LEVELS = [0.8, 0.85, 0.9, 0.95]
ROUNDING = 16 * float(np.finfo(np.float64).eps)
MILLION = 1_000_000
Case = dict[str, Any]


def case(library: str, job: str, calibration: int, queries: int, levels: list[float], **more: Any) -> Case:
    return {
        "library": library,
        "job": job,
        "calibration": calibration,
        "queries": queries,
        "levels": levels,
        "repeats": 3,
        **more,
    }


def measure(what: Case, python: Path, folder: Path) -> Case:
    """Run one case in a process of its own; adds its figures and a sample of its answers."""
    sample = folder / f"{len(list(folder.iterdir()))}.npy"
    figures = peers.run(python, "conformal_case.py", json.dumps({**what, "sample": str(sample)}))
    seconds = {
        "calibrate": min(figures["calibrate"][1:]),
        "predict": min(figures["predict"][1:]),
        "first_call": figures["calibrate"][0] + figures["predict"][0],
    }
    total = seconds["calibrate"] + seconds["predict"]
    print(f"{what['library']:>7} {what['job']:<9} {total:8.3f} s", file=sys.stderr, flush=True)
    return {
        **what,
        **{name: round(value, 4) for name, value in seconds.items()},
        "total": round(total, 4),
        "peak_mb": round(figures["peak"] / 1e6),
        "held_mb": round(figures["held"] / 1e6),
        "numpy": figures["numpy"],
        "answers": np.load(sample),
    }


def best(runs: list[Case]) -> Case:
    """Of runs of the same case the fastest calibrating and predicting, and the highest memory."""
    first = dict(runs[0])
    for name in ("calibrate", "predict", "first_call"):
        first[name] = min(run[name] for run in runs)
    first["total"] = round(first["calibrate"] + first["predict"], 4)
    first["peak_mb"] = max(run["peak_mb"] for run in runs)
    return first


def side_by_side(theirs: Path, folder: Path) -> list[Case]:
    """Intervals at two sizes of calibration set and two numbers of levels, then what only we have at this size."""
    ours = Path(sys.executable)
    python = {"ours": ours, "crepes": theirs, "mapie": theirs}
    rows = []
    cells = [("interval", size * MILLION, levels) for size in (1, 10) for levels in ([0.9], LEVELS)]
    for job, calibration, levels in [*cells, ("entropy", MILLION, [0.9])]:
        libraries = ["ours", "crepes", *(["mapie"] if job == "interval" else [])]
        runs: dict[str, list[Case]] = {library: [] for library in libraries}
        for turn in range(TURNS):
            for library in libraries:
                if turn == 0 or library != "mapie":  # it takes long and is never the faster one
                    repeats = 9 // len(levels) + 1 if library != "mapie" else 3
                    what = case(library, job, calibration, 10 * MILLION, levels, repeats=repeats)
                    runs[library].append(measure(what, python[library], folder))
        rows += [best(runs[library]) for library in libraries]
    for library in ("ours", "crepes"):
        small = case(library, "p_value", 20_000, 2_000, [0.9])
        rows.append(measure(small, python[library], folder))
    for calibration in (MILLION, 10 * MILLION):
        rows.append(measure(case("ours", "p_value", calibration, MILLION, [0.9]), ours, folder))
    return rows


def figures(rows: list[Case]) -> list[common.Figure]:
    """Every comparison of speed; of memory and of differences the worst."""
    ours = [row for row in rows if row["library"] == "ours"]
    found, apart = [], dict.fromkeys(("crepes", "mapie"), 0.0)
    for row in ours:
        same = ("job", "calibration", "queries", "levels")
        rivals = [
            other for other in rows if other["library"] != "ours" and all(other[k] == row[k] for k in same)
        ]
        for rival in rivals:
            difference = np.abs(rival["answers"].reshape(row["answers"].shape) - row["answers"])
            apart[rival["library"]] = max(apart[rival["library"]], float(difference.max()))
        if rivals:
            first = min(rivals, key=lambda rival: rival["predict"])
            what = f"{row['job']}, {row['calibration']:,} scores, {row['queries']:,} queries"
            what += f", {len(row['levels'])} levels"
            ratio = first["predict"] / row["predict"]
            found.append(
                common.Figure(
                    f"{what}: times as fast", ratio, REQUIRED, at_least=True, peer=_named(first["library"])
                )
            )
    # small jobs are all start-up: there is nothing to hold
    held = max(row["peak_mb"] / row["held_mb"] for row in ours if row["held_mb"] >= 100)
    found.append(common.Figure("conformal: peak of memory over input and output", held, MEMORY))
    return found + [
        common.Figure(
            "conformal: largest difference of an end or p-value", value, ROUNDING, peer=_named(name)
        )
        for name, value in apart.items()
    ]


def _named(library: str) -> str:
    """A peer with its version, from what is installed for it."""
    return next(pin.replace("==", " ") for pin in PEERS if pin.startswith(library))


ABOUT = """# Calibrating and predicting intervals, two CPU cores

Each row is a process of its own, best of the repeats after one call; `first` is that first call, with everything it
has to load. Seconds; memory is the peak above the imports. `held` is input and output together (the calibration scores
count as output). The entropy job includes the entropy: ours in the same pass, for crepes by NumPy beforehand. crepes
and MAPIE round the ends of an interval as they come; ours are a few units in the last place wider, so that no label
falls out by rounding. `make bench-conformal`
"""


def table(rows: list[Case]) -> str:
    shown = [
        {name: row[name] for name in ("job", "library", "calibrate", "predict")}
        | {"both": row["total"], "first": row["first_call"]}
        | {name: f"{row[name]:,}" for name in ("calibration", "queries")}
        | {"levels": len(row["levels"]), "peak MB": row["peak_mb"], "held MB": row["held_mb"]}
        for row in rows
    ]
    return "\n".join([ABOUT, *common.markdown(shown), ""])


def main() -> int:
    common.parser(__doc__).parse_args()
    theirs = peers.ensure(*PEERS, folder="conformal")
    with tempfile.TemporaryDirectory() as folder:
        rows = side_by_side(theirs, Path(folder))
    runs = [{name: value for name, value in row.items() if name != "answers"} for row in rows]
    common.write("conformal", {"machine": common.machine(), "runs": runs}, table(rows))
    return common.judge("conformal", figures(rows))


if __name__ == "__main__":
    sys.exit(main())
