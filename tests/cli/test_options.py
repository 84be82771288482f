"""The size of the command line: every option is one more thing to learn."""

from __future__ import annotations

from collections.abc import Iterator

import click

from unkgcp.cli import cli


def options(command: click.Command, name: str = "unkgcp") -> Iterator[tuple[str, str]]:
    """(command, option) of a command and of those below it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield name, max(parameter.opts, key=len)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from options(found, inner)


def test_there_are_few_options() -> None:
    found = list(options(cli))
    assert len({option for _, option in found}) <= 55
    assert len([option for name, option in found if name == "fit"]) <= 24
