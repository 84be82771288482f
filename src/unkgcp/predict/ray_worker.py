"""A worker of a Ray cluster: it loads the run once and answers one part of a file of queries after another.

Each part is answered by the functions of the local engine, so that the answers are the same. With `--device cuda` the
models score on a GPU.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unkgcp._version import __version__
from unkgcp.conformal.selection import Cuts
from unkgcp.errors import InputError
from unkgcp.files import atomic_path
from unkgcp.methods.intervals import Levels
from unkgcp.predict.filter import after_filter, parse
from unkgcp.predict.parts import ANSWERS, ATTEMPTS, ENDING, INDEX, PLACES, Part, part_name
from unkgcp.predict.stream import Answer, Chosen, answering, in_pieces
from unkgcp.run.chooser import Choice, Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.run.provenance import CALIBRATION
from unkgcp.tabular.query_files import query_batches
from unkgcp.tabular.writer import open_output
from unkgcp.training.model import Model

if TYPE_CHECKING:
    from torch import Tensor

    from unkgcp.run.answer_sets import Asked

FOUND, COUNTED = ".places.npy", ".counts.npy"
LIMIT = 5  # attempts at one part: without a limit, a part that kills every worker would be tried for ever


class Work(NamedTuple):
    """What every worker is told.

    `stage` is the folder where answers are written: all workers must see it, and the run and the queries, under
    the same name. Queries with an open place are completed with the options `completion` of `complete_batch`, or get
    the answer sets that `sets` asks for. `condition` is the text of a filter, and `after` asks for intervals that hold
    for what it keeps. `threads` is how many Arrow may use in a process. `version` is that of the program that made the
    plan. With a `choice` and no `cuts` yet, workers only find the places of candidates.
    """

    run: str
    stage: str
    confidence: Levels
    reading: dict[str, Any]
    completion: dict[str, Any] | None = None
    condition: str | None = None
    device: str = "cpu"
    threads: int | None = None
    version: str = __version__
    choice: Choice | None = None
    cuts: list[Cuts] | None = None
    after: bool = False
    sets: Asked | None = None

    @property
    def open_places(self) -> bool:
        """Whether queries leave a place open."""
        return self.completion is not None or self.sets is not None

    @property
    def only_places(self) -> bool:
        return self.choice is not None and self.cuts is None


class Answerer:
    """Answers parts of a plan, which come as dictionaries of the fields of `Part`, and reports on each."""

    def __init__(self, work: Work) -> None:
        self.work, self.stage = work, Path(work.stage)
        if work.threads is not None:
            pa.set_cpu_count(work.threads)  # other workers are on this machine too

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The report: the rows of the part, the attempts at it so far, and a sentence if it cannot be answered."""
        part, attempts, error, bad_input = Part(**row), 0, "", False
        try:
            attempts = self._answer(part)
        except InputError as caught:
            error, bad_input = str(caught), True
        except Exception as caught:
            error = f"{caught} ({type(caught).__name__} on {socket.gethostname()})"
        return {"rows": part.rows, "attempts": attempts, "error": error, "bad_input": bad_input}

    def _answer(self, part: Part) -> int:
        """Write the answers of a part; returns how many attempts were made at it so far."""
        if not self.stage.is_dir():
            raise InputError(
                f"{self.stage.parent} is not there on {socket.gethostname()}: every machine of the cluster must "
                "see the run, the queries and the output under the same names, on a shared file system"
            )
        folder, ending, mark = (
            (PLACES, COUNTED, "places-") if self.work.only_places else (ANSWERS, ENDING, "")
        )
        target = self.stage / folder / part_name(part.number, ending)
        attempts = len(list((self.stage / ATTEMPTS).glob(f"{mark}{part.number}-*")))
        if target.exists():  # only its report was lost
            return attempts
        if attempts >= LIMIT:
            raise RuntimeError(
                f"a worker died {LIMIT} times over rows {part.first + 1} to {part.first + part.rows} of "
                f"{part.path}; there may be too little memory for so many workers"
            )
        # the file names the process, so that one can see who works on which part
        (self.stage / ATTEMPTS / f"{mark}{part.number}-{attempts}").write_text(
            f"{os.getpid()} {socket.gethostname()}"
        )
        if self.work.only_places:
            self._count(part, target)
        else:
            self._write(part, target)
        return attempts + 1

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        rows = range(part.first, part.first + part.rows)
        asked = query_batches(part.path, rows=rows, open_places=self.work.open_places, **self.work.reading)
        sets = self.work.sets
        return asked if sets is None else in_pieces(asked, self.predictor, sets)

    def _count(self, part: Part, target: Path) -> None:
        """The first pass of a choice: writes the places of a part's candidates, and how many there are at each."""
        chooser = self.chooser
        places = [chooser.places(chooser.triples(batch)) for batch in self._batches(part)]
        found = np.concatenate(places) if places else np.zeros(0, np.int32)
        for path, array in (
            (target.with_name(part_name(part.number, FOUND)), found),
            (target, chooser.reference.count(found)),
        ):
            with atomic_path(path) as temporary:
                np.save(temporary, array)

    def _write(self, part: Part, target: Path) -> None:
        answer = self._answering(part)
        done = part.before
        with open_output(str(target)) as write:
            for batch in self._batches(part):
                write(answer(batch, first=done))
                done += len(batch)

    def _answering(self, part: Part) -> Answer:
        """The function of the local engine that answers a batch."""
        if self.work.choice is not None:
            assert self.work.cuts is not None
            places = np.load(self.stage / PLACES / part_name(part.number, FOUND))
            chosen = Chosen(self.chooser, self.work.cuts, places, part.path, {}, part.before)
            return chosen.answering(self.work.confidence)
        predictor, confidence, condition = self.predictor, self.work.confidence, self.work.condition
        levels: Any = [confidence] if isinstance(confidence, float) else confidence
        keep = None if condition is None else parse(condition, levels)
        if keep is not None and self.work.after:
            predictor = after_filter(predictor, keep, levels)
        return answering(predictor, confidence, self.work.completion, keep, self.work.sets)

    @cached_property
    def chooser(self) -> Chooser:
        assert self.work.choice is not None
        return Chooser(self.predictor, self.work.choice)

    @cached_property
    def predictor(self) -> Predictor:
        if self.work.version != __version__:
            raise InputError(
                f"{socket.gethostname()} has unkgcp {__version__}, this program is {self.work.version}: "
                "install the same version on every machine of the cluster"
            )
        predictor = Predictor.load(self.work.run)
        use_index(predictor, self.stage)
        if self.work.device == "cpu":
            return predictor
        return on_device(predictor, self.work.device)


# The index of an evidence run is several times as large as its facts. The driver makes it once and writes it to files;
# workers map these into their memory, so that those of one machine share them.


def write_index(predictor: Predictor, stage: Path) -> None:
    """Write the index of the training graph, if the run answers from one."""
    if predictor.method.evidence is not None:
        folder = _index_folder(predictor, stage)
        folder.mkdir()
        for name, array in predictor.method.evidence.evidence.index().items():
            np.save(folder / f"{name}.npy", array)


def use_index(predictor: Predictor, stage: Path) -> None:
    """Have a predictor of the same run use the index that `write_index` wrote, without a copy of it."""
    if predictor.method.evidence is not None and (folder := _index_folder(predictor, stage)).is_dir():
        predictor.method.evidence.evidence.use_index(
            {path.name.removesuffix(".npy"): _mapped(path) for path in folder.iterdir()}
        )


def _index_folder(predictor: Predictor, stage: Path) -> Path:
    """One folder for each run: the run may have been replaced after the driver wrote its index."""
    return stage / f"{INDEX}-{predictor.provenance['files'][CALIBRATION]['sha256']}"


def _mapped(path: Path) -> NDArray[Any]:
    """The array of a file, mapped as writable: for read-only arrays numba would compile its loops once more."""
    try:
        return np.asarray(np.load(path, mmap_mode="c"))
    except ValueError:  # an empty array cannot be mapped
        return np.asarray(np.load(path))


# A predictor whose models score on a GPU has the same formulas and the same tables, moved to the device once. Sums are
# rounded in another order there, so scores and intervals differ from those of the CPU in the last bits. Only costly
# scores (boxes) become faster: most of the time goes into labels and Parquet.

MOVED_AT_ONCE = 1 << 17  # triples scored on a device at once


@dataclass(frozen=True, eq=False)
class DeviceModel(Model):
    """A model that scores triples on `device`."""

    device: str = "cuda"

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """As `Model.score`."""
        import torch

        from unkgcp.backbones import score_triples

        ids = [torch.from_numpy(np.asarray(column).astype(np.int64)) for column in (head, relation, tail)]
        out = np.empty(len(ids[0]), np.float32)
        with torch.no_grad():
            for begin in range(0, len(out), MOVED_AT_ONCE):
                part = [column[begin : begin + MOVED_AT_ONCE].to(self.device) for column in ids]
                out[begin : begin + MOVED_AT_ONCE] = (
                    score_triples(self.backbone, self.moved, *part).cpu().numpy()
                )
        return out

    @cached_property
    def moved(self) -> dict[str, Tensor]:
        """The tables on the device; they are moved once."""
        return {name: table.to(self.device) for name, table in self.parameters.items()}


def on_device(predictor: Predictor, device: str) -> Predictor:
    """The predictor with its models on a device (`cuda`, `cuda:1`)."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here; choose --device cpu")

    def move(model: Model) -> Model:
        return DeviceModel(**{each.name: getattr(model, each.name) for each in fields(model)}, device=device)

    models = predictor.models()
    return predictor.with_models(
        {name: move(model) if model.tables else model for name, model in models.items()}
    )
