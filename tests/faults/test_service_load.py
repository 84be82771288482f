"""The service under load, on loopback only: mixed load, reloads, SIGTERM.

Each test prints a row of the table in docs/measurements/service.md. Times are those of the clock, because clients wait
for the clock; what is asked of them is a ratio of two times measured in turns, or a limit that the service states.

    make test-faults
"""

from __future__ import annotations

import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx

from tests.processes import served
from tests.worlds import random_graph, random_model, vocabulary
from unkgcp.run import calibrate

pytestmark = pytest.mark.faults

LOAD = Path(__file__).parents[2] / "benchmarks" / "load.py"
ENTITIES, RELATIONS, DIMENSION, CALIBRATION = 27_000, 400, 128, 15_000  # the size of NL27k
SMALL, LARGE = 5, 10_000
TURNS, SECONDS, CLIENTS = 5, 3.0, 4
REQUESTS = 10_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of NL27k's size with random numbers."""
    words = vocabulary(ENTITIES, RELATIONS)
    model = random_model(words, dimension=DIMENSION, spread=0.3)
    calibrate(model, random_graph(CALIBRATION, words)).save(folder := tmp_path_factory.mktemp("load") / "run")
    return folder


def body(triples: int, rng: random.Random, entities: int = ENTITIES, relations: int = RELATIONS) -> str:
    return json.dumps(
        {
            "triples": [
                [
                    f"e{rng.randrange(entities)}",
                    f"r{rng.randrange(relations)}",
                    f"e{rng.randrange(entities)}",
                ]
                for _ in range(triples)
            ]
        }
    )


# mixed load


def load(address: str, bodies: Path, clients: int, seconds: float) -> Any:
    command = [sys.executable, str(LOAD), f"{address}v1/intervals", str(bodies), str(clients), str(seconds)]
    return json.loads(subprocess.check_output(command, timeout=60))


def test_small_requests_beside_a_client_of_large_batches(run: Path, tmp_path: Path) -> None:
    """Alone and beside take turns, so that other work on the machine meets both; the median of the ratios counts."""
    rng = random.Random(0)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("\n".join(body(SMALL, rng) for _ in range(500)))
    large.write_text("\n".join(body(LARGE, rng) for _ in range(10)))
    alone, beside, batches = [], [], []
    with served(run) as (_, address), ThreadPoolExecutor(1) as background:
        load(address, small, CLIENTS, 1.0)
        load(address, large, 1, 1.0)
        for _ in range(TURNS):
            alone.append(load(address, small, CLIENTS, SECONDS))
            other = background.submit(load, address, large, 1, SECONDS + 2)
            time.sleep(1)
            beside.append(load(address, small, CLIENTS, SECONDS))
            batches.append(other.result())
    ratios = [two["p99_ms"] / one["p99_ms"] for one, two in zip(alone, beside, strict=True)]

    def middle(found: list[dict[str, float]], name: str) -> float:
        return statistics.median(one[name] for one in found)

    print(
        f"\n    mixed load: p99 of {SMALL} triples alone {middle(alone, 'p99_ms'):.1f} ms (median "
        f"{middle(alone, 'median_ms'):.1f}), beside batches of {LARGE:,} {middle(beside, 'p99_ms'):.1f} ms (median "
        f"{middle(beside, 'median_ms'):.1f}); ratios of the p99 {', '.join(f'{ratio:.1f}' for ratio in ratios)}; "
        f"batches {middle(batches, 'median_ms'):.0f} ms"
    )
    assert sum(one["errors"] for one in alone + beside + batches) == 0
    assert statistics.median(ratios) <= 10


# reloads


def test_three_runs_are_swapped_under_ten_thousand_requests(tmp_path: Path) -> None:
    """Every answer is whole and of one of the runs; none fails."""
    words = vocabulary(300, 4)
    model, facts = random_model(words), random_graph(2000, words)
    runs = [
        calibrate(model, facts.with_confidence(np.random.default_rng(seed).random(2000))) for seed in range(3)
    ]
    queries = [(f"e{i}", f"r{i % 4}", f"e{2 * i + 1}") for i in range(50)]
    wholes = {str(one.interval(queries).lower.tolist()) for one in runs}
    runs[0].save(tmp_path / "run")
    content = json.dumps({"triples": queries})
    with served(tmp_path / "run", UNKGCP_TOKEN="secret") as (_, address), ThreadPoolExecutor(4) as threads:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}

        def ask(count: int) -> list[str]:
            with httpx.Client(headers=headers, timeout=60) as client:
                replies = [client.post(f"{address}v1/intervals", content=content) for _ in range(count)]
            assert {reply.status_code for reply in replies} == {200}
            return [str(reply.json()["lower"]) for reply in replies]

        busy, swaps = [threads.submit(ask, REQUESTS // 4) for _ in range(4)], 0
        while not all(one.done() for one in busy):
            runs[(swaps + 1) % 3].save(tmp_path / "run")
            assert httpx.post(f"{address}v1/reload", headers=headers, timeout=60).status_code == 200
            swaps += 1
        answers = [answer for one in busy for answer in one.result()]
    print(f"\n    {len(answers):,} requests while {swaps} runs were swapped: none failed, none mixed")
    assert set(answers) == wholes


# SIGTERM


def test_told_to_stop_under_load_no_answer_is_cut_off(run: Path) -> None:
    """Clients ask without a pause: every answer is whole, and JSON; connections are closed between two of them only."""
    rng = random.Random(0)

    def ask(address: str, content: str) -> Counter[str]:
        counts: Counter[str] = Counter()
        with httpx.Client(headers={"Content-Type": "application/json"}, timeout=60) as client:
            while not counts["cut"] + counts["closed"]:
                try:
                    reply = client.post(f"{address}v1/intervals", content=content)
                    assert ("score" in reply.json()) == (reply.status_code == 200)
                    counts[str(reply.status_code)] += 1
                except httpx.TransportError as error:
                    counts["cut" if "complete" in str(error) else "closed"] += 1
        return counts

    with served(run) as (process, address), ThreadPoolExecutor(16) as threads:
        clients = [threads.submit(ask, address, body(size, rng)) for size in (SMALL, SMALL, SMALL, LARGE) * 4]
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        counts = sum((client.result() for client in clients), Counter[str]())
        start = time.monotonic()
        _, complaints = process.communicate(timeout=60)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    ended = time.monotonic() - start
    print(f"\n    SIGTERM under load of 16 clients: {told}; ended {ended:.1f} s after the last answer")
    assert complaints == ""
    assert set(counts) <= {"200", "503", "closed"}
