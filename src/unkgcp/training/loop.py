"""The one training loop: epochs, validation, early stopping, checkpoints, progress.

An engine computes an epoch (`torch_engine`, `fused_engine`, `compiled_engine`), `losses` has what is minimised, and
`trainer` has the functions that users call.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unkgcp.backbones import score_triples
from unkgcp.errors import InputError, at
from unkgcp.files import atomic_path
from unkgcp.graph.facts import Graph, concatenate
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.graph.negatives import corrupt
from unkgcp.progress import Progress
from unkgcp.training.batches import TrainingData, TripleTensors
from unkgcp.training.config import Member, TrainConfig
from unkgcp.training.losses import pinball, squared_error
from unkgcp.training.model import Model, Tables, seen

if TYPE_CHECKING:
    from unkgcp.training.compiled_engine import CompiledEngine
    from unkgcp.training.torch_engine import TorchEngine

    Engine = TorchEngine | CompiledEngine

REPORT_EVERY = 0.5  # seconds between two reports of progress: nobody can follow more
SAVE_EVERY = 1.0  # seconds between two checkpoints: more of them would cost more time than they can save
ASIDE = 1 << 27  # from so many bytes on, the best version of a table lies in a file
CELLS = 1 << 25  # floats of looked-up rows at once in a validation

# called after each validation with (epoch, error of each member); returning True stops the training (for tuning)
Callback = Callable[[int, list[float]], bool]


class TrainingError(RuntimeError):
    """Training cannot go on. `model` is the best model so far, if there is one."""

    def __init__(self, sentence: str, model: Model | None = None) -> None:
        super().__init__(sentence)
        self.model = model


@dataclass
class Best:
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
class Setting:
    """What to train on and how, the same for every member."""

    facts: Graph  # without those held out for validation
    validation: Graph
    softlogic: Graph | None
    config: TrainConfig
    device: torch.device
    progress: Progress
    callback: Callback | None
    given: Graph  # all facts that the user gave for training
    stopping: Graph | None = None  # validation facts that the user gave besides
    initial: Tables | None = None  # tables to go on from; there may be more rows now


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
        self, setting: Setting, members: list[Member], kernel: bool, path: Path | None, resume: bool
    ) -> None:
        """`kernel`: train with the compiled kernels. `path`: where checkpoints go, and where `resume` finds one."""
        self.setting, self.members, self.path = setting, members, path
        self.rank, self.world = _processes()
        data = TrainingData.of(setting.facts, setting.softlogic, setting.config, setting.device)
        self.n_facts = len(data.facts)
        self.shards = 0
        if kernel:
            from unkgcp.training.compiled_engine import shards_of

            self.shards = shards_of(data, setting.config)
        saved = load(path) if resume and path is not None and path.is_file() else None
        if saved is not None:
            self._check(saved[1])
            self.shards = saved[1]["shards"]
        self.engine = self._make_engine(data, kernel)
        tables = self.engine.tables
        for name, rows in (setting.initial or {}).items():
            tables[name].data[:, : len(rows)] = torch.from_numpy(rows.copy())
        self.validate = Validator(setting, members, self.engine)
        count = len(members)
        folder = None if path is None else path.parent
        kept = {name: kept_aside(table.detach(), folder) for name, table in tables.items()}
        self.best = Best(kept, [math.inf] * count, [0] * count, [False] * count)
        self.history: list[dict[str, Any]] = []
        self.epoch, self.seconds = 0, 0.0
        self.reported = self.saved = -math.inf  # when progress and checkpoint were last written
        if saved is not None:
            self._restore(*saved)

    def _make_engine(self, data: TrainingData, kernel: bool) -> Engine:
        config, device = self.setting.config, self.setting.device
        if kernel:
            from unkgcp.training.compiled_engine import CompiledEngine

            return CompiledEngine(data, config, self.members[0], self.shards)
        if self.world == 1 and device.type == "cuda":
            from unkgcp.training.fused_engine import FusedEngine, has_fused_kernel

            if has_fused_kernel(config, data):
                return FusedEngine(data, config, self.members, device)
        from unkgcp.training.torch_engine import TorchEngine

        return TorchEngine(data, config, self.members, device, self.rank, self.world)

    @_denormals_flushed()
    def train(self) -> list[Model]:
        config, interrupted = self.setting.config, False
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
                stop = self.setting.callback is not None and self.setting.callback(self.epoch, error)
                ended = stop or self.epoch == config.epochs or all(self.best.stopped)
                if ended or time.monotonic() - self.saved >= SAVE_EVERY:
                    self._save()
                    self.saved = time.monotonic()
                if stop:
                    break
        except KeyboardInterrupt:
            interrupted = True
        return self._models(interrupted)

    def _note(self, loss: list[float], error: list[float], speed: float) -> None:
        entry = {"epoch": self.epoch, "loss": loss, "validation": error, "seconds": round(self.seconds, 3)}
        self.history.append(entry)
        now, last = time.monotonic(), self.epoch == self.setting.config.epochs
        if self.rank == 0 and (last or now - self.reported >= REPORT_EVERY):
            self.reported, facts = now, self.n_facts * len(self.members) * speed
            losses = f"loss {sum(loss) / len(loss):.4f}  validation {sum(error) / len(error):.5f}"
            self.setting.progress.update(self.epoch, f"{losses}  {facts:,.0f} facts/s")

    def _stop_if_bad(self, error: list[float]) -> None:
        step = int(self.engine.first_bad)
        if step < 0 and all(math.isfinite(value) for value in error):
            return
        good = [epoch for epoch in self.best.epoch if epoch]
        kept = f"; the model of epoch {min(good)} is kept" if good else ""
        raise TrainingError(
            f"the loss is no longer a number at step {max(step, 0)} with learning rate "
            f"{self.setting.config.learning_rate:g}; use a smaller learning_rate{kept}",
            self._models(False)[0] if good else None,
        )

    def _models(self, interrupted: bool) -> list[Model]:
        """The best models so far, or the present ones where there has been no validation."""
        setting, vocabulary = self.setting, self.setting.facts.vocabulary
        known, looked_at = seen(setting.facts), setting.stopping
        facts, stopping = (
            KnownFacts.of(setting.given),
            None if looked_at is None else KnownFacts.of(looked_at),
        )
        source = self.best.tables if any(self.best.epoch) else self.engine.tables
        # the best tables of a single member belong to nobody else, so they need not be copied
        alone = source is self.best.tables and len(self.members) == 1
        models = []
        for i, member in enumerate(self.members):
            own = {name: table[i].detach().cpu().contiguous() for name, table in source.items()}
            tables = {name: (table if alone else table.clone()).numpy() for name, table in own.items()}
            config = replace(setting.config, quantile=member.quantile)
            history = [
                entry | {"loss": entry["loss"][i], "validation": entry["validation"][i]}
                for entry in self.history
            ]
            model = Model(
                tables, vocabulary, config, member.seed, *known, history, interrupted, facts, stopping
            )
            models.append(model)
        return models

    def _about(self) -> dict[str, Any]:
        return {
            "config": self.setting.config.to_dict(),
            "members": [[member.seed, member.quantile] for member in self.members],
            "facts": self.n_facts,
            "shards": self.shards,
        }

    def _check(self, about: dict[str, Any]) -> None:
        for name, value in self._about().items():
            if name != "shards" and about.get(name) != value:
                raise InputError(
                    f"{self.path} belongs to a run with other {name}; start without --resume or restore them"
                )

    def _save(self) -> None:
        if self.path is None or self.rank != 0:
            return
        best = {"error": self.best.error, "epoch": self.best.epoch, "stopped": self.best.stopped}
        about = self._about() | {"epoch": self.epoch, "seconds": self.seconds, "history": self.history}
        about["best"] = best
        kept = {f"best.{name}": table for name, table in self.best.tables.items()}
        save(self.path, self.engine.state() | kept, about)

    def _restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        for name, tensor in self.engine.state().items():
            tensor.copy_(state[name].view_as(tensor))
        for name, table in self.best.tables.items():
            table.copy_(state[f"best.{name}"])
        best = about["best"]
        self.best.error, self.best.epoch, self.best.stopped = best["error"], best["epoch"], best["stopped"]
        self.epoch, self.seconds, self.history = about["epoch"], about["seconds"], about["history"]


def kept_aside(table: Tensor, folder: Path | None) -> Tensor:
    """A copy of a table: a large copy lies in a temporary file, so that the system can keep it out of memory.

    Without room in the folder, or where files cannot be reserved, it stays in memory.
    """
    if table.is_cuda or table.nbytes < ASIDE or not hasattr(os, "posix_fallocate"):
        return table.clone().contiguous()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # if the disk had no room for a mapped file, a later write to it would end the process
            os.posix_fallocate(file.fileno(), 0, table.nbytes)
            return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=tuple(table.shape))).copy_(table)
    except OSError:
        return table.clone().contiguous()


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
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(contiguous, temporary, metadata={"about": json.dumps(about)})


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"{at(path)} is not a checkpoint of this program ({error}); start without --resume"
        ) from None


class Validator:
    """The error that early stopping looks at: the mean of the squared errors on facts and on corrupted facts.

    Quantile models are judged by their pinball loss on the facts alone, the loss that they are trained with.
    """

    def __init__(self, setting: Setting, members: list[Member], engine: Engine) -> None:
        """`engine` has the tables that are validated, (members, rows, width) each."""
        self.backbone, tables = engine.backbone, engine.tables
        self.tables = [{name: table[i] for name, table in tables.items()} for i in range(len(members))]
        graphs = [setting.validation]
        quantiles = members[0].quantile is not None
        self.error = pinball(members, setting.device) if quantiles else squared_error
        if not quantiles:
            graphs.append(corrupt(setting.validation, setting.facts, seed=0, per_fact=2))
        sizes = [*map(len, graphs)]
        triples = TripleTensors.of(concatenate(graphs), setting.device)
        self.target = triples.target.expand(len(members), -1)
        size = max(1, CELLS // max(table.shape[-1] for table in tables.values()))
        self.parts: list[slice] = []
        self.chunks: list[tuple[slice, list[Tensor]]] = []
        for count in sizes:
            begin = self.parts[-1].stop if self.parts else 0
            end = begin + count
            self.parts += [slice(begin, end)] if count else []
            for start in range(begin, end, size):
                rows = slice(start, min(start + size, end))
                self.chunks.append((rows, [triples.head[rows], triples.relation[rows], triples.tail[rows]]))

    def __call__(self) -> Tensor:
        """The validation error of each member, lower is better: (members,)."""
        scores = torch.empty_like(self.target)
        with torch.no_grad():
            for i, tables in enumerate(self.tables):
                for rows, ids in self.chunks:
                    scores[i, rows] = score_triples(self.backbone, tables, *ids)
        error = self.error(scores, self.target)
        return torch.stack([error[:, part].mean(1) for part in self.parts]).mean(0)
