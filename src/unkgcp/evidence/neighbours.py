"""How closely two entities are joined in the training graph, besides any fact between them.

What it is: for a pair (h, t) the entities that stand beside both, counted, and weighted so that a rare neighbour
says more than one that stands beside everything (Adamic and Adar). Paths of length two never use a fact between h
and t, so a training fact needs no leaving out: its row is that of a query already.

>>> Neighbours.of(train).features(triples).shape                     # doctest: +SKIP
(n, 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from unkgcp.evidence.features import HasTriples
from unkgcp.graph import Graph

NAMES = ("neighbours: shared", "neighbours: shared, rare ones more", "neighbours: share", "neighbours: chain")
CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Who stands beside whom: joined in any relation and direction, never beside itself."""

    beside: csr_matrix
    """(entities, entities) of ones."""
    rare: csr_matrix
    """The same with 1 / sqrt(log(1 + neighbours)) of the column, whose square is the weight of a shared neighbour."""
    out: csr_matrix
    """Ones from head to tail."""

    @classmethod
    def of(cls, train: Graph) -> Neighbours:
        n = train.n_entities
        apart = train.head != train.tail
        head, tail = train.head[apart], train.tail[apart]
        out = _ones(head, tail, n)
        beside = _ones(np.concatenate([head, tail]), np.concatenate([tail, head]), n)
        degree = np.diff(beside.indptr)
        weight = 1 / np.sqrt(np.log1p(np.maximum(degree, 1)))
        rare = beside.copy()
        rare.data = weight[beside.indices].astype(np.float32)
        return cls(beside, rare, out)

    def features(self, triples: HasTriples) -> NDArray[np.float32]:
        """Columns of `NAMES`: (n, 4)."""
        table = np.empty((len(triples.head), len(NAMES)), np.float32)
        degree = self.degree
        for start in range(0, len(table), CHUNK):
            rows = slice(start, start + CHUNK)
            head, tail = triples.head[rows], triples.tail[rows]
            shared = _along(self.beside, head, self.beside, tail)
            table[rows, 0] = shared
            table[rows, 1] = _along(self.rare, head, self.rare, tail)
            table[rows, 2] = shared / np.maximum(degree[head] + degree[tail] - shared, 1)
            table[rows, 3] = _along(self.out, head, self.back, tail)
        return table

    @cached_property
    def degree(self) -> NDArray[np.integer[Any]]:
        """Neighbours of each entity: (entities,)."""
        return np.diff(self.beside.indptr)

    @cached_property
    def back(self) -> csr_matrix:
        """Ones from tail to head."""
        return self.out.T.tocsr()


def _ones(row: NDArray[np.integer[Any]], column: NDArray[np.integer[Any]], n: int) -> csr_matrix:
    matrix = csr_matrix((np.ones(len(row), np.float32), (row, column)), shape=(n, n))
    matrix.data[:] = 1
    return matrix


def _along(
    one: csr_matrix, head: NDArray[np.integer[Any]], other: csr_matrix, tail: NDArray[np.integer[Any]]
) -> NDArray[np.float32]:
    """Products of rows, summed: (n,)."""
    return np.asarray(one[head].multiply(other[tail]).sum(axis=1), np.float32).ravel()
