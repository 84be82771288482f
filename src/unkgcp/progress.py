"""Progress of long work: a bar on a terminal, one line a step otherwise. Always on stderr, never in results.

Nobody need listen: where stderr is closed, the work goes on without a word.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol


class Progress(Protocol):
    """What long work reports to: how far it is and a short text with its current figures."""

    def update(self, done: float, text: str = "") -> None: ...


class Silent:
    """Reports nothing; the default of every function in the Python interface."""

    def update(self, done: float, text: str = "") -> None:
        return


def say(sentence: str) -> None:
    """A line on stderr, for whoever listens."""
    with suppress(OSError, ValueError, AttributeError):
        print(sentence, file=sys.stderr, flush=True)


class Reporter:
    """A progress bar on a terminal; lines no more often than every `every` seconds elsewhere.

    >>> with Reporter("training", total=100) as progress:
    ...     progress.update(10, "loss 0.1")
    """

    def __init__(self, title: str, total: float | None = None, every: float = 5.0) -> None:
        self.title, self.total, self.every = title, total, every
        self._bar: Any = None
        self._task: Any = None
        self._last = -float("inf")

    def __enter__(self) -> Reporter:
        self._start = time.monotonic()
        if sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.title, total=self.total, text="")
            with suppress(OSError):
                self._bar.start()
        return self

    def update(self, done: float, text: str = "") -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(self._task, completed=done, text=text)
            return
        now = time.monotonic()
        if now - self._last >= self.every:
            self._last = now
            of = f" of {self.total:,.10g}" if self.total is not None else ""
            say(f"{self.title}: {done:,.10g}{of} {text}".rstrip())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()


def speed(done: int, seconds: float, total: float | None) -> str:
    """How quick it goes, and how long it will take.

    >>> speed(1_000_000, 2.0, 10_000_000)
    '500,000 queries/s, 18 s left'
    """
    rate = done / max(seconds, 1e-9)
    left = "" if total is None or not done else f", {max(0.0, (total - done) / rate):.0f} s left"
    return f"{rate:,.0f} queries/s{left}"
