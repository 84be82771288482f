"""Does a plan: trains what is missing, stores every finished cell at once, then makes tables and figures.

An interrupted run, however it ended, is continued by the same call: what lies sound in the folder is neither
computed nor written again. A cell goes through three steps (scores, quantile scores, figures), each with a
file of its own, so that at most the step in flight is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError
from unkgcp.evaluation.figures.paper_figures import draw_reproduction
from unkgcp.evaluation.report import write_report
from unkgcp.evaluation.reproduction import plan, scoring
from unkgcp.evaluation.reproduction.cell import measure
from unkgcp.evaluation.reproduction.paper_tables import write_tables
from unkgcp.evaluation.reproduction.plan import FORMAT, Block, Plan
from unkgcp.evaluation.reproduction.scoring import (
    Say,
    file_digest,
    read_cell,
    read_scores,
    silently,
    write_cell,
)
from unkgcp.evaluation.reproduction.summary import write_summary
from unkgcp.evaluation.tables import Table
from unkgcp.files import write_text
from unkgcp.progress import say
from unkgcp.run.fitting import Report, silent
from unkgcp.training.config import TrainConfig, quantiles_of

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset


def reproduce(
    plan: Plan,
    directory: str | os.PathLike[str],
    *,
    device: str = "auto",
    data_dir: str | None = None,
    override: Mapping[str, Any] | None = None,
    scores_only: bool = False,
    figures: bool = True,
    report: Report = silent,
    say: Say = silently,
) -> Path | None:
    """Do the plan in `directory`; gives the report page, if one was written.

    `override` replaces fields of every training configuration. With `scores_only` it stops after training and
    scoring, which is all that needs a GPU; without `figures` it ends with the tables.
    """
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder to write to")
    blocks = plan.blocks()
    _note_plan(folder, plan, override)
    data: dict[str, Dataset] = {}
    for number, block in enumerate(blocks, 1):
        if block.data not in data:
            data = {block.data: load(block.data, data_dir)}  # one at a time: they are large
        work = Work(folder, block, data[block.data], plan, dict(override or {}), device, report, say)
        work.do(f"[{number}/{len(blocks)}]", scores_only)
    return None if scores_only else finish(folder, say, figures)


def finish(directory: str | os.PathLike[str], say: Say = silently, figures: bool = True) -> Path | None:
    """Summary, tables, figures and report page, from the cells that lie in the folder."""
    folder = Path(directory)
    write_tables(folder, write_summary(folder, say))
    if not figures:
        return None
    draw_reproduction(folder)
    return write_report(folder)


def load(name: str, data_dir: str | None) -> Dataset:
    """A data set with calibration and test facts, which a reproduction cannot do without."""
    from unkgcp.graph.datasets import load_dataset

    dataset = load_dataset(name, data_dir=data_dir)
    if not len(dataset.splits.test) or not len(dataset.splits.calibration):
        raise InputError(f"{name} has no calibration or no test facts; a reproduction needs both")
    return dataset


def _note_plan(folder: Path, plan: Plan, override: Mapping[str, Any] | None) -> None:
    """plan.json: what was last asked for under each protocol."""
    path = folder / "plan.json"
    try:
        plans = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        plans = {}
    asked = {**plan.to_dict(), **({"settings": dict(override)} if override else {})}
    if plans.get(plan.protocol) == asked or (plan.only and plan.protocol in plans):
        return
    write_text(path, json.dumps({**plans, plan.protocol: asked}, indent=1) + "\n")


@dataclass
class Work:
    """The cells of one block."""

    folder: Path
    block: Block
    dataset: Dataset
    plan: Plan
    override: dict[str, Any]
    device: str
    report: Report
    say: Say
    config: TrainConfig = field(init=False)
    quantile_config: TrainConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = plan.model_config(self.block, self.override)
        self.quantile_config = plan.quantile_config(self.block, self.override)
        wanted = "qr" in self.plan.predictors and plan.has_quantiles(self.block.model)
        self.levels = self.plan.levels
        self.quantiles = tuple(quantiles_of(self.levels)) if wanted else ()

    def do(self, prefix: str, scores_only: bool) -> None:
        """Whatever of the block is not there yet."""
        missing = self.missing()
        if not missing:
            self.say(f"{prefix} {self.block.name}: {len(self.block.seeds)} cells are there already")
            return
        self.say(f"{prefix} {self.block.name}: {len(missing)} of {len(self.block.seeds)} cells to do")
        # on a GPU all seeds run together; on a CPU one after the other, each stored when it is finished
        for seeds in [tuple(missing)] if scoring.uses_gpu(self.device) else [(seed,) for seed in missing]:
            self._score(seeds, ())
            if self.quantiles:
                self._score(seeds, self.quantiles)
            if not scores_only:
                for seed in seeds:
                    self._measure(seed)

    def missing(self) -> list[int]:
        """Seeds without a sound cell."""
        return [seed for seed in self.block.seeds if not self._done(seed)]

    def scores_path(self, seed: int, quantiles: bool) -> Path:
        name = f"seed-{seed}{'-quantiles' if quantiles else ''}.npz"
        return self.folder / "cells" / self.block.name / name

    def _scores_fingerprint(self, seed: int, quantiles: tuple[float, ...]) -> str:
        config = self.quantile_config if quantiles else self.config
        return plan.fingerprint(
            self.dataset, self.block, seed, config=config.to_dict(), quantiles=list(quantiles)
        )

    def _cell_fingerprint(self, seed: int) -> str:
        parts = [self._scores_fingerprint(seed, which) for which in ((), self.quantiles)]
        return plan.fingerprint(
            self.dataset,
            self.block,
            seed,
            scores=parts,
            levels=list(self.levels),
            predictors=list(self.plan.predictors),
        )

    def _done(self, seed: int) -> bool:
        """Whether the cell is there, sound, of these settings, and agrees with the score files that are there."""
        cell = read_cell(
            self.folder, f"{self.block.name}/seed-{seed}", self._cell_fingerprint(seed), self.say
        )
        if cell is None:
            return False
        for which, kind in ((False, "model"), (True, "quantiles")):
            path = self.scores_path(seed, which)
            found = file_digest(path)
            if found is not None and found != cell["scores"][kind]:
                self.say(f"{path} is not what its cell was measured from; both are made again where needed")
                return False
        return True

    def _score(self, seeds: tuple[int, ...], quantiles: tuple[float, ...]) -> None:
        """Train and score the seeds whose score file is not there."""
        prints = {seed: self._scores_fingerprint(seed, quantiles) for seed in seeds}
        paths = {seed: self.scores_path(seed, bool(quantiles)) for seed in seeds}
        missing = {s: path for s, path in paths.items() if read_scores(path, prints[s], self.say) is None}
        if missing:
            config = self.quantile_config if quantiles else self.config
            scoring.score(
                self.block, self.dataset, config, missing, prints, quantiles, self.device, self.report
            )

    def _measure(self, seed: int) -> None:
        scores = read_scores(self.scores_path(seed, False), None, silently)
        assert scores is not None
        quantiles = read_scores(self.scores_path(seed, True), None, silently) if self.quantiles else None
        cell = measure(
            self.block,
            seed,
            self.dataset,
            self.levels,
            scores[0],
            None if quantiles is None else quantiles[0],
            self.plan.predictors,
        )
        measuring = cell.pop("measuring_seconds")
        about, other = scores[1], None if quantiles is None else quantiles[1]
        write_cell(
            self.folder,
            f"{self.block.name}/seed-{seed}",
            {
                "format": FORMAT,
                **cell,
                "statistics": self._statistics(),
                "training": _training(about, other),
                "seconds": {
                    "training": about["seconds"] / about["together"],
                    "quantiles": 0.0 if other is None else other["seconds"] / other["together"],
                    "scoring": about["scoring_seconds"]
                    + (0.0 if other is None else other["scoring_seconds"]),
                    "measuring": measuring,
                },
                "scores": {
                    "model": file_digest(self.scores_path(seed, False)),
                    "quantiles": file_digest(self.scores_path(seed, True)) if self.quantiles else None,
                },
                "fingerprint": self._cell_fingerprint(seed),
            },
        )
        say(f"{self.block.name}/seed-{seed}: stored")

    def _statistics(self) -> dict[str, int]:
        graph, splits = self.dataset.graph, self.dataset.splits
        return {
            "entities": graph.n_entities,
            "relations": graph.n_relations,
            "train": len(splits.train),
            "calibration": len(splits.calibration),
            "test": len(splits.test),
        }


def _training(about: Mapping[str, Any], quantiles: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "epochs": about["epochs"],
        "best_epoch": about["best_epoch"][0],
        "together": about["together"],
        "seconds": about["seconds"],
        "quantile_seconds": None if quantiles is None else quantiles["seconds"],
        "quantile_epochs": None if quantiles is None else quantiles["epochs"],
        "quantile_best_epoch": None if quantiles is None else quantiles["best_epoch"],
        "machine": about["machine"],
        "config": about["config"],
        "quantile_config": None if quantiles is None else quantiles["config"],
    }


# What a plan will cost, before anything is done: blocks, what is there already, and rough times.

# training facts times epochs, models, triples drawn for a fact and dimensions that are done in a second:
# an H200 with all seeds together; two cores with compiled kernels, which beurre has none of
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
) -> Table:
    """The blocks with the cells that are missing and the time they take; writes nothing."""
    rows, records, total, missing_cells = [], [], 0.0, 0
    for block in plan.blocks():
        dataset = load(block.data, data_dir)
        work = Work(Path(directory), block, dataset, plan, dict(override or {}), device, silent, silently)
        missing, cells = len(work.missing()), len(block.seeds)
        seconds = estimate(work, missing)
        total, missing_cells = total + seconds, missing_cells + missing
        rows.append([block.name, str(cells), str(cells - missing), str(missing), _time(seconds)])
        records.append({"block": block.name, "cells": cells, "missing": missing, "seconds": seconds})
    rows.append(["all", "", "", str(missing_cells), _time(total)])
    where = "one H200-class GPU" if scoring.uses_gpu(device) else "two CPU cores"
    note = f"Times are rough, for {where}."
    return Table(["block", "cells", "done", "to do", "about"], rows, records=records, note=note)


def estimate(work: Work, seeds: int) -> float:
    """Seconds for so many missing seeds of a block."""
    if not seeds:
        return 0.0
    kind = "cuda" if scoring.uses_gpu(work.device) else "cpu"
    slow = kind == "cpu" and work.block.model == "beurre"
    models = {
        "models": (work.config, seeds),
        "quantiles": (work.quantile_config, seeds * len(work.quantiles)),
    }
    seconds = MEASURING * seeds
    for what, (config, count) in models.items():
        products = len(work.dataset.splits.train) * config.epochs * count * (1 + 2 * config.negatives)
        seconds += float(products) * config.dimension / SPEED[kind, "beurre" if slow else what]
    return seconds


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
