"""A trained model: a backbone's tables with the vocabulary they belong to. It scores; it does not train.

The DistMult family is scored without torch; other backbones load it when first asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.graph.facts import Graph
from unkgcp.graph.known import KnownFacts
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.training.config import DISTMULT, TrainConfig
from unkgcp.training.distmult_scores import against_all, scores, table_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from unkgcp.backbones import Backbone


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
            return scores(self.config.model, self.tables, *ids)
        from unkgcp.training import torch_scores

        return torch_scores.scores(self.backbone, self.parameters, *ids)

    def tails(self, head: ArrayLike, relation: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the tail of each (head, relation): (n, n_entities)."""
        return self._against_all(head, relation, as_head=True)

    def heads(self, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the head of each (relation, tail): (n, n_entities)."""
        return self._against_all(tail, relation, as_head=False)

    def _against_all(self, entity: ArrayLike, relation: ArrayLike, *, as_head: bool) -> NDArray[np.float32]:
        ids = np.asarray(entity), np.asarray(relation)
        if self.config.model in DISTMULT:  # symmetric: the side of an entity makes no difference
            return against_all(self.config.model, self.tables, *ids)
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
        for name, expected in _shapes(config, len(vocabulary.entities), len(vocabulary.relations)).items():
            if name not in tensors or tuple(tensors[name].shape) != expected:
                found = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(
                    f"table {name!r} of {config.model} should have shape {expected}, found {found}"
                )
            tables[name] = np.asarray(tensors[name])
        return cls(tables, vocabulary, config, seed, seen_entities, seen_relations)


def _shapes(config: TrainConfig, entities: int, relations: int) -> dict[str, tuple[int, int]]:
    if config.model in DISTMULT:
        return table_shapes(entities, relations, config.dimension)
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
