"""Trains the models of a block and stores their scores; all that needs a GPU is here.

Every seed's scores of calibration facts, calibration negatives, test facts and test negatives go to a file of
its own, and likewise those of its quantile models. Whatever is asked afterwards (levels, thresholds, figures)
is answered from these files. A query about an entity or relation without a training fact has no score (NaN).
"""

from __future__ import annotations

import fnmatch
import json
import os
import platform
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import negatives_of
from unkgcp.evaluation.reproduction.plan import FORMAT, digest
from unkgcp.files import atomic_path, write_text
from unkgcp.graph.facts import Graph, Vocabulary
from unkgcp.methods.method import status_codes
from unkgcp.run.fitting import Report, calibration_negatives
from unkgcp.training.batches import Member
from unkgcp.training.config import TrainConfig
from unkgcp.training.model import Model
from unkgcp.training.trainer import train_many

if TYPE_CHECKING:
    from unkgcp.evaluation.reproduction.plan import Block
    from unkgcp.graph.datasets import Dataset


def parts_of(dataset: Dataset, seed: int) -> dict[str, Graph]:
    """What is scored, by the name of its array: calibration facts, their corruptions, test facts, negatives."""
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
        if quantiles:  # scored is what is tested on; calibration does not use them
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


# Stored work: score files (.npz) and measured cells (.json), written whole and recognised when damaged.

Arrays = dict[str, NDArray[Any]]
ARCHIVE = "cells.zip"
Say = Callable[[str], None]


def silently(sentence: str) -> None:
    """A `Say` that says nothing."""


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


def cell_path(folder: Path, name: str) -> Path:
    """The file of a cell, by its name: `paper/cn15k/ukge/seed-0`."""
    return folder / "cells" / f"{name}.json"


def cell_names(folder: Path) -> list[str]:
    """All cells of a folder: those with a file of their own and those in its archive."""
    paths = [path.relative_to(folder).as_posix() for path in folder.glob("cells/*/*/*/seed-*.json")]
    with _archive(folder) as archive:
        packed = [] if archive is None else archive.namelist()
    found = {path for path in [*paths, *packed] if fnmatch.fnmatch(path, "cells/*/*/*/seed-*.json")}
    return sorted(path.removeprefix("cells/").removesuffix(".json") for path in found)


def write_cell(folder: Path, name: str, cell: Mapping[str, Any]) -> None:
    """A measured cell with its checksum."""
    text = json.dumps({**cell, "checksum": checksum(cell)}, allow_nan=False)
    write_text(cell_path(folder, name), text + "\n")


def read_cell(folder: Path, name: str, fingerprint: str | None, say: Say) -> dict[str, Any] | None:
    """What `write_cell` wrote, or None after a sentence about why it is of no use; None alone if absent."""
    path = cell_path(folder, name)
    try:
        content = _content(folder, path)
        if content is None:
            return None
        cell = json.loads(content)
        sound = cell["kind"] == "cell" and cell["checksum"] == checksum(cell)
        current = cell["format"] == FORMAT and fingerprint in (None, cell["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        sound = current = False
    if not sound:
        say(f"{path} is damaged and is made again")
        return None
    if not current:
        say(f"{path} was made from other data or settings and is made again")
        return None
    found: dict[str, Any] = cell
    return found


def _content(folder: Path, path: Path) -> bytes | None:
    """The cell's own file or, where it has none, its member of the archive; None if it is in neither."""
    if path.exists():
        return path.read_bytes()
    with _archive(folder) as archive:
        member = path.relative_to(folder).as_posix()
        return None if archive is None or member not in archive.namelist() else archive.read(member)


@contextmanager
def _archive(folder: Path) -> Iterator[zipfile.ZipFile | None]:
    """`cells.zip`, which may stand in the place of the folder `cells`; None if there is none."""
    path = folder / ARCHIVE
    if not path.exists():
        yield None
        return
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}); restore it or remove it") from None
    with archive:
        yield archive


def checksum(cell: Mapping[str, Any]) -> str:
    """Of everything in the cell but the checksum."""
    rest = {name: value for name, value in cell.items() if name != "checksum"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None if there is none."""
    return digest(path.read_bytes()) if path.exists() else None


# Stored scores in the place of a model, so that every interval method works on them unchanged.

PARTS = ("calibration", "calibration_negatives", "test", "negatives")


@dataclass(frozen=True, eq=False)
class StoredScores:
    """A scorer (see `unkgcp.methods.Scorer`) over rows; column: (n,), NaN where unknown."""

    column: NDArray[np.float32]

    @property
    def seen_entities(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.column)

    @property
    def seen_relations(self) -> NDArray[np.bool_]:
        return np.ones(1, dtype=np.bool_)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.column[np.asarray(head)]
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """The stored rows of one cell: its scorer, the graph of each part, and the quantile models' scorers."""

    model: StoredScores
    graphs: dict[str, Graph]
    quantiles: dict[float, StoredScores]

    @classmethod
    def of(
        cls,
        scores: Mapping[str, NDArray[Any]],
        truth: Mapping[str, NDArray[np.float64]],
        quantiles: Mapping[str, NDArray[Any]] | None = None,
    ) -> Rows:
        """From a score file, the labels of every part and, where there is one, a file of quantile scores."""
        nobody = Vocabulary.of([], [])
        graphs, begin = {}, 0
        for part in PARTS:
            size = len(scores[part])
            if truth[part].shape != (size,):
                raise ValueError(f"{size} scores of {part} stand beside {len(truth[part])} labels")
            rows = np.arange(begin, begin + size, dtype=np.int32)
            graphs[part] = Graph(rows, np.zeros(size, np.int32), rows, truth[part], nobody)
            begin += size
        column = np.concatenate([scores[part] for part in PARTS])
        taus = {} if quantiles is None else dict(enumerate(quantiles["quantiles"].tolist()))
        others = {}
        for place, tau in taus.items():
            assert quantiles is not None
            blank = np.full(begin, np.nan, np.float32)
            for part in ("test", "negatives"):
                blank[graphs[part].head] = quantiles[part][place]
            others[float(tau)] = StoredScores(blank)
        return cls(StoredScores(column), graphs, others)

    def scores(self, part: str) -> NDArray[np.float32]:
        """Stored scores of a part: (n,), NaN where unknown."""
        found: NDArray[np.float32] = self.model.column[self.graphs[part].head]
        return found


def training_record(about: Mapping[str, Any], quantiles: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a cell tells of how its scores were trained."""
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
