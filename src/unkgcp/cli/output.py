"""What commands print, in one way for all of them.

Results go to standard output: text for people, or with `--json` one object for programs, with every figure as it was
computed, and nothing else. A command calls both functions and the one that was asked for prints:

    print_text(evaluation_text(result))
    print_json(result)

Everything else goes to standard error: a bar on a terminal; elsewhere lines with the time, no more often than every few
seconds, fit for a log. `--quiet` leaves errors only, `--verbose` adds versions, what is done, how large it is and how
long it took. Both are options of every command; `add_manners` adds them. Where stderr is closed, the work goes on
without a word. `--version` prints the versions of the libraries, which are found without importing them.
"""

from __future__ import annotations

import platform
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import click

from unkgcp._version import __version__
from unkgcp.errors import EXTRAS
from unkgcp.progress import Progress

if TYPE_CHECKING:
    from unkgcp.run.predictor import Predictor

JSON, LOUDNESS = "unkgcp.json", "unkgcp.loudness"  # where a call of click keeps what was asked for


def _remember(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    context.meta[JSON] = is_set


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
    """Print a part of the result for people, as soon as it is known."""
    if not wants_json():
        click.echo(text)


def print_json(result: Mapping[str, Any]) -> None:
    """Print all of the result for programs, at the end. A figure that is no number becomes null."""
    if wants_json():
        import json

        click.echo(json.dumps(_plain(result), indent=2, ensure_ascii=False, allow_nan=False))


def print_evaluation(result: dict[str, Any]) -> None:
    """Print the summary of an evaluation, its verdict in colour where a terminal shows it."""
    from unkgcp.evaluation.evaluation_texts import COLOURS_OF_VERDICTS, summary

    text = summary(result)
    for words, colour in COLOURS_OF_VERDICTS.items():
        text = text.replace(words, click.style(words, fg=colour, bold=True), 1)
    print_text(text)


WITHIN = {"doubt": "level of doubt", "relation": "relation", "degree": "class of degree"}
"""Where a promise holds, by the names that `fit --per` takes."""


def print_guarantee(predictor: Predictor) -> dict[str, str | None]:
    """Print what a run promises, and a caution if there is one; gives both by name."""
    method, guarantee = predictor.method, predictor.guarantee
    caution, per = method.caution(0.9), method.options().get("per", "none")
    promise = f"guarantee of {method.name}: {guarantee} ({method.size:,} calibration facts)"
    # where every line counts, what is promised everywhere is left out
    if is_terminal(sys.stdout) and per != "none":
        promise = (
            " and ".join(["Promised within each kind of question", *(WITHIN[by] for by in per.split(","))])
            + "."
        )
    shown = caution
    if caution and is_terminal(sys.stdout):
        first, *others = caution.split("; ")
        shown = f"{first} (and {len(others)} more, in --json)" if others else first
    for sentence in filter(None, (promise, shown)):
        print_text(textwrap.fill(sentence, 80) if is_terminal(sys.stdout) else sentence)
    return {"guarantee": guarantee, "caution": caution}


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


def _set_loudness(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    chosen = QUIET if parameter.name == "quiet" else VERBOSE
    if not is_set or context.meta.get(LOUDNESS) is chosen:
        return
    if context.meta.setdefault(LOUDNESS, chosen) is not chosen:
        raise click.UsageError("--quiet and --verbose do not go together: leave one of them out")
    context.with_resource(loudness(chosen))
    if chosen is VERBOSE:
        context.with_resource(_details())


@contextmanager
def _details() -> Iterator[None]:
    """Say versions first, the time last, and in between what the rooms tell the package's logger."""
    import logging  # not at import: start-up time

    class Saying(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            detail(record.getMessage())

    log, handler, start = logging.getLogger("unkgcp"), Saying(), time.monotonic()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    detail(", ".join(version_text().splitlines()))
    try:
        yield
    finally:
        detail(f"took {time.monotonic() - start:.2f} s")
        log.setLevel(before)
        log.removeHandler(handler)


MANNERS = {
    "quiet": "Say nothing but errors beside the result.",
    "verbose": "Also say versions, sizes and how long each step takes.",
}


def add_manners(command: click.Command) -> click.Command:
    """The command with `--quiet` and `--verbose`; of a group, all its commands have them too."""
    if not any(parameter.name == "quiet" for parameter in command.params):
        command.params += [
            click.Option(
                [f"-{name[0]}", f"--{name}"],
                is_flag=True,
                expose_value=False,
                callback=_set_loudness,
                help=text,
            )
            for name, text in MANNERS.items()
        ]
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                add_manners(inner)
    return command


# What a command says about its work while it runs: always on stderr, never in results.


QUIET, USUAL, VERBOSE = range(3)
"""How much is said: errors only, notes and progress too, details too."""
TIME = "%Y-%m-%dT%H:%M:%S%z"
"""The format of the time in a log."""
_loudness = USUAL  # of the whole process, since all its threads write to one stderr


@contextmanager
def loudness(chosen: int) -> Iterator[None]:
    """Say as much as this inside."""
    global _loudness
    before, _loudness = _loudness, chosen
    try:
        yield
    finally:
        _loudness = before


def is_quiet() -> bool:
    """Whether nothing but errors is to be said."""
    return _loudness is QUIET


def complain(sentence: str) -> None:
    """Print an error to stderr however quiet the command is, without the time, for scripts that look for it."""
    with suppress(OSError, ValueError, AttributeError):
        print(sentence, file=sys.stderr, flush=True)


def say(sentence: str) -> None:
    """Print a line to stderr, with the time where stderr is no terminal."""
    if not is_quiet():
        complain(
            textwrap.fill(sentence, 80) if is_terminal(sys.stderr) else f"{time.strftime(TIME)} {sentence}"
        )


def note(sentence: str | None) -> None:
    """Say something that the user should know about the result; nothing if it is None."""
    if sentence is not None:
        say(f"unkgcp: {sentence}")


def detail(sentence: str) -> None:
    """Say something that only `--verbose` shows."""
    if _loudness is VERBOSE:
        say(sentence)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sees what is written to this stream, or types what is read from it; closed ones are None."""
    return stream is not None and not stream.closed and stream.isatty()


class Reporter(Progress):
    """A progress bar on a terminal; lines no more often than every `every` seconds elsewhere.

    >>> with Reporter("training", total=100) as progress:
    ...     progress.update(10, "loss 0.1")
    """

    def __init__(self, title: str, total: float | None = None, every: float = 5.0) -> None:
        self.title, self.total, self.every = title, total, every
        self._bar: Any = None
        self._last = -float("inf")
        self._done: tuple[float, float] = (0.0, 0.0)  # what was done, and what of it was said

    def __enter__(self) -> Reporter:
        self._start = time.monotonic()
        if is_terminal(sys.stderr) and not is_quiet():
            import rich.progress as rich
            from rich.console import Console

            self._bar = rich.Progress(
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.TaskProgressColumn(),
                rich.TextColumn("{task.fields[text]}"),
                rich.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.title, total=self.total, text="")
            with suppress(OSError):
                self._bar.start()
        return self

    def update(self, done: float, text: str = "", since: float | None = None) -> None:
        now, self._done = time.monotonic(), (done, self._done[1])
        if since is not None:
            # a bar has a column for the time that is left
            text = f"{_speed(done, now - since, None if self._bar else self.total)}, {text}".rstrip(", ")
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(self._task, completed=done, text=text)
            return
        if now - self._last >= self.every and not is_quiet():
            self._last, self._done = now, (done, done)
            total = "" if self.total is None else f" of {self.total:,.10g}"
            say(f"{self.title}: {done:,.10g}{total} {text}".rstrip())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):
                if error is None:
                    # an estimate of the total may have been off, and work may have had no steps
                    done = self._bar.tasks[0].completed or 1
                    self._bar.update(self._task, total=done, completed=done)
                self._bar.stop()
        elif error is None and 0 < self._done[1] < self._done[0]:
            say(f"{self.title}: {self._done[0]:,.10g}, done")
        if error is None:
            detail(f"{self.title}: took {time.monotonic() - self._start:.2f} s")


def _speed(done: float, seconds: float, total: float | None) -> str:
    """How many queries are answered in a second, and how long the rest will take.

    >>> _speed(1_000_000, 2.0, 10_000_000)
    '500,000 queries/s, 18 s left'
    >>> _speed(1, 2.5, None)
    '0.4 queries/s'
    """
    rate = done / max(seconds, 1e-9)
    left = "" if total is None or not done else f", {max(0.0, (total - done) / rate):.0f} s left"
    return f"{rate:,.{0 if rate >= 10 else 1}f} queries/s{left}"


NEEDED = ("numpy", "pyarrow", "scipy", "click", "rich", "PyYAML", "safetensors")
"""Libraries that all of the package needs."""


def version_text() -> str:
    """`unkgcp X` alone in the first line, for scripts; then a line for Python, and one for each extra."""
    libraries = {"needed": NEEDED, **EXTRAS}
    return "\n".join(
        [
            f"unkgcp {__version__}",
            f"Python {platform.python_version()} on {platform.platform(terse=True)}",
            *(
                f"{of}: {', '.join(f'{one} {_version(one)}' for one in each)}"
                for of, each in libraries.items()
            ),
        ]
    )


def _version(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # not at import: start-up time

    try:
        return version(library)
    except PackageNotFoundError:
        return "missing"
