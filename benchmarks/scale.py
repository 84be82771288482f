"""How time and memory of `unkgcp predict` grow: with the rows, with the entities, and on Ray, on two CPU cores.

Everything is made here: UKGE runs of dimension 128 with random parameters (speed does not depend on their values)
and Parquet files of queries with string labels drawn uniformly. Each measurement is the whole command in a process
of its own, from start to exit, Parquet to Parquet, UnKGCP intervals at 90 %. Memory is the sum over the process and
all it started of their proportional set size, looked at five times a second in a run that is not timed (looking
costs time); for Ray that includes Ray's own processes, and time includes starting and stopping the cluster on this
machine.

Writes results/scale.json and results/scale.md. Parts can be run one at a time, results are kept:

    make bench-scale        or        python benchmarks/scale.py [rows] [one] [two] [entities] [--folder DIR]

(`one` and `two` are Ray with so many workers; DIR keeps what is made for the next part.)
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

ROWS = (100_000, 1_000_000, 10_000_000, 40_000_000)
ENTITIES = (1_000, 10_000, 100_000, 1_000_000)
GRAPH = 27_221  # entities of NL27k, for the measurements over rows
RELATIONS, DIMENSION, CALIBRATION = 404, 128, 10_000
QUERIES = 1_000_000  # for the measurements over entities


def make_run(folder: Path, entities: int) -> Path:
    """A run with random parameters, calibrated on random facts."""
    import numpy as np

    from unkgcp.graph import Graph, Vocabulary
    from unkgcp.run import calibrate
    from unkgcp.training import Model, TrainConfig

    run = folder / f"run-{entities}"
    if run.exists():
        return run
    random = np.random.default_rng(0)
    names = Vocabulary.of(
        [f"concept:person:name_{n}" for n in range(entities)],
        [f"concept:relation_{n}" for n in range(RELATIONS)],
    )
    tables = {
        "entity": random.normal(0, 0.3, (entities, DIMENSION)).astype(np.float32),
        "relation": random.normal(0, 0.3, (RELATIONS, DIMENSION)).astype(np.float32),
        "w": np.ones((1, 1), np.float32),
        "b": np.zeros((1, 1), np.float32),
    }
    everything = np.ones(entities, bool), np.ones(RELATIONS, bool)
    config = TrainConfig("ukge", dimension=DIMENSION)
    model = Model.from_tensors(tables, names, config, 0, *everything)
    ends = random.integers(0, entities, (2, CALIBRATION), dtype=np.int32)
    relation = random.integers(0, RELATIONS, CALIBRATION, dtype=np.int32)
    facts = Graph(ends[0], relation, ends[1], random.random(CALIBRATION), names)
    calibrate(model, facts, "unkgcp").save(run)
    return run


def make_queries(folder: Path, entities: int, rows: int) -> Path:
    """Labels drawn uniformly, a million rows at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"queries-{entities}-{rows}.parquet"
    if path.exists():
        return path
    random = np.random.default_rng(1)
    people = pa.array([f"concept:person:name_{n}" for n in range(entities)])
    relations = pa.array([f"concept:relation_{n}" for n in range(RELATIONS)])
    schema = pa.schema([(name, pa.string()) for name in ("head", "relation", "tail")])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, 1_000_000):
            n = min(1_000_000, rows - first)
            columns = [
                people.take(random.integers(0, entities, n)),
                relations.take(random.integers(0, RELATIONS, n)),
                people.take(random.integers(0, entities, n)),
            ]
            writer.write_table(pa.table(columns, schema=schema))
    return path


class Watch(threading.Thread):
    """The peak of the memory of a process and its descendants together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.process, self.peak, self.over = 0, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.peak = max(self.peak, sum(map(_memory, _descendants(self.process))))


def _descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found


def _memory(process: int) -> int:
    """Proportional set size in bytes: pages that several processes share are counted once."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("Pss:")))
    except (OSError, StopIteration):
        return 0


def measure(run: Path, queries: Path, target: Path, *options: str, rounds: int = 1) -> dict[str, float]:
    """One command: seconds, the best of some rounds, and peak bytes, looked for in a round of its own."""
    command = [sys.executable, "-m", "unkgcp", "predict", str(run), str(queries), "-o", str(target), *options]
    taken = [_run(command, target, None) for _ in range(rounds)]
    watch = Watch()
    _run(command, target, watch)
    return {"seconds": round(min(taken), 3), "peak_bytes": watch.peak}


def _run(command: list[str], target: Path, watch: Watch | None) -> float:
    if target.is_dir():
        shutil.rmtree(target)
    start = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    if watch is not None:
        watch.process = process.pid
        watch.start()
    _, errors = process.communicate()
    seconds = time.perf_counter() - start
    if watch is not None:
        watch.over.set()
        watch.join()
    if process.returncode:
        raise SystemExit(errors)
    return seconds


def rows(folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    run, found = make_run(folder, GRAPH), []
    for count in counts:
        queries = make_queries(folder, GRAPH, count)
        target = folder / "answers.parquet"
        found.append({"rows": count, **measure(run, queries, target, rounds=3 if count < 10_000_000 else 2)})
        found[-1] |= {"input_bytes": queries.stat().st_size, "output_bytes": target.stat().st_size}
        print(found[-1], file=sys.stderr)
    return found


def on_ray(folder: Path, counts: list[int], workers: int) -> list[dict[str, Any]]:
    run, found = make_run(folder, GRAPH), []
    for count in counts:
        queries, target = make_queries(folder, GRAPH, count), folder / "answers"
        options = ("--engine", "ray", "--workers", str(workers))
        found.append({"rows": count, "workers": workers, **measure(run, queries, target, *options)})
        found[-1]["parts"] = len(list(target.iterdir()))
        print(found[-1], file=sys.stderr)
    return found


def entities(folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    found = []
    for count in ENTITIES:
        run = make_run(folder, count)
        queries = make_queries(folder, count, QUERIES)
        found.append({"entities": count, **measure(run, queries, folder / "answers.parquet", rounds=2)})
        found[-1]["run_bytes"] = sum(file.stat().st_size for file in run.iterdir())
        load = "import sys, time; from unkgcp import Predictor; s = time.perf_counter(); \
Predictor.load(sys.argv[1]); print(time.perf_counter() - s)"
        loaded = subprocess.run(
            [sys.executable, "-c", load, str(run)], capture_output=True, text=True, check=True
        )
        found[-1]["load_seconds"] = round(float(loaded.stdout), 3)
        print(found[-1], file=sys.stderr)
    return found


def table(result: dict[str, Any]) -> str:
    machine = result["machine"]
    lines = [
        "# How `unkgcp predict` grows",
        "",
        f"UKGE, dimension {DIMENSION}, random parameters, {RELATIONS} relations; Parquet with string labels in,",
        f"Parquet out, UnKGCP intervals at 90 %; whole commands, {machine['cores']} cores ({machine['processor']}),",
        f"Python {machine['python']}. `make bench-scale`",
        "",
    ]
    local = {each["rows"]: each for each in result.get("rows", [])}
    if local:
        lines += [
            f"## Rows ({GRAPH:,} entities)",
            "",
            "| rows | engine | seconds | rows a second | peak memory, MiB |",
            "|---|---|---|---|---|",
        ]
        runs = [{"engine": "local", **each} for each in local.values()]
        for each in result.get("one", []) + result.get("two", []):
            many = "s" if each["workers"] > 1 else ""
            runs.append({"engine": f"ray, {each['workers']} worker{many}, folder out", **each})
        for each in sorted(runs, key=lambda each: each["rows"]):
            rate = each["rows"] / each["seconds"]
            lines.append(
                f"| {each['rows']:,} | {each['engine']} | {each['seconds']:.1f} | {rate:,.0f} "
                f"| {each['peak_bytes'] / 2**20:,.0f} |"
            )
        lines.append("")
    if result.get("entities"):
        lines += [
            f"## Entities ({QUERIES:,} rows, local)",
            "",
            "| entities | seconds | peak memory, MiB | the run on disk, MiB | loading it, seconds |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {each['entities']:,} | {each['seconds']:.1f} | {each['peak_bytes'] / 2**20:,.0f} "
            f"| {each['run_bytes'] / 2**20:,.1f} | {each['load_seconds']:.2f} |"
            for each in result["entities"]
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parts = {
        "rows": rows,
        "one": partial(on_ray, workers=1),
        "two": partial(on_ray, workers=2),
        "entities": entities,
    }
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART", help=", ".join(parts))
    parser.add_argument("--folder", type=Path, help="where to keep runs and queries")
    parser.add_argument(
        "--rows", type=int, nargs="*", default=list(ROWS), help="how many rows, for all but entities"
    )
    asked = parser.parse_args()
    path = common.RESULTS / "scale.json"
    result = json.loads(path.read_text()) if asked.parts and path.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in asked.parts or parts:
            measured = parts[name](folder, asked.rows)
            kept = [
                each for each in result.get(name, []) if "rows" in each and each["rows"] not in asked.rows
            ]
            result[name] = kept + measured
    result["machine"] = common.machine()
    common.RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    text = table(result)
    (common.RESULTS / "scale.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
