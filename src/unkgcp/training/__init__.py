"""One trainer for all backbones: negatives, loss terms that compose, early stopping, checkpoints, kernels.

Names are imported on first use: a trained model can be asked without loading torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unkgcp.errors import missing

if TYPE_CHECKING:
    from unkgcp.training.config import Member, TrainConfig, config_for
    from unkgcp.training.loop import TrainingError
    from unkgcp.training.model import Model
    from unkgcp.training.trainer import train, train_length, train_many, train_quantiles

_WHERE = {
    "Member": "config",
    "Model": "model",
    "TrainConfig": "config",
    "TrainingError": "loop",
    "config_for": "config",
    "train": "trainer",
    "train_length": "trainer",
    "train_many": "trainer",
    "train_quantiles": "trainer",
}

__all__ = [
    "Member",
    "Model",
    "TrainConfig",
    "TrainingError",
    "config_for",
    "train",
    "train_length",
    "train_many",
    "train_quantiles",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp.training' has no attribute {name!r}")
    try:
        return getattr(import_module(f"unkgcp.training.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        raise missing(error) from None


def __dir__() -> list[str]:
    return sorted(__all__)
