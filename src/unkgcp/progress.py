"""Progress of long work.

Functions get a `Progress` and report to it; commands give them `unkgcp.cli.output.Reporter`, and the Python interface
is silent by default. Sizes and times go to Python's `logging` instead, which `--verbose` shows.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Long work reports how far it is and a short text with its current figures.

    since: when the work began, on the clock of `time.monotonic`, if the speed is to be shown
    """

    def update(self, done: float, text: str = "", since: float | None = None) -> None: ...


class Silent:
    """Reports nothing; the default of every function in the Python interface."""

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        return


class Part:
    """Progress of a part of longer work, reported as progress of the whole, of which the part is `begin` to `end`.

    >>> part = Part(Silent(), 40, 60, total=2000)
    >>> part.update(1000, "half of it: the whole is at 50")
    """

    def __init__(self, whole: Progress, begin: float, end: float, total: float) -> None:
        self.whole, self.begin, self.end, self.total = whole, begin, end, max(total, 1)

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        self.whole.update(round(self.begin + (self.end - self.begin) * min(done / self.total, 1), 1), text)
