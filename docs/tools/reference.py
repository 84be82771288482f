"""The reference pages, made from the package itself: one page a room with its public names, one for the commands.

A room's public names are its `__all__`. Signatures and docstrings are read from the sources, nothing is imported for
them. A name that several rooms offer is described on the first page that has it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PLACE = "reference"
AFTER_GUIDES = "---\nsearch: {boost: 0.001}\n---\n\n"
"""Whoever searches for a word finds the page that explains it before the names that contain it."""
DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)(?:\n(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*))*", re.M)


class Doctests(griffe.Extension):
    """Examples in docstrings (>>>) are shown as code, wherever in the text they stand."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    return DOCTEST.sub(lambda match: f"```python\n{match[0].rstrip()}\n```\n", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {"commands": commands(), **modules(Path(config.config_file_path).parent / "src")}
    for name, text in pages.items():
        files.append(File.generated(config, f"{PLACE}/{name}.md", content=AFTER_GUIDES + text))
    for section in config.nav:
        if section.get("Reference") == f"{PLACE}/":
            titles = {name: name if name.startswith("unkgcp") else name.capitalize() for name in pages}
            section["Reference"] = [{titles[name]: f"{PLACE}/{name}.md"} for name in pages]
    return files


def modules(source: Path) -> dict[str, str]:
    """A page for every package that says what is public in it: the whole package first, then its rooms."""
    package = griffe.load("unkgcp", search_paths=[source], resolve_aliases=True)
    described: dict[str, str] = {}
    pages = {}
    for module in [package, *_packages(package)]:
        lines = [f"# {module.path}", fenced(module.docstring.value) if module.docstring else ""]
        again = []
        for name in module.exports or ():
            thing = module[str(name)]
            where = described.setdefault(thing.canonical_path, module.path)
            if str(name).startswith("__"):
                continue
            if where == module.path:
                lines.append(f"::: {module.path}.{name}")
            else:
                again.append(f"[`{name}`][{where}.{name}]")
        if again:
            lines.insert(2, f"Also here: {', '.join(again)}.")
        if module.exports:
            pages[module.path] = "\n\n".join(lines) + "\n"
    return pages


def _packages(module: griffe.Module) -> list[griffe.Module]:
    found = []
    for inner in sorted(module.modules.values(), key=lambda each: each.path):
        if not inner.is_alias and inner.is_init_module:
            found += [inner, *_packages(inner)]
    return found


def commands() -> str:
    """What `--help` says of every command."""
    from unkgcp.cli import cli

    lines = ["# Commands", "What `unkgcp COMMAND --help` prints."]
    for name, command in _leaves(cli, "unkgcp"):
        with click.Context(command, info_name=name, terminal_width=80, max_content_width=80) as context:
            lines.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(lines) + "\n"


def _leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command, info_name=name)
    inner = [(each, command.get_command(context, each)) for each in command.list_commands(context)]
    return [leaf for each, found in inner if found for leaf in _leaves(found, f"{name} {each}")]
