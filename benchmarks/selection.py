"""Choosing facts with a bound on the share of wrong ones: the share asked for, the share found, and the power.

For each data set one evidence run is fitted (open world) unless the folder `--runs` has it; its backbone is
UKGE of ten epochs. Calibration and test facts of the official split are scored once and then cut at random into halves,
one hundred times: one half calibrates, the other is chosen from by `confidence >= 0.7`. Power is the share of all
candidates with such a confidence that is chosen. It is compared with the power of `--filter "lower >= 0.7"` on the
official test facts, at the confidence level (of thirteen from 50 to 99.5 %) that keeps most of them with no larger
share of wrong ones.

In the open world half of the candidates are facts and half are uniform corruptions of facts; facts below 0.7 and
non-facts are wrong. It is calibrated with every kind of non-facts that runs have by default, and with uniform ones
alone.

Writes results/selection.md. Exits with status 1 unless each mean share of wrong ones is at most what was asked for plus
two standard errors. With `--large`, seconds and memory of `predict --select` beside plain `predict` of the same file.

    UNKGCP_DATA=... python benchmarks/selection.py --runs /tmp/selection-runs
    UNKGCP_DATA=... python benchmarks/selection.py --large 10000000 --runs /tmp/selection-runs     # speed and memory
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import common
from unkgcp.conformal.ranks import exact
from unkgcp.conformal.selection import Range, Reference, Wrong
from unkgcp.graph import concatenate, load_dataset
from unkgcp.graph.negatives import KINDS, corrupt
from unkgcp.run import Predictor, calibrate

DATA = ("cn15k", "nl27k", "ppi5k")
ASKED = (0.01, 0.02, 0.05, 0.10, 0.20)
HALVES = 100
CONDITION = Range.parse("confidence >= 0.7")
LEVELS = [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995]
NAMES = {"cn15k": "CN15k", "nl27k": "NL27k", "ppi5k": "PPI5k"}

Column = NDArray[Any]


def run_of(name: str, runs: Path) -> Path:
    folder = runs / name
    if not folder.exists():
        options = ["--method", "evidence", "--model", "ukge", "--population", "open"]
        subprocess.run(common.unkgcp("fit", name, "-o", folder, *options, "--device", "cpu"), check=True)
    return folder


def halves(
    score: Column, passes: Column, nonfacts: dict[str, Column] | None, seed: int = 0
) -> dict[str, Any]:
    """Share of wrong ones and power at each asked share, mean and standard error over random halves."""
    rng = np.random.default_rng(seed)
    wrong_share, power = np.empty((HALVES, len(ASKED))), np.empty((HALVES, len(ASKED)))
    for turn in range(HALVES):
        first = rng.permutation(len(score)) < len(score) // 2
        kinds = [Wrong(score[first & ~passes], int(first.sum()))]
        asked, good = score[~first], passes[~first]
        for kind, found in (nonfacts or {}).items():
            half = rng.permutation(len(found)) < len(found) // 2
            kinds.append(Wrong(found[half], int(half.sum())))
            if kind == "uniform":
                others = found[~half][: len(asked)]
                asked = np.concatenate([asked[: len(others)], others])
                good = np.concatenate([good[: len(others)], np.zeros(len(others), bool)])
        reference = Reference.of(kinds)
        places = reference.places(asked)
        counts = reference.count(places)
        for column, share in enumerate(ASKED):
            taken = places >= reference.cut(counts, exact(share))
            wrong_share[turn, column] = (taken & ~good).sum() / max(taken.sum(), 1)
            power[turn, column] = (taken & good).sum() / good.sum()
    error = wrong_share.std(axis=0, ddof=1) / np.sqrt(HALVES)
    return {
        "asked": ASKED,
        "wrong": wrong_share.mean(axis=0).tolist(),
        "error": error.tolist(),
        "power": power.mean(axis=0).tolist(),
    }


def filtered(predictor: Any, test: Any) -> list[dict[str, float]]:
    """Share of wrong ones among what `lower >= 0.7` keeps of the test facts, and power, at each level."""
    lower = predictor.interval(test, LEVELS).lower
    good = CONDITION.holds(test.confidence)
    rows = []
    for column, level in enumerate(LEVELS):
        kept = lower[:, column] >= 0.7
        wrong = float((kept & ~good).sum() / max(kept.sum(), 1))
        rows.append({"level": level, "wrong": wrong, "power": float((kept & good).sum() / good.sum())})
    return rows


def measure(name: str, runs: Path) -> dict[str, Any]:
    dataset = load_dataset(name)
    splits = dataset.splits
    predictor = Predictor.load(run_of(name, runs))
    world: Any = predictor.method
    base = world.base
    pool = concatenate([splits.calibration, splits.test])
    seen = predictor.model.seen_entities[pool.head] & predictor.model.seen_entities[pool.tail]
    pool = pool[seen & predictor.model.seen_relations[pool.relation]]
    passes = CONDITION.holds(pool.confidence)
    cp = calibrate(predictor.model, splits.calibration, "unkgcp")
    nonfacts = {
        kind: corrupt(pool, splits.train, seed=77 + place, kind=kind) for place, kind in enumerate(KINDS)
    }
    nonfacts = {kind: found for kind, found in nonfacts.items() if len(found)}
    record: dict[str, Any] = {"data": name, "facts": len(pool), "passing": float(passes.mean())}
    for method, asked, open_world in (("evidence", base, world), ("UKGE", cp.method, cp.method)):
        row = halves(asked.passing(pool, CONDITION), passes, None)
        row["filter"] = filtered(asked, splits.test)
        facts = open_world.passing(pool, CONDITION)
        others = {kind: open_world.passing(found, CONDITION) for kind, found in nonfacts.items()}
        row["open, every kind"] = halves(facts, passes, others)
        row["open, uniform"] = halves(facts, passes, {"uniform": others["uniform"]})
        record[method] = row
    return record


def at_the_same_share(row: dict[str, Any], place: int) -> str:
    """The filter's best power with no larger share of wrong ones than was found."""
    best = [each["power"] for each in row["filter"] if each["wrong"] <= row["wrong"][place]]
    return f"{max(best):.3f}" if best else "-"


def text(records: list[dict[str, Any]]) -> str:
    def shown(row: dict[str, Any], place: int) -> dict[str, str]:
        wrong = f"{row['wrong'][place]:.4f} ± {row['error'][place]:.4f}"
        return {"wrong among chosen": wrong, "power": f"{row['power'][place]:.3f}"}

    chosen, open_world = [], []
    for record in records:
        for method in ("evidence", "UKGE"):
            names, row = {"data": NAMES[record["data"]], "method": method}, record[method]
            for place, share in enumerate(ASKED):
                other = {"`lower >= 0.7` at that share": at_the_same_share(row, place)}
                chosen.append({**names, "asked": share, **shown(row, place), **other})
            for kinds in ("every kind", "uniform"):
                figures = shown(row[f"open, {kinds}"], ASKED.index(0.10))
                open_world.append({**names, "open world, calibrated with": kinds, "asked": 0.1, **figures})
    return "\n".join([*common.markdown(chosen), "", *common.markdown(open_world), ""])


def figures(records: list[dict[str, Any]]) -> list[common.Figure]:
    """How far the share of wrong ones lies above what was asked, in standard errors: the farthest of each run."""
    found = []
    for record in records:
        for method in ("evidence", "UKGE"):
            row = record[method]
            farthest = [
                (wrong - asked) / error
                for part in (row, row["open, every kind"], row["open, uniform"])
                for asked, wrong, error in zip(part["asked"], part["wrong"], part["error"], strict=True)
                if error  # otherwise none was wrong in any half
            ]
            what = f"selection, {record['data']}, {method}: share of wrong ones above what was asked, standard errors"
            found.append(common.Figure(what, max(farthest), 2))
    return found


# Speed and memory: `predict --select` beside plain `predict` of the same file.


def large(name: str, runs: Path, rows: int, method: str) -> dict[str, Any]:
    """Seconds and the largest memory of both commands over a Parquet file of random candidates."""
    with tempfile.TemporaryDirectory(prefix="selection-") as temporary:
        folder = Path(temporary)
        run = folder / "run"
        again = common.unkgcp("fit", name, "--from", run_of(name, runs), "-o", run, "--method", method)
        subprocess.run(again, check=True)
        train, rng = load_dataset(name).splits.train, np.random.default_rng(0)
        entities, relations = train.vocabulary.entities, train.vocabulary.relations
        schema = pa.schema([("head", pa.string()), ("relation", pa.string()), ("tail", pa.string())])
        with pq.ParquetWriter(folder / "in.parquet", schema) as writer:
            for start in range(0, rows, 1 << 20):
                part = train[rng.integers(len(train), size=min(1 << 20, rows - start))]
                tail = rng.integers(train.n_entities, size=len(part)).astype(np.int32)
                columns = ((entities, part.head), (relations, part.relation), (entities, tail))
                labels = [names.take(pa.array(ids)).cast(pa.string()) for names, ids in columns]
                writer.write_table(pa.table(labels, schema=schema))
        record: dict[str, Any] = {"data": name, "method": method, "rows": rows}
        select = ("--select", "confidence >= 0.7", "--fdr", "0.1")
        for title, more in (("predict", ()), ("select", select)):
            files = (run, folder / "in.parquet", "-o", folder / "out.parquet")
            done = common.timed(common.unkgcp("predict", *files, *more))
            record[title] = {"seconds": round(done.clock, 1), "MiB": round(done.megabytes)}
        found = pq.read_table(folder / "out.parquet", columns=["selected"])["selected"]
        record["selected"] = int(np.asarray(found).sum())
        record["ratio"] = round(record["select"]["seconds"] / record["predict"]["seconds"], 2)
    return record


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "selection-runs")
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--large", type=int, help="how many candidates to measure speed and memory with")
    parser.add_argument("--method", default="unkgcp", help="of the run for --large")
    options = parser.parse_args()
    if options.large:
        record = large(options.data[0], options.runs, options.large, options.method)
        print(json.dumps(record))
        name = f"selection-large-{options.method}"
        common.write(name, {"machine": common.machine(), **record})
        what = f"selection from {record['rows']:,} candidates of {record['data']}, {options.method}"
        limits = [
            common.Figure(f"{what}: times plain predict", record["ratio"], 2.2, peer="predict"),
            common.Figure(f"{what}: MiB at the peak", record["select"]["MiB"], 1536),
        ]
        return common.judge(name, limits)
    records = [measure(name, options.runs) for name in options.data]
    common.write("selection", {"machine": common.machine(), "measured": records}, text(records))
    return common.judge("selection", figures(records))


if __name__ == "__main__":
    sys.exit(main())
