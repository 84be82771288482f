"""What a backbone is: parameter tables and a scoring formula over their rows. Nothing else. And which there are.

It is not a trainer, holds no parameters, knows no device and reads no file. A backbone names its tables;
somebody else owns them, looks rows up and hands them to `value`. Rows broadcast, so one formula serves both
call shapes: triples (every row of its own) and one against many (head rows (..., 1, d), tail rows (..., k,
d), or the reverse).

>>> backbone = get("ukge")
>>> parameters = backbone.initial(n_entities=5, n_relations=2, dimension=4, seed=0)
>>> score_triples(backbone, parameters, head, relation, tail)          # (n,) in [0, 1]
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal

import torch
from torch import Tensor

from unkgcp.errors import InputError

Rows = Mapping[str, Tensor]
Kind = Literal["entity", "relation", "model"]


@dataclass(frozen=True)
class Table:
    """One parameter table: a row of `width` numbers for each entity, each relation, or the model as a whole."""

    kind: Kind
    width: int
    initial: Callable[[tuple[int, int], torch.Generator], Tensor]


class Backbone(ABC):
    """A scoring function with named parameter tables.

    `value` is what training fits to confidences; `squash` turns it into a score in [0, 1].
    """

    name: str

    @abstractmethod
    def tables(self, dimension: int) -> dict[str, Table]:
        """The parameter tables at embedding dimension `dimension`."""

    @abstractmethod
    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        """Predicted confidence for rows of shape (..., width), which broadcast: (...)."""

    def score(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        """Scores in [0, 1] for rows as in `value`: (...)."""
        return self.squash(self.value(head, relation, tail, model))

    def kinds(self) -> dict[str, Kind]:
        """Table name -> what its rows stand for; the same in every dimension."""
        return {name: table.kind for name, table in self.tables(2).items()}

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


def constant(value: float) -> Callable[[tuple[int, int], torch.Generator], Tensor]:
    return lambda shape, generator: torch.full(shape, value)


def uniform(low: float, high: float) -> Callable[[tuple[int, int], torch.Generator], Tensor]:
    return lambda shape, generator: torch.rand(shape, generator=generator) * (high - low) + low


def normal(mean: float, deviation: float) -> Callable[[tuple[int, int], torch.Generator], Tensor]:
    return lambda shape, generator: torch.randn(shape, generator=generator) * deviation + mean


def truncated_normal(deviation: float) -> Callable[[tuple[int, int], torch.Generator], Tensor]:
    """Normal with mean 0, cut at two standard deviations."""

    def draw(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        limit = 2 * deviation
        table = torch.empty(shape)
        return torch.nn.init.trunc_normal_(table, 0.0, deviation, -limit, limit, generator=generator)

    return draw


def rows_of(
    backbone: Backbone, parameters: Mapping[str, Tensor], kind: Kind, ids: Tensor
) -> dict[str, Tensor]:
    """The rows `ids` of every table of one kind: (*ids.shape, width)."""
    return {
        name: torch.nn.functional.embedding(ids, parameters[name])
        for name, of in backbone.kinds().items()
        if of == kind
    }


def score_triples(
    backbone: Backbone, parameters: Mapping[str, Tensor], head: Tensor, relation: Tensor, tail: Tensor
) -> Tensor:
    """Scores of triples given by ids: (...) in [0, 1].

    Head, relation and tail broadcast: heads and relations (n, 1) with tails (1, k) are one against many, (n, k).
    """
    return backbone.score(
        rows_of(backbone, parameters, "entity", head),
        rows_of(backbone, parameters, "relation", relation),
        rows_of(backbone, parameters, "entity", tail),
        rows_of(backbone, parameters, "model", torch.zeros_like(relation)),
    )


# To add a backbone: subclass `Backbone` in a file of its own and add it to this table; the contract test in
# `tests/backbones` then runs on it.

# name -> (module here, class); a module is imported when one of its backbones is first asked for
REGISTRY = {
    "ukge": ("ukge_passleaf", "UKGE"),
    "ukge-rect": ("ukge_passleaf", "UKGERect"),
    "passleaf": ("ukge_passleaf", "Passleaf"),
    "passleaf-complex": ("ukge_passleaf", "PassleafComplEx"),
    "passleaf-rotate": ("ukge_passleaf", "PassleafRotatE"),
    "beurre": ("beurre", "BEUrRE"),
}


@cache
def get(name: str) -> Backbone:
    """The backbone called `name`."""
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(REGISTRY)}"
        raise InputError(f"there is no model {name!r}; {hint}")
    module, kind = REGISTRY[name]
    backbone: Backbone = getattr(import_module(f"unkgcp.backbones.{module}"), kind)()
    return backbone
