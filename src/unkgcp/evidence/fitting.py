"""The evidence model with backbone scores: cross-fitting first, then learning from everything.

What it is: the order of the steps for those who have the time (or a GPU). `unkgcp.evidence.learn` alone is the quick
way: it trains no backbone and needs no torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unkgcp.evidence.crossfit import cross_fit, fold_of_rows
from unkgcp.evidence.model import EvidenceModel, learn
from unkgcp.graph import Graph
from unkgcp.progress import Progress

if TYPE_CHECKING:
    from unkgcp.training import TrainConfig

EPOCHS, PATIENCE = 40, 15  # of a cross-fitted backbone: its score is one feature among many


def learn_with_backbone(
    train: Graph,
    config: TrainConfig,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvidenceModel:
    """Train ten backbones (five folds, two variants), then learn from evidence and their scores."""
    fold = fold_of_rows(len(train), seed)
    (backbone,) = cross_fit(train, shortened(config), [seed], fold, device=device, progress=progress)
    return learn(train, seed=seed, backbone=backbone, out_of_fold=backbone.out_of_fold(train, fold))


def shortened(config: TrainConfig) -> TrainConfig:
    """The settings of a cross-fitted backbone: those of the backbone, for fewer epochs and from facts alone."""
    return replace(
        config,
        epochs=min(config.epochs, EPOCHS),
        patience=min(config.patience, PATIENCE),
        softlogic_weight=0.0,
        quantile=None,
    )
