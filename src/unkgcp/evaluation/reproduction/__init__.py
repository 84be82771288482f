"""The paper's experiments, and the plan of a reproduction of them: data sets x models x seeds under one protocol.

A *cell* is one seed of one model on one data set. The cells of a *block* differ in the seed alone and are trained
together on a GPU. This file lists the work (`Plan`) and says with which settings models are trained; `runner` does the
work, `scoring` trains and scores, `cell_figures` makes the figures of a cell, `cells` stores and aggregates them, and
`paper_tables`, `paper_claims` and `reproduction_page` show them.

>>> plan = Plan(protocol="paper", data=("demo",), models=("ukge",), seeds=2)
>>> [block.name for block in plan.blocks()]
['paper/demo/ukge']
>>> from unkgcp.evaluation.reproduction.runner import reproduce     # doctest: +SKIP
>>> reproduce(plan, "out")                                          # doctest: +SKIP
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError
from unkgcp.graph.datasets import BENCHMARKS
from unkgcp.training.config import MODELS, TrainConfig, config_for

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

PROTOCOLS = ("paper", "strict")
LEVELS = (0.8, 0.85, 0.9, 0.95)
# the order of the paper's tables; they print one UKGE only, see `paper_claims`
DATA = ("cn15k", "ppi5k", "nl27k")
BACKBONES = ("ukge", "ukge-rect", "passleaf", "beurre")
PREDICTORS = ("fpi", "qr", "cp", "unkgcp")


@dataclass(frozen=True, slots=True)
class Block:
    """One model on one data set under one protocol, with all its seeds."""

    protocol: str
    data: str
    model: str
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.protocol}/{label(self.data)}/{self.model}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything asked for. `only` are patterns of block names, `*` standing for anything."""

    protocol: str = "paper"
    data: tuple[str, ...] = DATA
    models: tuple[str, ...] = BACKBONES
    seeds: int = 10
    levels: tuple[float, ...] = LEVELS
    predictors: tuple[str, ...] = PREDICTORS
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InputError(f"protocol is {self.protocol!r} but must be paper or strict")
        if self.seeds < 1:
            raise InputError(f"--seeds is {self.seeds} but must be at least 1")
        for model in self.models:
            if model not in MODELS:
                raise InputError(f"there is no model {model!r}; choose from {', '.join(MODELS)}")
        if not self.data or not self.models:
            raise InputError("a reproduction needs at least one data set and one model")
        if not self.levels or not all(0 < level < 1 for level in self.levels):
            raise InputError("--levels must be numbers above 0 and below 1; for example 0.8,0.9")
        for name in self.predictors:
            if name not in PREDICTORS:
                raise InputError(f"there is no predictor {name!r}; choose from {', '.join(PREDICTORS)}")
        if not self.predictors:
            raise InputError(f"--predictors names none; choose from {', '.join(PREDICTORS)}")
        without = [model for model in self.models if not has_quantiles(model)]
        if set(self.predictors) == {"qr"} and without:
            raise InputError(
                f"{without[0]} has no quantile regression, so that nothing would be measured; leave it out of --models"
            )
        twice = {name for name in map(label, self.data) if [*map(label, self.data)].count(name) > 1}
        if twice:
            raise InputError(f"two data sets are called {min(twice)}; rename one")

    def blocks(self) -> list[Block]:
        """The blocks in the order of the work: cheap models before dear ones, so that results come early."""
        seeds = tuple(range(self.seeds))
        blocks = [Block(self.protocol, data, model, seeds) for model in self.models for data in self.data]
        chosen = [block for block in blocks if self._wanted(block)]
        if not chosen:
            raise InputError(
                f"--only {','.join(self.only)} selects nothing; blocks are called "
                f"{', '.join(block.name for block in blocks)}"
            )
        return chosen

    def _wanted(self, block: Block) -> bool:
        ways = (block.name, f"{label(block.data)}/{block.model}", label(block.data), block.model)
        return not self.only or any(fnmatch.fnmatch(way, pattern) for pattern in self.only for way in ways)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for plan.json."""
        return {
            "protocol": self.protocol,
            "data": [label(name) for name in self.data],
            "models": list(self.models),
            "seeds": self.seeds,
            "levels": list(self.levels),
            "predictors": list(self.predictors),
        }


def has_quantiles(model: str) -> bool:
    """PASSLEAF's pseudo-labels are no quantiles, so that it has no quantile regression."""
    return not model.startswith("passleaf")


def label(data: str) -> str:
    """What a data set is called in file names and tables: its name, or the stem of its path."""
    return data if data in (*BENCHMARKS, "demo") else Path(data).name.split(".")[0]


def place(protocol: str, data: str, model: str) -> tuple[int, int, str, int, str]:
    """A key that sorts blocks in the order of the paper's tables, others after them."""
    return (
        PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS),
        DATA.index(data) if data in DATA else len(DATA),
        data,
        BACKBONES.index(model) if model in BACKBONES else len(BACKBONES),
        model,
    )


# How the models of a block are trained, and the fingerprints that say whether stored work belongs to these settings.

QUANTILE_EPOCHS = {"ukge": 60, "ukge-rect": 60, "beurre": 100}
QUANTILE_PATIENCE = 20
FORMAT = 1
# the demo graph is for trying the command out on a CPU, not for figures: these settings are at most so large
DEMO = {"dimension": 32, "epochs": 20, "negatives": 5}


def model_config(block: Block, override: Mapping[str, Any] | None = None) -> TrainConfig:
    """The configuration of the block's models."""
    config = _preset(block)
    return replace(config, **override) if override else config


def quantile_config(block: Block, override: Mapping[str, Any] | None = None) -> TrainConfig:
    """The configuration of the block's quantile models: pinball loss, no negatives, no soft logic."""
    config = _preset(block)
    config = replace(
        config,
        negatives=0,
        softlogic_weight=0.0,
        epochs=min(config.epochs, QUANTILE_EPOCHS.get(block.model, 60)),
        patience=min(config.patience, QUANTILE_PATIENCE),
        validate_every=min(config.validate_every, 5),
    )
    return replace(config, **{**override, "negatives": 0, "softlogic_weight": 0.0}) if override else config


def _preset(block: Block) -> TrainConfig:
    config = config_for(block.model, block.data, block.protocol)
    if block.data != "demo":
        return config
    smaller = {name: min(getattr(config, name), most) for name, most in DEMO.items()}
    return replace(config, **smaller, batch_size=max(config.batch_size, 512), validate_every=5)


def fingerprint(dataset: Dataset, block: Block, seed: int, **settings: Any) -> str:
    """A short digest of all that decides a stored file: data, model, protocol, seed and settings."""
    about = {
        "format": FORMAT,
        "hashes": dict(sorted(dataset.hashes.items())),
        "block": block.name,
        "seed": seed,
        **settings,
    }
    if block.protocol == "strict" and dataset.softlogic is not None:
        about["softlogic"] = "all of it"  # earlier versions left some out; what they stored is made again
    return digest(json.dumps(about, sort_keys=True).encode())[:16]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


Say = Callable[[str], None]
"""What a reproduction tells its user, a sentence at a time."""


def silently(sentence: str) -> None:
    """A `Say` that says nothing."""


def roughly(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
