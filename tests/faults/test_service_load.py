"""The service under load, on loopback only: mixed load, reloads, SIGTERM.

Each test prints a row of the table in docs/measurements/service.md. Times are those of the clock, because clients wait
for the clock; what is asked of them is a ratio of two times measured in turns, or a limit that the service states.

    make test-faults
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
HEAD = b"POST /v1/intervals HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a row of the table, also when the test passes."""

    def row(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", flush=True)

    return row


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of NL27k's size with random numbers."""
    words = vocabulary(ENTITIES, RELATIONS)
    model = random_model(words, dimension=DIMENSION, spread=0.3)
    calibrate(model, random_graph(CALIBRATION, words)).save(folder := tmp_path_factory.mktemp("load") / "run")
    return folder


def place(address: str) -> tuple[str, int]:
    found = re.match(r"http://([\d.]+):(\d+)/", address)
    assert found is not None
    return found[1], int(found[2])


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


def loading(address: str, bodies: Path, clients: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(LOAD), f"{address}v1/intervals", str(bodies), str(clients), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def figures(process: subprocess.Popen[str]) -> dict[str, float]:
    found: dict[str, float] = json.loads(process.communicate(timeout=60)[0])
    return found


def test_small_requests_beside_a_client_of_large_batches(
    run: Path, tmp_path: Path, say: Callable[[str], None]
) -> None:
    """Alone and beside take turns, so that other work on the machine meets both; the median of the ratios counts."""
    rng = random.Random(0)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("\n".join(body(SMALL, rng) for _ in range(500)))
    large.write_text("\n".join(body(LARGE, rng) for _ in range(10)))
    alone, beside, batches = [], [], []
    with served(run) as (_, address):
        figures(loading(address, small, CLIENTS, 1.0))
        figures(loading(address, large, 1, 1.0))
        for _ in range(TURNS):
            alone.append(figures(loading(address, small, CLIENTS, SECONDS)))
            other = loading(address, large, 1, SECONDS + 2)
            time.sleep(1)
            beside.append(figures(loading(address, small, CLIENTS, SECONDS)))
            batches.append(figures(other))
    ratios = [two["p99_ms"] / one["p99_ms"] for one, two in zip(alone, beside, strict=True)]

    def middle(found: list[dict[str, float]], name: str) -> float:
        return statistics.median(one[name] for one in found)

    say(
        f"mixed load: p99 of {SMALL} triples alone {middle(alone, 'p99_ms'):.1f} ms (median "
        f"{middle(alone, 'median_ms'):.1f}), beside batches of {LARGE:,} {middle(beside, 'p99_ms'):.1f} ms (median "
        f"{middle(beside, 'median_ms'):.1f}); ratios of the p99 {', '.join(f'{ratio:.1f}' for ratio in ratios)}; "
        f"batches {middle(batches, 'median_ms'):.0f} ms"
    )
    assert sum(one["errors"] for one in alone + beside + batches) == 0
    assert statistics.median(ratios) <= 10


# reloads


def test_three_runs_are_swapped_under_ten_thousand_requests(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
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
    say(f"{len(answers):,} requests while {swaps} runs were swapped: none failed, none mixed")
    assert set(answers) == wholes


# SIGTERM


def test_told_to_stop_under_load_no_answer_is_cut_off(run: Path, say: Callable[[str], None]) -> None:
    """Clients ask without a pause: every answer is whole, and JSON; connections are closed between two of them only."""
    rng = random.Random(0)
    requests = []
    for size in (SMALL, SMALL, SMALL, LARGE):
        content = body(size, rng).encode()
        requests.append(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)

    async def client(address: str, request: bytes, counts: dict[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*place(address))
        try:
            while True:
                # closed between two requests: not an answer that is missing
                if reader.at_eof():
                    return
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                assert length is not None
                content = json.loads(await reader.readexactly(int(length[1])))
                assert ("score" in content) == head.startswith(b"HTTP/1.1 200")
                counts[head[9:12].decode()] = counts.get(head[9:12].decode(), 0) + 1
        except asyncio.IncompleteReadError as error:
            # the service closed the connection before it saw the request, or in the middle of an answer
            how = "cut" if error.partial else "closed"
            counts[how] = counts.get(how, 0) + 1
        except ConnectionError:
            counts["closed"] = counts.get("closed", 0) + 1
        finally:
            writer.close()

    async def load(process: subprocess.Popen[str], address: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        clients = [asyncio.ensure_future(client(address, request, counts)) for request in requests * 4]
        await asyncio.sleep(2)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        return counts

    with served(run) as (process, address):
        counts = asyncio.run(load(process, address))
        start = time.monotonic()
        _, complaints = process.communicate(timeout=60)
        ended = time.monotonic() - start
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    say(
        f"SIGTERM under load of {len(requests) * 4} clients: {told}; ended {ended:.1f} s after the last answer"
    )
    assert complaints == ""
    assert counts.get("cut", 0) == 0
    assert set(counts) <= {"200", "503", "closed"}
