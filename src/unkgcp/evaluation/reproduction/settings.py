"""How the models of a block are trained, and the fingerprints by which stored work is recognised.

What it is: the presets of `unkgcp.training`, and one liberty that a reproduction takes: quantile models learn
from facts alone, without negatives, and stop early; eight a seed are trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unkgcp.training import TrainConfig, config_for

if TYPE_CHECKING:
    from unkgcp.evaluation.reproduction.plan import Block
    from unkgcp.graph.datasets import Dataset

QUANTILE_EPOCHS = {"ukge": 60, "ukge-rect": 60, "beurre": 100}
QUANTILE_PATIENCE = 20
FORMAT = 1
# the demo graph is for trying the command out on a CPU, not for figures: at most so much of each
DEMO = {"dimension": 32, "epochs": 20, "negatives": 5}


def model_config(block: Block, override: Mapping[str, Any] | None = None) -> TrainConfig:
    """The configuration of the block's models."""
    config = _preset(block)
    return replace(config, **override) if override else config


def quantile_config(block: Block, override: Mapping[str, Any] | None = None) -> TrainConfig:
    """The configuration of the block's quantile models: facts alone, pinball loss."""
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


def quantiles_of(levels: Sequence[float]) -> list[float]:
    """The quantiles that the ends of intervals at these levels are, ascending."""
    return sorted({round(tail, 12) for level in levels for tail in ((1 - level) / 2, (1 + level) / 2)})


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
        about["softlogic"] = "all of it"  # stored files made without some of it are made again
    return digest(json.dumps(about, sort_keys=True).encode())[:16]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
