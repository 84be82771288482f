"""What a backbone is, and how triples are scored with one.

A backbone names parameter tables and has a scoring formula over their rows, nothing else: it is not a trainer, holds no
parameters, knows no device and reads no file. Its caller owns the tables, looks rows up and hands them to `value`. Rows
broadcast, so one formula serves both call shapes: triples, each with rows of its own, and one against many (head rows
(..., 1, d), tail rows (..., k, d), or the reverse).

>>> backbone = get("ukge")
>>> parameters = backbone.initial(n_entities=5, n_relations=2, dimension=4, seed=0)
>>> score_triples(backbone, parameters, head, relation, tail)          # (n,) in [0, 1]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = Mapping[str, Tensor]
Ids = NDArray[np.integer[Any]]
Kind = Literal["entity", "relation", "model"]
Initial = Callable[[tuple[int, int], torch.Generator], Tensor]
"""Draws the numbers that a table of a given shape holds before training."""


@dataclass(frozen=True)
class ParameterTable:
    """One parameter table: a row of `width` numbers for each entity, each relation, or the model as a whole."""

    kind: Kind
    width: int
    initial: Initial


class Backbone(ABC):
    """A scoring function with named parameter tables.

    `value` is what training fits to confidences; `squash` turns it into a score in [0, 1]. `kinds` says what the rows
    of each table stand for, by the table's name; it is the same in every dimension.
    """

    name: str

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {name: table.kind for name, table in self.tables(2).items()}

    @abstractmethod
    def tables(self, dimension: int) -> dict[str, ParameterTable]:
        """The parameter tables at embedding dimension `dimension`."""

    @abstractmethod
    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        """Predicted confidence for rows of shape (..., width), which broadcast: (...)."""

    def squash(self, value: Tensor) -> Tensor:
        """A finite score in [0, 1] from `value`, whatever the parameters are."""
        return torch.nan_to_num(value, nan=0.5).clamp(0.0, 1.0)

    def initial(self, n_entities: int, n_relations: int, dimension: int, seed: int) -> dict[str, Tensor]:
        """Fresh parameters: table name -> (rows, width), the same for the same seed on every machine."""
        rows = {"entity": n_entities, "relation": n_relations, "model": 1}
        generator = torch.Generator().manual_seed(seed)
        return {
            name: table.initial((rows[table.kind], table.width), generator)
            for name, table in self.tables(dimension).items()
        }


def constant(value: float) -> Initial:
    return lambda shape, generator: torch.full(shape, value)


def uniform(low: float, high: float) -> Initial:
    return lambda shape, generator: torch.rand(shape, generator=generator) * (high - low) + low


def normal(mean: float, deviation: float) -> Initial:
    return lambda shape, generator: torch.randn(shape, generator=generator) * deviation + mean


def truncated_normal(deviation: float) -> Initial:
    """Normal with mean 0, cut at two standard deviations."""
    limit = 2 * deviation
    return lambda shape, generator: torch.nn.init.trunc_normal_(
        torch.empty(shape), 0.0, deviation, -limit, limit, generator=generator
    )


def rows_of(
    backbone: Backbone, parameters: Mapping[str, Tensor], kind: Kind, ids: Tensor
) -> dict[str, Tensor]:
    """The rows `ids` of every table of one kind: (*ids.shape, width)."""
    return {
        name: torch.nn.functional.embedding(ids, parameters[name])
        for name, of in backbone.kinds.items()
        if of == kind
    }


def score_triples(
    backbone: Backbone, parameters: Mapping[str, Tensor], head: Tensor, relation: Tensor, tail: Tensor
) -> Tensor:
    """Scores of triples given by ids: (...) in [0, 1].

    Head, relation and tail broadcast: heads and relations (n, 1) with tails (1, k) are one against many, (n, k).
    """
    value = backbone.value(
        rows_of(backbone, parameters, "entity", head),
        rows_of(backbone, parameters, "relation", relation),
        rows_of(backbone, parameters, "entity", tail),
        rows_of(backbone, parameters, "model", torch.zeros_like(relation)),
    )
    return backbone.squash(value)


CELLS = 1 << 20  # floats of looked-up rows at once


def score_ids(
    backbone: Backbone, parameters: Mapping[str, Tensor], head: Ids, relation: Ids, tail: Ids
) -> NDArray[np.float32]:
    """Scores of triples given by ids (n,), on the device of the parameters: (n,) in [0, 1]."""
    ids = [torch.from_numpy(np.ascontiguousarray(column, np.int64)) for column in (head, relation, tail)]
    out = np.empty(len(ids[0]), np.float32)
    size = max(1, CELLS // max(parameters[name].shape[1] for name in backbone.kinds))
    device = next(iter(parameters.values())).device
    with torch.no_grad():
        for start in range(0, len(out), size):
            part = [column[start : start + size].to(device) for column in ids]
            out[start : start + size] = score_triples(backbone, parameters, *part).cpu().numpy()
    return out
