"""A release: the wheel has all its files, and version, changelog and extras agree with each other.

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

import pytest

from unkgcp._version import __version__
from unkgcp.errors import EXTRAS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "unkgcp"


def build(target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
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
    assert {name for name in names if ".dist-info/" not in name} == own_files()
    assert {"unkgcp/py.typed", "unkgcp/service/page/index.html", "unkgcp/training/presets.yaml"} < names
    assert f"unkgcp-{__version__}.dist-info/licenses/LICENSE" in names


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
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (version, day), *older = re.findall(r"^## (\S+)(?: \((.+)\))?$", text, re.M)
    assert __version__ == (f"{version}.dev0" if day == "unreleased" else version)
    assert "unreleased" not in [day for _, day in older]


def install(folder: Path, libraries: str | Path) -> Path:
    """A new environment with nothing but the wheel, and the libraries of a folder."""
    built, environment = build("wheel", folder / "dist"), folder / "environment"
    venv.create(environment, with_pip=False)
    inside = {"base": str(environment), "platbase": str(environment)}
    place = Path(sysconfig.get_path("purelib", "venv", vars=inside))
    (place / "borrowed.pth").write_text(f"{libraries}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(built)], check=True, capture_output=True)
    return environment


def clean(environment: Path) -> dict[str, str]:
    """Variables for programs of the environment, without any setting of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}


def run(environment: Path, command: str, within: Path) -> str:
    """What a line of the shell prints, in a folder."""
    done = subprocess.run(
        ["bash", "-euc", command], cwd=within, env=clean(environment), text=True, capture_output=True
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("wheel"), sysconfig.get_path("purelib"))


@pytest.mark.wheel
def test_the_demonstration_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "unkgcp --version", tmp_path).startswith(f"unkgcp {__version__}\n")
    where = "python -c 'import unkgcp; print(unkgcp.__file__)'"
    assert run(installed, where, tmp_path).startswith(str(installed))
    assert "best possible" in run(installed, "unkgcp demo -o run", tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()


TYPED = """import unkgcp
reveal_type(unkgcp.Predictor.load("run").interval([("h", "r", "t")], confidence=0.9).lower)
unkgcp.Predictor.load(3)
"""
SKIPPED = "[mypy-torch.*,scipy.*,pyarrow.*,numba.*,lightgbm.*,ray.*,pandas.*,polars.*,matplotlib.*]"
"""Libraries whose types take minutes to read and are not asked about."""


@pytest.mark.wheel
def test_type_checkers_read_the_types_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "three_lines.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\n{SKIPPED}\nfollow_imports = skip\nignore_missing_imports = true\n"
    )
    command = f"{sys.executable} -m mypy --python-executable {installed}/bin/python --cache-dir .cache three_lines.py"
    said = run(installed, f"unset MYPYPATH; {command} || true", tmp_path)
    assert re.search(r'three_lines\.py:2: note: Revealed type is "numpy\.ndarray', said), said
    assert re.search(r"three_lines\.py:3: error: Argument 1 to \"load\"", said), said
