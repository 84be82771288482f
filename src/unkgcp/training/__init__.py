"""One trainer for all backbones: negatives, loss terms that compose, early stopping, checkpoints, kernels."""

from __future__ import annotations

import os

# Threads that wait for each other at the end of a parallel region sleep instead of spinning: on a machine that does
# anything else besides, training is several times faster so. OpenMP reads this when torch or numba first load it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from unkgcp.training.config import TrainConfig, config_for  # noqa: E402
from unkgcp.training.data import Member  # noqa: E402
from unkgcp.training.model import Model  # noqa: E402
from unkgcp.training.trainer import TrainingError, train, train_many, train_quantiles  # noqa: E402

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
