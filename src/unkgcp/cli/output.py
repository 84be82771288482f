"""What commands print, in one way for all of them.

Results go to standard output: text for people, or with `--json` one object for programs, with every figure as it was
computed, and nothing else. A command calls both functions and the one that was asked for prints:

    print_text(evaluation_text(result))
    print_json(result)

Everything else goes to standard error (`unkgcp.progress`): `--quiet` leaves errors there, `--verbose` adds versions,
sizes and times. Both are options of every command; `add_manners` adds them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from unkgcp.progress import Loudness, detail, loudness

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
