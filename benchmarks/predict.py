"""Answering queries: beside bare pyarrow, as files and graphs grow, and call by call; on two CPU cores.

    make bench-predict                                       the part `compare`
    python benchmarks/predict.py PART ... [--folder DIR]     other parts; results of parts that are not run are kept

compare: ten million queries, `unkgcp predict` beside bare pyarrow, in the same run. Queries are triples of labels in
    a Parquet file, written as pyarrow writes it by default; answers are Parquet with `unkgcp` intervals at one level.
    Ours is timed as a whole process from start to end, as a user waits for it. Bare pyarrow, without its start, only
    reads the queries and writes a table of the same columns (with answers that are in memory already) with the same
    writer options, once as one table and once row group by row group; the faster one counts. They take turns. Checks:
    at most 3 times bare pyarrow; memory under 1.5 GiB; 4 times the rows take no more than 4 times as long plus 15 %,
    in the same memory; 500,000 entities take at most 1.5 times as long as 5,000 (whose labels make a far smaller
    file), and at most 3 times as long as bare pyarrow does with the same file; loading a run with 500,000 entities
    of 128 numbers takes less than a second. The run is UKGE with 128 dimensions on NL27k (vocabulary, relations and
    calibration facts from $UNKGCP_DATA; trained for three epochs, which does not affect the time), or of its size
    with random weights where the data are absent; the two runs of other sizes have random weights.
grow: time and memory of whole commands as rows and entities grow, and on Ray with two workers, whose own processes are
    in the time (the cluster is started and stopped) but not in the memory.
calls: is the time of a call of `interval` (status of the entities, score, both ends at 90 %) linear in the queries and
    independent of the graph? Queries: 1e4 to 1e7 on a graph of 1e5 entities, on one core: large calls use two, small
    ones do not, which would look like growth below linear. Entities: 1e3 to 1e6, 1e6 queries each, on two cores, in
    turns. The runs are read from disk, as `predict` and `serve` have them. Scoring on a large graph waits for rows that
    are in no cache. So two figures are required: all but scoring takes at most half as long again on one graph as on
    another, and the whole call on the largest graph takes no longer than fetching the same rows with bare NumPy, on two
    cores too and in pieces that stay in the cache.

Runs with random weights are calibrated on random facts: speed does not depend on what was learned. Writes
results/predict.json and results/predict.md, and exits with status 1 when a target of `compare` or `calls` is missed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

Result = dict[str, Any]
LABELS = ["head", "relation", "tail"]
NL27K, RELATIONS, DIMENSION, CALIBRATION = 27_221, 404, 128, 12_000
BLOCK = 1 << 20


def main() -> int:
    parts: dict[str, Callable[[Path, int], Any]] = {"compare": compare, "grow": grow, "calls": calls}
    parser = common.parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART", help=", ".join(parts))
    parser.add_argument("--folder", type=Path, help="where to keep runs and queries for the next time")
    parser.add_argument("--compared", type=int, default=10_000_000, help="the largest number of queries")
    parser.add_argument(
        "--scaling", type=Path, help="where to write calls too: scaling.json of a reproduction"
    )
    asked = parser.parse_args()
    path = common.RESULTS / "predict.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="unkgcp-bench-") as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in asked.parts or ["compare"]:
            measured = result[name] = parts[name](folder, asked.compared)
            if name == "calls" and asked.scaling:
                asked.scaling.write_text(json.dumps(measured, indent=1) + "\n")
    common.write("predict", result, table(result))
    return common.judge("predict", figures(result))


# Runs and queries.


def random_predictor(entities: int, relations: int = RELATIONS, dimension: int = DIMENSION) -> Any:
    """UnKGCP over a UKGE model with random tables, calibrated on random facts."""
    from unkgcp.graph import Graph, Vocabulary
    from unkgcp.run import calibrate
    from unkgcp.training import Model, TrainConfig

    rng = np.random.default_rng(0)
    tables = {
        "entity": rng.normal(0, 0.3, (entities, dimension)).astype(np.float32),
        "relation": rng.normal(0, 0.3, (relations, dimension)).astype(np.float32),
        "w": np.ones((1, 1), np.float32),
        "b": np.zeros((1, 1), np.float32),
    }
    vocabulary = Vocabulary.of(
        [f"concept:entity_{place:07d}" for place in range(entities)],
        [f"concept:relation{place}" for place in range(relations)],
    )
    seen = np.ones(entities, np.bool_), np.ones(relations, np.bool_)
    model = Model.from_tensors(tables, vocabulary, TrainConfig("ukge", dimension=dimension), 0, *seen)
    facts = Graph(*ids(rng, entities, relations, CALIBRATION), rng.random(CALIBRATION), vocabulary)
    return calibrate(model, facts, "unkgcp")


def ids(rng: np.random.Generator, entities: int, relations: int, n: int) -> list[Any]:
    """Random triples: head, relation, tail."""
    return [rng.integers(size, size=n, dtype=np.int32) for size in (entities, relations, entities)]


def random_run(folder: Path, entities: int, relations: int = RELATIONS, dimension: int = DIMENSION) -> Path:
    run = folder / f"run-{entities}-{relations}-{dimension}"
    if not run.exists():
        random_predictor(entities, relations, dimension).save(run)
    return run


def nl27k_run(folder: Path) -> tuple[Path, str]:
    """A run on NL27k where the data are, else one of its size; and which of the two."""
    if "UNKGCP_DATA" not in os.environ:
        return random_run(folder, NL27K), "random weights"
    run = folder / "run-nl27k"
    if not run.exists():
        import unkgcp
        from unkgcp.training import TrainConfig

        splits = unkgcp.read("nl27k").splits
        config = TrainConfig(dimension=DIMENSION, epochs=3, validate_every=3, batch_size=2048)
        model = unkgcp.train(splits.train, "ukge", seed=0, config=config, device="cpu")
        unkgcp.calibrate(model, splits.calibration).save(run)
    return run, "NL27k, three epochs"


def make_queries(run: Path, rows: int) -> Path:
    """Labels of a run, uniformly drawn, as strings in a Parquet file beside it."""
    from unkgcp.run import Predictor

    path = run.parent / f"{run.name}-{rows}.parquet"
    if path.exists():
        return path
    vocabulary = Predictor.load(run).model.vocabulary
    rng = np.random.default_rng(rows)
    with pq.ParquetWriter(path, pa.schema([(name, pa.string()) for name in LABELS])) as writer:
        for start in range(0, rows, BLOCK):
            columns = [
                labels.take(pa.array(rng.integers(0, len(labels), min(BLOCK, rows - start))))
                for labels in (vocabulary.entities, vocabulary.relations, vocabulary.entities)
            ]
            writer.write_table(pa.table(columns, names=LABELS))
    return path


# compare: beside bare pyarrow.

TURNS = 5
TIMES, MEMORY, LINEAR, SAME_MEMORY, SIZE, LOAD = 3.0, 1536, 1.15, 1.1, 1.5, 1.0


def compare(folder: Path, rows: int) -> Result:
    answers = str(folder / "answers.parquet")
    run, own = nl27k_run(folder)
    small, large = random_run(folder, 5_000), random_run(folder, 500_000)

    def answer(which: Path, count: int) -> Result:
        return child("ours", str(which), str(make_queries(which, count)), answers)

    for which in (run, small, large):
        make_queries(which, rows)
    queries = str(make_queries(run, rows))
    answer(run, 1000)  # compiles what is compiled once
    runs: dict[str, list[Result]] = {
        name: [] for name in ("ours", "bare", "four times", "5000", "500000", "bare, 500000", "load")
    }
    for _ in range(TURNS):
        runs["ours"].append(answer(run, rows))
        runs["bare"].append(child("bare", queries, answers))
    for _ in range(TURNS):
        runs["5000"].append(answer(small, rows))
        runs["500000"].append(answer(large, rows))
        runs["bare, 500000"].append(child("bare", str(make_queries(large, rows)), answers))
    runs["four times"].append(answer(run, 4 * rows))
    runs["load"] = [child("load", str(large)) for _ in range(TURNS)]
    best = {name: min(each["seconds"] for each in found) for name, found in runs.items()}
    highest = {name: max(each["mb"] for each in found) for name, found in runs.items()}
    checks = [
        ("times bare pyarrow", best["ours"] / best["bare"], TIMES),
        ("highest memory, MB", max(highest[name] for name in ("ours", "four times", "500000")), MEMORY),
        ("time of 4 times the rows over 4 times the time", best["four times"] / (4 * best["ours"]), LINEAR),
        (
            "memory of 4 times the rows over that of the rows",
            highest["four times"] / highest["ours"],
            SAME_MEMORY,
        ),
        ("time with 500,000 entities over that with 5,000", best["500000"] / best["5000"], SIZE),
        ("500,000 entities, times bare pyarrow", best["500000"] / best["bare, 500000"], TIMES),
        ("seconds to load 500,000 entities", best["load"], LOAD),
    ]
    return {
        "machine": common.machine() | {"pyarrow": pa.__version__},
        "run": own,
        "rows": rows,
        "checks": [{"what": what, "value": value, "limit": limit} for what, value, limit in checks],
        "runs": runs,
    }


def child(what: str, *arguments: str) -> Result:
    """Time a process of its own; adds its highest memory."""
    start = time.perf_counter()
    command = [sys.executable, __file__, f"--child-{what}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-2000:]}")
    figures: Result = {"seconds": seconds} | json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{what:>5} {figures['seconds']:7.2f} s  {figures['mb']:5} MB  {arguments[0]}",
        file=sys.stderr,
        flush=True,
    )
    return figures


def ours(run: str, queries: str, answers: str) -> Result:
    from unkgcp.cli import main as command

    try:
        command(["predict", run, queries, "-o", answers])
    except SystemExit as ended:
        if ended.code != 0:
            raise
    return {}


def bare(queries: str, answers: str) -> Result:
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


def load(run: str) -> Result:
    from unkgcp.run import Predictor

    start = time.perf_counter()
    Predictor.load(run)
    return {"seconds": time.perf_counter() - start}


# grow: how whole commands grow.

ROWS = (100_000, 1_000_000, 10_000_000)
QUERIES = 1_000_000  # as entities grow


def grow(folder: Path, rows: int) -> list[Result]:
    """Of random runs; `rows` is the largest number of queries."""
    counts, workers = [count for count in ROWS if count <= rows], folder / "workers.yaml"
    workers.write_text("workers: 2\n")
    cases = [(NL27K, count, engine) for engine in ("local", "ray") for count in counts]
    cases += [(size, min(QUERIES, rows), "local") for size in ENTITIES]
    found = []
    for size, count, engine in cases:
        run, target = random_run(folder, size), folder / f"answers-{size}-{count}-{engine}"
        options = ["--engine", "ray", "--config", workers] if engine == "ray" else []
        target = target if options else target.with_suffix(".parquet")
        command = common.unkgcp("predict", run, make_queries(run, count), "-o", target, *options)
        took = common.timed(command)
        found.append(
            {
                "entities": size,
                "rows": count,
                "engine": engine,
                "seconds": round(took.clock, 2),
                "megabytes": round(took.megabytes),
                "run_megabytes": round(sum(file.stat().st_size for file in run.iterdir()) / 2**20, 1),
            }
        )
        print(found[-1], file=sys.stderr, flush=True)
    return found


# calls: one call of `interval`.

ENTITIES = (1_000, 10_000, 100_000, 1_000_000)
CALLS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
# holds: time grows with the number of queries to a power this close to 1, a straight line explains this share of it,
# it grows by no more than this factor from the smallest to the largest graph; REST, FETCHING: required, as said above
POWER, STRAIGHT, FACTOR, REST, FETCHING = 0.1, 0.99, 2.0, 1.5, 1.0
CALL_DIMENSION, CALL_RELATIONS, CALL_TURNS = 64, 20, 31


def calls(folder: Path, rows: int) -> Result:
    """Of `interval`, with at most so many queries."""
    from unkgcp.run import Predictor

    queries, at = [count for count in CALLS if count <= rows], min(QUERIES, rows)
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def use_cores(count: int) -> None:
        if available:
            os.sched_setaffinity(0, available[:count])

    def method(size: int) -> Any:
        return Predictor.load(random_run(folder, size, CALL_RELATIONS, CALL_DIMENSION)).method

    use_cores(1)
    asked = method(100_000)
    seconds(asked, 100_000, queries[-1], 1)  # whatever is loaded or compiled once
    by_queries = [
        {"queries": n, "seconds": seconds(asked, 100_000, n, 21 if n <= 1_000_000 else 5)} for n in queries
    ]
    x, y = [float(row["queries"]) for row in by_queries], [row["seconds"] for row in by_queries]
    slope, r2 = line(x, y)
    exponent, log_r2 = line(np.log10(x), np.log10(y))
    use_cores(2)
    graphs = {n: method(n) for n in ENTITIES}
    best = {n: dict.fromkeys(("whole", "scoring", "fetching"), math.inf) for n in ENTITIES}
    for turn in range(CALL_TURNS + 1):
        for n, asked in graphs.items():
            if turn == 0:
                seconds(asked, n, at, 1)
                continue
            for part, found in best[n].items():
                best[n][part] = min(found, seconds(asked, n, at, 1, part))
    by_entities = [
        {"entities": n, "seconds": each["whole"], **each, "intervals": each["whole"] - each["scoring"]}
        for n, each in best.items()
    ]
    times, rest = ([row[part] for row in by_entities] for part in ("seconds", "intervals"))
    power, _ = line(np.log10(ENTITIES), np.log10(times))
    factor = max(times) / min(times)
    linear, flat = bool(abs(exponent - 1) <= POWER and r2 >= STRAIGHT), factor <= FACTOR
    found = {
        "holds": linear and flat,
        "result": "",
        "queries": by_queries,
        "linear": {
            "seconds_a_query": slope,
            "r2": r2,
            "exponent": exponent,
            "exponent_r2": log_r2,
            "holds": linear,
        },
        "entities": by_entities,
        "independent": {
            "queries": at,
            "factor": factor,
            "exponent": power,
            "holds": flat,
            "rest": max(rest) / min(rest),
            "beside_fetching": by_entities[-1]["whole"] / by_entities[-1]["fetching"],
        },
        "method": "unkgcp",
        "model": f"ukge, d = {CALL_DIMENSION}",
        "machine": f"{platform.machine()}, one core by queries, two by entities, Python {platform.python_version()}",
    }
    return found | {"result": sentence(found)}


def seconds(method: Any, entities: int, n: int, repeats: int, part: str = "whole") -> float:
    """The fastest of some calls with n queries, or of the part of it that looks into the tables, or of bare NumPy."""
    from unkgcp.graph.facts import Triples

    queries = Triples(*ids(np.random.default_rng(1), entities, CALL_RELATIONS, n))
    parts: dict[str, Callable[[], Any]] = {
        "whole": lambda: method.interval(queries, 0.9),
        "scoring": lambda: method.model.score(*queries),
        "fetching": lambda: fetch(method.model.tables["entity"], queries),
    }
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        parts[part]()
        best = min(best, time.perf_counter() - start)
    return best


def fetch(table: Any, queries: Any) -> None:
    """The rows of heads and tails, by NumPy, into memory that is in the cache."""
    from unkgcp.loops import run_chunks

    def work(start: int, stop: int) -> None:
        for ids in (queries.head[start:stop], queries.tail[start:stop]):
            table.take(ids, 0)

    run_chunks(len(queries.head), work, 1024)


def line(x: Any, y: Any) -> tuple[float, float]:
    """Slope and R2 of the least-squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = np.array(y) - (slope * np.array(x) + intercept)
    return float(slope), float(1 - (rest @ rest) / np.sum((np.array(y) - np.mean(y)) ** 2))


def sentence(found: Result) -> str:
    """The figures in words."""
    sizes, graphs, linear = found["queries"], found["entities"], found["linear"]
    first, last = (1e9 * row["seconds"] / row["queries"] for row in (sizes[0], sizes[-1]))
    parts = {part: f"{graphs[0][part]:.3f} to {graphs[-1][part]:.3f} s" for part in ("scoring", "intervals")}
    return (
        f"from {sizes[0]['queries']:,} to {sizes[-1]['queries']:,} queries time grows with the power "
        f"{linear['exponent']:.2f} (R2 {linear['exponent_r2']:.4f}): a query takes {first:.0f} ns in the smallest and "
        f"{last:.0f} ns in the largest call, and a straight line fits with R2 {linear['r2']:.4f}; "
        f"{found['independent']['queries']:,} queries take "
        + ", ".join(f"{row['seconds']:.2f} s with {row['entities']:,}" for row in graphs)
        + f" entities, a factor of {found['independent']['factor']:.2f} between fastest and slowest (scoring, which "
        f"looks up rows of larger tables: {parts['scoring']}; all else: {parts['intervals']}, a factor of "
        f"{found['independent']['rest']:.2f}); on the largest graph the call takes "
        f"{found['independent']['beside_fetching']:.2f} of the time in which NumPy fetches its rows"
    )


# What all of it comes to.


def figures(result: Result) -> list[common.Figure]:
    """Of all parts that were ever measured here, each as it was last."""
    found = []
    if compared := result.get("compare"):
        peer = f"pyarrow {compared['machine']['pyarrow']}"
        for check in compared["checks"]:
            beside = peer if "pyarrow" in check["what"] else ""
            what = f"predict, {compared['rows']:,} queries: {check['what']}"
            found.append(common.Figure(what, check["value"], check["limit"], peer=beside))
    if called := result.get("calls"):
        power, factor = abs(called["linear"]["exponent"] - 1), called["independent"]["rest"]
        found.append(
            common.Figure("interval: time grows with the queries to the power 1 but for", power, POWER)
        )
        found.append(common.Figure("interval, all but scoring: slowest over fastest graph", factor, REST))
        what = "interval, a million entities: time of the call over that of fetching its rows"
        beside = called["independent"]["beside_fetching"]
        found.append(common.Figure(what, beside, FETCHING, peer=f"NumPy {np.__version__}"))
    return found


NAMES = {
    "ours": "`unkgcp predict`, whole process",
    "bare": "bare pyarrow, reading and writing only",
    "four times": "`unkgcp predict`, four times the queries",
    "5000": "`unkgcp predict`, 5,000 entities",
    "500000": "`unkgcp predict`, 500,000 entities",
    "bare, 500000": "bare pyarrow, the same file",
    "load": "`Predictor.load`, 500,000 entities",
}


def table(result: Result) -> str:
    lines = ["# Answering queries"]
    if compared := result.get("compare"):
        machine = compared["machine"]
        rows = [
            {
                "what": title,
                "seconds": min(run["seconds"] for run in compared["runs"][name]),
                "highest memory, MB": max(run["mb"] for run in compared["runs"][name]),
            }
            for name, title in NAMES.items()
        ]
        about = (
            f"`make bench-predict`: {compared['rows']:,} queries, UKGE d = {DIMENSION}, {compared['run']}, "
            f"{machine['cores']} cores of {machine['processor']}, Python {machine['python']}, "
            f"pyarrow {machine['pyarrow']}; fastest of the turns"
        )
        lines += ["", "## Beside bare pyarrow", "", about, "", *common.markdown(rows)]
    if grown := result.get("grow"):
        about = f"Random weights, {DIMENSION} dimensions. `python benchmarks/predict.py grow`"
        lines += ["", "## How whole commands grow", "", about, "", *common.markdown(grown)]
    if called := result.get("calls"):
        kept = {True: "holds", False: "does not hold"}
        about = f"UnKGCP over {called['model']}, {called['machine']}. `python benchmarks/predict.py calls`"
        claim = (
            f"Linear in the queries: {kept[called['linear']['holds']]}. Independent of the size of the graph, up to a "
            f"factor of {FACTOR:g}: {kept[called['independent']['holds']]}. Measured: {called['result']}."
        )
        lines += ["", "## One call of `interval`", "", about, "", claim]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("--child-"):
        part = {"ours": ours, "bare": bare, "load": load}[sys.argv[1].removeprefix("--child-")]
        measured = part(*sys.argv[2:])
        used = resource.getrusage(resource.RUSAGE_SELF)
        measured |= {"mb": common.memory("VmHWM") // 2**20, "cpu": round(used.ru_utime + used.ru_stime, 2)}
        print(json.dumps(measured))
        sys.exit(0)
    sys.exit(main())
