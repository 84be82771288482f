"""Every public name can be imported; the names, options and files that code, comments and pages speak of exist."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import unkgcp
from unkgcp.cli import cli

SOURCE = Path(unkgcp.__file__).parent
ROOT = SOURCE.parents[1]
PYTHON = [file for folder in ("src", "docs", "benchmarks", "tests") for file in (ROOT / folder).rglob("*.py")]
PAGES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
MODULES = ["unkgcp", *(module.name for module in pkgutil.walk_packages([str(SOURCE)], "unkgcp."))]
PATH = re.compile(r"`(unkgcp(?:\.[A-Za-z_]\w*)+)[(`]")
CODE = re.compile(r"^```python\n(.*?)^```$|^ *(?:>>>|\.\.\.) ([^\n]*)$", re.M | re.S)
DOTTED = re.compile(r"(?<![\w./'\"-])unkgcp(?:\.[A-Za-z_]\w*)+")
IMPORT = re.compile(r"^ *from (unkgcp[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.M)
FILE = re.compile(r"`([a-z]+/[\w/]+\.(?:py|yaml))`")
COMMAND = re.compile(r"(?:\bunkgcp |`)(\w+)\b([^`|#;&\n]*)")
DOORS = [
    "Client",
    "Predictor",
    "calibrate",
    "evaluate",
    "fit",
    "read",
    "register_backbone",
    "register_score",
    "train",
]


def resolve(path: str) -> None:
    """Import a module, a name in it or a member of that; what needs a library that is not here passes."""
    words = path.split(".")
    for size in range(len(words), 0, -1):
        try:
            thing = importlib.import_module(".".join(words[:size]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("unkgcp"):
                return
            continue
        for word in words[size:]:
            thing = getattr(thing, word)
        return


def mentioned(file: Path) -> set[str]:
    """Names between backticks, and what code imports or takes with dots; mypy reads the code of the package itself."""
    text = file.read_text(encoding="utf-8")
    code = text
    if file.suffix == ".md" or SOURCE in file.parents:
        code = "\n".join(block or example for block, example in CODE.findall(text))
    names = {*PATH.findall(text), *DOTTED.findall(code)}
    for module, several, one in IMPORT.findall(code):
        imported = [name.split(" as ")[0].strip() for name in (several or one).split("#")[0].split(",")]
        names |= {f"{module}.{name}" for name in imported if name}
    return names


@pytest.mark.parametrize("module", [name for name in MODULES if name != "unkgcp.__main__"])
def test_every_public_name_can_be_imported(module: str) -> None:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "unkgcp").startswith("unkgcp"):
            raise
        pytest.skip(str(error))
    for name in getattr(found, "__all__", ()):
        assert getattr(found, name, None) is not None, f"{module}.{name}"


def test_the_doors_of_the_package() -> None:
    assert set(unkgcp.__all__) >= set(DOORS)


def test_names_lead_somewhere() -> None:
    """Names that are imported, taken from the package or written between backticks, in code, comments and pages."""
    places = {path: file.relative_to(ROOT) for file in [*PYTHON, *PAGES] for path in mentioned(file)}
    wrong = []
    for path, file in sorted(places.items()):
        try:
            resolve(path)
        except (AttributeError, ImportError):
            wrong.append(f"{file} speaks of {path}")
    assert wrong == []
    assert len(places) > 500


def test_files_that_are_named_are_there() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} speaks of {path}"
        for file in [*PYTHON, *PAGES]
        for path in FILE.findall(file.read_text(encoding="utf-8"))
        if not any((folder / path).exists() for folder in (SOURCE, ROOT))
    ]
    assert wrong == []


def test_options_of_documented_commands_exist() -> None:
    """Of lines such as `unkgcp fit facts.tsv -o run`, in pages, help texts, docstrings and files to deploy."""
    context = click.Context(cli)
    known = {
        name: {word for parameter in command.params for word in parameter.opts}
        for name in cli.list_commands(context)
        if (command := cli.get_command(context, name)) and not isinstance(command, click.Group)
    }
    wrong, lines = [], 0
    for file in [*PYTHON, *PAGES, *(ROOT / "deploy").iterdir()]:
        for name, rest in COMMAND.findall(file.read_text(encoding="utf-8")):
            if name in known and file.parent.name != "tests":
                lines += 1
                options = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) - {"--help", "-h"}
                wrong += [f"{file.relative_to(ROOT)}: {name} {option}" for option in options - known[name]]
    assert wrong == []
    assert lines > 100


def test_importing_leaves_the_process_as_it_was() -> None:
    code = (
        "import os, sys, signal, warnings, logging, numpy; "
        "state = lambda: (dict(os.environ), list(sys.path), signal.getsignal(signal.SIGINT), warnings.filters[:], "
        "logging.root.handlers[:], logging.root.level, sys.excepthook); before = state(); "
        "import unkgcp, unkgcp.conformal; assert state() == before; "
        "assert not {'torch', 'lightgbm', 'matplotlib'} & set(sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
