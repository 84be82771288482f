"""What `unkgcp serve` does: load the runs, listen, answer until told to stop.

There is one process and one port for one run or several. SIGHUP loads the runs again, SIGTERM stops within
`Settings.grace`. Connections are counted and closed by uvicorn; whoever faces the open internet puts a proxy in
front (docs/deploying.md), which also waits for slow clients.

>>> serve(["run"], Address("127.0.0.1", 8000), Settings())     # doctest: +SKIP
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread, Timer

import uvicorn
from fastapi import FastAPI

from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service import create_app
from unkgcp.service.settings import Address, Settings

BACKLOG = 2048
LAST_SECONDS = 2.0  # for threads to end after the last answer


def serve(
    runs: Sequence[str],
    address: Address,
    settings: Settings,
    announce: Callable[[str], None] = lambda line: None,
) -> None:
    """Load the runs and answer until told to stop; `announce` gets the address once it listens."""
    folders = named_runs(runs)
    with listen(address) as listener:
        app = create_app({name: Predictor.load(folder) for name, folder in folders.items()}, settings)
        answer_requests(app, listener, settings, announce)
    # a thread cannot be stopped: what still computes for nobody must not hold the process
    last = Timer(LAST_SECONDS, os._exit, [0])
    last.daemon = True
    last.start()


def named_runs(folders: Sequence[str]) -> dict[str, str]:
    """The folders by their names, which are part of addresses; InputError for a name that is there twice."""
    by_name: dict[str, str] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in by_name:
            raise InputError(
                f"{by_name[name]} and {folder} are both called {name}; rename one of the folders"
            )
        by_name[name] = folder
    return by_name


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
        timeout_graceful_shutdown=settings.grace,
    )
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    with suppress(ValueError, AttributeError):  # not the main thread, or a system without this signal
        signal.signal(signal.SIGHUP, lambda number, frame: Thread(target=_reload, args=(app,)).start())
    uvicorn.Server(config).run(sockets=[listener])


def _reload(app: FastAPI) -> None:
    with suppress(InputError):  # said in the log
        app.state.runs.reload()


def listen(address: Address) -> socket.socket:
    """A socket bound to the address; a port in use or a strange host is an `InputError`."""
    family, kind, protocol, _, place = address.resolved()[0]
    try:
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
