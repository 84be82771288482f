"""One trainer for all backbones: negatives, loss terms that compose, early stopping, checkpoints, kernels."""

from __future__ import annotations

from unkgcp.training.config import TrainConfig, config_for
from unkgcp.training.data import Member
from unkgcp.training.model import Model
from unkgcp.training.trainer import TrainingError, train, train_many, train_quantiles

__all__ = [
    "Member",
    "Model",
    "TrainConfig",
    "TrainingError",
    "config_for",
    "train",
    "train_many",
    "train_quantiles",
]
