"""Commands of an account that may write nowhere but to its output: no home, the package read-only, as in a container.

Tests that run as root become another user who may read everything (so that the interpreter is found wherever it lies);
others use a copy of the package that nobody may write to.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import unkgcp

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.name != "posix", reason="accounts are those of a POSIX system"),
]

NOBODY = "65534"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str], Path]:
    """How a command starts, its environment, and the one folder it may write to."""
    folder = tmp_path_factory.mktemp("account")
    source = Path(unkgcp.__file__).parents[1]
    start: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("there is no setpriv to become another user with")
        start = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
        start += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        if subprocess.run([*start, "true"], check=False, capture_output=True).returncode:
            pytest.skip("this process may not become another user")
        os.chown(folder, int(NOBODY), int(NOBODY))
        for parent in folder.parents[:2]:
            parent.chmod(0o711)
    else:
        package = folder / "source"
        shutil.copytree(source / "unkgcp", package / "unkgcp", ignore=shutil.ignore_patterns("__pycache__"))
        for path in [package, *package.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        source = package
    settings = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(source)}
    return start, {**settings, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}, folder


def test_fit_predict_and_serve_without_a_home(account: tuple[list[str], dict[str, str], Path]) -> None:
    start, settings, folder = account
    command = [*start, sys.executable, "-m", "unkgcp"]

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=folder, env=settings, capture_output=True, text=True, check=False
        )

    if start:  # it may indeed not write to the places where compiled code is kept
        place = Path(unkgcp.__file__).parent / "training" / "__pycache__" / "probe"
        tried = subprocess.run([*start, "touch", str(place)], check=False, capture_output=True)
        assert tried.returncode != 0
    (folder / "fast.yaml").write_text("epochs: 2\nvalidate_every: 1\n")
    fitted = done("fit", "demo", "-o", "run", "--config", "fast.yaml")
    assert fitted.returncode == 0, fitted.stderr
    (folder / "q.tsv").write_text("a\tb\tc\n")
    predicted = done("predict", "run", "q.tsv")
    assert predicted.returncode == 0, predicted.stderr
    assert "unknown-entity" in predicted.stdout
    pytest.importorskip("uvicorn", reason="the service needs its extra: pip install 'unkgcp[serve]'")
    with subprocess.Popen(
        [*command, "serve", "run", "--port", "0"],
        cwd=folder,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stdout is not None
        try:
            address = service.stdout.readline().split()[-1]
            with urllib.request.urlopen(f"{address}health", timeout=30) as answer:
                assert answer.status == 200
        finally:
            service.send_signal(signal.SIGTERM)
            _, complaints = service.communicate(timeout=60)
    assert "Error" not in complaints
