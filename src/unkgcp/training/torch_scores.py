"""Scores of triples by a torch backbone on the CPU, each the same alone as among others.

torch computes whole vectors of elements in one way and what is left over at the end, its own and that of every
thread, in another, which differs in the last bit. So triples are scored in pieces that have nothing left over and are
too small to be shared out: a multiple of 32 rows, filled up with the last one, of at most 32,768 elements. That holds
up to 1,024 columns a table; beyond, a piece is too large and scores may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unkgcp.backbones import Backbone, score_triples

ROWS = 32  # two vectors of the widest kind: what torch's loops take at a time
ELEMENTS = 1 << 15  # from here on torch divides an operation among threads
CELLS = 1 << 22  # floats of intermediate rows in one-against-many scoring

Ids = NDArray[np.integer[Any]]

_settled: set[str] = set()
_settling = Lock()


def scores(
    backbone: Backbone, parameters: Mapping[str, Tensor], head: Ids, relation: Ids, tail: Ids
) -> NDArray[np.float32]:
    """Scores of triples given by ids (n,): (n,) float32 in [0, 1]."""
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


def against_all(
    backbone: Backbone,
    parameters: Mapping[str, Tensor],
    entity: Ids,
    relation: Ids,
    *,
    as_head: bool,
    n_entities: int,
) -> NDArray[np.float32]:
    """Scores of (entity, relation) (n,) with every entity on the other side: (n, n_entities).

    `as_head` says whether `entity` is the head, and all others are tried as tails, or the reverse.
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
    """One triple alone, before anything is shared out: once a process for each backbone.

    MKL chooses the code of a function at its first call; if several threads make it at once, one of them may get a
    rougher version for that call (https://github.com/pytorch/pytorch/issues/188792).
    """
    with _settling, torch.no_grad():
        if backbone.name not in _settled:
            score_triples(backbone, parameters, *torch.zeros(3, 1, dtype=torch.int64))
            _settled.add(backbone.name)


def _filled(ids: Ids) -> Tensor:
    """The ids and the last one again, up to a multiple of ROWS."""
    column = np.full(-(-len(ids) // ROWS) * ROWS, ids[-1], np.int64)
    column[: len(ids)] = ids
    return torch.from_numpy(column)
