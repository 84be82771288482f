"""A polite end: when the system asks a command to stop, it tidies up as it does after Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

READER = "unkgcp-read"


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
    except (KeyboardInterrupt, SystemExit) as ending:
        # all is tidy, but Python would wait for a thread that waits for a pipe, perhaps for ever
        if any(thread.name == READER for thread in threading.enumerate()):
            if isinstance(ending, KeyboardInterrupt):
                print("unkgcp: stopped by the user", file=sys.stderr)
            sys.stderr.flush()
            os._exit(ending.code if isinstance(ending, SystemExit) and isinstance(ending.code, int) else 130)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
