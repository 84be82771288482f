"""A model of the length of confidences that are intervals: the one trainer with another target.

What it is: the median length, learned from the facts alone (a corrupted fact has no length to speak of) with the
pinball loss that quantile models use, so that early stopping too looks at facts only. What it is not: a second head;
the two models share nothing, so that the model of the middle is the same as for plain confidences.

>>> length = train_length(splits.train, config=config, seed=0)     # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.progress import Progress
from unkgcp.training.config import TrainConfig, config_for
from unkgcp.training.data import Member
from unkgcp.training.model import Model
from unkgcp.training.trainer import train_many

MEDIAN = 0.5


def train_length(
    facts: Graph,
    model: str = "ukge",
    *,
    seed: int = 0,
    config: TrainConfig | None = None,
    validation: Graph | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Model:
    """Train a model of upper - lower on facts whose confidences are intervals; it scores in [0, 1]."""
    config = config or config_for(model)
    if config.uses_pool:
        raise InputError("lengths of confidences do not go with passleaf's pseudo-labels; use ukge or beurre")
    (trained,) = train_many(
        _lengths(facts),
        [Member(seed, MEDIAN)],
        replace(config, negatives=0, softlogic_weight=0.0),
        validation=None if validation is None else _lengths(validation),
        device=device,
        progress=progress,
    )
    return trained


def _lengths(facts: Graph) -> Graph:
    if facts.ends is None:
        return facts.with_confidence(np.zeros(len(facts)))
    return facts.with_confidence(facts.ends[:, 1] - facts.ends[:, 0])
