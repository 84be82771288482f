"""How a model is trained: one frozen dataclass, mapped one to one to YAML.

An unknown key is an error that names the nearest known key; a value that cannot work is an error too.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from unkgcp.backbones import MODELS as MODELS
from unkgcp.backbones import registered_name
from unkgcp.errors import InputError, at

DISTMULT = ("ukge", "ukge-rect", "passleaf")
"""Models with the score f(w (h o r) . t + b): they are scored without torch."""
COMPILED = (*DISTMULT, "beurre")
"""Models that have kernels of their own, compiled for a CPU and fused for a GPU; torch trains the others."""
NONE = "none"
"""Instead of the name of a model: no model is trained."""
GIVEN = "given"
"""Instead of the name of a model: it is the user's own model, which a run does not keep."""
SMALLEST_BATCH = 16
"""Facts in a batch, on the smallest graphs."""
PYKEEN = "pykeen:"
"""Precedes the name of a model of PyKEEN."""
BOUNDS = {
    "dimension": (1, 1 << 16),
    **dict.fromkeys(("batch_size", "epochs", "patience", "validate_every", "pool_size"), (1, math.inf)),
    **dict.fromkeys(("negatives", "min_steps", "max_steps", "start_deviation"), (0, math.inf)),
    **dict.fromkeys(
        ("negative_weight", "regularization", "try_regularization", "softlogic_weight", "logic_weight"),
        (0, math.inf),
    ),
    **dict.fromkeys(("momentum", "pool_share"), (0, 1)),
}
"""The least and the largest value of a field."""
ALLOWED_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "float | None": (int, float, type(None)),
}
"""What a value in a file may be, by the annotation of its field; other fields are lists."""


@dataclass(frozen=True)
class Member:
    """One of the models that are trained together: its seed, and its quantile if it learns one."""

    seed: int = 0
    quantile: float | None = None


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides a training run besides data and seed. `presets.yaml` explains the values chosen."""

    model: str = "ukge"
    dimension: int = 128
    batch_size: int = 1024
    learning_rate: float = 1e-3
    min_steps: int = 0  # an epoch, 0 for any number: smaller graphs get smaller batches
    max_steps: int = 0  # an epoch, 0 for any number: larger graphs get larger batches and learning rates
    start_mean: float = 0.0  # ukge, passleaf: of the numbers in vectors before training
    start_deviation: float = 0.3  # ukge, passleaf: the standard deviation of these numbers
    epochs: int = 200  # at most
    patience: int = 30  # epochs without a better validation error before training stops
    validate_every: int = 5  # epochs
    validation_fraction: float = 0.03  # of the training facts, held out for early stopping
    negatives: int = 10  # corrupted heads, and as many corrupted tails, a fact
    negative_weight: float = 1.0
    filter_negatives: bool = True  # never draw a training fact as a negative
    regularization: float = 0.0  # times (|h|^2 + |r|^2 + |t|^2) / 2 a fact
    try_regularization: float = 0.0  # where not 0, a second model is trained with it; held-out facts choose
    softlogic_weight: float = 0.2  # of the one-sided error on a soft-logic fact; 0 leaves soft logic out
    momentum: float = 0.0  # gradients add up as g + momentum * (the sum before); 1 never forgets
    pool_from: int = 20  # passleaf: epoch from which scored corruptions enter the pool
    pool_train_from: int = 30  # passleaf: epoch from which the pool is trained on
    pool_growth: float = 0.02  # passleaf: growth of the pool's share an epoch
    pool_share: float = 0.8  # passleaf: largest share of pool samples among those generated
    pool_size: int = 10_000_000  # passleaf: triples in the ring
    side_regularization: float = 1.0  # beurre: times the norm of the side lengths
    box_regularization: float = 1e-3  # beurre: times the norms of corners, shifts and scales
    logic_weight: float = 0.1  # beurre: of the transitive and composition terms
    transitive: tuple[str, ...] = ()  # beurre: labels of transitive relations
    compositions: tuple[tuple[str, str, str], ...] = ()  # beurre: (r1, r2, r3) with r1 then r2 implying r3
    quantile: float | None = None  # pinball loss at this quantile instead of the squared error
    map_scores: bool = True  # to confidences, by the monotone map that the held-out facts suggest

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", registered_name(self.model))
        object.__setattr__(self, "transitive", tuple(str(label) for label in self.transitive))
        rules = tuple(tuple(str(label) for label in rule) for rule in self.compositions)
        object.__setattr__(self, "compositions", rules)
        for name, problem in self._problems():
            raise InputError(f"{name} is {getattr(self, name)!r} but {problem}")

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Fields with a value that cannot work, and what is wrong with it."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                yield field.name, "must be a finite number"
        if self.model not in (*MODELS, NONE, GIVEN) and ":" not in self.model:
            near = difflib.get_close_matches(self.model, MODELS, n=1)
            hint = f"; {near[0]}?" if near else ""
            yield "model", f"must be one of {', '.join(MODELS)}, {PYKEEN}NAME, MODULE:CLASS, {NONE}{hint}"
        for name, (smallest, largest) in BOUNDS.items():
            if not smallest <= getattr(self, name) <= largest:
                yield (
                    name,
                    f"must be at least {smallest}"
                    + ("" if largest == math.inf else f" and at most {largest:,}"),
                )
        if not self.learning_rate > 0:
            yield "learning_rate", "must be positive"
        if not 0 <= self.pool_from < self.pool_train_from:
            yield "pool_from", "must come before pool_train_from"
        for name in ("quantile", "validation_fraction"):
            if (share := getattr(self, name)) is not None and not 0 < share < 1:
                yield name, "must lie between 0 and 1"
        if any(len(rule) != 3 for rule in self.compositions):
            yield "compositions", "each must name three relations"

    @property
    def trains(self) -> bool:
        """Whether there is a model to be trained."""
        return self.model not in (NONE, GIVEN)

    @property
    def of_pykeen(self) -> bool:
        return self.model.startswith(PYKEEN)

    @property
    def learns_map(self) -> bool:
        """Whether a monotone map makes confidences of the scores; those of PyKEEN's models are none without it."""
        return (self.map_scores or self.of_pykeen) and self.quantile is None

    @property
    def uses_pool(self) -> bool:
        return self.model == "passleaf"

    @property
    def drawn_negatives(self) -> int:
        """Corrupted heads, and as many tails, that training draws for a fact: none where they have no weight."""
        return self.negatives if self.negative_weight else 0

    def in_kernels(self, softlogic: bool) -> bool:
        """Whether the kernels have all terms of the loss: those of BEUrRE leave out soft logic and `regularization`."""
        more = self.regularization > 0 or (softlogic and self.softlogic_weight > 0)
        return self.model in COMPILED and (self.model in DISTMULT or not more)

    def for_size(self, facts: int) -> TrainConfig:
        """The configuration with batches such that an epoch of so many facts has `min_steps` to `max_steps` steps.

        The learning rate of larger batches grows with the square root of the batch, as the noise of a gradient falls
        with it.
        """
        if self.max_steps and facts > self.max_steps * self.batch_size:
            times = -(-facts // (self.max_steps * self.batch_size))
            rate = self.learning_rate * math.sqrt(times)
            return replace(self, batch_size=times * self.batch_size, learning_rate=rate)
        if facts < self.min_steps * self.batch_size:
            return replace(self, batch_size=max(SMALLEST_BATCH, facts // self.min_steps))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values for YAML or JSON; the name alone where no model is trained here."""
        if not self.trains:
            return {"model": self.model}
        rules = {
            "transitive": list(self.transitive),
            "compositions": [list(rule) for rule in self.compositions],
        }
        return asdict(self) | rules

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "configuration") -> TrainConfig:
        """The defaults with `values` put in place; unknown keys and wrong types are errors."""
        return _override(cls(), values, where)


def settings_in(path: str | PathLike[str]) -> dict[str, Any]:
    """What a YAML file says, not yet checked."""
    import yaml

    from unkgcp.files import parse_yaml  # loads NumPy, which this file does not need otherwise

    try:
        values = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{at(path)} cannot be read ({error.strerror}); give an existing file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise InputError(
            f"{at(path, None if line is None else line + 1)} is not valid YAML; mend it"
        ) from None
    except ValueError as error:
        raise InputError(f"{at(path)} is not to be understood: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{at(path)} must hold one `key: value` a line; for example `learning_rate: 0.001`")
    return values


def _override(base: TrainConfig, values: Mapping[str, Any], where: str) -> TrainConfig:
    types = {field.name: field.type for field in fields(TrainConfig)}
    for name, value in values.items():
        if name not in types:
            near = difflib.get_close_matches(str(name), types, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(types)}"
            raise InputError(f"{where}: unknown key {name!r}; {hint}")
        allowed = ALLOWED_TYPES.get(str(types[name]), (list, tuple))
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise InputError(f"{where}: {name} is {value!r}, which is not of type {types[name]}")
    try:
        return replace(base, **values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


@cache
def _presets() -> dict[str, Any]:
    import yaml

    text = files("unkgcp.training").joinpath("presets.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def config_for(model: str = "ukge", data: str | None = None, protocol: str = "strict") -> TrainConfig:
    """The configuration for a model on a named data set (or on any other graph: `data=None`).

    `protocol="paper"` gives the hyperparameters of the paper, `"strict"` ours.
    """
    if protocol not in ("strict", "paper"):
        raise InputError(f"protocol is {protocol!r} but must be strict or paper")
    config = TrainConfig(model=model, map_scores=protocol == "strict")
    family = PYKEEN if config.of_pykeen else "own" if ":" in config.model else model
    layers = _presets()[protocol].get(family, {})
    for layer in ("default", data):
        if layer is not None and layer in layers:
            config = _override(config, layers[layer], f"presets {protocol} {model} {layer}")
    return config


def config_with(
    settings: Mapping[str, Any],
    model: str | None,
    data: str | None = None,
    protocol: str = "strict",
    where: str = "--config",
) -> TrainConfig:
    """As `config_for`, with the settings of the file `where` put in place; they may name the model, too."""
    named = _override(TrainConfig(), settings, where).model
    config = _override(config_for(model or named, data, protocol), settings, where)
    if model is not None and config.model != model:
        raise InputError(f"{where} is for model {config.model}, but --model says {model}; drop one")
    return config


def quantiles_of(levels: Iterable[float]) -> list[float]:
    """The quantiles at the two ends of intervals of these levels, ascending."""
    return sorted({round(tail, 12) for level in levels for tail in ((1 - level) / 2, (1 + level) / 2)})
