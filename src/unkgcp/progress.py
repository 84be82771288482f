"""What a command says of its work while it is at it: always on stderr, never in results.

A bar on a terminal; elsewhere lines with the time, no more often than every few seconds, fit for a log. `--quiet`
leaves errors only, `--verbose` adds what is done, how large it is and how long it took. The Python interface says
nothing: there nobody asks for a `Reporter`, and details are off.

Nobody need listen: where stderr is closed, the work goes on without a word.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


class Loudness(IntEnum):
    """How much is said: errors only, notes and progress too, details too."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


TIME = "%Y-%m-%dT%H:%M:%S%z"
"""How the time stands in a log."""
_loudness = Loudness.USUAL  # of this process, whose threads all write to one stderr


@contextmanager
def loudness(chosen: Loudness) -> Iterator[None]:
    """Say as much as this inside."""
    global _loudness
    before, _loudness = _loudness, chosen
    try:
        yield
    finally:
        _loudness = before


def is_quiet() -> bool:
    """Whether nothing but errors is to be said."""
    return _loudness is Loudness.QUIET


def complain(sentence: str) -> None:
    """An error: a line on stderr however quiet the command is, and as it stands, for scripts that look for it."""
    with suppress(OSError, ValueError, AttributeError):
        print(sentence, file=sys.stderr, flush=True)


def say(sentence: str) -> None:
    """A note: a line on stderr, with the time where no one watches it come."""
    if not is_quiet():
        complain(sentence if _watched() else f"{time.strftime(TIME)} {sentence}")


def detail(sentence: str) -> None:
    """What only `--verbose` wants to know."""
    if _loudness is Loudness.VERBOSE:
        say(sentence)


def detailed(describe: Callable[[Found], str]) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """Over a function: with `--verbose`, say what it gave and how long that took.

    >>> @detailed(lambda facts: f"{len(facts):,} facts")
    ... def read(path): return path.split()
    """

    def over(function: Callable[Given, Found]) -> Callable[Given, Found]:
        @wraps(function)
        def timed(*arguments: Given.args, **options: Given.kwargs) -> Found:
            start = time.monotonic()
            found = function(*arguments, **options)
            if _loudness is Loudness.VERBOSE:
                detail(f"{describe(found)}: took {time.monotonic() - start:.2f} s")
            return found

        return timed

    return over


def _watched() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


class Progress(Protocol):
    """What long work reports to: how far it is and a short text with its current figures."""

    def update(self, done: float, text: str = "") -> None: ...


class Silent:
    """Reports nothing; the default of every function in the Python interface."""

    def update(self, done: float, text: str = "") -> None:
        return


class Part:
    """Progress of a part of longer work, told as that of the whole, in which the part lies from `begin` to `end`.

    >>> part = Part(Silent(), 40, 60, total=2000)
    >>> part.update(1000, "half of it: the whole is at 50")
    """

    def __init__(self, whole: Progress, begin: float, end: float, total: float) -> None:
        self.whole, self.begin, self.end, self.total = whole, begin, end, max(total, 1)

    def update(self, done: float, text: str = "") -> None:
        self.whole.update(round(self.begin + (self.end - self.begin) * min(done / self.total, 1), 1), text)


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
        if _watched() and not is_quiet():
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
        if now - self._last >= self.every and not is_quiet():
            self._last = now
            of = f" of {self.total:,.10g}" if self.total is not None else ""
            say(f"{self.title}: {done:,.10g}{of} {text}".rstrip())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()
        if error is None:
            detail(f"{self.title}: took {time.monotonic() - self._start:.2f} s")


def speed(done: int, seconds: float, total: float | None) -> str:
    """How quick it goes, and how long it will take.

    >>> speed(1_000_000, 2.0, 10_000_000)
    '500,000 queries/s, 18 s left'
    """
    rate = done / max(seconds, 1e-9)
    left = "" if total is None or not done else f", {max(0.0, (total - done) / rate):.0f} s left"
    return f"{rate:,.0f} queries/s{left}"
