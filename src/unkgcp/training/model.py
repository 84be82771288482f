"""A trained model: a backbone's tables with the vocabulary they belong to. It scores; it does not train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unkgcp.backbones import Backbone, get, score_heads, score_tails, score_triples
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training.config import TrainConfig

CHUNK = 1 << 16  # triples scored at once; keeps memory flat
CELLS = 1 << 22  # floats of intermediate rows in one-against-many scoring


@dataclass(frozen=True, eq=False)
class Model:
    """Scores triples of its vocabulary; see `unkgcp.train`.

    `seen_entities` and `seen_relations` say which rows have at least one training fact: the others still hold
    their initial numbers, and whoever predicts must not present those as knowledge.
    """

    parameters: dict[str, Tensor]
    vocabulary: Vocabulary
    config: TrainConfig
    seed: int
    seen_entities: NDArray[np.bool_]
    seen_relations: NDArray[np.bool_]
    history: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    @property
    def backbone(self) -> Backbone:
        return get(self.config.model)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Scores of triples given by ids (n,): (n,) float32 in [0, 1]."""
        ids = [np.asarray(column, dtype=np.int64) for column in (head, relation, tail)]
        out = np.empty(len(ids[0]), np.float32)
        with torch.no_grad():
            for begin in range(0, len(out), CHUNK):
                part = [torch.from_numpy(column[begin : begin + CHUNK]) for column in ids]
                out[begin : begin + CHUNK] = score_triples(self.backbone, self.parameters, *part).numpy()
        return out

    def tails(self, head: ArrayLike, relation: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the tail of each (head, relation): (n, n_entities)."""
        return self._many(
            head, relation, lambda a, b, all_: score_tails(self.backbone, self.parameters, a, b, all_)
        )

    def heads(self, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Every entity as the head of each (relation, tail): (n, n_entities)."""
        return self._many(
            relation, tail, lambda a, b, all_: score_heads(self.backbone, self.parameters, a, b, all_)
        )

    def _many(
        self, first: ArrayLike, second: ArrayLike, score: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> NDArray[np.float32]:
        left, right = (torch.from_numpy(np.asarray(column, dtype=np.int64)) for column in (first, second))
        n_entities = len(self.vocabulary.entities)
        out = np.empty((len(left), n_entities), np.float32)
        block = max(1, CELLS // self.config.dimension)
        with torch.no_grad():
            for row in range(len(left)):
                for begin in range(0, n_entities, block):
                    candidates = torch.arange(begin, min(begin + block, n_entities))
                    part = score(left[row : row + 1], right[row : row + 1], candidates)
                    out[row, begin : begin + block] = part[0].numpy()
        return out

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The tables as arrays, for saving."""
        return {name: tensor.numpy() for name, tensor in self.parameters.items()}

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
        """The model that `tensors` came from; tables that do not fit the vocabulary are refused."""
        rows = {"entity": len(vocabulary.entities), "relation": len(vocabulary.relations), "model": 1}
        parameters = {}
        for name, table in get(config.model).tables(config.dimension).items():
            expected = (rows[table.kind], table.width)
            if name not in tensors or tuple(tensors[name].shape) != expected:
                found = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(
                    f"table {name!r} of {config.model} should have shape {expected}, found {found}"
                )
            parameters[name] = torch.as_tensor(tensors[name])
        return cls(parameters, vocabulary, config, seed, seen_entities, seen_relations)


def seen(facts: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which entities and which relations have at least one fact."""
    entities = np.zeros(facts.n_entities, dtype=bool)
    relations = np.zeros(facts.n_relations, dtype=bool)
    entities[facts.head] = entities[facts.tail] = True
    relations[facts.relation] = True
    return entities, relations
