"""Scores of the DistMult family from plain arrays, without torch: f(w (h o r) . t + b).

What it is: the same formula as `unkgcp.backbones.ukge_passleaf`, for asking. The sum over the dimensions runs in a
compiled loop that fetches the rows it needs and stores no product, one triple like the next: a triple has the
same score alone as among others. What it is not: a backbone; training needs gradients.

>>> tables = {"entity": entity, "relation": relation, "w": w, "b": b}          # doctest: +SKIP
>>> scores("ukge", tables, head, relation_ids, tail)                          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.parallel import cores

Floats = NDArray[np.float32]
Tables = Mapping[str, Floats]

FAMILY = ("ukge", "ukge-rect", "passleaf")
CHUNK = 1 << 13  # triples at a time: their scores stay in the cache from step to step
TASK = 1 << 17  # triples from which on a second thread pays


def table_shapes(entities: int, relations: int, dimension: int) -> dict[str, tuple[int, int]]:
    """The shape of every table."""
    return {"entity": (entities, dimension), "relation": (relations, dimension), "w": (1, 1), "b": (1, 1)}


def scores(
    name: str,
    tables: Tables,
    head: NDArray[np.integer[Any]],
    relation: NDArray[np.integer[Any]],
    tail: NDArray[np.integer[Any]],
) -> Floats:
    """Scores of triples given by ids (n,), on all cores when there are many: (n,) float32 in [0, 1]."""
    ids = [np.ascontiguousarray(column, np.int32) for column in (head, relation, tail)]
    out = np.empty(len(ids[0]), np.float32)
    _check(ids, len(tables["entity"]), len(tables["relation"]))
    raw = _kernel()

    def work(first: int) -> None:
        for start in range(first, min(first + TASK, len(out)), CHUNK):
            rows = slice(start, min(start + CHUNK, first + TASK))
            raw(tables["entity"], tables["relation"], *(column[rows] for column in ids), out[rows])
            squash(name, tables, out[rows])

    firsts = range(0, len(out), TASK)
    if len(firsts) < 2:
        for first in firsts:
            work(first)
    else:
        with ThreadPoolExecutor(min(len(firsts), cores())) as pool:
            list(pool.map(work, firsts))
    return out


def against_all(name: str, tables: Tables, query: Floats) -> Floats:
    """Scores of queries h o r, or r o t, (n, d) with every entity on the other side: (n, entities).

    A matrix product: quick, and off by a few roundings from `scores`.
    """
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


@cache
def _kernel() -> Any:
    try:
        from unkgcp.training.distmult_kernels import products
    except ImportError:  # without numba: the same sum, rounded in another order
        return _products
    return products


def _products(entity: Floats, relation: Floats, head: Any, middle: Any, tail: Any, out: Floats) -> None:
    out[:] = np.einsum("nd,nd->n", entity[head] * relation[middle], entity[tail])
