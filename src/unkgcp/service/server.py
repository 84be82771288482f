"""What `unkgcp serve` does: load the runs, listen, answer until told to stop.

There is one process and one port for one run or several. SIGHUP loads the runs again, SIGTERM stops within
`Settings.grace`. Connections are counted and closed by uvicorn; whoever faces the open internet puts a proxy in
front (docs/deploying.md), which also waits for slow clients.

>>> with listen("127.0.0.1", 8000) as listener:                  # doctest: +SKIP
...     serve(["run"], listener, Settings())
"""

from __future__ import annotations

import gc
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import uvicorn
from fastapi import FastAPI

from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service import create_app
from unkgcp.service.settings import Settings

TOKEN_VARIABLE = "UNKGCP_TOKEN"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
BACKLOG = 2048
LAST_SECONDS = 2  # of the grace, for the end after the last answer


def serve(
    runs: Sequence[str],
    listener: socket.socket,
    settings: Settings,
    announce: Callable[[str], None] = lambda line: None,
) -> None:
    """Load the runs and answer what comes in at a socket until told to stop; `announce` gets the address then."""
    folders = {Path(folder).resolve().name: folder for folder in runs}  # names are part of addresses
    if len(folders) < len(runs):
        raise InputError(f"of {', '.join(runs)} two have the same name; rename one of the folders")
    app = create_app({name: Predictor.load(folder) for name, folder in folders.items()}, settings)
    try:
        answer_requests(app, listener, settings, announce)
    finally:
        # a thread cannot be stopped: what still computes for nobody must not hold the process
        last = Timer(LAST_SECONDS, os._exit, [0])
        last.daemon = True
        last.start()


def answer_requests(
    app: FastAPI, listener: socket.socket, settings: Settings, announce: Callable[[str], None]
) -> None:
    """Have an application answer what comes in at a socket until it is told to stop."""
    gc.set_threshold(20_000, 20, 20)  # a request makes hundreds of lists that are gone with it
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,  # the program that serves has set how its log looks
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=max(settings.grace - LAST_SECONDS, 1),
    )
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    with suppress(ValueError, AttributeError):  # not the main thread, or a system without this signal
        signal.signal(signal.SIGHUP, lambda number, frame: Thread(target=_reload, args=(app,)).start())
    uvicorn.Server(config).run(sockets=[listener])


def _reload(app: FastAPI) -> None:
    with suppress(InputError):  # said in the log
        app.state.runs.reload()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address, port 0 for a free one; a port in use or a strange host is an `InputError`."""
    family, *_, place = _places(host, port)[0]
    try:
        # from now on clients may come; they wait until the run is loaded
        listener = socket.create_server(place, family=family, backlog=BACKLOG)
        # what is accepted inherits this: otherwise an answer's body waits 40 ms until its head is acknowledged
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); "
            "choose another with --host or --port"
        ) from None


def _places(host: str, port: int) -> list[Any]:
    """What `socket.getaddrinfo` says; InputError for a strange host."""
    try:
        return socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host} is no address of this machine ({error})") from None


def access(
    host: str, token: str | None, without_token: bool = False, allowed: Iterable[str] = ()
) -> tuple[bytes | None, frozenset[str] | None]:
    """The token to ask for and the host names to answer to, which are `allowed` where it names some.

    A service that others can reach needs a token unless `without_token` says otherwise. One that only this machine can
    reach needs none, but then answers to the names of this machine alone: otherwise any web page could have its own
    name point here and read the answers.
    """
    token = None if token is None else token.strip()
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise InputError("the token must be one line of letters, digits and signs")
    names = frozenset(name.lower() for name in allowed)
    addresses = [address[0].partition("%")[0] for *_, address in _places(host, 0)]
    loopback = all(ipaddress.ip_address(address).is_loopback for address in addresses)
    if token is None and not loopback and not without_token:
        raise InputError(
            f"--host {host} can be reached from other machines; give a token with --token-file or "
            f"{TOKEN_VARIABLE}, or set UNKGCP_WITHOUT_TOKEN=yes"
        )
    if names or (token is None and loopback):
        names |= LOOPBACK_NAMES | {host.lower()}
    return None if token is None else token.encode(), names or None
