"""A trained model: a backbone's tables with the vocabulary they belong to. It scores; it does not train.

The DistMult family is scored without torch; other backbones load it when first asked. `NoModel` stands in the place of
a model where none was trained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, HasTriples, Vocabulary
from unkgcp.graph.known import KnownFacts
from unkgcp.loops import ROWS, run_chunks
from unkgcp.training.config import DISTMULT, LANES, NONE, TrainConfig

if TYPE_CHECKING:
    from torch import Tensor

    from unkgcp.backbones import Backbone

Floats = NDArray[np.float32]
Ids = NDArray[np.integer[Any]]
Tables = Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Model:
    """Scores triples of its vocabulary; see `unkgcp.train`.

    tables: parameters by name, (rows, width) float32 each. `seen_entities` and `seen_relations` say which rows
    have at least one training fact: the others still hold their initial numbers, and whoever predicts must not
    present those as knowledge. `facts` are those that training was given, where they are at hand; `stopping` are those
    that early stopping looked at, if they are not among these.
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
        """What messages and tables call it."""
        return self.config.model

    @property
    def backbone(self) -> Backbone:
        from unkgcp.backbones import get

        return get(self.config.model)

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
        """Scores of triples given by ids (n,), each the same alone as among others: (n,) float32 in [0, 1]."""
        ids = [np.asarray(column) for column in (head, relation, tail)]
        if self.config.model in DISTMULT:
            return distmult_scores(self.config.model, self.tables, *ids)
        from unkgcp.training import torch_scores

        return torch_scores.scores(self.backbone, self.parameters, *ids)

    def prepare(self) -> None:
        """Load what only many triples are worth loading, for a program that will be asked for long."""
        if self.config.model in DISTMULT:
            _products(WORTH_LOADING)

    def tails(self, head: ArrayLike, relation: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the tail of each (head, relation): (n, n_entities)."""
        return self._against_all(head, relation, as_head=True)

    def heads(self, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the head of each (relation, tail): (n, n_entities)."""
        return self._against_all(tail, relation, as_head=False)

    def _against_all(self, entity: ArrayLike, relation: ArrayLike, *, as_head: bool) -> NDArray[np.float32]:
        ids = np.asarray(entity), np.asarray(relation)
        if self.config.model in DISTMULT:  # symmetric: the side of an entity makes no difference
            return distmult_against_all(self.config.model, self.tables, *ids)
        from unkgcp.training import torch_scores

        count = len(self.vocabulary.entities)
        return torch_scores.against_all(
            self.backbone, self.parameters, *ids, as_head=as_head, n_entities=count
        )

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
        """A model with these tables; tables that do not fit the vocabulary are refused."""
        tables = {}
        for name, expected in table_shapes(
            config, len(vocabulary.entities), len(vocabulary.relations)
        ).items():
            if name not in tensors or tuple(tensors[name].shape) != expected:
                found = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(
                    f"table {name!r} of {config.model} should have shape {expected}, found {found}"
                )
            tables[name] = np.asarray(tensors[name])
        return cls(tables, vocabulary, config, seed, seen_entities, seen_relations)

    def settings(self) -> dict[str, Any]:
        """What a run says about it in its settings, from which `restored_models` makes it again."""
        return {"seed": self.seed, "training": self.config.to_dict()}

    def arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        """What a run keeps of it beside its tables and its training facts, by the name of each part."""
        return {} if self.stopping is None else {"stopping": self.stopping.arrays()}

    def tried(self, facts: HasTriples) -> Model:
        """The model as it is to be calibrated; one that is not made here is tried on some of the facts first."""
        return self


@dataclass(frozen=True, eq=False)
class NoModel(Model):
    """In the place of a model where none was trained: it knows the training facts and their labels, and scores nothing.

    The evidence method answers from the training facts and never asks a model for a score.
    """

    @classmethod
    def of(cls, facts: Graph, seed: int = 0) -> NoModel:
        """What `unkgcp.train(facts, model="none")` returns."""
        known = KnownFacts.of(facts)
        return cls({}, facts.vocabulary, TrainConfig(NONE), seed, *seen(facts), facts=known)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        raise InputError(WITHOUT)

    def _against_all(self, entity: ArrayLike, relation: ArrayLike, *, as_head: bool) -> NDArray[np.float32]:
        raise InputError(WITHOUT)


WITHOUT = (
    "no model was trained (--model none), so there is no score to make intervals from; "
    "use --method evidence, which needs none, or fit again with --model ukge"
)


QUANTILE = "quantile/"
"""How the names of models of quantiles begin in a run."""


def restored_models(
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    vocabulary: Vocabulary,
    known: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    kind: type[Model] = Model,
) -> dict[str, Model]:
    """All models of a run by their names; ValueError if its files do not fit together.

    config: the settings of the run. tensors: a table is called `name of its model/name of the table`. known: which
    entities and relations have training facts. kind: the class of the models.
    """
    tables: dict[str, dict[str, NDArray[np.float32]]] = {}
    for name, table in tensors.items():
        owner, _, own_name = name.rpartition("/")
        tables.setdefault(owner, {})[own_name] = table
    training, seed = TrainConfig.from_dict(config["training"]), int(config["seed"])
    if training.model == NONE:
        if tables:
            raise ValueError(f"there are tables of {min(tables)!r}, although it was fitted without a model")
        return {"model": NoModel({}, vocabulary, training, seed, *known)}
    models = {}
    for name, own in tables.items():
        quantile = float(name.removeprefix(QUANTILE)) if name.startswith(QUANTILE) else None
        settings = replace(training, quantile=quantile)
        models[name] = kind.from_tensors(own, vocabulary, settings, seed, *known)
    return models


def table_shapes(config: TrainConfig, entities: int, relations: int) -> dict[str, tuple[int, int]]:
    """The shape of every table."""
    if config.model in DISTMULT:
        dimension = config.dimension
        return {"entity": (entities, dimension), "relation": (relations, dimension), "w": (1, 1), "b": (1, 1)}
    from unkgcp.backbones import get

    rows = {"entity": entities, "relation": relations, "model": 1}
    tables = get(config.model).tables(config.dimension)
    return {name: (rows[table.kind], table.width) for name, table in tables.items()}


def seen(facts: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which entities and which relations have at least one fact."""
    entities = np.zeros(facts.n_entities, dtype=bool)
    relations = np.zeros(facts.n_relations, dtype=bool)
    entities[facts.head] = entities[facts.tail] = True
    relations[facts.relation] = True
    return entities, relations


# Scores of the DistMult family from plain arrays, without torch: f(w (h o r) . t + b). The formula is that of
# `unkgcp.backbones.ukge_passleaf`, for asking a trained model rather than for training one. The sum over the dimensions
# has one order, whoever adds: a triple has the same score alone as among others, and on every processor. Many are added
# by a compiled loop that fetches the rows it needs and stores no product, few by NumPy: loading numba takes longer.

WORTH_LOADING = 1 << 19
"""Numbers to add in one call from which on loading the compiled loop pays (4,096 triples of 128 dimensions); once it is
loaded it is used for fewer too."""


def distmult_scores(name: str, tables: Tables, head: Ids, relation: Ids, tail: Ids) -> Floats:
    """Scores of triples given by ids (n,), on all cores when there are many: (n,) float32 in [0, 1]."""
    ids = [np.ascontiguousarray(column, np.int32) for column in (head, relation, tail)]
    rows_of = [np.ascontiguousarray(tables[kind], np.float32) for kind in ("entity", "relation")]
    out = np.empty(len(ids[0]), np.float32)
    _check(ids, *map(len, rows_of))
    fill = _products(len(out) * rows_of[0].shape[1])
    if len(out) <= ROWS:
        fill(*rows_of, *ids, out)
        squash(name, tables, out)
        return out

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        fill(*rows_of, *(column[rows] for column in ids), out[rows])
        squash(name, tables, out[rows])

    run_chunks(len(out), work)
    return out


def distmult_against_all(name: str, tables: Tables, entity: Ids, relation: Ids) -> Floats:
    """Scores of (entity, relation) (n,) with every entity on the other side, whichever side that is: (n, entities).

    A matrix product: quick, and off by a few roundings from `distmult_scores`.
    """
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
            np.negative(raw, out=raw)
            np.exp(raw, out=raw)
            raw += np.float32(1)
            np.reciprocal(raw, out=raw)
    np.nan_to_num(raw, copy=False, nan=0.5)
    np.clip(raw, 0, 1, out=raw)


def _check(ids: list[NDArray[np.int32]], entities: int, relations: int) -> None:
    """Compiled code does not look where it reads."""
    for column, size in zip(ids, (entities, relations, entities), strict=True):
        if len(column) != len(ids[0]):
            raise ValueError(f"columns of ids have lengths {[len(column) for column in ids]}")
        if len(column) and (int(column.min()) < 0 or int(column.max()) >= size):
            raise IndexError(f"an id is not between 0 and {size - 1}")


def _products(numbers: int) -> Callable[..., None]:
    """The function that fills an array with dot products of so many numbers in all; without numba that of NumPy."""
    if numbers < WORTH_LOADING and "unkgcp.training.compiled_common" not in sys.modules:
        return _numpy_products
    try:
        from unkgcp.training.compiled_common import products
    except ImportError:
        return _numpy_products
    return products  # type: ignore[no-any-return]


def _numpy_products(entity: Floats, relation: Floats, head: Ids, middle: Ids, tail: Ids, out: Floats) -> None:
    """The floats of `compiled_common.products`, which tells the order."""
    with np.errstate(all="ignore"):
        each = entity[head] * relation[middle]
        each *= entity[tail]
        width = each.shape[1]
        whole = width - width % LANES
        part = np.zeros((len(out), LANES), np.float32)
        for start in range(0, whole, LANES):
            part += each[:, start : start + LANES]
        while part.shape[1] > 1:
            half = part.shape[1] // 2
            part = part[:, :half] + part[:, half:]
        out[:] = part[:, 0]
        for column in range(whole, width):
            out += each[:, column]
