"""The way of a request into the service: host name, token, then its body, which is read and checked.

`Middleware` is what every request passes through. It checks the host name and the bearer token, adds security headers
to the answer, counts and times, and turns an unforeseen error into one sentence. `Bodies` reads the bodies of POST
requests within the limits, and the `parse_...` functions check them.

Bodies are parsed by hand and not by a pydantic model, because whole columns of triples are checked at C speed here and
a model would make an object of every triple. Only when a column is wrong is the first bad row looked for, to name it.

>>> parse_intervals(b'{"triples": [["a", "likes", "b"]]}', Settings()).head
('a',)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from hmac import compare_digest
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unkgcp.service.limits import Metrics, Problem, Settings, quoted

logger = logging.getLogger("unkgcp.service")

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
NO_STORE = (b"cache-control", b"no-store")


class Middleware:
    """Wraps the application. `open_paths` need no token; `paths` are counted by name, all others as `other`."""

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
            await (self.app if refusal is None else refusal.response())(scope, receive, sent)
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


class Bodies:
    """Reads bodies within the limits of each and of all together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0  # bytes of bodies that have begun to arrive

    async def read(self, request: Request) -> bytes:
        """The body of a request. One that is too long, too slow or not said to be JSON is a `Problem`."""
        headers, settings = request.headers, self._settings
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(
                415, "the body must be JSON; send it with the header Content-Type: application/json"
            )
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "the body must not be compressed; send it without Content-Encoding")
        too_long = Problem(
            413,
            f"the body is longer than {settings.max_body:,} bytes; send the triples in several requests",
            {"Connection": "close"},
        )
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > settings.max_body:
            raise too_long
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(settings.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > settings.max_body:
                        raise too_long
                    if self._held > settings.max_held:
                        raise Problem(
                            429,
                            "too many bodies are arriving; try again in a second",
                            {"Retry-After": "1", "Connection": "close"},
                        )
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not arrive within {settings.body_seconds:g} seconds; send it again",
                {"Connection": "close"},
            ) from None
        except ClientDisconnect:
            raise Problem(400, "the connection ended before the body did") from None
        finally:
            self._held -= size
        return b"".join(chunks)


# The checked requests, one class for each path, and what is in them.

FIELDS = ("triples", "confidence")
PLACES = ("head", "relation", "tail")
DEFAULT_LEVEL = 0.9
DEFAULT_SHARE = 0.1
DEFAULT_ANSWERS = 100
PARTS = 16  # commas and opening brackets that a body may have for each allowed triple: 4 are its own, labels have more


class Asked(NamedTuple):
    """`POST /v1/intervals`: labels by column, the levels, and whether one level was given as a plain number."""

    head: Sequence[str]
    relation: Sequence[str]
    tail: Sequence[str]
    levels: tuple[float, ...]
    single: bool


class Selecting(NamedTuple):
    """`POST /v1/select`: the candidates, the condition, and the allowed shares of wrong ones as they were given."""

    asked: Asked
    condition: str
    fdr: float | list[float]


class AskedAnswers(NamedTuple):
    """`POST /v1/answers`: labels, one of which is None, and the options of `Predictor.answers`."""

    head: str | None
    relation: str
    tail: str | None
    options: dict[str, Any]


def parse_intervals(data: bytes, settings: Settings) -> Asked:
    """The checked body of `POST /v1/intervals`."""
    return _asked(_fields(data, settings, FIELDS), settings, "send several requests")


def parse_selection(data: bytes, settings: Settings) -> Selecting:
    """The checked body of `POST /v1/select`; the condition itself is read by `unkgcp.conformal.selection`."""
    document = _fields(data, settings, (*FIELDS, "condition", "fdr"))
    # several requests are no remedy here, since the choice depends on all candidates together
    asked = _asked(document, settings, "choose among them in one file with unkgcp predict --select")
    if not asked.head:
        raise Problem(422, "triples is empty, so there is nothing to choose from; give it some candidates")
    condition, fdr = document.get("condition"), document.get("fdr", DEFAULT_SHARE)
    if type(condition) is not str:
        raise Problem(422, "the field condition must say what is asked for, 'confidence >= 0.7' for instance")
    _numbers("fdr", "shares", fdr, settings, ends=False)
    return Selecting(asked, condition, fdr)


def parse_answers(data: bytes, settings: Settings) -> AskedAnswers:
    """The checked body of `POST /v1/answers`."""
    document = _fields(data, settings, (*PLACES, "confidence", "k", "min_confidence", "per"))
    head, relation, tail = labels = [document.get(place) for place in PLACES]
    for place, label in zip(PLACES, labels, strict=True):
        if label is not None and type(label) is not str:
            raise Problem(422, f"{place} must be a string, not {quoted(label)}")
    if relation is None:
        raise Problem(422, "the field relation is missing")
    if (head is None) == (tail is None):
        raise Problem(422, "give either head or tail; the other is what is looked for")
    k = document.get("k", min(DEFAULT_ANSWERS, settings.max_k))
    if type(k) is not int or not 1 <= k <= settings.max_k:
        raise Problem(422, f"k must be a whole number from 1 to {settings.max_k:,}, not {quoted(k)}")
    level = _number("confidence", document.get("confidence", DEFAULT_LEVEL), ends=False)
    least = _number("min_confidence", document.get("min_confidence", 0.0))
    per = document.get("per", "relation")
    if per not in ("relation", "none"):
        raise Problem(422, f"per must be relation or none, not {quoted(per)}")
    return AskedAnswers(
        head, relation, tail, {"confidence": level, "k": k, "min_confidence": least, "per": per}
    )


def _fields(data: bytes, settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """The object in a body, which has fields of these names only."""
    # refused before it is parsed, since millions of empty lists fit into a body
    most = PARTS * settings.max_triples + 1000
    if sum(map(data.count, (b"[", b"{", b","))) > most:
        raise Problem(
            413, f"the body has more than {most:,} brackets and commas; send the triples in several requests"
        )
    document = parse(data)
    there_are = f"{', '.join(names[:-1])} and {names[-1]}"
    if type(document) is not dict:
        raise Problem(422, f"the body must be an object with the fields {there_are}")
    unknown = [name for name in document if name not in names]
    if unknown:
        raise Problem(422, f"the field {quoted(unknown[0])} is unknown; there are {there_are}")
    return document


def parse(data: bytes) -> Any:
    """The JSON of a body; anything else is a `Problem`."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None


def _asked(document: Mapping[str, Any], settings: Settings, if_more: str) -> Asked:
    """Triples and levels of a body; `if_more` says what to do with more triples than are allowed."""
    if "triples" not in document:
        raise Problem(422, "the field triples is missing; it lists [head, relation, tail] triples")
    triples = document["triples"]
    if type(triples) is not list:
        raise Problem(422, "triples must be a list of [head, relation, tail] triples")
    if len(triples) > settings.max_triples:
        raise Problem(422, f"{len(triples):,} triples are more than {settings.max_triples:,}; {if_more}")
    given = document.get("confidence", DEFAULT_LEVEL)
    levels = _numbers("confidence", "levels", given, settings)
    return Asked(*_columns(triples), levels, type(given) is not list)


def _columns(triples: list[Any]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Heads, relations and tails; a triple is a list of three labels or an object with three fields."""
    if not triples:
        return (), (), ()
    if set(map(type, triples)) != {list}:
        triples = [_as_list(triple, row) for row, triple in enumerate(triples)]
    if set(map(len, triples)) == {3}:
        head, relation, tail = zip(*triples, strict=True)
        if {*map(type, head), *map(type, relation), *map(type, tail)} == {str}:
            return head, relation, tail
    raise next(
        _bad_row(row, triple)
        for row, triple in enumerate(triples)
        if len(triple) != 3 or any(type(label) is not str for label in triple)
    )


def _as_list(triple: Any, row: int) -> list[Any]:
    if type(triple) is list:
        return triple
    if type(triple) is dict and len(triple) == 3 and all(place in triple for place in PLACES):
        return [triple[place] for place in PLACES]
    raise _bad_row(row, triple)


def _bad_row(row: int, triple: Any) -> Problem:
    return Problem(422, f"triples[{row}] is {quoted(triple)}; expected three strings [head, relation, tail]")


def _numbers(name: str, what: str, given: Any, settings: Settings, ends: bool = True) -> tuple[float, ...]:
    """One number or a list of them, each as `_number` wants it; `what` they are called together."""
    numbers = given if type(given) is list else [given]
    if not 1 <= len(numbers) <= settings.max_levels:
        raise Problem(422, f"{name} must have 1 to {settings.max_levels} {what}, not {len(numbers)}")
    return tuple(_number(name, number, ends) for number in numbers)


def _number(name: str, given: Any, ends: bool = True) -> float:
    """A number from 0 to 1; without `ends` neither 0 nor 1."""
    if type(given) not in (int, float) or not (0 <= given <= 1 if ends else 0 < given < 1):
        range_ = "from 0 to 1" if ends else "between 0 and 1"
        raise Problem(422, f"{name} must be a number {range_}, not {quoted(given)}")
    return float(given)


def to_text(value: Any) -> bytes:
    """JSON text of plain values; what is not finite becomes null."""
    return to_json(value, inf_nan_mode="null")
