"""A load generator for `serve.py` where wrk is not installed: the same requests, the same figures.

    python benchmarks/load.py URL BODIES CONNECTIONS SECONDS

Posts the lines of the file BODIES in turn over so many connections that stay open, each with one request on its way,
and prints one JSON object. It is Python on the cores of the service, so that both are slower than under wrk.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import common

PATIENCE = 10.0  # seconds for one answer
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


async def load(url: str, bodies: list[bytes], connections: int, seconds: float) -> dict[str, Any]:
    """Requests that were answered with success, how long they took, and how many were not."""
    address = urlsplit(url)
    head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    requests = cycle([f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies])
    start = time.perf_counter()
    times: list[float] = []
    errors = 0

    async def connection() -> None:
        nonlocal errors
        while time.perf_counter() < start + seconds:
            try:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
            except OSError:
                errors += 1
                await asyncio.sleep(0.1)
                continue
            try:
                while time.perf_counter() < start + seconds:
                    asked = time.perf_counter()
                    async with asyncio.timeout(PATIENCE):
                        good = await _ask(reader, writer, next(requests))
                    times.append(time.perf_counter() - asked)
                    errors += not good
            except (OSError, EOFError, TimeoutError):
                errors += 1
            finally:
                writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [float("nan")] * 99
    return {
        "requests": len(times),
        "seconds": time.perf_counter() - start,
        "median_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
        "max_ms": 1000 * max(times, default=float("nan")),
        "errors": errors,
    }


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bool:
    """Whether the answer, read to its end, is a success."""
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    if length is None:
        raise EOFError("an answer without its length")
    await reader.readexactly(int(length[1]))
    return head.startswith(b"HTTP/1.1 2")


if __name__ == "__main__":
    parser = common.parser(__doc__)
    for name, kind in (("url", str), ("bodies", Path), ("connections", int), ("seconds", float)):
        parser.add_argument(name, type=kind)
    asked = parser.parse_args()
    lines = asked.bodies.read_bytes().splitlines()
    print(json.dumps(asyncio.run(load(asked.url, lines, asked.connections, asked.seconds))))
