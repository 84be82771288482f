"""This checkout beside another one of the same project: is anything slower than it was?

Both sides do the same small jobs, as commands or through the names that the README gives, so that a checkout of any age
can stand on the other side. The sides take turns, each job in a process of its own; the best round of each side counts,
by processor time for commands that end and by the clock where a client waits. A ratio is this checkout over the other:
above 1.05 a job has become slower, and the exit status is 1. Jobs that the other checkout cannot do are left out.

    git worktree add ../before REVISION
    python benchmarks/revisions.py ../before [--rounds 7] [--only TEXT ...]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = "passive"

import numpy as np  # noqa: E402

HERE = Path(__file__).parents[1]
SLOWER = 1.05
FACTS, QUERIES, ENTITIES = 3_000_000, 3_000_000, 150_000


@dataclass(frozen=True)
class Job:
    """A command, or Python code that times a part of itself: it calls `start()` and `stop()`."""

    name: str
    what: list[str] | str
    by_clock: bool = False


CLOCK = """
import json, time
def start():
    global began
    began = time.perf_counter(), time.process_time()
def stop():
    print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1]]))
"""
CALIBRATE = """
import numpy as np
from unkgcp.conformal import SplitConformal
rng = np.random.default_rng(0)
prediction, truth, asked = rng.random(10**6), rng.random(10**6), rng.random(10**7)
"""
EPOCHS = """
import unkgcp
from unkgcp.training import TrainConfig
facts = unkgcp.read("DATA")[:40_000]
config = TrainConfig("MODEL", dimension=64, batch_size=256, learning_rate=1e-3, negatives=10, epochs=EPOCHS,
                     validate_every=EPOCHS)
unkgcp.train(facts[:2000], config=config, device="cpu")
start(); unkgcp.train(facts, config=config, device="cpu"); stop()
"""
INTERVALS = """
import numpy as np, unkgcp
predictor = unkgcp.Predictor.load("run")
facts = unkgcp.read("demo")
facts = facts[np.random.default_rng(0).integers(0, len(facts), 10**6)]
predictor.interval(facts, confidence=0.9)
start(); predictor.interval(facts, confidence=0.9); stop()
"""
SERVE = """
import http.client, json, re, subprocess, sys, unkgcp
table = unkgcp.read("demo")[:100].table().to_pydict()
body = json.dumps({"triples": [list(row) for row in zip(table["head"], table["relation"], table["tail"])]})
server = subprocess.Popen([sys.executable, "-m", "unkgcp", "serve", "run", "--port", "0"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
try:
    address = next(found for found in (re.search(r"http://([\\d.]+):(\\d+)", line) for line in server.stdout) if found)
    client = http.client.HTTPConnection(address[1], int(address[2]))
    def ask():
        client.request("POST", "/v1/intervals", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        text = answer.read()
        assert answer.status == 200, text
    for _ in range(50): ask()
    start()
    for _ in range(400): ask()
    stop()
finally:
    server.terminate()
"""


def jobs() -> list[Job]:
    """Every job, after those whose files it reads. All run in a folder that belongs to one side."""
    data, epochs = "ppi5k" if os.environ.get("UNKGCP_DATA") else "demo", "6"
    calibrated = f"{CALIBRATE}cal = SplitConformal(bounds=(0, 1)).calibrate(prediction, truth)\n"
    read = "unkgcp.read('../facts.tsv')"
    return [
        Job("unkgcp --help", ["--help"]),
        Job("import unkgcp.conformal", "start(); import unkgcp.conformal; stop()"),
        Job(f"read {FACTS:,} facts", f"import unkgcp\nstart(); {read}; stop()"),
        Job(
            "calibrate 1,000,000 scores and ask once, ten times",
            f"""{CALIBRATE}
start()
for _ in range(10): SplitConformal(bounds=(0, 1)).calibrate(prediction, truth).interval(asked[:10])
stop()""",
        ),
        Job("10,000,000 intervals", f"{calibrated}start(); cal.interval(asked); stop()"),
        Job(
            "10,000,000 intervals at four levels",
            f"{calibrated}start(); cal.interval(asked, confidence=[0.8, 0.85, 0.9, 0.95]); stop()",
        ),
        Job("1,000,000 p-values", f"{calibrated}start(); cal.p_value(prediction, truth); stop()"),
        *(
            Job(
                f"{epochs} epochs of {model} on {data}",
                EPOCHS.replace("MODEL", model).replace("DATA", data).replace("EPOCHS", epochs),
            )
            for model in ("ukge", "passleaf", "beurre")
        ),
        Job("fit demo, cp", ["fit", "demo", "-o", "run", "--method", "cp", "--device", "cpu"]),
        Job("fit demo, evidence", ["fit", "demo", "-o", "evidence", "--method", "evidence"]),
        Job("evaluate", ["evaluate", "run"]),
        Job("report", ["report", "run", "-o", "report.html"]),
        Job("predict 50 queries", ["predict", "run", "../few.tsv", "-o", "few.tsv"]),
        Job("predict 50 queries, evidence", ["predict", "evidence", "../few.tsv", "-o", "few.tsv"]),
        Job(f"predict {QUERIES:,} queries", ["predict", "run", "../many.parquet", "-o", "many.parquet"]),
        Job("interval of 1,000,000 triples", INTERVALS),
        Job("400 requests of 100 triples", SERVE, by_clock=True),
    ]


def make_files(folder: Path) -> None:
    """Facts and queries that both sides read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import unkgcp

    rng = np.random.default_rng(0)
    head, tail = rng.integers(0, ENTITIES, (2, FACTS))
    relation, confidence = rng.integers(0, 100, FACTS), rng.integers(1, 1000, FACTS)
    rows = zip(head.tolist(), relation.tolist(), tail.tolist(), confidence.tolist(), strict=True)
    with open(folder / "facts.tsv", "w") as file:
        file.writelines(
            f"concept:thing:{h}\trelation_{r}\tconcept:thing:{t}\t{c / 1000}\n" for h, r, t, c in rows
        )
    table = unkgcp.read("demo").table().select(["head", "relation", "tail"])
    few = table[:50].to_pydict()
    lines = zip(few["head"], few["relation"], few["tail"], strict=True)
    (folder / "few.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    pq.write_table(table.take(pa.array(rng.integers(0, len(table), QUERIES))), folder / "many.parquet")


def seconds(job: Job, source: Path, folder: Path) -> tuple[float, float]:
    """Clock and processor time of a job on one side; CalledProcessError if that side cannot do it."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    code = ["-c", CLOCK + job.what] if isinstance(job.what, str) else ["-m", "unkgcp", *job.what]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if isinstance(job.what, str):
        clock, processor = json.loads(done.stdout.splitlines()[-1])
        return clock, processor
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(job: Job, sides: dict[str, Path], folder: Path, rounds: int) -> dict[str, float] | None:
    """Best time of each side and their ratio; None where one side cannot do the job."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(rounds + 1):  # the first turn compiles, loads files into memory and is not counted
        for name, source in sides.items():
            if isinstance(job.what, list) and job.what[0] == "fit" and turn:
                subprocess.run(["rm", "-rf", str(folder / name / job.what[3])], check=True)
            try:
                times = seconds(job, source, folder / name)
            except subprocess.CalledProcessError as error:
                print(f"{job.name}: not on the side {name}: {error.stderr.strip()[-300:]}", file=sys.stderr)
                return None
            if turn:
                found[name].append(times)
    best = {
        name: min(times[0 if job.by_clock else 1] for times in all_times) for name, all_times in found.items()
    }
    return best | {"ratio": best["this"] / best["other"]}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("other", type=Path, help="another checkout of this project")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="jobs whose names contain one of these texts; those that ask a run need 'fit demo' too",
    )
    asked = options.parse_args()
    sides = {"other": (asked.other / "src").resolve(), "this": HERE / "src"}
    slower = []
    with tempfile.TemporaryDirectory(prefix="unkgcp-revisions-") as temporary:
        folder = Path(temporary)
        make_files(folder)
        for name in sides:
            (folder / name).mkdir()
        print("| job | other, s | this, s | this / other |\n|---|---|---|---|")
        for job in jobs():
            if asked.only and not any(text in job.name for text in asked.only):
                continue
            result = compare(job, sides, folder, asked.rounds)
            if result is not None:
                row = f"| {job.name} | {result['other']:.3f} | {result['this']:.3f} | {result['ratio']:.2f} |"
                print(row, flush=True)
                slower += [job.name] if result["ratio"] > SLOWER else []
    print(f"\nslower than {SLOWER:g} times the other: {', '.join(slower) or 'nothing'}; {common.machine()}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
