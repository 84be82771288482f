"""A Ray cluster for the time of one piece of work: an existing one, or one on this machine that is gone after.

Ray's usage statistics are off, its messages stay out of our output, and a cluster started here keeps its files in a
folder of its own that is removed at the end.

>>> with connected(workers=2) as cluster:     # doctest: +SKIP
...     cluster.data.from_arrow(...)
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, TextIO

from unkgcp.errors import InputError

# what the object store of a local cluster may hold: only the plan of the parts and their counts pass through it
STORE_BYTES = 80 << 20
PATIENCE = 10.0  # seconds for somebody to answer at an address
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise a warning on machines without accelerators
    "RAY_TQDM": "0",
}


@contextlib.contextmanager
def connected(workers: int, address: str | None = None, gpus: bool = False) -> Iterator[Any]:
    """Yield the module `ray`, connected.

    To the cluster this process is connected to already, if there is one; else to `address` or $RAY_ADDRESS
    (`auto`, `host:port`); else to a new one on this machine with as many CPUs as `workers`.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    ray = _imported()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_muted())
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            _connect(ray, workers, address or os.environ.get("RAY_ADDRESS"), gpus, stack)
        stack.enter_context(_hushed(ray))
        yield ray


def _imported() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("--engine ray needs ray: pip install 'unkgcp[ray]'") from error
    return ray


def _connect(ray: Any, workers: int, address: str | None, gpus: bool, stack: contextlib.ExitStack) -> None:
    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if address is not None and address != "local":
        try:
            _knock(address)
            ray.init(address=address, **quiet)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            why = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
            raise InputError(
                f"no Ray cluster answers at {address} ({why}); start one with `ray start --head`, "
                "or leave --address out"
            ) from error
        return
    folder = tempfile.mkdtemp(prefix="unkgcp-ray-")
    # callbacks run in reverse: Ray is shut down before its folder goes
    shutdown = stack.pop_all()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.push(shutdown)
    ray.init(
        address="local",
        num_cpus=workers,
        num_gpus=workers if gpus else None,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        _temp_dir=folder,
        **quiet,
    )


def _knock(address: str) -> None:
    """See whether anybody listens there at all: Ray itself goes on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        if not host or not port.isdecimal():
            raise ValueError("an address is auto or HOST:PORT")
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Keep what Ray itself prints out of our output.

    It prints the deaths of workers to standard output, where answers may go, and remarks of its C++ core straight
    to file descriptor 2. What Python writes to `sys.stderr`, our progress for instance, still gets there.
    """
    before = sys.stderr
    before.flush()
    with contextlib.ExitStack() as stack:
        kept = os.dup(2)
        stack.callback(os.close, kept)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if _is_descriptor_2(before):
            direct = stack.enter_context(
                open(kept, "w", buffering=1, encoding=before.encoding, errors="replace", closefd=False)
            )
            stack.enter_context(contextlib.redirect_stderr(direct))
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        stack.callback(os.dup2, kept, 2)
        yield


def _is_descriptor_2(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False  # a notebook or a test shows it elsewhere


@contextlib.contextmanager
def _hushed(ray: Any) -> Iterator[None]:
    """No progress bars and no log lines of Ray Data meanwhile: progress is reported by us."""
    context = ray.data.DataContext.get_current()
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    before = context.enable_progress_bars, [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        for logger, level in zip(loggers, before[1], strict=True):
            logger.setLevel(level)
