"""Training by one call: one model, several that share a configuration, or the quantile models of an interval.

The functions here decide on device and kernels and on the facts held out for early stopping; the loop itself is in
`loop`. Torch is loaded when there is something to train: `model="none"` does without it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from unkgcp.backbones import import_backbone
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, both_ends
from unkgcp.graph.known_facts import hold_out_known
from unkgcp.lazy import needed
from unkgcp.progress import Part, Progress, Silent
from unkgcp.training.config import NONE, Member, TrainConfig, config_for, quantiles_of
from unkgcp.training.model import Model, NoModel, Tables

if TYPE_CHECKING:
    import torch

# of the error on held-out facts: a model with more regularization is chosen if its error is below
CLEARLY = 0.95


def train_many(
    facts: Graph,
    members: Sequence[Member],
    config: TrainConfig,
    *,
    validation: Graph | None = None,
    softlogic: Graph | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    checkpoint_path: str | PathLike[str] | None = None,
    resume: bool = False,
    initial: Tables | None = None,
) -> list[Model]:
    """Train several models of one configuration: together on a GPU, one after the other with the CPU kernels.

    Without `validation` a slice of `facts` is held out for early stopping, the same for every member, so that
    calibration facts stay untouched. Training begins with the rows of `initial`, if it is given; rows that are missing
    there, those of new entities and relations, begin as always.
    """
    if not config.trains:
        raise InputError(f"model {config.model!r} is none to be trained here; name another")
    kind = Model
    where, count = _device(device), len(facts)
    if config.of_pykeen:
        from unkgcp.training.pykeen_models import PykeenModel as kind

        if len(members) > 1 or members[0].quantile is not None:
            raise InputError(
                f"{config.model} is trained alone, for cp, unkgcp or shortest; name another model for this"
            )
        if resume or initial is not None:
            raise InputError(f"{config.model} cannot be trained further; fit it again from the beginning")
        checkpoint_path = None
    else:
        import_backbone(config.model)
    from unkgcp.training.loop import Loop, TrainingJob

    if count < 2:
        raise InputError(f"{count} training facts are too few to train on; give at least two")
    all_facts, stopping = facts, validation
    if validation is None:
        facts, validation = hold_out_known(facts, config.validation_fraction)
    config = config.for_size(count)
    job = TrainingJob(
        facts, validation, softlogic, config, where, progress or Silent(), all_facts, stopping, kind, initial
    )
    path = None if checkpoint_path is None else Path(checkpoint_path)
    if not has_compiled_kernel(config, where, softlogic):
        return Loop(job, list(members), False, path, resume).train()
    models: list[Model] = []
    for i, member in enumerate(members):
        member_path = path.with_name(f"{path.stem}-{i}{path.suffix}") if path and len(members) > 1 else path
        models += Loop(job, [member], True, member_path, resume).train()
        if models[-1].interrupted and i + 1 < len(members):
            raise KeyboardInterrupt
    return models


def train(
    facts: Graph,
    model: str = "ukge",
    *,
    seed: int = 0,
    config: TrainConfig | None = None,
    validation: Graph | None = None,
    softlogic: Graph | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    checkpoint: str | PathLike[str] | None = None,
    resume: bool = False,
    initial: Tables | None = None,
) -> Model:
    """Train one model on the proper training set.

    >>> model = unkgcp.train(splits.train, model="ukge", seed=0)

    Early stopping uses a slice held out of `facts`, or `validation` if given. The seed determines the result.
    `model="none"` trains nothing: the result knows the facts, for the method `evidence`, and needs no torch.
    `initial` are the tables of a model to go on from; its ids must mean the same here. Where the configuration names a
    regularization to try, it trains a second model with it, and gives that one if it is clearly better.
    """
    config = config or config_for(model)
    if config.model == NONE:
        return NoModel.of(facts, seed)
    tried = [replace(config, try_regularization=0.0)]
    if config.try_regularization:
        tried.append(replace(tried[0], regularization=config.try_regularization))
    trained: list[Model] = []
    share = config.epochs / len(tried)  # of the progress
    for number, settings in enumerate(tried):
        path = Path(checkpoint) if checkpoint is not None else None
        part = Part(progress or Silent(), number * share, (number + 1) * share, config.epochs)
        trained += train_many(
            facts,
            [Member(seed, config.quantile)],
            settings,
            validation=validation,
            softlogic=softlogic,
            device=device,
            progress=part,
            checkpoint_path=path and path.with_name(f"{path.stem}{'-regularized' * number}{path.suffix}"),
            resume=resume,
            initial=initial,
        )
        if trained[-1].interrupted:
            break
    errors = [min((entry["validation"] for entry in model.history), default=math.inf) for model in trained]
    chosen = trained[-1] if errors[-1] < CLEARLY * errors[0] else trained[0]
    return replace(chosen, interrupted=True) if trained[-1].interrupted else chosen


def train_quantiles(
    facts: Graph,
    model: str = "ukge",
    *,
    levels: Sequence[float] = (0.8, 0.85, 0.9, 0.95),
    seed: int = 0,
    config: TrainConfig | None = None,
    validation: Graph | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[float, Model]:
    """Two quantile models for each confidence level, at (1 - level) / 2 and (1 + level) / 2: quantile -> model.

    They learn from the facts alone, with the pinball loss. PASSLEAF has no quantile models, because its pseudo-labels
    are no quantiles.
    """
    quantiles = quantiles_of(levels)
    members, config = [Member(seed, quantile) for quantile in quantiles], _facts_alone(config, model)
    models = train_many(facts, members, config, validation=validation, device=device, progress=progress)
    return dict(zip(quantiles, models, strict=True))


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
    """Train a model of upper - lower on facts whose confidences are intervals; it scores in [0, 1].

    It learns the median of the lengths, with the pinball loss.
    """
    return train_many(
        _lengths(facts),
        [Member(seed, 0.5)],
        _facts_alone(config, model),
        validation=None if validation is None else _lengths(validation),
        device=device,
        progress=progress,
    )[0]


def _facts_alone(config: TrainConfig | None, model: str) -> TrainConfig:
    """The configuration of a quantile model, which learns without negatives and soft logic."""
    config = config or config_for(model)
    if config.uses_pool:
        raise InputError("quantiles do not go with passleaf's pseudo-labels; use ukge or beurre")
    return replace(config, negatives=0, softlogic_weight=0.0, try_regularization=0.0)


def _lengths(facts: Graph) -> Graph:
    lower, upper = both_ends(facts.truth).T
    return facts.with_confidence(upper - lower)


def _device(name: str) -> torch.device:
    """The device of this name; where torch is missing the error names the extra that brings it."""
    needed("torch")
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("this machine has no usable GPU; use --device cpu")
    if name not in ("cpu", "cuda") and not name.startswith("cuda:"):
        raise InputError(f"device is {name!r} but must be auto, cpu or cuda")
    return torch.device(name)


def has_compiled_kernel(config: TrainConfig, device: torch.device, softlogic: Graph | None) -> bool:
    """Whether the compiled CPU kernels train this model here."""
    one_process = int(os.environ.get("WORLD_SIZE", "1")) == 1
    return (
        config.in_kernels(softlogic is not None and len(softlogic) > 0)
        and device.type == "cpu"
        and one_process
        and find_spec("numba") is not None
    )
