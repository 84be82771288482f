"""`unkgcp completion`: the lines that make a shell complete commands, options, names and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from unkgcp.cli.options import examples

VARIABLE = "_UNKGCP_COMPLETE"
"""Set by the shell's lines when the user asks for a completion."""

EXAMPLES = examples(
    'eval "$(unkgcp completion bash)"                                     # in ~/.bashrc',
    'eval "$(unkgcp completion zsh)"                                      # in ~/.zshrc',
    "unkgcp completion fish > ~/.config/fish/completions/unkgcp.fish      # once",
)


@click.command(name="completion", epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the lines that make SHELL complete what is typed after unkgcp.

    Commands, options and their values, the names of data sets, models and methods, and files are completed. bash has
    to be 4.4 or newer.
    """
    known = get_completion_class(shell)
    assert known is not None, "click knows these three"
    root = click.get_current_context().find_root().command
    click.echo(known(root, {}, "unkgcp", VARIABLE).source())


class Names(click.types.StringParamType):
    """A text, or several separated by commas, for which these names are offered; with `path`, files or folders too."""

    def __init__(self, names: Callable[[], Iterable[str]] = tuple, path: str | None = None) -> None:
        self.names, self.path = names, path

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(f"{before}{comma}{name}") for name in self.names() if name.startswith(last)]
        return [*found, CompletionItem(incomplete, type=self.path)] if self.path else found


def _data_sets() -> Iterable[str]:
    from unkgcp.graph.datasets import NAMES

    return NAMES


def _models() -> Iterable[str]:
    from unkgcp.training.config import MODELS, NONE

    return [*MODELS, NONE]


def _methods() -> Iterable[str]:
    from unkgcp.methods import MODULES

    return [name for name in MODULES if name != "cv+"]  # which --calibrate asks for


def _benchmarks() -> Iterable[str]:
    from unkgcp.graph.datasets import BENCHMARKS

    return BENCHMARKS


FILE, FOLDER = Names(path="file"), Names(path="dir")
BY_NAME: dict[str, Names] = {
    "data": Names(_data_sets, path="file"),
    "name": Names(_benchmarks),
    "model": Names(_models),
    "models": Names(_models),
    "method": Names(_methods),
    "predictors": Names(_methods),
    "run": FOLDER,
    "source": FOLDER,
    "folder": FOLDER,
    "data_dir": FOLDER,
    "per": Names(lambda: ("doubt", "relation", "degree", "none")),
    "protocol": Names(lambda: ("strict", "paper")),
    "device": Names(lambda: ("auto", "cpu", "cuda")),
}
"""What is offered for a parameter of this name, in every command."""
FILES = frozenset(("FILE", "OUT", "INPUT", "CAL", "PRED", "RULES", "labelled", "queries", "output"))
"""Parameters that are files, by their name or by their metavar."""


def complete_names(command: click.Command) -> None:
    """Let a command, or all commands of a group, complete the parameters that click takes for plain text."""
    for parameter in command.params:
        if type(parameter.type) is type(click.STRING):
            named: Any = BY_NAME.get(parameter.name or "")
            if parameter.metavar in FILES or (named is None and parameter.name in FILES):
                named = FILE
            parameter.type = named or parameter.type
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_names(inner)
