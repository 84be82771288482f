"""What `unkgcp serve` does: check the address, read the token, load the runs and answer requests.

There is one process and one port for one run or several.

>>> serve("run", Address("127.0.0.1", 8000), Settings())     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import h11
import numpy as np
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service import ONLY, create_app
from unkgcp.service.limits import Metrics, Settings
from unkgcp.service.requests import to_text

TOKEN_VARIABLE = "UNKGCP_TOKEN"
BACKLOG = 2048
SEND_BUFFER = 1 << 17  # bytes of an answer that the system may hold
OTHER_FILES = 64  # files that the process has open beside its connections
SWITCH = 0.0005  # seconds after which a thread that computes lets the event loop go on
# A request of a hundred triples makes hundreds of lists that are gone with it, so garbage is looked for less often.
GARBAGE = (20_000, 20, 20)
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


def serve(
    runs: str | Sequence[str],
    address: Address,
    settings: Settings,
    announce: Callable[[str], None] = lambda line: None,
) -> None:
    """Load the runs and answer until told to stop; `announce` gets a line with the address once it listens."""
    folders = named_runs([runs] if isinstance(runs, str) else runs)
    with listen(address) as listener:
        predictors = {name: Predictor.load(folder) for name, folder in folders.items()}
        app = create_app(predictors, settings)
        for name, predictor in predictors.items():
            warm_up(app, predictor, name)
        answer_requests(app, listener, settings, announce)


def named_runs(folders: Sequence[str]) -> dict[str, str]:
    """The folders by their names, which are part of addresses; InputError for a name that is there twice or strange."""
    found: dict[str, str] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in found:
            raise InputError(f"{found[name]} and {folder} are both called {name}; rename one of the folders")
        if not name or not name.isprintable() or any(sign in name for sign in "{}?#%\\"):
            raise InputError(f"{folder} has a name that cannot be part of an address; rename the folder")
        found[name] = folder
    return found


def answer_requests(
    app: FastAPI, listener: socket.socket, settings: Settings, announce: Callable[[str], None]
) -> None:
    """Have an application answer what comes in at a socket until it is told to stop."""
    # what is loaded by now stays in use; looking through it for garbage again and again would only delay requests
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    sys.setswitchinterval(SWITCH)
    config = uvicorn.Config(
        app,
        http=connection_class(settings, allow_files(settings.max_connections), app.state.metrics),
        ws="none",
        lifespan="on",
        log_config=None,  # the program that serves has set how its log looks
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.grace_seconds,  # type: ignore[arg-type]
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
        with suppress(ValueError):  # raised where this is not the main thread, which alone may handle signals
            signal.signal(hangup, lambda number, frame: server.handle_exit(signal.SIGTERM, frame))


def warm_up(app: FastAPI, predictor: Predictor, name: str = ONLY) -> None:
    """Ask a few times, so that whatever is loaded, compiled or sorted at first use is there before the first request.

    The batcher learns in this way how long the run takes for a triple. A run without training facts is not asked.
    """
    own = predictor.model
    entities, relations = np.flatnonzero(own.seen_entities), np.flatnonzero(own.seen_relations)
    if not (len(entities) and len(relations)):
        return
    head, tail = (own.vocabulary.entities[int(entities[place])].as_py() for place in (0, -1))
    relation = own.vocabulary.relations[int(relations[0])].as_py()
    for model in predictor.models().values():
        model.prepare()
    app.state.batchers[name].measure((head, relation, tail))
    with suppress(InputError):  # a label such as "?" cannot be completed
        predictor.complete(head, relation, k=1)


def allow_files(connections: int) -> int:
    """Let the process have as many files open as connections need; how many connections it then can have."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(1, min(connections, soft - OTHER_FILES))
    return connections


def listen(address: Address) -> socket.socket:
    """A socket bound to the address; a port in use or a strange host is an `InputError`."""
    try:
        family, kind, protocol, _, place = _resolve(address)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # what a client does not read waits in this process, where it is counted, and not in the system
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
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
            text = Path(token_file).read_text(
                encoding="ascii", errors="replace"
            )  # by a sign that is not ASCII
        except OSError as error:
            raise InputError(
                f"{token_file} cannot be read ({error.strerror}); it should hold the token"
            ) from None
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


class Connection(H11Protocol):
    """An HTTP connection whose requests must arrive in time, and whose answers must be read in time.

    uvicorn itself has no such limits, so that clients could keep connections open for nothing.
    """

    settings: Settings
    metrics: Metrics
    most: int
    """Connections beyond which the one is dropped that has been without a request for longest."""
    unread: ClassVar[dict[Connection, None]]
    """Connections with bytes of an answer that their client has not read, the oldest first."""

    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _since = 0.0
    _crowded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # writing pauses as soon as anything is left to be sent, and goes on when nothing is
        transport.set_write_buffer_limits(high=0)
        self._since = self.loop.time()
        if len(self.connections) > self.most:
            self._make_room()
        self._watch(True)

    def data_received(self, data: bytes) -> None:
        if self._crowded:  # said now, because a client that is still sending would not get to read it
            self._refuse(b"503 Service Unavailable", "too many connections are open; try again later")
            return
        super().data_received(data)
        state = self.conn.their_state
        self._watch(state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0])))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        self._read()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self.settings.read_seconds, self._drop, "unread")
            self.unread[self] = None
            held = sum(one.transport.get_write_buffer_size() for one in self.unread)
            if held > self.settings.max_held:
                next(iter(self.unread))._drop("unread")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets its sentence as JSON, too."""
        self._refuse(b"400 Bad Request", "this is no HTTP request that can be read")

    def _watch(self, arriving: bool) -> None:
        """Start the timer when a request has begun to arrive, stop it when all of it is there."""
        if not arriving:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            # a body has its own limit, with a sentence, which comes first
            self._timer = self.loop.call_later(self.settings.body_seconds + 1, self._drop, "slow")

    def _read(self) -> None:
        """All of the answer is read, or nobody is there to read it."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self.unread.pop(self, None)

    def _make_room(self) -> None:
        """Drop the connection that has been idle, sending a request or reading an answer for longest."""
        others = cast("set[Connection]", self.connections) - {self}
        waiting = [one for one in others if one._waits_for_its_client()]
        if waiting:
            min(waiting, key=lambda one: one._since)._drop("crowded")
        else:
            self._crowded = True

    def _waits_for_its_client(self) -> bool:
        return self._timer is not None or self.cycle is None or self.cycle.response_complete

    def _drop(self, why: str) -> None:
        # one that is closing may still be waiting for its last answer to be read
        if why == "unread" or not self.transport.is_closing():
            self.metrics.drop(why)
            self.connections.discard(self)
            self._read()
            self.transport.abort()

    def _refuse(self, status: bytes, sentence: str) -> None:
        """Answer without the application, and close."""
        body = to_text({"error": sentence})
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()


def connection_class(settings: Settings, most: int, metrics: Metrics) -> type[Any]:
    """A `Connection` with these limits."""
    own = {"settings": settings, "most": most, "metrics": metrics, "unread": {}}
    return type("Connection", (Connection,), own)
