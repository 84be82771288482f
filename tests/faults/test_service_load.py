"""The service under attack and under load, on loopback only: slow clients, mixed load, a run that is slow, SIGTERM.

Each test prints a row of the table in docs/service.md. Times are those of the clock, because clients wait for the
clock; what is asked of them is a ratio of two times measured in turns, or a limit that the service itself states.

    make test-faults
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx

from tests.worlds import random_graph, random_model, vocabulary
from unkgcp.methods import create
from unkgcp.run import Predictor, calibrate

pytestmark = pytest.mark.faults

LOAD = Path(__file__).parents[2] / "benchmarks" / "load.py"
ENTITIES, RELATIONS, DIMENSION, CALIBRATION = 27_000, 400, 128, 15_000  # the size of NL27k
SMALL, LARGE = 5, 10_000
TURNS, SECONDS, CLIENTS = 5, 3.0, 4
SLOW_CLIENTS = 1000
HEAD = b"POST /v1/intervals HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

START = """
import json, sys
from unkgcp.service import Settings
from unkgcp.service.server import Address, serve
settings = Settings(**json.loads(sys.argv[2]))
serve(sys.argv[1], Address("127.0.0.1", 0), settings, lambda url: print(url, flush=True))
"""


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


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cv+ run: 10 members and 10,000 facts are asked for every triple."""
    words = vocabulary(200, 4)
    facts = random_graph(10_000, words)
    members = [random_model(words, seed=seed) for seed in range(10)]
    model = random_model(words, seed=99)
    method = create("cv+", members=members, fold=np.arange(len(facts)) % 10).calibrate(model, facts)
    Predictor(model, method).save(folder := tmp_path_factory.mktemp("cv") / "run")
    return folder


@contextmanager
def serving(run: Path, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    command = [sys.executable, "-c", START, str(run), json.dumps(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, process.communicate()[1]
        httpx.get(f"{address}health", timeout=60)
        yield process, address
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


def place(address: str) -> tuple[str, int]:
    found = re.match(r"http://([\d.]+):(\d+)/", address)
    assert found is not None
    return found[1], int(found[2])


def dropped(address: str) -> dict[str, int]:
    text = httpx.get(f"{address}metrics", timeout=60).text
    found = re.findall(r'^unkgcp_dropped_connections_total\{why="(\w+)"\} (\d+)$', text, re.M)
    return {why: int(count) for why, count in found}


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
    with serving(run) as (_, address):
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


def test_a_run_that_is_slow_to_answer_stays_reachable(slow_run: Path, say: Callable[[str], None]) -> None:
    """4,000 triples of a cv+ run take long; meanwhile `/health` and single triples are answered."""
    rng = random.Random(0)
    whole = body(4000, rng, 200, 4)
    headers = {"Content-Type": "application/json"}
    with serving(slow_run, answer_seconds=300) as (_, address), ThreadPoolExecutor(1) as threads:
        begun = time.monotonic()
        large = threads.submit(
            httpx.post, f"{address}v1/intervals", content=whole, headers=headers, timeout=300
        )
        health, single = [], []
        with httpx.Client(timeout=60) as client:
            while not large.done():
                for times, ask in (
                    (health, lambda: client.get(f"{address}health")),
                    (
                        single,
                        lambda: client.post(
                            f"{address}v1/intervals", content=body(1, rng, 200, 4), headers=headers
                        ),
                    ),
                ):
                    start = time.monotonic()
                    assert ask().status_code == 200
                    times.append(time.monotonic() - start)
                time.sleep(0.02)
        took = time.monotonic() - begun
        assert large.result().status_code == 200
    say(
        f"cv+ with 4,000 triples: {took:.1f} s; meanwhile /health at most {1000 * max(health):.0f} ms, "
        f"a single triple at most {1000 * max(single):.0f} ms ({len(health)} of each)"
    )
    assert took > 1
    assert max(health) < took / 4
    assert max(single) < took / 4


def test_a_request_that_takes_too_long_is_refused_before_it_begins(
    slow_run: Path, say: Callable[[str], None]
) -> None:
    """Measured at the start: 10,000 triples of this cv+ run do not fit into half a second."""
    with serving(slow_run, answer_seconds=0.5) as (_, address):
        start = time.monotonic()
        refused = httpx.post(
            f"{address}v1/intervals",
            content=body(10_000, random.Random(0), 200, 4),
            headers={"Content-Type": "application/json"},
            timeout=60,
        )
        took = time.monotonic() - start
    say(f"cv+ with 10,000 triples where half a second is allowed: {refused.status_code} after {took:.2f} s")
    assert refused.status_code == 422
    assert re.search(r"send at most [\d,]+ in one request", refused.json()["error"])


# slow clients


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * SLOW_CLIENTS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this account may open {hard} files only; the test needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(address: str, sent: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(place(address))
    client.sendall(sent)
    return client


def test_a_thousand_slow_clients(run: Path, many_files: None, say: Callable[[str], None]) -> None:
    """Half-open headers, half-sent bodies and clients that do not read: others are answered, all of these dropped."""
    levels = [i / 40 for i in range(20)]
    much = json.dumps({"triples": [["e1", "r1", "e2"]] * 2000, "confidence": levels}).encode()
    kinds = [
        b"GET /health HTTP/1.1\r\nHost: local",
        HEAD + b'Content-Length: 1000\r\n\r\n{"triples": [',
        HEAD + b"Content-Length: %d\r\n\r\n" % len(much) + much,
    ]
    limits = {"body_seconds": 10, "read_seconds": 10, "max_connections": SLOW_CLIENTS}
    with serving(run, **limits) as (process, address), ExitStack() as open_clients:
        times: list[float] = []
        stop = threading.Event()

        def others() -> None:
            """Somebody else, who opens a connection for each question."""
            while not stop.is_set():
                start = time.monotonic()
                assert httpx.get(f"{address}health", timeout=60).status_code == 200
                asked = {"triples": [["e1", "r1", "e2"]]}
                assert httpx.post(f"{address}v1/intervals", json=asked, timeout=60).status_code == 200
                times.append(time.monotonic() - start)
                time.sleep(0.05)

        with ThreadPoolExecutor(1) as threads:
            other = threads.submit(others)
            begun = time.monotonic()
            for i in range(SLOW_CLIENTS):
                # of those that do not read there are fewer: each has its answer of three megabytes computed
                kind = 2 if i % 20 == 0 else i % 2
                open_clients.enter_context(connect(address, kinds[kind]))
            connected = time.monotonic() - begun
            while (gone := dropped(address)) and sum(gone.values()) < SLOW_CLIENTS:
                assert time.monotonic() < begun + 120, gone
                time.sleep(0.5)
            took = time.monotonic() - begun
            stop.set()
            other.result()
        assert process.poll() is None
    say(
        f"{SLOW_CLIENTS:,} slow clients (connected in {connected:.1f} s): all dropped after {took:.0f} s, "
        f"{gone['slow']} slow, {gone['unread']} unread, {gone['crowded']} crowded; meanwhile {len(times)} pairs of "
        f"requests of somebody else, all answered, the slowest in {1000 * max(times):.0f} ms"
    )
    assert gone["unread"] > 0
    assert max(times) < limits["body_seconds"]  # nobody waits for a slow client to go


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

    with serving(run) as (process, address):
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
    assert set(counts) <= {"200", "429", "503", "closed"}
