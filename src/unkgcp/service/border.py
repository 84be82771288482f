"""The outermost layer: who may come in, what every answer carries, what is counted.

What it is: an ASGI middleware that checks the host name and the bearer token, adds the security headers, counts
and times requests, and turns whatever went wrong unforeseen into one sentence. What it is not: it does not look
at bodies (see `bodies`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from hmac import compare_digest

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unkgcp.service.metrics import Metrics
from unkgcp.service.problems import Problem
from unkgcp.service.settings import Settings

logger = logging.getLogger("unkgcp.service")

# scripts, styles, pictures and requests of the page itself, and nothing else
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
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


class Border:
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
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, sent)
            else:
                await self.app(scope, receive, sent)
        except Exception as error:
            # the client learns that it was not its fault, the log in one line what it was
            why = " ".join(str(error).split())
            logger.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, why)
            logger.debug("traceback", exc_info=error)
            if not status:
                sentence = "the service failed to answer this request; its log says why"
                await Problem(500, sentence).response()(scope, receive, sent)
        finally:
            self.metrics.in_flight -= 1
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
