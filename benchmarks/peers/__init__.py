"""Libraries that ours is measured against, in a virtual environment of their own.

The package never imports them; a benchmark starts a script of this folder with their Python.

>>> python = ensure("openukge==1.0.2", "torch")        # doctest: +SKIP
>>> run(python, "openukge_epoch.py", "data/ppi5k")     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-peers"


def ensure(*packages: str, folder: str = "") -> Path:
    """The Python of the peers' environment, with these packages in it: made and filled on first use.

    Packages that need other versions of the same dependency get a `folder` of their own in it.
    """
    venv = VENV / folder
    python = venv / "bin" / "python"
    if not python.exists():
        print(f"making {venv.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    stamp = venv / ".installed"
    present = set(stamp.read_text().split()) if stamp.exists() else set()
    if not present.issuperset(packages):
        print(
            f"installing {', '.join(packages)} into {venv.relative_to(ROOT)} ...", file=sys.stderr, flush=True
        )
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # the same torch as the project's: what is compared is the code above it
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *packages], check=True)
        stamp.write_text("\n".join(sorted(present.union(packages))))
    return python


def run(python: Path, script: str, *arguments: str, threads: int = 2) -> dict[str, Any]:
    """Run a script of this folder on the CPU; the last line it prints is a JSON object."""
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    environment = os.environ | limits | {"PYTHONPATH": str(ROOT / "src")}  # of ours, where ours is the script
    command = [str(python), str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
