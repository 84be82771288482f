"""The structure of the package: rooms (subpackages) import in one direction, without circles; file names are unique.

Imports inside functions and under TYPE_CHECKING count like all others, since they too can go against the direction.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import unkgcp
from tests import conftest

SOURCE = Path(unkgcp.__file__).parent
MAP = Path(__file__).parents[1] / "docs" / "architecture.md"
SUPPORT = ("_version", "errors", "files", "lazy", "loops", "progress")
ROOMS = (
    "tabular",
    "graph",
    "backbones",
    "rules",
    "training",
    "evidence",
    "conformal",
    "methods",
    "run",
    "predict",
    "service",
    "evaluation",
    "cli",
)
"""A room may import from itself, from rooms before it in this list, and from the support files of the root."""

Imports = dict[str, set[str]]


def name_of(path: Path, source: Path) -> str:
    parts = ("unkgcp", *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """The modules of the package that a file imports, anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules else node.module


def imports_of(source: Path) -> Imports:
    paths = {name_of(path, source): path for path in source.rglob("*.py")}
    return {
        name: set(imported(ast.parse(path.read_text(encoding="utf-8")), set(paths))) - {name}
        for name, path in paths.items()
    }


@cache
def own_imports() -> Imports:
    return imports_of(SOURCE)


def place(module: str) -> int:
    """The place of a module's room in the order of imports; the package itself and `__main__` come last."""
    _, _, inside = module.partition(".")
    room = inside.split(".")[0]
    if room in SUPPORT:
        return -1
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def against_the_direction(imports: Imports) -> list[str]:
    return [
        f"{module} imports {other}"
        for module, others in sorted(imports.items())
        for other in sorted(others)
        if place(other) > place(module)
    ]


def circle(imports: Imports) -> list[str]:
    """Modules that import one another in a circle; none if there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_rooms_import_in_one_direction() -> None:
    assert against_the_direction(own_imports()) == []


def test_there_are_no_circular_imports() -> None:
    assert circle(own_imports()) == []


def test_file_names_are_unique() -> None:
    names = [path.name for path in SOURCE.rglob("*.py") if path.name[0] != "_"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_compiled_loops_are_kept_on_disk() -> None:
    """By `unkgcp.loops.njit`: numba's own `njit` would compile them again in every process."""
    own = re.compile(r"^\s*from numba import [^\n]*\bn?jit\b|numba\.n?jit\(", re.M)
    found = [path.name for path in SOURCE.rglob("*.py") if own.search(path.read_text(encoding="utf-8"))]
    assert found == []
    assert own.search("from numba import njit, prange\n")


def test_files_that_conftest_names_exist() -> None:
    """Otherwise a renamed file would lose its worker or its early start without anybody noticing."""
    named = {*conftest.TOGETHER, *conftest.LONG} - set(conftest.TOGETHER.values())
    assert {path for path in named if not (MAP.parents[1] / path).exists()} == set()


def rooms_on_the_map(text: str) -> dict[str, set[str]]:
    """Each room of the table in docs/architecture.md, and the rooms that the table says it imports."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", text, re.M)
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows}


def test_the_map_lists_every_room_and_what_it_imports() -> None:
    listed = rooms_on_the_map(MAP.read_text(encoding="utf-8"))
    assert tuple(listed) == ROOMS
    assert {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, others in own_imports().items():
        room = module.split(".")[1] if "." in module else ""
        if room in found:
            found[room] |= {other.split(".")[1] for other in others if "." in other}
    assert {room: others - {room, *SUPPORT} for room, others in found.items()} == listed


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("graph/facts.py", "import unkgcp.run.store\n", against_the_direction),
        ("graph/facts.py", "def late():\n    from unkgcp.run import store\n", against_the_direction),
        ("run/store.py", "def late():\n    from unkgcp.run.predictor import Predictor\n", circle),
        (
            "run/store.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from unkgcp.run.predictor import Predictor\n",
            circle,
        ),
    ],
)
def test_a_wrong_import_is_found_anywhere_in_a_file(tmp_path: Path, file: str, text: str, complaint) -> None:
    house = {
        "__init__.py": "",
        "graph/__init__.py": "",
        "graph/facts.py": "",
        "run/__init__.py": "",
        "run/store.py": "",
        "run/predictor.py": "from unkgcp.graph.facts import Graph\nfrom unkgcp.run.store import read\n",
    }
    for name, content in {**house, file: text}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert complaint(imports_of(tmp_path)) != []
    (tmp_path / file).write_text("")
    assert complaint(imports_of(tmp_path)) == []
