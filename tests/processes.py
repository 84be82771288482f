"""Commands in processes of their own, caught in the middle of their work."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path


def until_writing(running: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a command that still runs has begun to write its output in the folder."""
    deadline = time.monotonic() + 60
    while not any(path.name.startswith(".partial-") for path in folder.iterdir()):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)
