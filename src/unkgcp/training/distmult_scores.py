"""Scores of the DistMult family from plain arrays, without torch: f(w (h o r) . t + b).

The formula is that of `unkgcp.backbones.ukge_passleaf`, for asking a trained model rather than for training one. The
sum over the dimensions runs in a compiled loop that fetches the rows it needs and stores no product, one triple like
the next: a triple has the same score alone as among others.

>>> tables = {"entity": entity, "relation": relation, "w": w, "b": b}          # doctest: +SKIP
>>> scores("ukge", tables, head, relation_ids, tail)                          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.parallel import ROWS, run_chunks

Floats = NDArray[np.float32]
Ids = NDArray[np.integer[Any]]
Tables = Mapping[str, Floats]


def table_shapes(entities: int, relations: int, dimension: int) -> dict[str, tuple[int, int]]:
    """The shape of every table."""
    return {"entity": (entities, dimension), "relation": (relations, dimension), "w": (1, 1), "b": (1, 1)}


def scores(name: str, tables: Tables, head: Ids, relation: Ids, tail: Ids) -> Floats:
    """Scores of triples given by ids (n,), on all cores when there are many: (n,) float32 in [0, 1]."""
    ids = [np.ascontiguousarray(column, np.int32) for column in (head, relation, tail)]
    out = np.empty(len(ids[0]), np.float32)
    _check(ids, len(tables["entity"]), len(tables["relation"]))
    fill = _products()

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        fill(tables["entity"], tables["relation"], *(column[rows] for column in ids), out[rows])
        squash(name, tables, out[rows])

    if len(out) <= ROWS:
        work(0, len(out))
    else:
        run_chunks(len(out), work)
    return out


def against_all(name: str, tables: Tables, entity: Ids, relation: Ids) -> Floats:
    """Scores of (entity, relation) (n,) with every entity on the other side, whichever side that is: (n, entities).

    A matrix product: quick, and off by a few roundings from `scores`.
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


@cache
def _products() -> Any:
    """The function that fills an array with dot products: compiled, or by NumPy where there is no numba."""
    try:
        from unkgcp.training.distmult_kernels import products
    except ImportError:
        return _numpy_products
    return products


def _numpy_products(entity: Floats, relation: Floats, head: Ids, middle: Ids, tail: Ids, out: Floats) -> None:
    """The same sums, rounded in another order."""
    out[:] = np.einsum("nd,nd->n", entity[head] * relation[middle], entity[tail])
