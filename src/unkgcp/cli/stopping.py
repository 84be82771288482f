"""A polite end: when the system asks a command to stop, it tidies up as it does after Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def tidy_end() -> Iterator[None]:
    """Inside, SIGTERM ends the program with status 143 through the usual clean-up, so that no partial file stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
