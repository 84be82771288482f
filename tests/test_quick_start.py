"""Every line of README and of `docs/index.md` runs where nothing but the extra `evidence` is installed.

The environment is empty but for the wheel, and sees of the libraries of this one only those that the extra brings.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.test_release import ROOT, build
from unkgcp.errors import EXTRAS

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOT_HERE = ("make ", "python3 -m venv", "venv/bin/pip")
"""Lines that set up what this test sets up in its own way."""

pytestmark = pytest.mark.wheel


def brought(names: set[str]) -> set[str]:
    """These distributions and all that they require."""
    packaging = pytest.importorskip("packaging.requirements")
    found: set[str] = set()
    waiting = [(name, "") for name in names]
    while waiting:
        name, extra = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or []:
            requirement = packaging.Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting.append((requirement.name, ""))
    return found


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smallest")
    built = build("wheel", folder / "dist")
    environment, libraries = folder / "venv", folder / "libraries"
    venv.create(environment, with_pip=False)
    libraries.mkdir()
    needed = {
        re.split(r"[^\w-]", text)[0] for text in distribution("unkgcp").requires or [] if "extra" not in text
    }
    for name in brought(needed | set(EXTRAS["evidence"])):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (libraries / top).exists():
                (libraries / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    inside = {"base": str(environment), "platbase": str(environment)}
    place = Path(sysconfig.get_path("purelib", "venv", vars=inside))
    (place / "borrowed.pth").write_text(f"{libraries}\n")
    shutil.unpack_archive(built, place, "zip")
    program = environment / "bin" / "unkgcp"
    program.write_text(f"#!{environment}/bin/python\nfrom unkgcp.cli import main\nmain()\n")
    program.chmod(0o755)
    return environment


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page, without lines that set up."""
    found = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [
        (kind, "\n".join(line for line in text.splitlines() if not line.startswith(NOT_HERE)))
        for kind, text in found
    ]


@pytest.mark.parametrize("page", ["docs/index.md", "README.md"])
def test_every_line_runs(page: str, smallest: Path, tmp_path: Path) -> None:
    path = f"{smallest / 'bin'}:{os.environ['PATH']}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {
        "PATH": path
    }
    (tmp_path / "venv").symlink_to(smallest)

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=tmp_path, env=clean, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    assert run("python -c 'import importlib.util as u; print(u.find_spec(\"torch\"))'") == "None\n"
    if page == "README.md":
        run("python -c \"import unkgcp as u; g = u.read('demo')[:8000]; u.write(g, 'facts.tsv')\"")
        run("head -4 facts.tsv > queries.tsv")
    for kind, text in blocks(page):
        if kind == "python":
            run(f"python - <<'END'\n{text}\nEND")
            continue
        for line in text.splitlines():
            if " serve " in line:
                command = [
                    str(smallest / "bin" / "unkgcp"),
                    *line.partition("#")[0].split()[1:],
                    "--port",
                    "0",
                ]
                with subprocess.Popen(
                    command, cwd=tmp_path, env=clean, text=True, stdout=subprocess.PIPE
                ) as served:
                    assert served.stdout is not None
                    assert served.stdout.readline().startswith("serving run at http://")
                    served.send_signal(signal.SIGINT)
            elif line.strip():
                run(line)
    assert (tmp_path / "run" / "run.safetensors").is_file()
