"""`make paper` on one GPU against the clock: twelve configurations, ten seeds, all methods, tables, figures and page.

Then how many figures (coverage and width of every method and level, errors of every model) lie more than a standard
deviation from those in docs/reproduction. Writes results/paper.json; status 1 if it took too long or one does.

    UNKGCP_DATA=data make bench-paper-time
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import common

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.paper.blocks import Block, Mean, read_blocks  # noqa: E402
from benchmarks.paper.cells import LEVELS  # noqa: E402

REQUIRED, GOAL = 15.0, 10.0  # minutes


def figures(blocks: list[Block]) -> Iterator[tuple[str, Mean]]:
    """Every figure under the paper's protocol, by what it is."""
    for block in (block for block in blocks if block.protocol == "paper"):
        for part in ("positive", "negative"):
            for method in block.methods("predictors"):
                for kind in ("coverage", "sharpness"):
                    for level in LEVELS:
                        what = f"{block.name} {method} {part} {kind} {level}"
                        yield what, block.figure(method, part, kind, level)
            for kind in ("mse", "mae"):
                yield f"{block.name} {part} {kind}", block.mean("errors", part, kind)


def main() -> int:
    common.parser(__doc__).parse_args()
    import torch

    if not torch.cuda.is_available():
        print("skipped: this machine has no GPU")
        return 0
    with tempfile.TemporaryDirectory(prefix="unkgcp-paper-") as folder:
        start = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.paper", "-o", folder, "--device", "cuda"]
        subprocess.run(command, check=True, cwd=ROOT)
        minutes = (time.monotonic() - start) / 60
        ours, kept = (
            dict(figures(read_blocks(where))) for where in (Path(folder), ROOT / "docs" / "reproduction")
        )
    apart = [
        what for what, now in ours.items() if abs(now.mean - kept[what].mean) > max(now.sd, kept[what].sd)
    ]
    device = torch.cuda.get_device_name()
    common.write("paper", {"machine": device, "minutes": minutes, "figures": len(ours), "apart": apart})
    title = f"the paper's experiments, twelve configurations, ten seeds, {device}: minutes"
    compared = f"the paper's experiments: figures of {len(ours)} beyond a standard deviation"
    return common.judge(
        "paper", [common.Figure(title, minutes, REQUIRED, GOAL), common.Figure(compared, len(apart), 0)]
    )


if __name__ == "__main__":
    sys.exit(main())
