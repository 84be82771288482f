"""What every request passes through: host name, token, size and time, security headers, counters and the access log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from logging.handlers import WatchedFileHandler
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unkgcp.errors import InputError
from unkgcp.service.settings import Settings

LOG = logging.getLogger("unkgcp.service")

# Scripts, styles, pictures and requests of the page itself, and nothing else. Pictures that the page saves are blobs.
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
PROBES = ("/health", "/ready")  # answered whatever the host name is: those who ask know the address alone
PORT = re.compile(r":\d+$")
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Metrics:
    """Everything that is counted, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "unkgcp_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "unkgcp_request_seconds", "Time to answer a request.", ["path"], registry=registry
        )
        self.in_flight = Gauge(
            "unkgcp_requests_in_flight", "Requests that are being answered.", registry=registry
        )
        self.queries = Counter(
            "unkgcp_queries",
            "Triples answered with an interval, by kind and status.",
            ["run", "kind", "status"],
            registry=registry,
        )
        self.batches = Histogram(
            "unkgcp_batch_requests",
            "Requests answered by one call of the model.",
            buckets=[2**power for power in range(8)],
            registry=registry,
        )
        self.reloads = Counter("unkgcp_reloads", "Reloads by outcome.", ["outcome"], registry=registry)

    def called(self, run: str, requests: int, columns: Mapping[str, list[Any]]) -> None:
        """The model answered so many requests in one call, with these columns."""
        self.batches.observe(requests)
        statuses = columns["status"]
        kinds = columns.get("kind", ["any"] * len(statuses))
        for (kind, status), count in Tally(zip(kinds, statuses, strict=True)).items():
            self.queries.labels(run, kind, status).inc(count)


def access_log(path: str | None) -> logging.Logger:
    """A log of bare lines, in a file that may be moved away meanwhile (log rotation), or on standard output (`-`)."""
    log = logging.Logger("unkgcp.access")
    if path is not None:
        try:
            log.addHandler(logging.StreamHandler(sys.stdout) if path == "-" else WatchedFileHandler(path))
        except OSError as error:
            raise InputError(
                f"the access log {path} cannot be written ({error.strerror}); name another file"
            ) from None
    return log


class Gate:
    """Wraps the application. `open_paths` need no token."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        access_log: logging.Logger,
        open_paths: Iterable[str],
    ) -> None:
        self.app, self.settings, self.metrics, self.access_log = app, settings, metrics, access_log
        self.open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # a proxy may leave the path under which it shows the service in front of a path, or take it away
        scope["root_path"] = self.settings.root_path
        exchange = Exchange(scope, receive, send, self.settings.max_body)
        refusal = self._refusal(scope, exchange.headers)
        self.metrics.in_flight.inc()
        try:
            async with asyncio.timeout(self.settings.answer_seconds):
                await (refusal or self.app)(scope, exchange.receive, exchange.send)
        except TimeoutError:
            late = (503, "there was no answer in time; try again later")
            slow = (408, "the body did not arrive in time; send it again")
            await exchange.fail(*(late if exchange.body_is_there else slow))
        except Exception as error:
            # the client is told that it is not at fault; what happened goes to the log, in one line
            why = " ".join(str(error).split())
            LOG.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, why)
            LOG.debug("traceback", exc_info=error)
            await exchange.fail(500, "the service failed to answer this request; its log says why")
        except asyncio.CancelledError:
            await exchange.fail(503, "the service is stopping; try again later")
        finally:
            self._count(exchange)

    def _count(self, exchange: Exchange) -> None:
        scope, seconds = exchange.scope, time.perf_counter() - exchange.start
        route = scope.get("route")
        path = "other" if route is None else route.path.removeprefix("/runs/{run}")
        self.metrics.in_flight.dec()
        self.metrics.requests.labels(path, exchange.status).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        if self.access_log.handlers:
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "id": exchange.id,
                "method": scope["method"],
                "path": scope["path"],
                "status": exchange.status,
                "triples": scope["state"].get("triples", 0),
                "ms": round(1000 * seconds, 2),
            }
            self.access_log.info(json.dumps(line))

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        path = scope["path"].removeprefix(self.settings.root_path)
        hosts, token = self.settings.hosts, self.settings.token
        if (
            hosts is not None
            and path not in PROBES
            and PORT.sub("", headers.get("host", "").lower()) not in hosts
        ):
            return _problem(
                421, "this service does not answer to that host name; see the setting allowed_host"
            )
        if token is not None and path not in self.open_paths:
            scheme, _, word = headers.get("authorization", "").partition(" ")
            # always compared, and in constant time: the answer must not tell how much of a guess was right
            right = compare_digest(word.strip().encode("latin-1", "replace"), token)
            if not (right and scheme.lower() == "bearer"):
                sentence = "this service needs a token; send the header Authorization: Bearer TOKEN"
                return _problem(401, sentence, {"WWW-Authenticate": "Bearer"})
        return None


class Exchange:
    """One request and its answer: counts the bytes that arrive, adds headers to what is sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        self.scope, self._receive, self._send, self._max_body = scope, receive, send, max_body
        self.headers = Headers(scope=scope)
        wanted = self.headers.get("x-request-id", "")
        self.id = wanted if REQUEST_ID.fullmatch(wanted) else uuid4().hex
        self.start, self.status, self.body_is_there = time.perf_counter(), 0, False
        self._size = 0
        scope.setdefault("state", {})

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._max_body:
            raise HTTPException(
                413,
                f"the body is longer than {self._max_body:,} bytes; send the triples in several requests",
                {"Connection": "close"},
            )
        self.body_is_there = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], *HEADERS, (b"x-request-id", self.id.encode())]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def fail(self, status: int, sentence: str) -> None:
        """Answer with an error, unless an answer has begun."""
        if not self.status:
            headers = {"Retry-After": "1"} if status == 503 else {"Connection": "close"}
            await _problem(status, sentence, headers)(self.scope, self._receive, self.send)


def _problem(status: int, sentence: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status, headers)
