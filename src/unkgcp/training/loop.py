"""The one training loop: epochs, validation, early stopping, checkpoints, progress.

How an epoch is computed is the engine's business (`engine`, `kernel_engine`); what is minimised is the terms'. What
users call is in `trainer`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from unkgcp.backbones import get
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known import KnownFacts
from unkgcp.progress import Progress
from unkgcp.training import checkpoint
from unkgcp.training.config import TrainConfig
from unkgcp.training.data import Member, TrainingData
from unkgcp.training.engine import TorchEngine
from unkgcp.training.model import Model, seen
from unkgcp.training.validation import Validator

# called after each validation with (epoch, error a member); returning True stops the training (for tuning)
Callback = Callable[[int, list[float]], bool]


class TrainingError(RuntimeError):
    """Training cannot go on. `model` is the last good model, if there is one."""

    def __init__(self, sentence: str, model: Model | None = None) -> None:
        super().__init__(sentence)
        self.model = model


class Engine(Protocol):
    """Computes epochs; see `engine.TorchEngine` and `kernel_engine.KernelEngine`."""

    members: list[Member]
    steps: int
    step: Tensor
    first_bad: Tensor

    @property
    def tables(self) -> dict[str, Tensor]: ...
    def run_epoch(self, epoch: int) -> Tensor: ...
    def state(self) -> dict[str, Tensor]: ...
    def load_state(self, state: dict[str, Tensor]) -> None: ...


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

    facts: Graph
    validation: Graph
    softlogic: Graph | None
    config: TrainConfig
    device: torch.device
    progress: Progress
    callback: Callback | None
    given: Graph  # the facts, with those held out
    stopping: Graph | None = None  # validation facts that are not among them


class Loop:
    """One run of it, for members trained together."""

    def __init__(
        self,
        setting: Setting,
        members: list[Member],
        kernel: bool,
        path: str | PathLike[str] | None,
        resume: bool,
    ) -> None:
        self.setting, self.members, self.path = setting, members, path
        self.rank, self.world = _processes()
        config, device = setting.config, setting.device
        data = TrainingData.of(setting.facts, setting.softlogic, config, device)
        self.shards = min(8, os.cpu_count() or 1, max(1, config.batch_size // 16)) if kernel else 0
        saved = checkpoint.load(path) if resume and path is not None and Path(path).is_file() else None
        if saved is not None:
            self._check(saved[1])
            self.shards = saved[1]["shards"]
        self.engine: Engine
        if kernel:
            from unkgcp.training.kernel_engine import KernelEngine

            self.engine = KernelEngine(data, config, members[0], self.shards)
        else:
            self.engine = TorchEngine(data, config, members, device, self.rank, self.world)
        self.validate = Validator(setting.validation, setting.facts, get(config.model), members, device)
        tables = {name: table.detach().clone() for name, table in self.engine.tables.items()}
        count = len(members)
        self.best = Best(tables, [math.inf] * count, [0] * count, [False] * count)
        self.history: list[dict[str, Any]] = []
        self.epoch, self.seconds = 0, 0.0
        if saved is not None:
            self._restore(*saved)

    def train(self) -> list[Model]:
        with _denormals_flushed():
            return self._train()

    def _train(self) -> list[Model]:
        config = self.setting.config
        interrupted = False
        last = time.monotonic()
        since = self.epoch
        try:
            while self.epoch < config.epochs and not all(self.best.stopped):
                loss = self.engine.run_epoch(self.epoch)
                self.epoch += 1
                if self.epoch % config.validate_every and self.epoch != config.epochs:
                    continue
                error = self.validate(self.engine.tables).tolist()
                now = time.monotonic()
                self.seconds, speed = self.seconds + now - last, (self.epoch - since) / max(now - last, 1e-9)
                last, since = now, self.epoch
                self._note(loss.tolist(), error, speed)
                self._stop_if_bad(error)
                self.best.update(self.engine.tables, error, self.epoch, config.patience)
                self._save()
                if self.setting.callback is not None and self.setting.callback(self.epoch, error):
                    break
        except KeyboardInterrupt:
            interrupted = True
        return self._models(interrupted)

    def _note(self, loss: list[float], error: list[float], speed: float) -> None:
        entry = {"epoch": self.epoch, "loss": loss, "validation": error, "seconds": round(self.seconds, 3)}
        self.history.append(entry)
        facts = len(self.setting.facts) * len(self.members) * speed
        text = f"loss {sum(loss) / len(loss):.4f}  validation {sum(error) / len(error):.5f}  {facts:,.0f} facts/s"
        if self.rank == 0:
            self.setting.progress.update(self.epoch, text)

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
        facts = self.setting.facts
        entities, relations = seen(facts)
        source = self.best.tables if any(self.best.epoch) else self.engine.tables
        models = []
        for i, member in enumerate(self.members):
            tables = {
                name: table[i].detach().cpu().clone().contiguous().numpy() for name, table in source.items()
            }
            config = replace(self.setting.config, quantile=member.quantile)
            history = [
                entry | {"loss": entry["loss"][i], "validation": entry["validation"][i]}
                for entry in self.history
            ]
            models.append(
                Model(
                    tables,
                    facts.vocabulary,
                    config,
                    member.seed,
                    entities,
                    relations,
                    history,
                    interrupted,
                    KnownFacts.of(self.setting.given),
                    None if self.setting.stopping is None else KnownFacts.of(self.setting.stopping),
                )
            )
        return models

    def _about(self) -> dict[str, Any]:
        return {
            "config": self.setting.config.to_dict(),
            "members": [[member.seed, member.quantile] for member in self.members],
            "facts": len(self.setting.facts),
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
        about = self._about() | {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "history": self.history,
            "best": best,
        }
        kept = {f"best.{name}": table for name, table in self.best.tables.items()}
        checkpoint.save(self.path, self.engine.state() | kept, about)

    def _restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        self.engine.load_state(state)
        for name, table in self.best.tables.items():
            table.copy_(state[f"best.{name}"])
        best = about["best"]
        self.best.error, self.best.epoch, self.best.stopped = best["error"], best["epoch"], best["stopped"]
        self.epoch, self.seconds, self.history = about["epoch"], about["seconds"], about["history"]


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Numbers too small for full precision count as 0 in here: late in training they slow the CPU tenfold.

    The processor's setting is put back afterwards; other arithmetic needs every float there is.
    """
    smallest = sys.float_info.min
    before = smallest / 2 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _processes() -> tuple[int, int]:
    """(rank, number of processes) under torchrun, joining the group if nobody has yet; (0, 1) otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or not torch.distributed.is_available():
        return 0, 1
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()
