"""A file of queries answered on a Ray cluster, part by part, with the answers of the local engine.

A Ray Data pipeline whose rows are the parts of a plan and whose stateful workers read, answer and write them
(`Answerer`). Queries and answers never pass through the driver or Ray's object store, so neither grows with the
file. A worker that dies is replaced, and its part computed again. All machines must see the run, the queries and the
output under the same names.

>>> answer_on_ray("run", "queries/", "answers/", confidence=0.9, workers=8)     # doctest: +SKIP
1000000000
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unkgcp._version import __version__
from unkgcp.conformal.selection import Counts, Cuts
from unkgcp.errors import InputError
from unkgcp.files import atomic_path
from unkgcp.methods.intervals import Levels
from unkgcp.parallel import cores
from unkgcp.predict.cluster import connected
from unkgcp.predict.filter import parse
from unkgcp.predict.parts import (
    ANSWERS,
    ATTEMPTS,
    ENDING,
    PLACES,
    QUERIES,
    ROWS,
    Part,
    check_target,
    deliver,
    part_name,
    plan,
    spooled,
    staged,
    use_index,
    write_index,
)
from unkgcp.predict.stream import Answer, answering, in_pieces
from unkgcp.predict.two_passes import Chosen, after_filter, check_some
from unkgcp.progress import Progress, Silent
from unkgcp.run.choosing import Choice, Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.query_files import parquet_files, query_batches
from unkgcp.tabular.source import is_parquet
from unkgcp.tabular.writer import USUAL, Style, open_output
from unkgcp.training.model import Model

if TYPE_CHECKING:
    from torch import Tensor

    from unkgcp.run.answer_sets import Asked


def answer_on_ray(
    run: str,
    queries: str,
    target: str | None,
    confidence: Levels = 0.9,
    *,
    workers: int | None = None,
    address: str | None = None,
    device: str = "cpu",
    rows_per_part: int = ROWS,
    completion: dict[str, Any] | None = None,
    condition: str | None = None,
    choice: Choice | None = None,
    after: bool = False,
    sets: Asked | None = None,
    progress: Progress | None = None,
    style: Style = USUAL,
    **reading: Any,
) -> int:
    """Answer every query of a Parquet file, a folder of them or a text file; returns how many there were.

    `target` is a folder (one Parquet file a part, in the order of their names), a file as for the local engine,
    or None for standard output; it appears when all of it is there. `workers` is how many parts are computed at
    once, by default one for each CPU (with `device="cuda"`: each GPU) of the cluster. `address` is that of a
    running cluster; without it one is started on this machine and stopped after. `completion` has the options
    `k`, `rank_by` and `exclude_known` for queries with an open head or tail; `condition` is a filter
    (`unkgcp.predict.filter`), with intervals that hold for what it keeps if `after` is set. `choice` chooses among the
    queries (`unkgcp.run.choosing`), for which workers pass over them twice. `sets` asks for answer sets of queries
    with an open place (`unkgcp.run.answer_sets`), for which every worker calibrates. `style` has the format of a
    file to write.
    """
    check_target(target, style)
    predictor = Predictor.load(run)  # whatever is wrong with the run is said before a cluster is started
    chooser = None if choice is None else Chooser(predictor, choice)
    with staged(target) as stage:
        open_places = completion is not None or sets is not None
        paths, reading = _sources(queries, stage / QUERIES, rows_per_part, open_places, reading)
        parts = plan(paths, rows_per_part)
        if choice is not None:
            check_some(sum(part.rows for part in parts), queries)
        work = Work(os.path.abspath(run), str(stage), confidence, reading, completion, condition, device, 1)
        work = work._replace(choice=choice, after=after, sets=sets)
        write_index(predictor, stage)
        if chooser is None:
            del predictor  # workers have their own
        with connected(workers or cores(), address, gpus=device == "cuda") as ray:
            try:
                report, started = progress or Silent(), _workers(ray, workers, len(parts), device)
                if chooser is not None:
                    _compute(ray, parts, work, started, report)
                    work = work._replace(cuts=chooser.cuts(_counted(stage, len(parts))))
                _compute(ray, parts, work, started, report)
            except BaseException:
                # before Ray is shut down: where its processes got the same signal as we, it ends ours at once
                shutil.rmtree(stage, ignore_errors=True)
                raise
        deliver(stage, len(parts), target, style)
    return sum(part.rows for part in parts)


def _sources(
    queries: str, spool: Path, rows: int, open_places: bool, reading: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The Parquet files to read, and how. Text is not cut into parts: it is read here and written as Parquet."""
    if queries != "-" and Path(queries).is_dir():
        return parquet_files(Path(queries).absolute()), reading
    if queries != "-" and reading.get("format") in (None, "parquet") and _is_parquet(queries):
        return [os.path.abspath(queries)], reading
    batches = query_batches(queries, open_places=open_places, **reading)
    return list(spooled(batches, spool, rows)), {}


def _is_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return is_parquet(file.read(8))
    except OSError:
        return False  # the reader of text says what is wrong


def _compute(ray: Any, parts: Sequence[Part], work: Work, workers: int, progress: Progress) -> None:
    """Have every part answered; returns when all are there, raises at the first that cannot be."""
    rows = [part._asdict() for part in parts]
    outcomes = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        Answerer,
        fn_constructor_args=(work,),
        concurrency=workers,
        num_cpus=0 if work.device == "cuda" else 1,
        num_gpus=1 if work.device == "cuda" else None,
    )
    start, done, finished = time.monotonic(), 0, 0
    try:
        for outcome in outcomes.iter_rows():
            if outcome["error"]:
                raise (InputError if outcome["bad_input"] else RuntimeError)(outcome["error"])
            done, finished = done + outcome["rows"], finished + 1
            progress.update(done, f"{finished} of {len(parts)} parts", since=start)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise RuntimeError(
            f"the Ray cluster gave up: {lines[-1] if lines else type(error).__name__}"
        ) from error


def _counted(stage: Path, parts: int) -> Counts:
    """How many candidates of all parts there are at each place."""
    names = [part_name(number, COUNTED) for number in range(parts)]
    return np.asarray(sum(np.load(stage / PLACES / name) for name in names), np.int64)


def _workers(ray: Any, asked: int | None, parts: int, device: str) -> int:
    """How many workers to start: no more than the cluster has room for, nor than there is work for."""
    kind = "GPU" if device == "cuda" else "CPU"
    room = int(ray.cluster_resources().get(kind, 0))
    if not room:
        raise InputError(f"the Ray cluster has no {kind}; choose --device cpu or another --address")
    return max(1, min(asked or room, room, parts))


# What runs on a worker: a predictor, loaded once, that answers one part after another.

FOUND, COUNTED = ".places.npy", ".counts.npy"
LIMIT = 5  # attempts at one part: something that kills its worker every time would go on for ever


class Work(NamedTuple):
    """What every worker is told.

    `stage` is the folder where answers are written: all workers must see it, and the run and the queries, under
    the same name. `completion` holds options of `complete_batch`, for queries with an open place, and `sets` what is
    asked of answer sets for such. `condition` is the text of a filter, and `after` asks for intervals that hold for
    what it keeps. `threads` is how many Arrow may use in a process. `version` is that of the program that made the
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
    """Answers parts of a plan, each a dictionary of the fields of `Part`, and says for each what came of it."""

    def __init__(self, work: Work) -> None:
        self.work, self.stage = work, Path(work.stage)
        if work.threads is not None:
            pa.set_cpu_count(work.threads)  # other workers are on this machine too
        self._predictor: Predictor | None = None
        self._chooser: Chooser | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The rows of the part, the attempts at it so far, and a sentence if it cannot be answered."""
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
        # the mark names its process, so that one can see who is at work on what
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
        return asked if sets is None else in_pieces(asked, self._loaded(), sets)

    def _count(self, part: Part, target: Path) -> None:
        """The first pass of a choice: the places of a part's candidates, and how many there are at each, the target."""
        chooser = self._choosing()
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
        """The function of the local engine: a batch and the number of rows before it in, answers out."""
        if self.work.choice is not None:
            assert self.work.cuts is not None
            places = np.load(self.stage / PLACES / part_name(part.number, FOUND))
            return Chosen(self._choosing(), self.work.cuts, places, part.path, {}, part.before).answering(
                self.work.confidence
            )
        predictor = self._loaded()
        confidence, condition = self.work.confidence, self.work.condition
        levels: Any = [confidence] if isinstance(confidence, float) else confidence
        keep = None if condition is None else parse(condition, levels)
        if keep is not None and self.work.after:
            predictor = after_filter(predictor, keep, levels)
        return answering(predictor, confidence, self.work.completion, keep, self.work.sets)

    def _choosing(self) -> Chooser:
        assert self.work.choice is not None
        if self._chooser is None:
            self._chooser = Chooser(self._loaded(), self.work.choice)
        return self._chooser

    def _loaded(self) -> Predictor:
        if self._predictor is None:
            self._predictor = self._load()
        return self._predictor

    def _load(self) -> Predictor:
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


# A predictor whose models score on a GPU: the same formulas on the same tables, moved to the device once. Sums are
# rounded in another order there, so scores differ from those of the CPU in the last bits, and intervals with them. It
# is no reason to expect speed: most of the time goes into labels and Parquet, and only costly scores (boxes) gain.

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
