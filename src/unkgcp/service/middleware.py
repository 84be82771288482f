"""What every request passes through: who may come in, which headers an answer carries, what is counted.

An ASGI middleware that checks the host name and the bearer token, adds the security headers, counts and times
requests, and turns an unforeseen error into one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from hmac import compare_digest
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unkgcp.service.limits import Problem, Settings

logger = logging.getLogger("unkgcp.service")

# scripts, styles, pictures and requests of the page itself, and nothing else; pictures that it draws to save are blobs
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
NO_STORE = (b"cache-control", b"no-store")


class Middleware:
    """Wraps the application. `open_paths` need no token; `paths` are those counted by name."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        open_paths: Iterable[str],
        paths: Iterable[str],
    ) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.open_paths, self.paths = frozenset(open_paths), frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], *HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append(NO_STORE)
                message = {**message, "headers": headers}
            await send(message)

        self.metrics.in_flight += 1
        failed: Problem | None = None
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, sent)
            else:
                await self.app(scope, receive, sent)
        except Exception as error:
            # the client is told that it is not at fault; what happened goes to the log, in one line
            why = " ".join(str(error).split())
            logger.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, why)
            logger.debug("traceback", exc_info=error)
            failed = Problem(500, "the service failed to answer this request; its log says why")
        except asyncio.CancelledError:
            failed = Problem(503, "the service is stopping; try again later")
        finally:
            if failed is not None and not status:
                await failed.response()(scope, receive, sent)
            self.metrics.in_flight -= 1
            if status == 408:
                self.metrics.drop("slow")
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.request(path, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> Problem | None:
        hosts, token = self.settings.hosts, self.settings.token
        if hosts is None and token is None:
            return None
        headers = dict(scope["headers"])
        if hosts is not None and host_name(headers.get(b"host", b"")) not in hosts:
            return Problem(
                400, "this service does not answer to that host name; use the address it was given"
            )
        if token is not None and scope["path"] not in self.open_paths:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            # always compared, and in constant time: the answer must not tell how much of a guess was right
            right = compare_digest(given.strip(), token)
            if not (right and scheme.lower() == b"bearer"):
                return Problem(
                    401,
                    "this service needs a token; send the header Authorization: Bearer TOKEN",
                    {"WWW-Authenticate": "Bearer"},
                )
        return None


def host_name(header: bytes) -> str:
    """The name in a `Host` header, without its port.

    >>> host_name(b"127.0.0.1:8000"), host_name(b"[::1]:8000")
    ('127.0.0.1', '[::1]')
    """
    text = header.decode("latin-1").strip().lower()
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdecimal() else text


# Counters of the service in the text format that Prometheus reads. They are written by hand: a dozen lines of text
# are no reason to ask users to install a client library.

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# a request that did not arrive in time, an answer that was not read in time, idle while there were too many connections
DROPPED = ("slow", "unread", "crowded")
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

    def __init__(self, version: str, runs: Mapping[str, tuple[str, str]]) -> None:
        """`runs`: model and method of each run that is served, by its name."""
        self._infos = [
            f'version="{version}",model="{_escaped(model)}",method="{method}"'
            + (f',run="{_escaped(name)}"' if len(runs) > 1 else "")
            for name, (model, method) in runs.items()
        ]
        self._start = time.time()
        self._lock = Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._triples = 0
        self._calls = 0
        self._together = Histogram(REQUESTS)
        self._dropped = dict.fromkeys(DROPPED, 0)
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

    def drop(self, why: str) -> None:
        """A connection was dropped, for one of the reasons `DROPPED`."""
        with self._lock:
            self._dropped[why] += 1

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("unkgcp_info", "gauge", "What is being served.")
        yield from (f"unkgcp_info{{{info}}} 1" for info in self._infos)
        yield from _head("unkgcp_start_time_seconds", "gauge", "When the service started, in Unix time.")
        yield f"unkgcp_start_time_seconds {self._start:.3f}"
        yield from _head("unkgcp_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"unkgcp_requests_in_flight {self.in_flight}"
        yield from _head("unkgcp_requests_total", "counter", "Requests answered, by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'unkgcp_requests_total{{path="{_escaped(path)}",status="{status}"}} {count}'
        yield from _head("unkgcp_request_seconds", "histogram", "Time to answer a request, by path.")
        for path, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("unkgcp_request_seconds", f'path="{_escaped(path)}"')
        yield from _head(
            "unkgcp_dropped_connections_total", "counter", "Clients that were dropped, by reason."
        )
        for why, count in self._dropped.items():
            yield f'unkgcp_dropped_connections_total{{why="{why}"}} {count}'
        yield from _head("unkgcp_triples_total", "counter", "Triples answered with an interval.")
        yield f"unkgcp_triples_total {self._triples}"
        yield from _head("unkgcp_model_calls_total", "counter", "Calls of the model, each for a batch.")
        yield f"unkgcp_model_calls_total {self._calls}"
        yield from _head("unkgcp_batch_requests", "histogram", "Requests answered by one call of the model.")
        yield from self._together.lines("unkgcp_batch_requests")


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
