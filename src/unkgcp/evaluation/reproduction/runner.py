"""Carries out a plan: trains what is missing, stores every finished cell at once, then makes tables and figures.

An interrupted run, however it ended, is continued by the same call: what is stored undamaged in the folder is neither
computed nor written again. A cell goes through three steps (scores, quantile scores, figures), each with a file of its
own, so that at most the present step is lost.

With a GPU the steps of different cells run at the same time: while it trains the models of a block, a thread scores
with those of the block before, and other processes measure what has been scored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError
from unkgcp.evaluation.report import write_report
from unkgcp.evaluation.reproduction import (
    FORMAT,
    Block,
    Plan,
    Say,
    fingerprint,
    has_quantiles,
    model_config,
    quantile_config,
    roughly,
    scoring,
    silently,
)
from unkgcp.evaluation.reproduction.cell_figures import measure
from unkgcp.evaluation.reproduction.cells import file_digest, read_cell, read_json, write_cell, write_summary
from unkgcp.evaluation.reproduction.paper_tables import write_tables
from unkgcp.evaluation.reproduction.reproduction_page import draw_reproduction, figure_names
from unkgcp.evaluation.reproduction.scoring import read_scores, training_record
from unkgcp.evaluation.tables import Table
from unkgcp.files import write_text
from unkgcp.loops import cores
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
    with steps(scoring.uses_gpu(device), say) as later:
        for number, block in enumerate(blocks, 1):
            work = Work(folder, block, plan, dict(override or {}), device, data_dir, report, say)
            work.do(f"[{number}/{len(blocks)}]", scores_only, later)
    return None if scores_only else finish(folder, say, figures)


MOST_PROCESSES = 12  # more would not pay: a cell takes seconds, and each process has a data set in memory
FEWEST_FIGURES = 12  # fewer are drawn in this process


def finish(directory: str | os.PathLike[str], say: Say = silently, figures: bool = True) -> Path | None:
    """Summary, tables, figures and report page, from the cells that lie in the folder."""
    folder = Path(directory)
    write_tables(folder, write_summary(folder, say))
    if not figures:
        return None
    names = figure_names(folder)
    processes = min(cores() - 1, MOST_PROCESSES) if len(names) >= FEWEST_FIGURES else 0
    if not processes:
        draw_reproduction(folder, names)
        return write_report(folder)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        drawn = [pool.submit(draw_reproduction, folder, names[part::processes]) for part in range(processes)]
        page = write_report(folder)
        for part in drawn:
            part.result()
    return page


@dataclass
class Steps:
    """Does scoring in a thread and measuring in processes while training goes on; both at once where these are None."""

    thread: Executor | None
    processes: Executor | None
    say: Say
    scored: list[Future[None]] = field(default_factory=list)
    measured: dict[Future[None], str] = field(default_factory=dict)

    def score(self, *arguments: Any) -> None:
        """`scoring.store`, after that of earlier blocks."""
        if self.thread is None:
            scoring.store(*arguments)
        else:
            self.scored.append(self.thread.submit(scoring.store, *arguments))

    def measure(self, work: Work, seeds: Sequence[int]) -> None:
        """The cells of these seeds, once all that was handed in before is scored."""
        if self.thread is None:
            for seed in seeds:
                work.measure(seed)
                self.say(f"{work.block.name}/seed-{seed}: stored")
        else:
            self.scored.append(self.thread.submit(self._share_out, work, seeds))

    def _share_out(self, work: Work, seeds: Sequence[int]) -> None:
        assert self.processes is not None
        task = (work.folder, work.block, work.plan, work.override, work.device, work.data_dir)
        for seed in seeds:
            self.measured[self.processes.submit(_measure_elsewhere, seed, *task)] = (
                f"{work.block.name}/seed-{seed}"
            )

    def look(self, until_the_end: bool = False) -> None:
        """Say what has been stored since the last look; an error of a step is raised here."""
        while self.scored and (until_the_end or self.scored[0].done()):
            self.scored.pop(0).result()
        for future, name in list(self.measured.items()):
            if until_the_end or future.done():
                future.result()
                self.say(f"{name}: stored")
                del self.measured[future]


@contextmanager
def steps(elsewhere: bool, say: Say) -> Iterator[Steps]:
    """The steps of a reproduction; at the end all of them are done, or after an error given up."""
    if not elsewhere:
        yield Steps(None, None, say)
        return
    with ExitStack() as stack:
        # forked processes cannot use what a GPU's driver or a pool of threads has left in memory
        pool = ProcessPoolExecutor(max(1, min(cores() - 2, MOST_PROCESSES)), get_context("spawn"))
        stack.callback(pool.shutdown, cancel_futures=True)
        thread = ThreadPoolExecutor(1)
        stack.callback(thread.shutdown, cancel_futures=True)
        later = Steps(thread, pool, say)
        yield later
        later.look(until_the_end=True)


def _measure_elsewhere(
    seed: int,
    folder: Path,
    block: Block,
    plan: Plan,
    override: dict[str, Any],
    device: str,
    data_dir: str | None,
) -> None:
    Work(folder, block, plan, override, device, data_dir, silent, silently).measure(seed)


@lru_cache(maxsize=1)  # one only, because data sets are large
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
    plans = read_json(path) or {}
    asked = {**plan.to_dict(), **({"settings": dict(override)} if override else {})}
    if plans.get(plan.protocol) == asked or (plan.only and plan.protocol in plans):
        return
    write_text(path, json.dumps({**plans, plan.protocol: asked}, indent=1) + "\n")


@dataclass
class Work:
    """The cells of one block."""

    folder: Path
    block: Block
    plan: Plan
    override: dict[str, Any]
    device: str
    data_dir: str | None
    report: Report
    say: Say
    dataset: Dataset = field(init=False)
    config: TrainConfig = field(init=False)
    quantile_config: TrainConfig = field(init=False)

    def __post_init__(self) -> None:
        self.dataset = load(self.block.data, self.data_dir)
        self.config = model_config(self.block, self.override)
        self.quantile_config = quantile_config(self.block, self.override)
        wanted = "qr" in self.plan.predictors and has_quantiles(self.block.model)
        self.levels = self.plan.levels
        self.quantiles = tuple(quantiles_of(self.levels)) if wanted else ()

    def do(self, prefix: str, scores_only: bool, later: Steps) -> None:
        """Whatever of the block is not there yet."""
        missing = self.missing()
        if not missing:
            self.say(f"{prefix} {self.block.name}: {len(self.block.seeds)} cells are there already")
            return
        self.say(f"{prefix} {self.block.name}: {len(missing)} of {len(self.block.seeds)} cells to do")
        # on a GPU all seeds run together; on a CPU one after the other, each stored when it is finished
        for seeds in [tuple(missing)] if scoring.uses_gpu(self.device) else [(seed,) for seed in missing]:
            self._score(seeds, (), later)
            if self.quantiles:
                self._score(seeds, self.quantiles, later)
            if not scores_only:
                later.measure(self, seeds)
            later.look()

    def missing(self) -> list[int]:
        """Seeds without a sound cell."""
        return [seed for seed in self.block.seeds if not self._done(seed)]

    def scores_path(self, seed: int, quantiles: bool) -> Path:
        name = f"seed-{seed}{'-quantiles' if quantiles else ''}.npz"
        return self.folder / "cells" / self.block.name / name

    def _scores_fingerprint(self, seed: int, quantiles: tuple[float, ...]) -> str:
        config = self.quantile_config if quantiles else self.config
        return fingerprint(self.dataset, self.block, seed, config=config.to_dict(), quantiles=list(quantiles))

    def _cell_fingerprint(self, seed: int) -> str:
        parts = [self._scores_fingerprint(seed, which) for which in ((), self.quantiles)]
        return fingerprint(
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

    def _score(self, seeds: tuple[int, ...], quantiles: tuple[float, ...], later: Steps) -> None:
        """Train and score the seeds whose score file is not there."""
        prints = {seed: self._scores_fingerprint(seed, quantiles) for seed in seeds}
        paths = {seed: self.scores_path(seed, bool(quantiles)) for seed in seeds}
        missing = {s: path for s, path in paths.items() if read_scores(path, prints[s], self.say) is None}
        if missing:
            config = self.quantile_config if quantiles else self.config
            trained = scoring.train_block(
                self.block, self.dataset, config, list(missing), quantiles, self.device, self.report
            )
            later.score(self.block, self.dataset, config, missing, prints, quantiles, trained)

    def measure(self, seed: int) -> None:
        """Measure and store a cell whose scores are there."""
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
                "training": training_record(about, other),
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

    def _statistics(self) -> dict[str, int]:
        graph, splits = self.dataset.graph, self.dataset.splits
        return {
            "entities": graph.n_entities,
            "relations": graph.n_relations,
            "train": len(splits.train),
            "calibration": len(splits.calibration),
            "test": len(splits.test),
        }


# What a plan will cost, before anything is done: blocks, what is there already, and rough times.

# how much of (training facts x epochs x models x triples a fact x dimensions) is done in a second: on an H200 with all
# seeds together, and on two cores with compiled kernels, where boxes take longer
SPEED = {
    ("cuda", "models"): 4e10,
    ("cuda", "quantiles"): 5e9,
    ("cpu", "models"): 4e8,
    ("cpu", "quantiles"): 1e8,
    ("cpu", "beurre"): 8e7,
}
MEASURING = (
    4.0  # seconds for a cell with 20,000 test facts on a CPU; with a GPU, cells are measured during training
)


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
        work = Work(Path(directory), block, plan, dict(override or {}), device, data_dir, silent, silently)
        missing, cells = len(work.missing()), len(block.seeds)
        seconds = estimate(work, missing)
        total, missing_cells = total + seconds, missing_cells + missing
        rows.append([block.name, str(cells), str(cells - missing), str(missing), roughly(seconds)])
        records.append({"block": block.name, "cells": cells, "missing": missing, "seconds": seconds})
    rows.append(["all", "", "", str(missing_cells), roughly(total)])
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
    seconds = 0.0 if kind == "cuda" else MEASURING * seeds
    for what, (config, count) in models.items():
        products = len(work.dataset.splits.train) * config.epochs * count * (1 + 2 * config.negatives)
        seconds += float(products) * config.dimension / SPEED[kind, "beurre" if slow else what]
    return seconds
