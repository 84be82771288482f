"""A trained model: a backbone's tables with the vocabulary they belong to. It scores; it does not train.

The DistMult family is scored without torch; other backbones load torch when they are first asked. Where no model was
trained, a `NoModel` takes its place.

A triple's score depends on the triple alone, up to rounding: asked alone, among others or on another machine, it is the
same to 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import unkgcp.backbones as backbones
from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import Graph, HasTriples, Vocabulary
from unkgcp.graph.kinds import Kinds
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.loops import run_chunks
from unkgcp.training.config import DISTMULT, NONE, TrainConfig
from unkgcp.training.score_map import FIELD, MAP, apply_map

if TYPE_CHECKING:
    from torch import Tensor


Floats = NDArray[np.float32]
Ids = NDArray[np.integer[Any]]
Tables = Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Model:
    """Scores triples of its vocabulary; see `unkgcp.train`.

    tables: parameters by name, (rows, width) float32 each, and the points of the map from scores to confidences
    (`score_map`) where there is one. `seen_entities` and `seen_relations` say which rows
    have at least one training fact: the others still hold their initial numbers, and whoever predicts must not
    present those as knowledge. `facts` are the facts that training was given, where they are at hand; `stopping` are
    the facts that early stopping looked at, if they are not among `facts`.
    """

    tables: dict[str, NDArray[np.float32]]
    vocabulary: Vocabulary
    config: TrainConfig
    seed: int
    seen_entities: NDArray[np.bool_]
    seen_relations: NDArray[np.bool_]
    history: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    facts: KnownFacts | None = field(default=None, repr=False)
    stopping: KnownFacts | None = field(default=None, repr=False)

    @property
    def called(self) -> str:
        """The model's name in messages and tables."""
        return self.config.model

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The tables as torch tensors, without a copy."""
        import warnings

        import torch

        with warnings.catch_warnings():
            # tables mapped from a file are read-only, and nobody here writes to them
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
            return {name: torch.from_numpy(table) for name, table in self.tables.items()}

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Scores of triples given by ids (n,): (n,) float32 in [0, 1]."""
        ids = [np.asarray(column) for column in (head, relation, tail)]
        if self.config.model in DISTMULT:
            return self.mapped(distmult_scores(self.config.model, self.tables, *ids))
        return self.mapped(backbones.score_ids(backbones.get(self.config.model), self.parameters, *ids))

    def mapped(self, score: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores (...) of the backbone as confidences, where the model has a map."""
        return apply_map(self.tables[MAP], score) if MAP in self.tables else score

    def tails(self, head: ArrayLike, relation: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the tail of each (head, relation): (n, n_entities)."""
        return self._against_all(head, relation, as_head=True)

    def heads(self, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the head of each (relation, tail): (n, n_entities)."""
        return self._against_all(tail, relation, as_head=False)

    def _against_all(self, entity: ArrayLike, relation: ArrayLike, *, as_head: bool) -> NDArray[np.float32]:
        """Scores of (entity, relation) (n,) with every entity on the other side: (n, n_entities)."""
        ids, every = (np.asarray(entity), np.asarray(relation)), np.arange(len(self.vocabulary.entities))
        if self.config.model in DISTMULT:  # symmetric: the side of an entity makes no difference
            return self.mapped(distmult_against_all(self.config.model, self.tables, *ids))
        scores = np.empty((len(ids[0]), len(every)), np.float32)
        for row, fixed, of in zip(scores, *ids, strict=True):
            one, relations = np.full_like(every, fixed), np.full_like(every, of)
            row[:] = self.score(one, relations, every) if as_head else self.score(every, relations, one)
        return scores

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, NDArray[np.float32] | Tensor],
        vocabulary: Vocabulary,
        config: TrainConfig,
        seed: int,
        seen_entities: NDArray[np.bool_],
        seen_relations: NDArray[np.bool_],
    ) -> Model:
        """A model with these tables; ValueError if they do not fit the vocabulary."""
        tables = {name: np.asarray(table) for name, table in tensors.items()}
        sizes = len(vocabulary.entities), len(vocabulary.relations)
        shapes = cls.table_shapes(config, *sizes).items()
        check_fields(tables, [FIELD, *(Field(name, np.floating, shape) for name, shape in shapes)])
        return cls(tables, vocabulary, config, seed, seen_entities, seen_relations)

    @staticmethod
    def table_shapes(config: TrainConfig, entities: int, relations: int) -> dict[str, tuple[int, ...]]:
        """The shape of every table, by its name."""
        rows, d = {"entity": entities, "relation": relations, "model": 1}, config.dimension
        if config.model in DISTMULT:  # without torch
            return {"entity": (entities, d), "relation": (relations, d), "w": (1, 1), "b": (1, 1)}
        return {
            name: (rows[table.kind], table.width)
            for name, table in backbones.get(config.model).tables(d).items()
        }

    def settings(self) -> dict[str, Any]:
        """What a run writes about the model into its settings, for `restored_models`."""
        return {"seed": self.seed, "training": self.config.to_dict()}

    def arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        """What a run keeps of the model besides its tables and training facts, by the name of each part."""
        return {} if self.stopping is None else {"stopping": self.stopping.arrays()}

    def tried(self, facts: HasTriples) -> Model:
        """The model to be calibrated; a model of one's own (`given_model`) is tried on some of the facts first."""
        return self


@dataclass(frozen=True, eq=False)
class NoModel(Model):
    """Takes the place of a model where none was trained: it knows the training facts and their labels; it cannot score.

    The evidence method answers from the training facts and never asks a model for a score.
    """

    @classmethod
    def of(cls, facts: Graph, seed: int = 0) -> NoModel:
        """What `unkgcp.train(facts, model="none")` returns."""
        kept = KnownFacts.of(facts)
        return cls({}, facts.vocabulary, TrainConfig(NONE), seed, *seen(facts), facts=kept)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        raise InputError(
            "no model was trained (--model none), so there is no score to make intervals from; "
            "use --method evidence, which needs none, or fit again with --model ukge"
        )


QUANTILE = "quantile/"
"""The beginning of the names of quantile models in a run."""


def restored_models(
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    vocabulary: Vocabulary,
    seen_ids: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    kind: type[Model] = Model,
) -> dict[str, Model]:
    """All models of a run by their names; ValueError if its files do not fit together.

    config: the settings of the run. tensors: the tables, named `name of the model/name of the table`. known: which
    entities and which relations have training facts. kind: the class of the models.
    """
    tables: dict[str, dict[str, NDArray[np.float32]]] = {}
    for name, table in tensors.items():
        owner, _, own_name = name.rpartition("/")
        tables.setdefault(owner, {})[own_name] = table
    training, seed = TrainConfig.from_dict(config["training"]), int(config["seed"])
    if training.model == NONE:
        if tables:
            raise ValueError(f"there are tables of {min(tables)!r}, although it was fitted without a model")
        return {"model": NoModel({}, vocabulary, training, seed, *seen_ids)}
    models = {}
    for name, own_tables in tables.items():
        quantile = float(name.removeprefix(QUANTILE)) if name.startswith(QUANTILE) else None
        settings = replace(training, quantile=quantile)
        models[name] = kind.from_tensors(own_tables, vocabulary, settings, seed, *seen_ids)
    return models


def seen(facts: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which entities and which relations have at least one fact."""
    kinds = Kinds.of(facts, facts.n_entities, facts.n_relations)
    return kinds.seen_entities, kinds.seen_relations


# Scores of the DistMult family from plain arrays, without torch: f(w (h o r) . t + b). The formula is that of
# `unkgcp.backbones.ukge_passleaf`, for asking a trained model rather than for training one. A compiled loop scores many
# triples: it stores no product. NumPy scores few, because loading numba takes longer.

COMPILED_FROM = 1 << 19
"""From so many numbers to add in one call (4,096 triples of 128 dimensions) the compiled loop is used."""


def distmult_scores(name: str, tables: Tables, head: Ids, relation: Ids, tail: Ids) -> Floats:
    """Scores of triples given by ids (n,), on all cores when there are many: (n,) float32 in [0, 1]."""
    ids = [np.ascontiguousarray(column, np.int64) for column in (head, relation, tail)]
    rows_of = [np.ascontiguousarray(tables[kind], np.float32) for kind in ("entity", "relation")]
    out = np.empty(len(ids[0]), np.float32)
    _check(ids, *map(len, rows_of))
    fill: Callable[..., None] = (
        _compiled_products() if len(out) * rows_of[0].shape[1] >= COMPILED_FROM else _products
    )

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        fill(*rows_of, *(column[rows] for column in ids), out[rows])
        squash(name, tables, out[rows])

    run_chunks(len(out), work)
    return out


def distmult_against_all(name: str, tables: Tables, entity: Ids, relation: Ids) -> Floats:
    """Scores of (entity, relation) (n,) with every entity on the other side, whichever side that is: (n, entities)."""
    query = tables["entity"][entity] * tables["relation"][relation]
    out = np.asarray(query @ tables["entity"].T, np.float32)
    for row in out:
        squash(name, tables, row)
    return out


def squash(name: str, tables: Tables, raw: Floats) -> None:
    """Raw dot products (n,), contiguous, become scores in [0, 1], in place."""
    with np.errstate(all="ignore"):
        raw *= tables["w"][0, 0]
        raw += tables["b"][0, 0]
        if name != "ukge-rect":
            np.reciprocal(1 + np.exp(-raw), out=raw)
    np.nan_to_num(raw, copy=False, nan=0.5)
    np.clip(raw, 0, 1, out=raw)


def _check(ids: list[NDArray[np.int64]], entities: int, relations: int) -> None:
    """Refuse ids outside the tables: compiled code does not check where it reads."""
    for column, size in zip(ids, (entities, relations, entities), strict=True):
        if len(column) != len(ids[0]):
            raise ValueError(f"columns of ids have lengths {[len(column) for column in ids]}")
        if len(column) and (int(column.min()) < 0 or int(column.max()) >= size):
            raise IndexError(f"an id is not between 0 and {size - 1}")


def _products(entity: Floats, relation: Floats, head: Ids, middle: Ids, tail: Ids, out: Floats) -> None:
    """Fill `out` (n,) with the sums over the dimensions of h r t."""
    np.einsum("nd,nd->n", entity[head] * relation[middle], entity[tail], out=out)


def _compiled_products() -> Callable[..., None]:
    """The compiled loop that does what `_products` does, or `_products` where there is no numba."""
    try:
        from unkgcp.training.compiled_common import products
    except ImportError:
        return _products
    return products  # type: ignore[no-any-return]
