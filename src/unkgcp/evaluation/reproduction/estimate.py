"""What a plan will cost, before anything is done: blocks, what is there already, and rough times.

A time is the training facts x epochs x models x (1 + negatives) x dimension over a speed measured once a kind of
machine; it is right within a factor of two or three. Training may stop before the last epoch, which is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.bundle.fitting import silent
from unkgcp.evaluation.reproduction.plan import Block, Plan
from unkgcp.evaluation.reproduction.runner import Work, load
from unkgcp.evaluation.text import table

if TYPE_CHECKING:
    from unkgcp.training import TrainConfig

# products a second as above: an H200 with all seeds together; two cores, compiled kernels (beurre has none)
SPEED = {
    ("cuda", "models"): 2.2e10,
    ("cuda", "quantiles"): 4e9,
    ("cpu", "models"): 4e8,
    ("cpu", "quantiles"): 1e8,
    ("cpu", "beurre"): 4e7,
}
MEASURING = 4.0  # seconds a cell with 20,000 test facts


def schedule(
    plan: Plan,
    directory: str,
    device: str,
    data_dir: str | None = None,
    override: Mapping[str, Any] | None = None,
) -> str:
    """A table of the blocks with the cells that are missing and the time they take; writes nothing."""
    kind = _kind(device)
    rows, total, missing_cells = [], 0.0, 0
    for block in plan.blocks():
        dataset = load(block.data, data_dir)
        work = Work(Path(directory), block, dataset, plan, dict(override or {}), device, silent, _no_word)
        missing = work.missing()
        seconds = estimate(block, work, len(dataset.splits.train), len(missing), kind)
        total, missing_cells = total + seconds, missing_cells + len(missing)
        rows.append(
            [
                block.name,
                str(len(block.seeds)),
                str(len(block.seeds) - len(missing)),
                str(len(missing)),
                _time(seconds),
            ]
        )
    rows.append(["all", "", "", str(missing_cells), _time(total)])
    where = "one H200-class GPU" if kind == "cuda" else "two CPU cores"
    return table(["block", "cells", "done", "to do", "about"], rows) + f"\n\nTimes are rough, for {where}."


def estimate(block: Block, work: Work, facts: int, seeds: int, kind: str) -> float:
    """Seconds for the missing seeds of a block."""
    if not seeds:
        return 0.0
    slow = kind == "cpu" and block.model == "beurre"
    speed = SPEED["cpu", "beurre"] if slow else SPEED[kind, "models"]
    seconds = _products(work.config, facts, seeds) / speed
    if work.quantiles:
        models = seeds * len(work.quantiles)
        speed = SPEED["cpu", "beurre"] if slow else SPEED[kind, "quantiles"]
        seconds += _products(work.quantile_config, facts, models) / speed
    return seconds + MEASURING * seeds


def _products(config: TrainConfig, facts: int, models: int) -> float:
    return float(facts) * config.epochs * models * (1 + 2 * config.negatives) * config.dimension


def _kind(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if device.startswith("cuda") else "cpu"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _no_word(sentence: str) -> None:
    return
