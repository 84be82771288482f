"""A release: the wheel has all its files, and version, changelog and citation agree with each other.

`make test-wheel` installs the wheel alone into a new environment. Libraries come from the environment of the tests,
through a `.pth` file, so that nothing is downloaded. The package itself can only come from the wheel: Python does not
read the `.pth` files inside a folder that a `.pth` file adds, so the editable installation there has no effect.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from unkgcp._version import __version__
from unkgcp.errors import EXTRAS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "unkgcp"


def build(target: str, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.iterdir()
    return built


def own_files() -> set[str]:
    """Every file of the package, as a path from `src`: code, pages, style sheets, presets, `py.typed`."""
    found = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


def test_the_wheel_has_every_file_of_the_package_and_no_other(tmp_path: Path) -> None:
    built = build("wheel", tmp_path)
    assert built.name == f"unkgcp-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built) as packed:
        names = set(packed.namelist())
        about = packed.read(f"unkgcp-{__version__}.dist-info/METADATA").decode()
    assert {name for name in names if ".dist-info/" not in name} == own_files()
    assert {"unkgcp/py.typed", "unkgcp/service/page/index.html", "unkgcp/training/presets.yaml"} < names
    assert f"unkgcp-{__version__}.dist-info/licenses/LICENSE" in names
    assert "Provides-Extra: train\n" in about


def test_the_source_distribution_can_be_built_tested_and_read(tmp_path: Path) -> None:
    built = build("sdist", tmp_path)
    with tarfile.open(built) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"src/{name}" for name in own_files()} < names
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile"}
    assert wanted | {"docs/method.md", "tests/worlds.py", "constraints.txt"} < names
    assert built.stat().st_size < 2 << 20, "there is something large in the source distribution"


def test_messages_name_the_libraries_that_the_extras_bring() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        brought = [re.split(r"[^\w-]", text)[0] for text in extras[extra]]
        assert set(libraries) == set(brought) - {"unkgcp"}, extra


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(
        r"^## (\S+)(?: \((.+)\))?$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    version, said = headings[0]
    assert __version__ == (f"{version}.dev0" if said == "unreleased" else version)
    numbers = [tuple(map(int, heading[0].split("."))) for heading in headings]
    assert numbers == sorted(set(numbers), reverse=True)
    assert "unreleased" not in [said for _, said in headings[1:]]


def test_the_citation_names_paper_and_software() -> None:
    """The keys that the format's schema (1.2.0) requires, and what README and the paper say."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert (found["cff-version"], found["title"], found["license"]) == ("1.2.0", "UnKGCP", "Apache-2.0")
    paper = found["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    assert paper["title"].startswith("Certainty in Uncertainty: Reasoning over Uncertain Knowledge Graphs")
    assert [author["family-names"] for author in paper["authors"]][::6] == ["Zhu", "Staab"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, and the libraries of the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    built = build("wheel", folder / "dist")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    inside = {"base": str(environment), "platbase": str(environment)}
    place = Path(sysconfig.get_path("purelib", "venv", vars=inside))
    (place / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        str(built),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    return environment


def run(environment: Path, *arguments: str | Path, within: Path) -> str:
    """Run a program of the environment in an empty folder, without any setting of this checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [environment / "bin" / arguments[0], *arguments[1:]],
        cwd=within, env=clean, text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return done.stdout


SMALL_DEMONSTRATION = """
import sys
from dataclasses import replace
import unkgcp
from unkgcp.cli import main
from unkgcp.evaluation import demonstration
from unkgcp.training.config import config_for

assert unkgcp.__file__.startswith(sys.prefix), unkgcp.__file__
demonstration.config_for = lambda *of: replace(
    config_for(*of), dimension=8, epochs=2, validate_every=2, negatives=1
)
main(["demo", "-o", "run"])
"""

TYPED = """import unkgcp
reveal_type(unkgcp.Predictor.load("run").interval([("h", "r", "t")], confidence=0.9).lower)
unkgcp.Predictor.load(3)
"""


@pytest.mark.wheel
def test_the_command_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(installed, "unkgcp", "--version", within=tmp_path)
    assert said.startswith(f"unkgcp {__version__}\n")
    assert "\ntrain: " in said


@pytest.mark.wheel
def test_the_demonstration_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(installed, "python", "-c", SMALL_DEMONSTRATION, within=tmp_path)
    assert "best possible" in said
    assert (tmp_path / "run" / "report.html").is_file()


TUTORIAL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import notebooks
import unkgcp

assert unkgcp.__file__.startswith(sys.prefix), unkgcp.__file__
print(len(notebooks.run(Path(sys.argv[2]), Path.cwd())), "cells")
"""


@pytest.mark.wheel
@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "tutorials").glob("*.py")), ids=lambda path: path.stem
)
def test_a_tutorial_runs_from_the_wheel(installed: Path, path: Path, tmp_path: Path) -> None:
    said = run(installed, "python", "-c", TUTORIAL, ROOT / "docs" / "tools", path, within=tmp_path)
    assert re.search(r"\d+ cells$", said.strip())


@pytest.mark.wheel
def test_type_checkers_read_the_types_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "three_lines.py").write_text(TYPED)
    # libraries whose types take minutes to read and are not asked about
    skipped = "".join(
        f"[mypy-{name}.*]\nfollow_imports = skip\nignore_missing_imports = true\n"
        for name in (
            "torch",
            "scipy",
            "pyarrow",
            "numba",
            "lightgbm",
            "ray",
            "pandas",
            "polars",
            "matplotlib",
        )
    )
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n{skipped}")
    python = ("--python-executable", str(installed / "bin" / "python"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *python, "--cache-dir", ".cache", "three_lines.py"],
        cwd=tmp_path, text=True, capture_output=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
    )  # fmt: skip
    assert re.search(r'three_lines\.py:2: note: Revealed type is "numpy\.ndarray', done.stdout), done.stdout
    assert re.search(r"three_lines\.py:3: error: Argument 1 to \"load\"", done.stdout), done.stdout
