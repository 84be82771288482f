"""Commands in processes of their own, caught in the middle of their work; and a service in a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def served(*arguments: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`unkgcp serve` in a process of its own, and its address, which ends in a stroke."""
    command = [sys.executable, "-m", "unkgcp", "serve", *map(str, arguments)]
    environment = {**os.environ, "UNKGCP_PORT": "0", **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=environment) as process:  # type: ignore[call-overload]
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, line.split()[-1]
            process.terminate()
            process.wait(timeout=40)
        finally:
            process.kill()


@contextmanager
def serving(predictors: Any, **settings: Any) -> Iterator[str]:
    """A service on a port of its own, in a thread; its address."""
    import uvicorn

    from unkgcp.service import Settings, create_app

    server = uvicorn.Server(
        uvicorn.Config(create_app(predictors, Settings(**settings)), port=0, log_level="error")
    )
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(server.run)
        while not (server.started or running.done()):
            threading.Event().wait(0.01)
        try:
            yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
        finally:
            server.should_exit = True  # also where the test fails, or its thread would be waited for


def until_writing(running: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a command that still runs has begun to write its output in the folder."""
    deadline = time.monotonic() + 60
    while not any(path.name.startswith(".partial-") for path in folder.iterdir()):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)


def killed_at(step: int, folder: Path, work: Callable[[], object]) -> bool:
    """Do some work in a copy of this process that dies just before its n-th change of files in the folder.

    Returns whether it died: False means that all of the work was done. Dying is as sudden as by `kill -9`.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    changes = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate")
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event in changes or (event == "open" and _writes(arguments))
        if writes and str(arguments[0]).startswith(str(folder)):
            if seen == step:
                os._exit(9)
            seen += 1

    try:
        sys.addaudithook(hook)
        work()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return mode[0] in "wxa" or "+" in mode
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
