"""What the benchmarks share: two cores, what machine it is, and where results go.

A benchmark is run as a script, so that this folder is on its path. Import this before NumPy, torch and numba where
`use_two_cores` has to limit their threads.

>>> common.use_two_cores()                                         # doctest: +SKIP
>>> common.write("train", {"machine": common.machine()}, text)     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

CORES = 2
RESULTS = Path(__file__).parent / "results"


def use_two_cores() -> None:
    """This process and those that it starts, where the system can pin them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(CORES)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "load_after": round(os.getloadavg()[0], 2),  # far above the cores: others were at work too
    }


def write(name: str, record: Any, text: str | None = None, folder: Path = RESULTS) -> None:
    """NAME.json and, with a text, NAME.md; what was measured before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    if text is not None:
        (folder / f"{name}.md").write_text(text)
        print(text)
