"""What long work reports to: how far it is, whoever listens.

Rooms are given a `Progress`, or a class of one that they open themselves; commands give `unkgcp.cli.output.Reporter`.
The Python interface is silent by default. How large things are and how long they took goes to Python's `logging`, where
nobody sees it who has not asked; `--verbose` asks.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What long work reports to: how far it is and a short text with its current figures.

    since: when the work began, on the clock of `time.monotonic`, where it is to be said how quick it goes.
    """

    def update(self, done: float, text: str = "", since: float | None = None) -> None: ...


class Silent:
    """Reports nothing; the default of every function in the Python interface."""

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        return


class Part:
    """Progress of a part of longer work, told as that of the whole, in which the part lies from `begin` to `end`.

    >>> part = Part(Silent(), 40, 60, total=2000)
    >>> part.update(1000, "half of it: the whole is at 50")
    """

    def __init__(self, whole: Progress, begin: float, end: float, total: float) -> None:
        self.whole, self.begin, self.end, self.total = whole, begin, end, max(total, 1)

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        self.whole.update(round(self.begin + (self.end - self.begin) * min(done / self.total, 1), 1), text)
