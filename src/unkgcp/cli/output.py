"""What commands print, in one way for all of them.

Results go to standard output: text for people, or with `--json` one object for programs, with every figure as it was
computed, and nothing else. A command calls both functions and the one that was asked for prints:

    print_text(evaluation_text(result))
    print_json(result)

Everything else goes to standard error: a bar on a terminal; elsewhere lines with the time, no more often than every few
seconds, fit for a log. `--quiet` leaves errors only, `--verbose` adds versions, what is done, how large it is and how
long it took. Both are options of every command; `add_manners` adds them. Nobody need listen: where stderr is closed,
the work goes on without a word.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import TracebackType
from typing import Any

import click

from unkgcp.progress import Progress

JSON = "unkgcp.json"


def _remember(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    context.meta[JSON] = given


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Print one JSON object instead of text, figures as they were computed.",
)


def wants_json() -> bool:
    """Whether the command that runs was given `--json`."""
    return bool(click.get_current_context().meta.get(JSON, False))


def print_text(text: str) -> None:
    """For people: a part of the result, as soon as it is known."""
    if not wants_json():
        click.echo(text)


def print_json(found: Mapping[str, Any]) -> None:
    """For programs: all of the result, at the end. A figure that is no number is null, which JSON can say."""
    if wants_json():
        import json

        click.echo(json.dumps(_plain(found), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return _plain(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def _quiet(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        _choose(context, Loudness.QUIET)


def _verbose(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if not given or context.meta.get("unkgcp.loudness") is Loudness.VERBOSE:
        return
    _choose(context, Loudness.VERBOSE)
    context.with_resource(_details())
    start = time.monotonic()
    from unkgcp.cli.versions import one_line

    detail(one_line())

    def ended() -> None:
        detail(f"took {time.monotonic() - start:.2f} s{_most_memory()}")

    context.call_on_close(ended)


def _choose(context: click.Context, chosen: Loudness) -> None:
    if context.meta.setdefault("unkgcp.loudness", chosen) is not chosen:
        raise click.UsageError("--quiet and --verbose do not go together: leave one of them out")
    context.with_resource(loudness(chosen))


@contextmanager
def _details() -> Iterator[None]:
    """What the rooms tell the package's logger is said too."""
    import logging  # not at import: start-up time

    class Saying(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            detail(record.getMessage())

    log, handler = logging.getLogger("unkgcp"), Saying()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


def _most_memory() -> str:
    """The memory that this process has had at most, where the system tells."""
    try:
        import resource
    except ImportError:
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    return f", {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20:,.0f} MiB of memory at most"


MANNERS: tuple[tuple[str, str, Callable[..., None], str], ...] = (
    ("-q", "--quiet", _quiet, "Say nothing but errors beside the result."),
    ("-v", "--verbose", _verbose, "Also say versions, sizes and how long each step takes."),
)


def add_manners(command: click.Command) -> click.Command:
    """The command with `--quiet` and `--verbose`; of a group, all its commands have them too."""
    if not any(parameter.name == "quiet" for parameter in command.params):
        command.params += [
            click.Option([short, long], is_flag=True, expose_value=False, callback=heed, help=text)
            for short, long, heed, text in MANNERS
        ]
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                add_manners(inner)
    return command


# What a command says of its work while it is at it: always on stderr, never in results.


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


def _watched() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


class Reporter(Progress):
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
            import rich.progress as rich
            from rich.console import Console

            self._bar = rich.Progress(
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.TextColumn("{task.fields[text]}"),
                rich.TimeElapsedColumn(),
                rich.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.title, total=self.total, text="")
            with suppress(OSError):
                self._bar.start()
        return self

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        now = time.monotonic()
        if since is not None:
            text = ", ".join([_speed(done, now - since, self.total), *([text] if text else [])])
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(self._task, completed=done, text=text)
            return
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


def _speed(done: float, seconds: float, total: float | None) -> str:
    """How quick it goes, and how long it will take.

    >>> _speed(1_000_000, 2.0, 10_000_000)
    '500,000 queries/s, 18 s left'
    """
    rate = done / max(seconds, 1e-9)
    left = "" if total is None or not done else f", {max(0.0, (total - done) / rate):.0f} s left"
    return f"{rate:,.0f} queries/s{left}"
