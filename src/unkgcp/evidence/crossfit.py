"""Backbone scores as evidence: cross-fitted, so that training facts and queries are scored alike.

The training facts are cut into five folds, and a backbone is trained five times, each time without one fold. A training
fact gets the score of the model that did not see it. A query gets the score of one of the five models, chosen by a hash
of its triple. Both are scores of a single model that was trained on four fifths of the facts and has not seen the fact
in question. The mean of the five scores would be distributed differently from the scores that a learner was trained
with, and what was learned would not apply to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph, HasTriples
from unkgcp.progress import Progress

if TYPE_CHECKING:
    from unkgcp.training.config import TrainConfig
    from unkgcp.training.model import Model

FOLDS = 5
EPOCHS, PATIENCE = 40, 15  # at most, for cross-fitted backbones, whose scores are one feature among many


def fold_of_rows(n: int, seed: int, folds: int = FOLDS) -> NDArray[np.int8]:
    """A random fold for each of n training facts: (n,); the sizes of folds differ by one at most."""
    order = np.random.default_rng((seed, 0xF01D)).permutation(n)
    fold = np.empty(n, np.int8)
    fold[order] = np.arange(n) % folds
    return fold


def fold_of_queries(triples: HasTriples, folds: int = FOLDS) -> NDArray[np.int8]:
    """A fold for each query, which depends on its triple alone: (n,)."""
    mixed = np.zeros(len(triples.head), np.uint64)
    for column in (triples.head, triples.relation, triples.tail):
        mixed = _mix(mixed ^ np.asarray(column).astype(np.uint64))
    return (mixed % np.uint64(folds)).astype(np.int8)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Steele, Lea and Flood's finalizer, a hash in which every bit of the input changes about half of the output."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def variants(config: TrainConfig) -> tuple[TrainConfig, TrainConfig]:
    """The settings of the backbone, and a variant with little weight on negatives.

    The variant tells the confidences of facts apart better.
    """
    return config, replace(config, negative_weight=0.05, regularization=max(config.regularization, 5e-4))


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Models that were each trained without one fold: models[variant][fold]."""

    models: tuple[tuple[Model, ...], ...]

    @property
    def columns(self) -> int:
        """The number of scores of a triple."""
        return len(self.models)

    def scores(self, triples: HasTriples, fold: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """Scores by the models of given folds (n,), or of the folds of `fold_of_queries`: (n, variants)."""
        if fold is None:
            fold = fold_of_queries(triples)
        out = np.empty((len(fold), len(self.models)), np.float32)
        for place in range(FOLDS):
            rows = np.flatnonzero(fold == place)
            if len(rows):
                columns = (triples.head[rows], triples.relation[rows], triples.tail[rows])
                for variant, models in enumerate(self.models):
                    out[rows, variant] = models[place].score(*columns)
        return out

    def by_name(self) -> dict[str, Model]:
        """All models by name, `variant/fold`."""
        return {
            f"{variant}/{place}": model
            for variant, models in enumerate(self.models)
            for place, model in enumerate(models)
        }

    @classmethod
    def from_names(cls, models: Mapping[str, Model]) -> CrossFit:
        """The models that `by_name` gave, put together again; ValueError if one is missing."""
        count = len({name.split("/")[0] for name in models})
        names = [[f"{variant}/{place}" for place in range(FOLDS)] for variant in range(count)]
        if missing := [name for row in names for name in row if name not in models]:
            raise ValueError(f"the cross-fitted model {missing[0]} is missing")
        return cls(tuple(tuple(models[name] for name in row) for row in names))


def cross_fit(
    train: Graph,
    config: TrainConfig,
    seeds: Sequence[int],
    fold: NDArray[np.int8],
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[CrossFit]:
    """One `CrossFit` for each seed. All seeds share the folds (N,), and a GPU trains a fold for all seeds at once."""
    from unkgcp.training.config import Member
    from unkgcp.training.trainer import train_many

    members = [Member(seed) for seed in seeds]
    by_variant: list[list[list[Model]]] = []
    for variant, settings in enumerate(variants(config)):
        by_variant.append([])
        for place in range(FOLDS):
            models = train_many(train[fold != place], members, settings, device=device)
            if any(model.interrupted for model in models):
                raise KeyboardInterrupt
            by_variant[-1].append([replace(model, facts=None) for model in models])
            if progress is not None:
                progress.update(variant * FOLDS + place + 1, f"variant {variant + 1}, fold {place + 1}")
    return [
        CrossFit(tuple(tuple(models[member] for models in folds) for folds in by_variant))
        for member in range(len(members))
    ]


def shortened(config: TrainConfig) -> TrainConfig:
    """The settings of cross-fitted backbones: fewer epochs, without soft logic and quantiles."""
    return replace(
        config,
        epochs=min(config.epochs, EPOCHS),
        patience=min(config.patience, PATIENCE),
        softlogic_weight=0.0,
        quantile=None,
    )
