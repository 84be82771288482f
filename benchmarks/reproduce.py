"""The paper's experiments on one GPU, all twelve configurations, ten seeds and all predictors, against the clock.

Then the tables: how many of their figures (coverage and width of every predictor and level, errors of every model) lie
more than a standard deviation from those in docs/reproduction. Writes results/reproduce.json; status 1 if it took too
long or one does.

    UNKGCP_DATA=data python benchmarks/reproduce.py [FOLDER]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
from unkgcp.evaluation.reproduction import silently
from unkgcp.evaluation.reproduction.cells import cell_names, read_cell

REQUIRED, GOAL = 15.0, 10.0  # minutes
KEPT = Path(__file__).parents[1] / "docs" / "reproduction"


def figures(cell: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, judged in cell["predictors"].items():
        for part in ("positive", "negative"):
            for kind in ("coverage", "sharpness"):
                for level, figure in zip(cell["levels"], judged[part][kind], strict=True):
                    yield f"{name} {part} {kind} {level}", figure
    for part in ("positive", "negative"):
        for kind, figure in cell["errors"][part].items():
            yield f"{part} {kind}", figure


def means(folder: Path) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over the seeds of every figure under the paper's protocol."""
    found: dict[str, list[float]] = {}
    for name in cell_names(folder):
        cell = read_cell(folder, name, None, silently)
        if cell is not None and name.startswith("paper/"):
            block = name.rsplit("/", 1)[0]
            for what, figure in figures(cell):
                if figure is not None:
                    found.setdefault(f"{block} {what}", []).append(figure)
    return {what: (statistics.mean(some), statistics.stdev(some)) for what, some in found.items()}


def main() -> None:
    import torch

    if not torch.cuda.is_available():
        print("bench-reproduce: skipped, this machine has no GPU")
        return
    with tempfile.TemporaryDirectory(prefix="unkgcp-reproduce-") as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        start = time.monotonic()
        subprocess.run(common.unkgcp("reproduce", "-o", folder, "--device", "cuda"), check=True)
        minutes = (time.monotonic() - start) / 60
        ours, kept = means(folder), means(KEPT)
    apart = [
        what
        for what, (mean, spread) in ours.items()
        if abs(mean - kept[what][0]) > max(spread, kept[what][1])
    ]
    device = torch.cuda.get_device_name()
    common.write("reproduce", {"machine": device, "minutes": minutes, "figures": len(ours), "apart": apart})
    limits = [
        common.Figure(
            f"reproduce, twelve configurations, ten seeds, {device}: minutes", minutes, REQUIRED, GOAL
        ),
        common.Figure(f"reproduce: figures of {len(ours)} beyond a standard deviation", len(apart), 0),
    ]
    sys.exit(common.judge("reproduce", limits))


if __name__ == "__main__":
    main()
