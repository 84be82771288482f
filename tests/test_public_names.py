"""Every public name can be imported, and every module that a docstring, a comment or a page names is there."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unkgcp

SOURCE = Path(unkgcp.__file__).parent
ROOT = SOURCE.parents[1]
TEXTS = [
    *SOURCE.rglob("*.py"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "docs").rglob("*.py"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]
MODULES = ["unkgcp", *(module.name for module in pkgutil.walk_packages([str(SOURCE)], "unkgcp."))]
PATH = re.compile(r"(?<=`)unkgcp(?:\.[A-Za-z_]\w*)+(?=[(`])")
IMPORT = re.compile(r"^(?:>>> )?from (unkgcp[\w.]*) import ([\w, ]+)$", re.M)
DOORS = {
    "Client",
    "Predictor",
    "calibrate",
    "evaluate",
    "fit",
    "read",
    "register_backbone",
    "register_score",
    "train",
}
UNINSTALLED = ("unkgcp.__main__",)


def resolve(path: str) -> None:
    """Import a module, or a name in a module, or a member of such a name."""
    words = path.split(".")
    for size in range(len(words), 0, -1):
        try:
            thing = importlib.import_module(".".join(words[:size]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("unkgcp"):
                pytest.skip(str(error))
            continue
        for word in words[size:]:
            thing = getattr(thing, word)
        return


@pytest.mark.parametrize("module", sorted(set(MODULES) - set(UNINSTALLED)))
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
    assert set(unkgcp.__all__) >= DOORS


def test_names_in_texts_lead_somewhere() -> None:
    """Paths of modules and names in docstrings, comments and pages, and whatever their examples import."""
    mentioned = {}
    for file in TEXTS:
        text = file.read_text(encoding="utf-8")
        mentioned |= {match[0]: file for match in PATH.finditer(text)}
        for match in IMPORT.finditer(text):
            mentioned |= {f"{match[1]}.{name.split(' as ')[0].strip()}": file for name in match[2].split(",")}
    wrong = []
    for path, file in sorted(mentioned.items()):
        try:
            resolve(path)
        except (AttributeError, ImportError):
            wrong.append(f"{file.relative_to(ROOT)} speaks of {path}")
    assert wrong == []


def test_importing_leaves_the_process_as_it_was() -> None:
    code = (
        "import os, sys; before = dict(os.environ); import unkgcp, unkgcp.conformal; "
        "assert dict(os.environ) == before; assert 'torch' not in sys.modules and 'lightgbm' not in sys.modules"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
