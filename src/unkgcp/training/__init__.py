"""One trainer for all backbones: negatives, loss terms that compose, early stopping, checkpoints, kernels.

Names are imported on first use: a trained model can be asked without loading torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.training.config import Member, TrainConfig, config_for
    from unkgcp.training.loop import TrainingError
    from unkgcp.training.model import Model
    from unkgcp.training.trainer import train, train_length, train_many, train_quantiles

__getattr__, __dir__ = lazy(
    __name__,
    {
        "training.config": ("Member", "TrainConfig", "config_for"),
        "training.loop": ("TrainingError",),
        "training.model": ("Model",),
        "training.trainer": ("train", "train_length", "train_many", "train_quantiles"),
    },
)

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
