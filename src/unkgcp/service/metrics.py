"""Counters of the service in the text format that Prometheus reads.

What it is: plain numbers in memory, changed from the event loop and from the model's thread, one at a time.
What it is not: a metrics library; labels come from fixed sets, so that no client can make them grow.

>>> metrics = Metrics("0", "ukge", "unkgcp")
>>> metrics.request("/health", 200, 0.001)
>>> 'unkgcp_requests_total{path="/health",status="200"} 1' in metrics.text()
True
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from threading import Lock

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUESTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Histogram:
    """How many observations are at most each bound, their number and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        within = 0
        comma = "," if labels else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            within += count
            shown = bound if isinstance(bound, str) else f"{bound:g}"
            yield f'{name}_bucket{{{labels}{comma}le="{shown}"}} {within}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.9g}"
        yield f"{name}_count{braces} {within}"


class Metrics:
    """Everything that is counted."""

    def __init__(self, version: str, model: str, method: str) -> None:
        self._info = f'version="{version}",model="{model}",method="{method}"'
        self._start = time.time()
        self._lock = Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._triples = 0
        self._calls = 0
        self._together = Histogram(REQUESTS)
        self.in_flight = 0

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._requests[path, status] = self._requests.get((path, status), 0) + 1
            histogram = self._seconds.get(path)
            if histogram is None:
                histogram = self._seconds[path] = Histogram(SECONDS)
            histogram.add(seconds)

    def batch(self, triples: int, requests: int) -> None:
        """The model answered so many triples of so many requests in one call."""
        with self._lock:
            self._triples += triples
            self._calls += 1
            self._together.add(requests)

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("unkgcp_info", "gauge", "What is being served.")
        yield f"unkgcp_info{{{self._info}}} 1"
        yield from _head("unkgcp_start_time_seconds", "gauge", "When the service started, in Unix time.")
        yield f"unkgcp_start_time_seconds {self._start:.3f}"
        yield from _head("unkgcp_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"unkgcp_requests_in_flight {self.in_flight}"
        yield from _head("unkgcp_requests_total", "counter", "Requests answered, by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'unkgcp_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("unkgcp_request_seconds", "histogram", "Time to answer a request, by path.")
        for path, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("unkgcp_request_seconds", f'path="{path}"')
        yield from _head("unkgcp_triples_total", "counter", "Triples answered with an interval.")
        yield f"unkgcp_triples_total {self._triples}"
        yield from _head("unkgcp_model_calls_total", "counter", "Calls of the model, each for a batch.")
        yield f"unkgcp_model_calls_total {self._calls}"
        yield from _head("unkgcp_batch_requests", "histogram", "Requests answered by one call of the model.")
        yield from self._together.lines("unkgcp_batch_requests")


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
