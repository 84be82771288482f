"""One trainer for all backbones: negatives, loss terms that compose, early stopping, checkpoints, kernels."""

from __future__ import annotations

import os

# Threads that wait for each other at the end of a parallel region sleep instead of spinning: on a machine that does
# anything else besides, training is several times faster so. OpenMP reads this when torch or numba first load it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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
