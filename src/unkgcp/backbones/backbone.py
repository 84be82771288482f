"""What a backbone is, which backbones there are, and how triples are scored with one.

A backbone names parameter tables and has a scoring formula over their rows, nothing else: it is not a trainer, holds no
parameters, knows no device and reads no file. Its caller owns the tables, looks rows up and hands them to `value`. Rows
broadcast, so one formula serves both call shapes: triples, each with rows of its own, and one against many (head rows
(..., 1, d), tail rows (..., k, d), or the reverse).

>>> backbone = get("ukge")
>>> parameters = backbone.initial(n_entities=5, n_relations=2, dimension=4, seed=0)
>>> score_triples(backbone, parameters, head, relation, tail)          # (n,) in [0, 1]
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unkgcp.errors import InputError

Rows = Mapping[str, Tensor]
Ids = NDArray[np.integer[Any]]
Kind = Literal["entity", "relation", "model"]
Initial = Callable[[tuple[int, int], torch.Generator], Tensor]
"""Draws the numbers that a table of a given shape holds before training."""


@dataclass(frozen=True)
class Table:
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
    def tables(self, dimension: int) -> dict[str, Table]:
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

    def initial_tables(
        self, n_entities: int, n_relations: int, dimension: int, seeds: Sequence[int]
    ) -> dict[str, Tensor]:
        """Those of one model a seed, stacked: table name -> (seeds, rows, width)."""
        each = [self.initial(n_entities, n_relations, dimension, seed) for seed in seeds]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}


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


# A trained model is asked with ids in NumPy arrays, and a triple must have the same score alone as among others. torch
# computes whole vectors of elements in one way, and the elements left over at the end of an operation and at the end of
# each thread's share in another way, which differs in the last bit. So triples are scored in pieces that leave nothing
# over and are too small to be shared among threads: a multiple of 32 rows, filled up with the last triple, of at most
# 32,768 elements. That holds up to 1,024 columns a table; beyond, a piece is too large, and the last bit of a score may
# differ.

ROWS = 32  # two vectors of the widest kind: as many as torch's loops take at a time
ELEMENTS = 1 << 15  # from here on torch divides an operation among threads
CELLS = 1 << 22  # floats of intermediate rows in one-against-many scoring

_settled: set[str] = set()
_settling = Lock()


def score_ids(
    backbone: Backbone, parameters: Mapping[str, Tensor], head: Ids, relation: Ids, tail: Ids
) -> NDArray[np.float32]:
    """Scores of triples given by ids (n,), on the CPU, each the same alone as among others: (n,) in [0, 1]."""
    out = np.empty(len(head), np.float32)
    if not len(out):
        return out
    _settle(backbone, parameters)
    width = max(table.shape[1] for table in parameters.values())
    rows = max(1, ELEMENTS // (width * ROWS)) * ROWS
    with torch.no_grad():
        for start in range(0, len(out), rows):
            size = min(rows, len(out) - start)
            ids = (_filled(column[start : start + size]) for column in (head, relation, tail))
            out[start : start + size] = score_triples(backbone, parameters, *ids).numpy()[:size]
    return out


def score_against_all(
    backbone: Backbone,
    parameters: Mapping[str, Tensor],
    entity: Ids,
    relation: Ids,
    n_entities: int,
    *,
    as_head: bool,
) -> NDArray[np.float32]:
    """Scores of (entity, relation) (n,) with every entity on the other side: (n, n_entities).

    With `as_head`, `entity` is the head and all entities are tried as tails; otherwise the reverse.
    """
    out = np.empty((len(entity), n_entities), np.float32)
    block = max(1, CELLS // max(table.shape[1] for table in parameters.values()))
    own, of = (torch.from_numpy(np.asarray(ids, np.int64))[:, None] for ids in (entity, relation))
    with torch.no_grad():
        for row in range(len(out)):
            for begin in range(0, n_entities, block):
                others = torch.arange(begin, min(begin + block, n_entities))[None, :]
                mine = own[row : row + 1]
                head, tail = (mine, others) if as_head else (others, mine)
                found = score_triples(backbone, parameters, head, of[row : row + 1], tail)
                out[row, begin : begin + block] = found[0].numpy()
    return out


def _settle(backbone: Backbone, parameters: Mapping[str, Tensor]) -> None:
    """Score one triple in one thread, once a process for each backbone.

    MKL chooses the code of a function at its first call; if several threads make that call at once, one of them may get
    a rougher version for that call (https://github.com/pytorch/pytorch/issues/188792).
    """
    with _settling, torch.no_grad():
        if backbone.name not in _settled:
            score_triples(backbone, parameters, *torch.zeros(3, 1, dtype=torch.int64))
            _settled.add(backbone.name)


def _filled(ids: Ids) -> Tensor:
    """The ids, filled up with the last one to a multiple of ROWS."""
    column = np.full(-(-len(ids) // ROWS) * ROWS, ids[-1], np.int64)
    column[: len(ids)] = ids
    return torch.from_numpy(column)


REGISTRY = {
    "ukge": ("ukge_passleaf", "UKGE"),
    "ukge-rect": ("ukge_passleaf", "UKGERect"),
    "passleaf": ("ukge_passleaf", "Passleaf"),
    "passleaf-complex": ("ukge_passleaf", "PassleafComplEx"),
    "passleaf-rotate": ("ukge_passleaf", "PassleafRotatE"),
    "beurre": ("beurre", "BEUrRE"),
}
"""Name -> (module of this room, class). A module is imported when one of its backbones is first asked for; the contract
test in `tests/backbones` runs on every entry."""


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
