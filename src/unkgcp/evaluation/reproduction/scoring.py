"""Trains the models of a block and stores their scores; all that needs a GPU is here.

The scores of calibration facts, calibration negatives, test facts and test negatives are stored in one file a seed,
and those of the seed's quantile models in another. All later figures (levels, thresholds) are computed from these
files. A query about an entity or relation without a training fact has no score (NaN).
"""

from __future__ import annotations

import json
import os
import platform
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.assessment import negatives_of
from unkgcp.evaluation.reproduction import Say
from unkgcp.files import atomic_path
from unkgcp.graph.facts import Graph
from unkgcp.methods.method import status_codes
from unkgcp.run.fitting import Report, calibration_negatives
from unkgcp.training.config import Member, TrainConfig
from unkgcp.training.model import Model
from unkgcp.training.trainer import train_many

if TYPE_CHECKING:
    from unkgcp.evaluation.reproduction import Block
    from unkgcp.graph.datasets import Dataset


def parts_of(dataset: Dataset, seed: int) -> dict[str, Graph]:
    """The triples that are scored, by the name of their array in the score file."""
    return {
        "calibration": dataset.splits.calibration,
        "calibration_negatives": calibration_negatives(dataset, seed),
        "test": dataset.splits.test,
        "negatives": negatives_of(dataset, seed)[0],
    }


@dataclass(frozen=True)
class Trained:
    """The models of a block, quantiles within seeds, and what training them took."""

    models: list[Model]
    seconds: float
    machine: str


def train_block(
    block: Block,
    dataset: Dataset,
    config: TrainConfig,
    seeds: Sequence[int],
    quantiles: Sequence[float],
    device: str,
    report: Report,
) -> Trained:
    """A model for each seed, or its quantile models, all trained together."""
    members = [Member(seed, quantile) for seed in seeds for quantile in quantiles or (None,)]
    splits, started = dataset.splits, time.monotonic()
    # for early stopping: the calibration facts under the paper's protocol, else those held out
    validation = splits.validation if len(splits.validation) else None
    title = f"{block.name}: {len(members)} {'quantile models' if quantiles else 'models'}"
    with report(title, config.epochs) as progress:
        models = train_many(
            splits.train,
            members,
            config,
            validation=splits.calibration if block.protocol == "paper" else validation,
            softlogic=dataset.softlogic_for(block.protocol) if config.softlogic_weight else None,
            device=device,
            progress=progress,
        )
    if any(model.interrupted for model in models):
        raise KeyboardInterrupt
    return Trained(models, time.monotonic() - started, machine(device))


def store(
    block: Block,
    dataset: Dataset,
    config: TrainConfig,
    paths: Mapping[int, Path],
    fingerprints: Mapping[int, str],
    quantiles: Sequence[float],
    trained: Trained,
) -> None:
    """Score with the models of a block, one seed after the other, and write a file for each.

    `paths` are these files by their seeds; each is written with the fingerprint of its seed.
    """
    each = len(trained.models) // len(paths)
    for place, (seed, path) in enumerate(paths.items()):
        own = trained.models[place * each : (place + 1) * each]
        started = time.monotonic()
        parts = parts_of(dataset, seed)
        if quantiles:  # calibration does not use quantile models, so that only test parts are scored
            arrays: dict[str, NDArray[Any]] = {"quantiles": np.array(quantiles)}
            for name in ("test", "negatives"):
                arrays[name] = np.stack([known_scores(model, parts[name]) for model in own])
        else:
            arrays = {name: known_scores(own[0], part) for name, part in parts.items()}
        about = {
            "fingerprint": fingerprints[seed],
            "block": block.name,
            "seed": seed,
            "seconds": round(trained.seconds, 3),
            "scoring_seconds": round(time.monotonic() - started, 3),
            "together": len(paths),
            "epochs": max(model.history[-1]["epoch"] for model in own),
            "best_epoch": [_best_epoch(model) for model in own],
            "machine": trained.machine,
            "config": config.to_dict(),
        }
        write_scores(path, arrays, about)


def known_scores(model: Model, triples: Graph) -> NDArray[np.float32]:
    """Scores of triples, NaN where the model knows nothing of an entity or of the relation: (n,)."""
    score = model.score(triples.head, triples.relation, triples.tail)
    score[status_codes(model, triples) != 0] = np.nan
    return score


def _best_epoch(model: Model) -> int:
    return int(min(model.history, key=lambda entry: entry["validation"])["epoch"])


def uses_gpu(device: str) -> bool:
    """Whether work on this device, `auto` included, runs on a GPU."""
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def machine(device: str) -> str:
    """What the training ran on, for readers of the tables."""
    import torch

    gpu = uses_gpu(device)
    where = torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} cores of {platform.machine()}"
    return f"{where}, torch {torch.__version__}, Python {platform.python_version()}"


# Score files, which are written whole and recognised when damaged.

Arrays = dict[str, NDArray[Any]]


def write_scores(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Arrays and what they are; `about` must hold the fingerprint."""
    members: dict[str, Any] = dict(arrays)
    members["about"] = np.frombuffer(json.dumps(dict(about), sort_keys=True).encode(), dtype=np.uint8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **members)


def read_scores(path: Path, fingerprint: str | None, say: Say) -> tuple[Arrays, dict[str, Any]] | None:
    """What `write_scores` wrote, or None after a sentence about why it is of no use; None alone if absent."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about: dict[str, Any] = json.loads(arrays.pop("about").tobytes())
        found = about["fingerprint"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        say(f"{path} is damaged and is made again")
        return None
    if fingerprint is not None and found != fingerprint:
        say(f"{path} was made from other data or settings and is made again")
        return None
    return arrays, about


def training_record(about: Mapping[str, Any], quantiles: Mapping[str, Any] | None) -> dict[str, Any]:
    """How the scores of a cell were trained, from the records of its score files."""
    of_quantiles = quantiles or {}
    return {
        "epochs": about["epochs"],
        "best_epoch": about["best_epoch"][0],
        "together": about["together"],
        "seconds": about["seconds"],
        **{f"quantile_{key}": of_quantiles.get(key) for key in ("seconds", "epochs", "best_epoch")},
        "machine": about["machine"],
        "config": about["config"],
        "quantile_config": of_quantiles.get("config"),
    }
