"""A polite end: told to stop, a command tidies up as after Ctrl-C; left by its reader, it ends without a word."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

READER = "unkgcp-read"
SIGNALS = ("SIGTERM", "SIGHUP")


@contextmanager
def tidy_end() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the program through the usual clean-up, so that no partial file stays.

    The exit status is then 143 or 129. A signal that was ignored before, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # a closed terminal says so twice: let the clean-up finish
        raise SystemExit(128 + number)

    known = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except SystemExit as ending:
        # all is tidy, but Python would wait for a thread that waits for a pipe, perhaps for ever
        if any(thread.name == READER for thread in threading.enumerate()):
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            os._exit(ending.code if isinstance(ending.code, int) else 1)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """The reader of standard output may leave early: that is no error, and Python must not complain at exit either."""
    try:
        yield
    except BrokenPipeError as error:
        if not _left():
            raise RuntimeError(f"a pipe of this program broke ({error.strerror})") from error
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def _left() -> bool:
    """Whether nobody reads standard output any more; True where that cannot be told."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), select.POLLOUT)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in watch.poll(0))
    except (OSError, ValueError, AttributeError):
        return True
