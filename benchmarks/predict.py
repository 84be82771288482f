"""Answering ten million queries: `unkgcp predict` beside bare pyarrow, in the same run, on two CPU cores.

Queries are triples of labels in a Parquet file, written as pyarrow writes it by default; answers are Parquet with
`unkgcp` intervals at one level. Ours is timed as a user meets it, as a whole process from start to end; bare pyarrow
only reads the queries and writes a table of the same columns (with answers that lie ready in memory) with the same
writer options, without its start: once as one table and once row group by row group, and the faster one counts. They
take turns. Checks: at most 3 times bare pyarrow; memory under 1.5 GiB; 4 times the rows take no more than 4 times as
long plus 15 %, in the same memory; 500,000 entities take at most 1.5 times as long as 5,000; loading a run with
500,000 entities of 128 numbers takes less than a second. Writes results/predict.json and results/predict.md, and
exits with status 1 when a target is missed.

The run is UKGE with 128 dimensions on NL27k (vocabulary, relations and calibration facts from $UNKGCP_DATA; trained
for three epochs, which is all the same to the clock), or of its size with random weights where the data are absent;
the two runs of other sizes have random weights.

    make bench-predict
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

ROWS = int(os.environ.get("ROWS", 10_000_000))
TURNS = 5
TIMES, MEMORY, LINEAR, SIZE, LOAD = 3.0, 1536, 1.15, 1.5, 1.0
DIMENSION = 128
BLOCK = 1 << 20


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="unkgcp-bench-") as name:
        folder = Path(os.environ.get("BENCH_DIR", name))  # a folder of one's own keeps what is made for it
        own = prepare(folder)
        return 0 if "PREPARE" in os.environ else compare(folder, own)


def prepare(folder: Path) -> str:
    """Make runs and queries; says what the first run is."""
    note = folder / "made.txt"
    if note.exists():
        return note.read_text()
    own = make_run(folder / "nl27k", None)
    for size in (5_000, 500_000):
        make_run(folder / str(size), size)
    for run, rows in (("nl27k", ROWS), ("nl27k", 4 * ROWS), ("5000", ROWS), ("500000", ROWS)):
        make_queries(folder / run, rows)
    note.write_text(own)
    return own


def compare(folder: Path, own: str) -> int:
    answer(folder, "nl27k", 1000)  # compiles what is compiled once
    ours, bare = [], []
    for _ in range(TURNS):
        ours.append(answer(folder, "nl27k", ROWS))
        bare.append(
            measure("bare", str(folder / "nl27k" / f"{ROWS}.parquet"), str(folder / "answers.parquet"))
        )
    sizes: dict[str, list[dict[str, Any]]] = {"5000": [], "500000": []}
    for _ in range(TURNS):
        for size, runs in sizes.items():
            runs.append(answer(folder, size, ROWS))
    long = answer(folder, "nl27k", 4 * ROWS)
    load = [measure("load", str(folder / "500000")) for _ in range(TURNS)]
    return report(own, ours, bare, sizes, long, load)


def make_run(folder: Path, entities: int | None) -> str:
    """A calibrated run; says what it is."""
    import unkgcp
    from unkgcp.graph import Graph, Vocabulary
    from unkgcp.training import Model, TrainConfig, distmult_scores

    if entities is None and "UNKGCP_DATA" in os.environ:
        splits = unkgcp.load_dataset("nl27k").splits
        config = TrainConfig(dimension=DIMENSION, epochs=3, validate_every=3, batch_size=2048)
        model = unkgcp.train(splits.train, "ukge", seed=0, config=config, device="cpu")
        unkgcp.calibrate(model, splits.calibration).save(folder)
        return "NL27k, three epochs"
    entities, relations = entities or 27_221, 404
    rng = np.random.default_rng(0)
    shapes = distmult_scores.table_shapes(entities, relations, DIMENSION)
    tables = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    tables["w"][:], tables["b"][:] = 3, 0
    vocabulary = Vocabulary.of(
        [f"concept:entity_{place:06d}" for place in range(entities)],
        [f"concept:relation{place}" for place in range(relations)],
    )
    seen = [np.ones(size, np.bool_) for size in (entities, relations)]
    model = Model(tables, vocabulary, TrainConfig(dimension=DIMENSION), 0, *seen)
    n = 12_000
    ids = [rng.integers(0, size, n).astype(np.int32) for size in (entities, relations, entities)]
    unkgcp.calibrate(model, Graph(*ids, rng.random(n), vocabulary)).save(folder)
    return "random weights"


def make_queries(run: Path, rows: int) -> None:
    """Triples of labels of a run, uniformly drawn; a small file of the same kind too."""
    from unkgcp.run.predictor import Predictor

    vocabulary = Predictor.load(run).model.vocabulary
    rng = np.random.default_rng(rows)
    for count in (1000, rows):
        with pq.ParquetWriter(
            run / f"{count}.parquet", pa.schema([(c, pa.string()) for c in LABELS])
        ) as writer:
            for start in range(0, count, BLOCK):
                n = min(BLOCK, count - start)
                columns = [
                    labels.take(pa.array(rng.integers(0, len(labels), n)))
                    for labels in (vocabulary.entities, vocabulary.relations, vocabulary.entities)
                ]
                writer.write_table(pa.table(columns, names=LABELS))


LABELS = ["head", "relation", "tail"]


def answer(folder: Path, run: str, rows: int) -> dict[str, Any]:
    """One whole process of `unkgcp predict`."""
    queries, answers = folder / run / f"{rows}.parquet", folder / "answers.parquet"
    return measure("ours", str(folder / run), str(queries), str(answers))


def measure(what: str, *arguments: str) -> dict[str, Any]:
    """Time a process of its own; adds its highest memory."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, what, *arguments], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = {"seconds": seconds} | json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{what:>5} {figures['seconds']:7.2f} s  {figures['mb']:5} MB  {arguments[0]}",
        file=sys.stderr,
        flush=True,
    )
    return figures


def ours(run: str, queries: str, answers: str) -> dict[str, Any]:
    from unkgcp.cli import main as command

    try:
        command(["predict", run, queries, "-o", answers])
    except SystemExit as ended:
        if ended.code != 0:
            raise
    return {}


def bare(queries: str, answers: str) -> dict[str, Any]:
    """Read the queries and write them with the answers of `answers`, which are in memory before the clock starts."""
    from unkgcp.tabular.writer import parquet_options

    ready = pq.read_table(answers, columns=["score", "lower", "upper", "status"])
    ready = ready.set_column(3, "status", ready["status"].combine_chunks())
    target = answers + ".bare"
    seconds = {}
    start = time.perf_counter()
    whole = pq.read_table(queries)
    for name in ready.schema.names:
        whole = whole.append_column(name, ready[name])
    options = parquet_options(whole.schema)
    pq.write_table(whole, target, row_group_size=BLOCK, **options)
    seconds["table"] = time.perf_counter() - start
    del whole
    start, row = time.perf_counter(), 0
    with (
        pq.ParquetFile(queries) as file,
        pq.ParquetWriter(target, pa.schema([*file.schema_arrow, *ready.schema]), **options) as writer,
    ):
        for place in range(file.num_row_groups):
            part = file.read_row_group(place)
            for name in ready.schema.names:
                part = part.append_column(name, ready[name].slice(row, len(part)))
            writer.write_table(part, row_group_size=BLOCK)
            row += len(part)
    seconds["groups"] = time.perf_counter() - start
    os.remove(target)
    return {"seconds": min(seconds.values()), **seconds}


def load(run: str) -> dict[str, Any]:
    from unkgcp.run.predictor import Predictor

    start = time.perf_counter()
    Predictor.load(run)
    return {"seconds": time.perf_counter() - start}


def report(
    own: str,
    ours: list[dict[str, Any]],
    bare: list[dict[str, Any]],
    sizes: dict[str, list[dict[str, Any]]],
    long: dict[str, Any],
    load: list[dict[str, Any]],
) -> int:
    def best(runs: list[dict[str, Any]]) -> float:
        return min(run["seconds"] for run in runs)

    mine, theirs = best(ours), best(bare)
    small, large = (best(runs) for runs in sizes.values())
    highest = max(run["mb"] for run in [*ours, long, *sizes["500000"]])
    checks = [
        ("times bare pyarrow", mine / theirs, TIMES),
        ("highest memory, MB", highest, MEMORY),
        ("time of 4 times the rows over 4 times the time", long["seconds"] / (4 * mine), LINEAR),
        (
            "memory of 4 times the rows over that of the rows",
            long["mb"] / max(run["mb"] for run in ours),
            1.1,
        ),
        ("time with 500,000 entities over that with 5,000", large / small, SIZE),
        ("seconds to load 500,000 entities", best(load), LOAD),
    ]
    machine = common.machine() | {"pyarrow": pa.__version__}
    runs = {"ours": ours, "bare": bare, "four times": [long], **sizes, "load": load}
    result = {
        "machine": machine,
        "run": own,
        "rows": ROWS,
        "checks": [
            {"what": what, "value": value, "limit": limit, "holds": value <= limit}
            for what, value, limit in checks
        ],
        "runs": runs,
    }
    common.write("predict", result, table(result))
    return 0 if all(check["holds"] for check in result["checks"]) else 1


def table(result: dict[str, Any]) -> str:
    rows, machine = result["rows"], result["machine"]
    lines = [
        f"`make bench-predict`: {rows:,} queries, UKGE d = {DIMENSION}, {result['run']}, {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}, pyarrow {machine['pyarrow']}; fastest of the turns",
        "",
        "| | seconds | highest memory, MB |",
        "|---|---|---|",
    ]
    names = {
        "ours": "`unkgcp predict`, whole process",
        "bare": "bare pyarrow, reading and writing only",
        "four times": f"`unkgcp predict`, {4 * rows:,} queries",
        "5000": "`unkgcp predict`, 5,000 entities",
        "500000": "`unkgcp predict`, 500,000 entities",
        "load": "`Predictor.load`, 500,000 entities",
    }
    for name, title in names.items():
        runs = result["runs"][name]
        seconds = min(run["seconds"] for run in runs)
        lines.append(f"| {title} | {seconds:.2f} | {max(run['mb'] for run in runs)} |")
    lines += ["", "| check | value | at most | |", "|---|---|---|---|"]
    for check in result["checks"]:
        mark = "ok" if check["holds"] else "MISSED"
        lines.append(f"| {check['what']} | {check['value']:.3g} | {check['limit']:g} | {mark} |")
    return "\n".join([*lines, ""])


def _highest_memory() -> int:
    """In MB, of this process alone: what `getrusage` says includes the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        found = {"ours": ours, "bare": bare, "load": load}[sys.argv[1]](*sys.argv[2:])
        used = resource.getrusage(resource.RUSAGE_SELF)
        found |= {"mb": _highest_memory(), "cpu": round(used.ru_utime + used.ru_stime, 2)}
        print(json.dumps(found))
        sys.exit(0)
    sys.exit(main())
