"""Options of `--engine ray`, gathered in one argument of the command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

NAMES = ("workers", "address", "device", "rows_per_part")


def ray_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add them to a command; it gets those that were given as a dictionary `ray`, and has an option `--engine`."""

    @functools.wraps(command)
    def with_ray(engine: str, **arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in NAMES}
        given = {name: value for name, value in given.items() if value is not None}
        if given and engine != "ray":
            option = min(given).replace("_", "-")
            raise click.UsageError(f"--{option} is for --engine ray; add that, or leave --{option} out")
        command(engine=engine, ray=given, **arguments)

    for option in (
        click.option(
            "--rows-per-part",
            type=click.IntRange(min=1),
            metavar="N",
            help="Ray: rows that a worker answers at a time, a file each if OUT is a folder.  [default: 1048576]",
        ),
        click.option(
            "--device",
            type=click.Choice(["cpu", "cuda"]),
            help="Ray: where workers score; with cuda each takes a GPU.  [default: cpu]",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="Ray: a running cluster, or auto.  [default: $RAY_ADDRESS, or one started on this machine]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Ray: how many workers.  [default: one a CPU, or GPU, of the cluster]",
        ),
    ):
        with_ray = option(with_ray)
    return with_ray
