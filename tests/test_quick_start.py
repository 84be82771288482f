"""Every line of README and of `docs/index.md` runs where nothing but the extra `evidence` is installed.

The environment is empty but for the wheel, and sees of the libraries of this one only those that the extra brings.
"""

from __future__ import annotations

import re
import signal
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.test_release import ROOT, clean, install, run
from unkgcp.errors import EXTRAS

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOT_HERE = ("make ", "python3 -m venv", "venv/bin/pip")
"""Lines that set up what this test sets up in its own way."""

pytestmark = pytest.mark.wheel


def brought(names: set[str]) -> set[str]:
    """These distributions and all that they require."""
    packaging = pytest.importorskip("packaging.requirements")
    found: set[str] = set()
    while names:
        found |= names
        texts = [text for name in names for text in distribution(name).requires or []]
        requirements = [packaging.Requirement(text) for text in texts]
        names = {
            each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})
        } - found
    return found


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smallest")
    libraries = folder / "libraries"
    libraries.mkdir()
    needed = {
        re.split(r"[^\w-]", text)[0] for text in distribution("unkgcp").requires or [] if "extra" not in text
    }
    for name in brought(needed | set(EXTRAS["evidence"])):
        for top in {file.parts[0] for file in distribution(name).files or []} - {"..", "__pycache__"}:
            if not (libraries / top).exists():
                (libraries / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return install(folder, libraries)


@pytest.mark.parametrize("page", ["docs/index.md", "README.md"])
def test_every_line_runs(page: str, smallest: Path, tmp_path: Path) -> None:
    (tmp_path / "venv").symlink_to(smallest)
    torch = "python -c 'import importlib.util as u; print(u.find_spec(\"torch\"))'"
    assert run(smallest, torch, tmp_path) == "None\n"
    if page == "README.md":
        facts = "python -c \"import unkgcp as u; u.write(u.read('demo')[:8000], 'facts.tsv')\""
        run(smallest, f"{facts}; head -4 facts.tsv > queries.tsv", tmp_path)
    for kind, text in FENCE.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "python":
            run(smallest, f"python - <<'END'\n{text}\nEND", tmp_path)
            continue
        for line in text.splitlines():
            if " serve " in line:
                command = [*line.partition("#")[0].split(), "--port", "0"]
                with subprocess.Popen(
                    [smallest / "bin" / Path(command[0]).name, *command[1:]],
                    cwd=tmp_path, env=clean(smallest), text=True, stdout=subprocess.PIPE,
                ) as served:  # fmt: skip
                    assert served.stdout is not None
                    assert served.stdout.readline().startswith("serving run at http://")
                    served.send_signal(signal.SIGINT)
            elif line.strip() and not line.startswith(NOT_HERE):
                run(smallest, line, tmp_path)
    assert (tmp_path / "run" / "run.safetensors").is_file()
