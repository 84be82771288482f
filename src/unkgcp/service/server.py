"""A run behind a port: the address is checked, the token read, the run loaded, and requests are answered.

This is what `unkgcp serve` does: one process, one run, one port.

>>> serve("run", Address("127.0.0.1", 8000), Settings())     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import h11
import numpy as np
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service import create_app
from unkgcp.service.settings import Settings

TOKEN_VARIABLE = "UNKGCP_TOKEN"
CONNECTIONS = 1000
BACKLOG = 2048
# a request of a hundred triples makes hundreds of lists that are gone with it: look for garbage less often
GARBAGE = (20_000, 20, 20)
GRACE = 5  # seconds for requests on their way when the service is told to stop
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


def serve(
    run: str, address: Address, settings: Settings, announce: Callable[[str], None] = lambda line: None
) -> None:
    """Load the run and answer until told to stop; `announce` gets a line with the address once it listens."""
    with listen(address) as listener:
        predictor = Predictor.load(run)
        app = create_app(predictor, settings)
        warm_up(predictor)
        answer_requests(app, listener, settings, announce)


def answer_requests(
    app: FastAPI, listener: socket.socket, settings: Settings, announce: Callable[[str], None]
) -> None:
    """Have an application answer what comes in at a socket until it is told to stop."""
    # what is loaded by now stays: there is no need to look through it again and again for garbage, which would hold
    # up all requests of that moment
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    config = uvicorn.Config(
        app,
        http=connection_class(settings.body_seconds + 1),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    server = uvicorn.Server(config)
    _stop_on_hangup(server)
    server.run(sockets=[listener])


def _stop_on_hangup(server: uvicorn.Server) -> None:
    """A closed terminal stops the service as SIGTERM does, unless that was to be ignored, as under nohup."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        with suppress(ValueError):  # only the main thread is told
            signal.signal(hangup, lambda number, frame: server.handle_exit(signal.SIGTERM, frame))


def warm_up(predictor: Predictor) -> None:
    """Ask once, so that whatever is loaded, compiled or sorted at first use is there before the first request."""
    model = predictor.model
    entities, relations = np.flatnonzero(model.seen_entities), np.flatnonzero(model.seen_relations)
    if not (len(entities) and len(relations)):
        return
    head = model.vocabulary.entities[int(entities[0])].as_py()
    relation = model.vocabulary.relations[int(relations[0])].as_py()
    predictor.interval([(head, relation, head)])
    with suppress(InputError):  # a label such as "?" cannot be completed
        predictor.complete(head, relation, k=1)


def listen(address: Address) -> socket.socket:
    """A socket bound to the address; a port in use or a strange host is an `InputError`."""
    try:
        family, kind, protocol, _, place = _resolve(address)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)  # from now on clients may come; they wait until the run is loaded
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(
            f"cannot listen on {address.host} port {address.port} ({why}); choose another with --host or --port"
        ) from None
    return listener


def access(
    address: Address, token_file: str | None, without_token: bool
) -> tuple[bytes | None, frozenset[str] | None]:
    """The token to ask for and the host names to answer to.

    A service that others can reach needs a token unless `without_token` says otherwise. One that only this
    machine can reach needs none, but then answers to the names of this machine alone: otherwise any web page
    could have its own name point here and read the answers.
    """
    token = read_token(token_file)
    if token is not None:
        return token, None
    if all(_loopback(place[0]) for *_, place in _resolve(address)):
        return None, LOOPBACK_NAMES | {address.host.lower()}
    if not without_token:
        raise InputError(
            f"--host {address.host} can be reached from other machines; give a token with --token-file or "
            f"{TOKEN_VARIABLE}, or say --without-token"
        )
    return None, None


def read_token(token_file: str | None) -> bytes | None:
    """The token in the file, else in the environment; None where there is neither."""
    where, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if token_file is not None:
        where = token_file
        try:
            text = Path(token_file).read_text(encoding="ascii")
        except OSError as error:
            raise InputError(
                f"{token_file} cannot be read ({error.strerror}); it should hold the token"
            ) from None
        except UnicodeDecodeError:
            text = "ä"
    if text is None:
        return None
    token = text.strip()
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise InputError(f"{where} holds no token: expected one line of letters, digits and signs")
    return token.encode()


def _resolve(address: Address) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    if not 0 <= address.port <= 65535:
        raise InputError(f"--port {address.port} is no port; use one from 1 to 65535")
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {address.host} is no address of this machine ({error})") from None
    return found  # type: ignore[return-value]


def _loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


# HTTP connections that cannot be kept open by sending slowly: uvicorn has no time limit for a request to arrive.


class Connection(H11Protocol):
    """A connection whose requests must arrive in time."""

    arrival_seconds = 15.0

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        self._watch(state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0])))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        super().connection_lost(exc)

    def _watch(self, arriving: bool) -> None:
        """Start the timer when a request has begun to arrive, stop it when all of it is there."""
        if not arriving:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.arrival_seconds, self.transport.close)


def connection_class(seconds: float) -> type[Any]:
    """A `Connection` with this time."""
    return type("Connection", (Connection,), {"arrival_seconds": seconds})
