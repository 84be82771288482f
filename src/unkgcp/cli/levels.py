"""The option `--confidence`: one level or several, separated by commas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from unkgcp.errors import InputError


def confidence_option(default: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds `--confidence`; the command gets a list of floats."""
    return click.option(
        "--confidence", default=default, show_default=True, metavar="LEVELS", callback=_parse, help=text
    )


def _parse(context: click.Context, parameter: click.Parameter, value: str) -> list[float]:
    levels = []
    for part in value.split(","):
        try:
            level = float(part)
        except ValueError:
            level = -1.0
        if not 0 <= level <= 1:
            raise InputError(f"--confidence {value}: {part.strip()!r} is no number from 0 to 1; try 0.9")
        if level in levels:
            raise InputError(f"--confidence {value}: {part.strip()} is there twice; leave one out")
        levels.append(level)
    return levels
