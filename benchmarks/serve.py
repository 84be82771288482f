"""The service under load, on two cores: batches of 100 triples beside an endpoint that only parses and echoes them.

A run of NL27k's size (27,000 entities, 400 relations, UKGE with d = 128, 15,000 calibration facts) with invented
numbers is served in a process of its own, by the application of `unkgcp serve` with the echo as one more path. Another
process sends the load: wrk, or load.py where wrk is not installed (its figures cannot be compared with those of wrk,
and the results say so). Echo and answers take turns, so that other work on the machine slows both; then answers alone
are measured for a minute. Every request asks for other triples. Checks that answers come at 0.4 of the rate of the
echo or more (0.5 is aimed at), without a single error over the minute, and with a 99th percentile under five times
the median. Writes results/serve.md, and exits with status 1 when a target is missed.

    make bench-serve
"""

from __future__ import annotations

import json
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import common

common.use_two_cores()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from unkgcp.backbones import get  # noqa: E402
from unkgcp.graph import Graph, Vocabulary  # noqa: E402
from unkgcp.graph.known_facts import KnownFacts  # noqa: E402
from unkgcp.run import calibrate  # noqa: E402
from unkgcp.service.lookups import LabelSearch  # noqa: E402
from unkgcp.training import Model, TrainConfig  # noqa: E402

ENTITIES, RELATIONS, DIMENSION, CALIBRATION, FACTS = 27_000, 400, 128, 15_000, 150_000
BATCH, BODIES, CONNECTIONS = 100, 64, 16
TURNS, SECONDS, MINUTE = 3, 5, 60
LABELS = 500_000
SHARE, GOAL, TAIL = 0.4, 0.5, 5.0
WRK = shutil.which("wrk")

SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local next = 0
function request()
  next = next %% #bodies + 1
  return wrk.format("POST", nil, {["Content-Type"] = "application/json"}, bodies[next])
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests":%%d,"seconds":%%f,"median_ms":%%f,"p99_ms":%%f,"max_ms":%%f,"errors":%%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def make_run(folder: Path) -> Path:
    """A run with invented numbers; how long an answer takes does not depend on them."""
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary.of(
        [f"concept:thing:label_{i}" for i in range(ENTITIES)],
        [f"concept:relation_{i}" for i in range(RELATIONS)],
    )
    rows = {"entity": ENTITIES, "relation": RELATIONS, "model": 1}
    tensors = {
        name: rng.normal(0, 0.3, (rows[table.kind], table.width)).astype(np.float32)
        for name, table in get("ukge").tables(DIMENSION).items()
    }

    def facts(count: int) -> Graph:
        head, tail = rng.integers(0, ENTITIES, (2, count), dtype=np.int32)
        relation = rng.integers(0, RELATIONS, count, dtype=np.int32)
        return Graph(head, relation, tail, rng.random(count).round(3), vocabulary)

    config = TrainConfig(model="ukge", dimension=DIMENSION)
    seen = np.ones(ENTITIES, bool), np.ones(RELATIONS, bool)
    model = Model.from_tensors(tensors, vocabulary, config, 0, *seen)
    model = replace(model, facts=KnownFacts.of(facts(FACTS)))
    calibrate(model, facts(CALIBRATION)).save(folder / "run")
    return folder / "run"


def serve_with_echo(run: str) -> None:
    """What `unkgcp serve` does, with `POST /v1/echo` beside, which parses a body, writes it again and does no more."""
    from pydantic_core import from_json, to_json
    from starlette.requests import Request
    from starlette.responses import Response

    from unkgcp.run import Predictor
    from unkgcp.service import Settings, create_app
    from unkgcp.service.server import answer_requests, listen

    settings = Settings()
    with listen("127.0.0.1", 0) as listener:
        predictor = Predictor.load(run)
        app = create_app(predictor, settings)

        async def echo(request: Request) -> Response:
            return Response(to_json(from_json(await request.body())), media_type="application/json")

        app.add_route("/v1/echo", echo, methods=["POST"])
        answer_requests(app, listener, settings, lambda url: print(f"serving at {url}", flush=True))


def make_bodies(path: Path) -> None:
    rng = random.Random(0)

    def triple() -> list[str]:
        head, tail = (f"concept:thing:label_{rng.randrange(ENTITIES)}" for _ in range(2))
        return [head, f"concept:relation_{rng.randrange(RELATIONS)}", tail]

    lines = (
        json.dumps({"triples": [triple() for _ in range(BATCH)], "confidence": 0.9}) for _ in range(BODIES)
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def load(url: str, folder: Path, seconds: int) -> dict[str, Any]:
    """So many seconds of load with the bodies in the folder; its figures."""
    if WRK is None:
        program = [sys.executable, str(Path(__file__).with_name("load.py"))]
        command = [*program, url, str(folder / "bodies.txt"), str(CONNECTIONS), str(seconds)]
    else:
        command = [WRK, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s"]
        command += ["-s", str(folder / "load.lua"), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    figures["rate"] = figures["requests"] / figures["seconds"]
    print(
        f"{url.rsplit('/', 1)[1]:>10} {figures['rate']:8.0f} requests/s, median {figures['median_ms']:.2f} ms, "
        f"p99 {figures['p99_ms']:.2f} ms, {figures['errors']} errors",
        file=sys.stderr,
        flush=True,
    )
    return {name: round(value, 3) for name, value in figures.items()}


def measure(base: str, folder: Path) -> dict[str, Any]:
    echo, answers = f"{base}v1/echo", f"{base}v1/intervals"
    load(answers, folder, 2)  # not counted
    turns = [(load(echo, folder, SECONDS), load(answers, folder, SECONDS)) for _ in range(TURNS)]
    return {
        "echo": [turn[0] for turn in turns],
        "answers": [turn[1] for turn in turns],
        "minute": load(answers, folder, MINUTE),
        "share": round(statistics.median(turn[1]["rate"] / turn[0]["rate"] for turn in turns), 3),
        "requests_a_call": _together(base),
    }


def _together(base: str) -> float:
    """How many requests one call of the model answered, on average."""
    text = urllib.request.urlopen(f"{base}metrics").read().decode()
    total, calls = (float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in  # type: ignore[index]
                    ("unkgcp_batch_requests_sum", "unkgcp_batch_requests_count"))  # fmt: skip
    return round(total / calls, 2)


def type_ahead() -> dict[str, float]:
    """Milliseconds to sort half a million labels once, to find a prefix, and to find a part of a label."""
    rng = np.random.default_rng(0)
    labels = pa.array([f"concept:thing:{number:x}" for number in rng.integers(0, 1 << 60, LABELS).tolist()])
    start = time.perf_counter()
    search = LabelSearch(labels)
    sorting = time.perf_counter() - start

    def best(text: str, anywhere: bool) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            search.find(text, 20, anywhere)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    found = {"sort": sorting, "prefix": best("Concept:Thing:ab", False), "anywhere": best("abcd", True)}
    return {name: round(1000 * seconds, 3) for name, seconds in found.items()}


def report(figures: dict[str, Any]) -> int:
    """Write all of it down; 1 if a target is missed."""
    minute = figures["minute"]
    tail = minute["p99_ms"] / minute["median_ms"]
    echo = statistics.median(turn["rate"] for turn in figures["echo"])
    answers = statistics.median(turn["rate"] for turn in figures["answers"])
    table = [
        "# Service under load",
        "",
        f"Batches of {BATCH} triples, {CONNECTIONS} connections, {figures['machine']}; median of {TURNS} turns of "
        f"{SECONDS} s each, then a minute. Load by {figures['load_by']}. `make bench-serve`",
        "",
        "| | requests/s | triples/s | median | p99 | errors |",
        "|---|---|---|---|---|---|",
        f"| echo (parse and write the same body) | {echo:,.0f} | | {figures['echo'][0]['median_ms']:.1f} ms | "
        f"{figures['echo'][0]['p99_ms']:.1f} ms | {sum(turn['errors'] for turn in figures['echo'])} |",
        f"| answers | {answers:,.0f} | {answers * BATCH:,.0f} | {figures['answers'][0]['median_ms']:.1f} ms | "
        f"{figures['answers'][0]['p99_ms']:.1f} ms | {sum(turn['errors'] for turn in figures['answers'])} |",
        f"| answers over a minute | {minute['rate']:,.0f} | {minute['rate'] * BATCH:,.0f} | "
        f"{minute['median_ms']:.1f} ms | {minute['p99_ms']:.1f} ms | {minute['errors']} |",
        "",
        f"Answers come at {figures['share']:.2f} of the rate of the echo (required {SHARE}, goal {GOAL}); p99 is "
        f"{tail:.2f} times the median (target {TAIL:g}); one call of the model answers "
        f"{figures['requests_a_call']:g} requests.",
        "",
        f"Type-ahead over {LABELS:,} labels: {figures['type_ahead_ms']['prefix']:.2f} ms for the beginning of a label, "
        f"{figures['type_ahead_ms']['anywhere']:.0f} ms for any part of it, {figures['type_ahead_ms']['sort']:.0f} ms "
        "once at the start.",
    ]
    common.write("serve", figures, "\n".join(table) + "\n")
    return common.judge(
        "serve",
        [
            common.Figure(
                "service: rate over that of an echo",
                figures["share"],
                SHARE,
                GOAL,
                at_least=True,
                peer="echo",
            ),
            common.Figure("service: errors in a minute", minute["errors"], 0),
            common.Figure("service: 99th percentile over the median", tail, TAIL),
        ],
    )


def main() -> int:
    common.parser(__doc__).parse_args()
    if WRK is None:
        print("there is no wrk here (install the package wrk); load.py stands in for it", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run = make_run(folder)
        make_bodies(folder / "bodies.txt")
        (folder / "load.lua").write_text(SCRIPT % (folder / "bodies.txt"))
        command = [sys.executable, __file__, "--run", str(run)]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            base = service.stdout.readline().split()[-1]  # type: ignore[union-attr]
            urllib.request.urlopen(f"{base}health", timeout=30).read()
            figures = measure(base, folder)
        finally:
            service.terminate()
            service.wait(10)
    figures["type_ahead_ms"] = type_ahead()
    figures["load_by"] = "wrk" if WRK else "load.py, in Python on the same cores"
    figures["machine"] = f"{common.CORES} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    return report(figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        serve_with_echo(sys.argv[2])
    else:
        sys.exit(main())
