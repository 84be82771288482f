"""Runs the benchmarks in turn; status 1 if a requirement is missed.

A benchmark that needs data or a GPU that are not here says so and is left out; its last figures stay in README.md with
their date. After a benchmark that fails the others still run. Two cores take about 40 minutes.

    make bench
    python benchmarks/everything.py [NAME ...]      only these, as `make bench-NAME` would
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

HERE = Path(__file__).parent


def commands(folder: Path) -> dict[str, list[list[str]]]:
    """Scripts with their arguments, by name. Those that ask runs share the folder, so that each is fitted once."""
    runs = str(folder / "selection")
    return {
        "read": [["read.py"]],
        "conformal": [["conformal.py"]],
        "train": [["train.py"], ["train.py", "--large"]],
        "demo-commands": [["demo_commands.py"]],
        "large": [["large.py"], ["large.py", "--update", "--answer"]],
        "predict": [["predict.py", "compare", "calls"]],
        "serve": [["serve.py"]],
        "evidence": [["evidence.py"]],
        "selection": [
            ["selection.py", "--runs", runs],
            ["selection.py", "--runs", runs, "--large", "10000000", "--data", "nl27k"],
        ],
        "open-world": [["open_world.py"]],
        "pykeen-models": [["pykeen_models.py", "--epochs", "8", "--learning-rate", "0.01"]],
        "gpu": [["gpu.py"]],
        "paper-time": [["paper_time.py"]],
        "zoo": [["zoo.py"]],
    }


def main() -> int:
    parser, failed = common.parser(__doc__), []
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory(prefix="unkgcp-bench-") as folder:
        known = commands(Path(folder))
        if strange := set(names) - known.keys():
            parser.error(f"there is no benchmark {min(strange)!r}; there are {', '.join(known)}")
        for name in names or known:
            for script, *arguments in known[name]:
                print(f"== {name}: {' '.join([script, *arguments])}", flush=True)
                start = time.monotonic()
                done = subprocess.run([sys.executable, str(HERE / script), *arguments], check=False)
                print(
                    f"== {name}: status {done.returncode} after {time.monotonic() - start:.0f} s", flush=True
                )
                if done.returncode:
                    failed.append(name)
    print(f"missed or failed: {', '.join(dict.fromkeys(failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
