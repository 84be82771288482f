"""Trains the models of a block and stores their scores; all that needs a GPU is here.

Every seed's scores of calibration facts, calibration negatives, test facts and test negatives go to a file of
its own, and likewise those of its quantile models. Whatever is asked afterwards (levels, thresholds, figures)
is answered from these files. A query about an entity or relation without a training fact has no score (NaN).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle.fitting import Report, calibration_negatives
from unkgcp.conformal.predictors.base import status_codes
from unkgcp.evaluation.evaluate import negatives_of
from unkgcp.evaluation.reproduction.storage import write_scores
from unkgcp.graph import Graph
from unkgcp.training import Member, Model, TrainConfig, train_many

if TYPE_CHECKING:
    from unkgcp.evaluation.reproduction.plan import Block
    from unkgcp.graph.datasets import Dataset

Scores = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Job:
    """Training of some seeds of a block: where each seed's file goes, and its fingerprint."""

    block: Block
    dataset: Dataset
    config: TrainConfig
    seeds: tuple[int, ...]
    paths: dict[int, Path]
    fingerprints: dict[int, str]
    quantiles: tuple[float, ...] = ()

    def members(self) -> list[Member]:
        """All models of the job, quantiles within seeds."""
        if not self.quantiles:
            return [Member(seed) for seed in self.seeds]
        return [Member(seed, quantile) for seed in self.seeds for quantile in self.quantiles]


def parts_of(dataset: Dataset, seed: int) -> dict[str, Graph]:
    """What is scored, by the name of its array: calibration facts, their corruptions, test facts, negatives."""
    return {
        "calibration": dataset.splits.calibration,
        "calibration_negatives": calibration_negatives(dataset, seed),
        "test": dataset.splits.test,
        "negatives": negatives_of(dataset, seed)[0],
    }


def run(job: Job, device: str, report: Report) -> None:
    """Train all seeds of the job together, score with each, write a file a seed."""
    what = "quantile models" if job.quantiles else "models"
    title = f"{job.block.name}: {len(job.members())} {what}"
    started = time.monotonic()
    with report(title, job.config.epochs) as progress:
        models = train_many(
            job.dataset.splits.train,
            job.members(),
            job.config,
            validation=_validation(job),
            softlogic=job.dataset.softlogic_for(job.block.protocol) if job.config.softlogic_weight else None,
            device=device,
            progress=progress,
        )
    if any(model.interrupted for model in models):
        raise KeyboardInterrupt
    seconds = time.monotonic() - started
    each = len(models) // len(job.seeds)
    for place, seed in enumerate(job.seeds):
        own = models[place * each : (place + 1) * each]
        started = time.monotonic()
        arrays = _quantile_scores(job, own, seed) if job.quantiles else _model_scores(job, own[0], seed)
        about = {
            "fingerprint": job.fingerprints[seed],
            "block": job.block.name,
            "seed": seed,
            "seconds": round(seconds, 3),
            "scoring_seconds": round(time.monotonic() - started, 3),
            "together": len(job.seeds),
            "epochs": max(model.history[-1]["epoch"] for model in own),
            "best_epoch": [_best_epoch(model) for model in own],
            "machine": machine(device),
            "config": job.config.to_dict(),
        }
        write_scores(job.paths[seed], arrays, about)


def _validation(job: Job) -> Graph | None:
    """Facts for early stopping: the calibration facts under the paper's protocol, else those held out."""
    splits = job.dataset.splits
    if job.block.protocol == "paper":
        return splits.calibration
    return splits.validation if len(splits.validation) else None


def _model_scores(job: Job, model: Model, seed: int) -> Scores:
    return {name: known_scores(model, part) for name, part in parts_of(job.dataset, seed).items()}


def _quantile_scores(job: Job, models: Sequence[Model], seed: int) -> Scores:
    """The quantile models' scores of what is tested on; calibration does not use them."""
    parts = parts_of(job.dataset, seed)
    return {
        "quantiles": np.array(job.quantiles),
        **{
            name: np.stack([known_scores(model, parts[name]) for model in models])
            for name in ("test", "negatives")
        },
    }


def known_scores(model: Model, triples: Graph) -> NDArray[np.float32]:
    """Scores of triples, NaN where the model knows nothing of an entity or of the relation: (n,)."""
    score = model.score(triples.head, triples.relation, triples.tail)
    score[status_codes(model, triples) != 0] = np.nan
    return score


def _best_epoch(model: Model) -> int:
    return int(min(model.history, key=lambda entry: entry["validation"])["epoch"])


def machine(device: str) -> str:
    """What the training ran on, in words."""
    import os

    import torch

    gpu = device != "cpu" and torch.cuda.is_available()
    where = torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} cores of {platform.machine()}"
    return f"{where}, torch {torch.__version__}, Python {platform.python_version()}"
