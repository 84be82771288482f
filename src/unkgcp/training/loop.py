"""The one training loop: epochs, validation, early stopping, checkpoints, progress.

How an epoch is computed is the engine's business (`engine`, `kernel_engine`); what is minimised is the terms'. What
users call is in `trainer`.
"""

from __future__ import annotations

import json
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

import numpy as np
import torch
from torch import Tensor

from unkgcp.backbones import Backbone, get
from unkgcp.errors import InputError, at
from unkgcp.files import atomic_path
from unkgcp.graph import Graph, hold_out
from unkgcp.graph.known import KnownFacts
from unkgcp.graph.negatives import corrupt
from unkgcp.progress import Progress
from unkgcp.training.batches import Lookup, Member, TrainingData, Triples
from unkgcp.training.config import TrainConfig
from unkgcp.training.losses import pinball
from unkgcp.training.model import Model, seen
from unkgcp.training.torch_engine import TorchEngine

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
        saved = load(path) if resume and path is not None and Path(path).is_file() else None
        if saved is not None:
            self._check(saved[1])
            self.shards = saved[1]["shards"]
        self.engine: Engine
        if kernel:
            from unkgcp.training.compiled_engine import KernelEngine

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
        save(self.path, self.engine.state() | kept, about)

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


# Checkpoints: everything a run needs to go on exactly as if it had never stopped, in one file written
# whole.


def save(path: str | PathLike[str], tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and a JSON description atomically."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata={"about": json.dumps(about)})


def load(path: str | PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InputError(f"{at(path)} does not exist; start without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"{at(path)} is not a checkpoint of this program ({error}); start without --resume"
        ) from None


# The error by which training stops: (mean squared error on facts + the same on corrupted facts) / 2.

CELLS = 1 << 25  # floats of looked-up rows at once


def hold_out_known(facts: Graph, fraction: float, seed: int = 0) -> tuple[Graph, Graph]:
    """(rest, held out): a random slice whose entities and relations all keep at least one fact in the rest.

    A plain random slice would take the only fact of many rare entities; the model would never see them, and test
    facts about them would be predicted from nothing. The choice looks at training facts alone.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(facts))
    kept = np.zeros(len(facts), dtype=bool)
    sides = np.concatenate([facts.head[order], facts.tail[order]])
    first_of_entity = np.unique(sides, return_index=True)[1] % len(facts)
    first_of_relation = np.unique(facts.relation[order], return_index=True)[1]
    kept[order[first_of_entity]] = kept[order[first_of_relation]] = True
    candidates = order[~kept[order]]
    held = candidates[: max(1, round(fraction * len(facts)))]
    if len(held) == 0:
        return hold_out(facts, max(fraction, 1 / len(facts)), seed)
    mask = np.zeros(len(facts), dtype=bool)
    mask[held] = True
    return facts[~mask], facts[mask]


class Validator:
    """Scores validation facts with every member; lower is better.

    Quantile models are judged by their pinball loss on the facts alone, like their training.
    """

    def __init__(
        self, validation: Graph, known: Graph, backbone: Backbone, members: list[Member], device: torch.device
    ) -> None:
        self.backbone, self.members, self.device = backbone, members, device
        self.facts = Triples.of(validation, device)
        self.quantiles = members[0].quantile is not None
        negatives = validation[:0] if self.quantiles else corrupt(validation, known, seed=0, per_fact=2)
        self.negatives = Triples.of(negatives, device)

    def __call__(self, tables: dict[str, Tensor]) -> Tensor:
        """Validation error a member: (members,)."""
        with torch.no_grad():
            if self.quantiles:
                error = pinball(self.members, self.device)
                return error(self._scores(tables, self.facts), self.facts.target[None]).mean(1)
            parts = [self.facts, self.negatives] if len(self.negatives) else [self.facts]
            errors = [(self._scores(tables, part) - part.target[None]).square().mean(1) for part in parts]
            return torch.stack(errors).mean(0)

    def _scores(self, tables: dict[str, Tensor], triples: Triples) -> Tensor:
        lookup = Lookup(self.backbone, tables, tables)
        members = len(self.members)
        chunk = max(1, CELLS // (members * max(table.shape[-1] for table in tables.values())))
        scores = []
        for begin in range(0, len(triples), chunk):
            part = slice(begin, begin + chunk)
            head, relation, tail = (
                column[part].expand(members, -1) for column in (triples.head, triples.relation, triples.tail)
            )
            value = self.backbone.value(
                lookup.rows("entity", head),
                lookup.rows("relation", relation),
                lookup.rows("entity", tail),
                lookup.model(2),
            )
            scores.append(self.backbone.squash(value))
        return torch.cat(scores, 1)
