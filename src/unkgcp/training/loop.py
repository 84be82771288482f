"""The one training loop: epochs, validation, early stopping, checkpoints, progress.

An engine computes an epoch (`torch_engine`, `fused_engine`, `compiled_engine`), `losses` has what is minimised, and
`trainer` has the functions that users call.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unkgcp.errors import InputError
from unkgcp.files import atomic_path, read_container, write_container
from unkgcp.graph.facts import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.graph.negatives import corrupt
from unkgcp.progress import Progress
from unkgcp.training.batches import Engine, TrainingData, TripleTensors
from unkgcp.training.config import Member, TrainConfig
from unkgcp.training.losses import error_of
from unkgcp.training.model import Model, Tables, seen
from unkgcp.training.score_map import MAP, learn_map

FORMAT = "unkgcp checkpoint 1"
SAVE_EVERY = 1.0  # seconds between two checkpoints: more of them would cost more time than they can save
CELLS = 1 << 25  # floats of looked-up rows at once in a validation


class TrainingError(RuntimeError):
    """Training cannot go on. `model` is the best model so far, if there is one."""

    def __init__(self, sentence: str, model: Model | None = None) -> None:
        super().__init__(sentence)
        self.model = model


@dataclass
class BestTables:
    """The best tables of each member so far, and how long each has waited for better ones."""

    tables: dict[str, Tensor]
    error: list[float]
    epoch: list[int]
    stopped: list[bool]

    def update(self, tables: dict[str, Tensor], error: list[float], epoch: int, patience: int) -> None:
        for i, value in enumerate(error):
            if self.stopped[i]:
                continue
            if value < self.error[i]:
                self.error[i], self.epoch[i] = value, epoch
                for name, table in tables.items():
                    self.tables[name][i].copy_(table[i])
            elif epoch - self.epoch[i] >= patience:
                self.stopped[i] = True


@dataclass(frozen=True)
class TrainingJob:
    """What to train on and how, the same for every member."""

    facts: Graph  # without those held out for validation
    validation: Graph
    softlogic: Graph | None
    config: TrainConfig
    device: torch.device
    progress: Progress
    all_facts: Graph  # all facts that the user gave for training
    stopping: Graph | None = None  # validation facts that the user gave besides
    kind: type[Model] = Model
    initial: Tables | None = None  # tables to go on from; there may be more rows now

    def held_out_weight(self) -> NDArray[np.float64] | None:
        """How many facts each validation fact stands for, (n,), if these were held out of the facts given.

        A slice that leaves every entity and relation a fact holds out the facts of rare ones less often: of d facts of
        an entity one is kept for sure.
        """
        if self.stopping is not None:
            return None
        counts = np.bincount(
            np.concatenate([self.all_facts.head, self.all_facts.tail]), minlength=self.all_facts.n_entities
        )
        of_relation = np.bincount(self.all_facts.relation, minlength=self.all_facts.n_relations)
        held = self.validation
        degrees = np.stack([counts[held.head], counts[held.tail], of_relation[held.relation]])
        return np.asarray(1.0 / np.prod(1.0 - 1.0 / np.maximum(degrees, 2), axis=0))


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Numbers too small for full precision count as 0 in here: late in training they slow the CPU tenfold.

    The processor's setting is put back afterwards, because other arithmetic needs these numbers.
    """
    before = sys.float_info.min / 2 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class Loop:
    """One training run, for members trained together."""

    def __init__(
        self, job: TrainingJob, members: list[Member], kernel: bool, path: Path | None, resume: bool
    ) -> None:
        """`kernel`: train with the compiled CPU kernels. `path`: where checkpoints go, and where `resume` finds one."""
        self.job, self.members, self.path = job, members, path
        self.rank, self.world = _processes()
        data = TrainingData.of(job.facts, job.softlogic, job.config, job.device)
        self.n_facts = len(data.facts)
        self.engine = self._make_engine(data, kernel)
        tables = self.engine.tables
        for name, rows in (job.initial or {}).items():
            if name in tables:
                tables[name].data[:, : len(rows)] = torch.from_numpy(rows.copy())
        self.validate = Validator(job, members, self.engine)
        count = len(members)
        kept = {name: table.detach().clone().contiguous() for name, table in tables.items()}
        self.best = BestTables(kept, [math.inf] * count, [0] * count, [False] * count)
        self.history: list[dict[str, Any]] = []
        self.epoch, self.seconds = 0, 0.0
        self.saved = -math.inf  # when the last checkpoint was written
        if resume and path is not None and path.is_file():
            self._restore(*load(path))

    def _make_engine(self, data: TrainingData, kernel: bool) -> Engine:
        config, device = self.job.config, self.job.device
        if config.of_pykeen:
            from unkgcp.training.pykeen_models import PykeenEngine

            return PykeenEngine(data, config, self.members[0])
        if kernel:
            from unkgcp.training.compiled_engine import CompiledEngine

            return CompiledEngine(data, config, self.members[0])
        has_fused_kernel = find_spec("triton") is not None and config.in_kernels(len(data.softlogic) > 0)
        if self.world == 1 and device.type == "cuda" and has_fused_kernel:
            from unkgcp.training.fused_engine import FusedEngine

            return FusedEngine(data, config, self.members, device)
        from unkgcp.training.torch_engine import TorchEngine

        return TorchEngine(data, config, self.members, device, self.rank, self.world)

    @_denormals_flushed()
    def train(self) -> list[Model]:
        config, interrupted = self.job.config, False
        last, since = time.monotonic(), self.epoch
        try:
            while self.epoch < config.epochs and not all(self.best.stopped):
                loss = self.engine.run_epoch(self.epoch)
                self.epoch += 1
                if self.epoch % config.validate_every and self.epoch != config.epochs:
                    continue
                error = self.validate().tolist()
                now = time.monotonic()
                self.seconds, speed = self.seconds + now - last, (self.epoch - since) / max(now - last, 1e-9)
                last, since = now, self.epoch
                self._note(loss.tolist(), error, speed)
                self._stop_if_bad(error)
                self.best.update(self.engine.tables, error, self.epoch, config.patience)
                ended = self.epoch == config.epochs or all(self.best.stopped)
                if ended or time.monotonic() - self.saved >= SAVE_EVERY:
                    self._save()
                    self.saved = time.monotonic()
        except KeyboardInterrupt:
            interrupted = True
        return self._models(interrupted)

    def _note(self, loss: list[float], error: list[float], speed: float) -> None:
        entry = {"epoch": self.epoch, "loss": loss, "validation": error, "seconds": round(self.seconds, 3)}
        self.history.append(entry)
        if self.rank == 0:
            facts = self.n_facts * len(self.members) * speed
            losses = f"loss {sum(loss) / len(loss):.4f}  validation {sum(error) / len(error):.5f}"
            self.job.progress.update(self.epoch, f"{losses}  {facts:,.0f} facts/s")

    def _stop_if_bad(self, error: list[float]) -> None:
        step = int(self.engine.first_bad)
        if step < 0 and all(math.isfinite(value) for value in error):
            return
        good = [epoch for epoch in self.best.epoch if epoch]
        kept = f"; the model of epoch {min(good)} is kept" if good else ""
        raise TrainingError(
            f"the loss is no longer a number at step {max(step, 0)} with learning rate "
            f"{self.job.config.learning_rate:g}; use a smaller learning_rate{kept}",
            self._models(False)[0] if good else None,
        )

    def _models(self, interrupted: bool) -> list[Model]:
        """The best models so far, or the present ones where there has been no validation."""
        job = self.job
        given_facts = (
            KnownFacts.of(job.all_facts),
            None if job.stopping is None else KnownFacts.of(job.stopping),
        )
        source = self.best.tables if any(self.best.epoch) else self.engine.tables
        models, seen_ids = [], seen(job.facts)
        weight = job.held_out_weight() if job.config.learns_map else None
        for i, member in enumerate(self.members):
            tables = {name: table[i].detach().cpu().clone().numpy() for name, table in source.items()}
            history = [
                entry | {"loss": entry["loss"][i], "validation": entry["validation"][i]}
                for entry in self.history
            ]
            config = replace(job.config, quantile=member.quantile)
            model = job.kind(
                tables,
                job.facts.vocabulary,
                config,
                member.seed,
                *seen_ids,
                history,
                interrupted,
                *given_facts,
            )
            if config.learns_map:
                held = job.validation
                score = model.score(held.head, held.relation, held.tail)
                tables[MAP] = learn_map(score, held.confidence, weight)
            models.append(model)
        return models

    def _about(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        return {
            "config": self.job.config.to_dict(),
            "members": [[member.seed, member.quantile] for member in self.members],
            "facts": self.n_facts,
        }

    def _save(self) -> None:
        if self.path is None or self.rank != 0:
            return
        best = {"error": self.best.error, "epoch": self.best.epoch, "stopped": self.best.stopped}
        about = self._about() | {"epoch": self.epoch, "seconds": self.seconds, "history": self.history}
        about["best"] = best
        kept = {f"best.{name}": table for name, table in self.best.tables.items()}
        save(self.path, self.engine.state() | kept, about)

    def _restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        for name, value in self._about().items():
            if about.get(name) != value:
                raise InputError(
                    f"{self.path} belongs to a run with other {name}; start without --resume or restore them"
                )
        for name, tensor in self.engine.state().items():
            tensor.copy_(state[name].view_as(tensor))
        for name, table in self.best.tables.items():
            table.copy_(state[f"best.{name}"])
        best = about["best"]
        self.best.error, self.best.epoch, self.best.stopped = best["error"], best["epoch"], best["stopped"]
        self.epoch, self.seconds, self.history = about["epoch"], about["seconds"], about["history"]


def _processes() -> tuple[int, int]:
    """(rank, number of processes) under torchrun, joining the group if nobody has yet; (0, 1) otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or not torch.distributed.is_available():
        return 0, 1
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave_together)
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def _leave_together() -> None:
    """Wait for the other processes before leaving the group: gloo aborts a process that others still wait for."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def save(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write a checkpoint whole: all that a run needs to go on exactly as if it had never stopped."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        write_container(temporary, FORMAT, arrays, about)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    container = read_container(path, FORMAT, "start without --resume")
    return {name: torch.tensor(array) for name, array in container.arrays.items()}, container.about


class Validator:
    """The error that early stopping looks at: squared errors on facts and corrupted facts, weighted as in training.

    Quantile models are judged by their pinball loss on the facts alone, the loss that they are trained with.
    """

    def __init__(self, job: TrainingJob, members: list[Member], engine: Engine) -> None:
        """`engine` has the tables that are validated, (members, rows, width) each."""
        self.engine = engine
        quantiles = members[0].quantile is not None
        self.error = error_of(members, job.device)
        graphs = [job.validation]
        if not quantiles and job.config.negative_weight:
            graphs.append(corrupt(job.validation, job.facts, seed=0, per_fact=2))
        self.weights = [1.0, job.config.negative_weight][: len(graphs)]
        self.samples = [TripleTensors.of(graph, job.device) for graph in graphs]
        self.size = max(1, CELLS // max(table.shape[-1] for table in engine.tables.values()))

    def __call__(self) -> Tensor:
        """The validation error of each member, lower is better: (members,)."""
        with torch.no_grad():
            errors = [self.error(self._scores(part), part.target[None]) for part in self.samples]
        weighted = [weight * error.mean(1) for weight, error in zip(self.weights, errors, strict=True)]
        return torch.stack(weighted).sum(0) / sum(self.weights)

    def _scores(self, part: TripleTensors) -> Tensor:
        columns = (torch.split(ids, self.size) for ids in (part.head, part.relation, part.tail))
        return torch.cat([self.engine.scores(*ids) for ids in zip(*columns, strict=True)], 1)
