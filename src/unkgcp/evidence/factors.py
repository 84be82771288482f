"""Low-rank factors: what a graph's confidences look like as sums of a few patterns of its entities.

Three tables of confidences are factorised: heads by (tail, relation), (head, relation) by tails, and entities by
entities, whichever of the two is the head. The confidence of a row i and a column j is predicted as

    mean + a_i + b_j + u_i . v_j

with vectors of `RANK` numbers, fitted to the facts alone by ridge regression of the rows on the columns and of the
columns on the rows in turn (alternating least squares). What is predicted for a query, with and without the product,
and how well the row and the column are predicted elsewhere are features of the query. A row or column without facts has
no effect, and its own error is that of all.

>>> import numpy as np
>>> table = Factorisation.fit(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.9, 0.5, 0.7, 0.3]), ridge=0.1)
>>> [round(float(x), 1) for x in table.features(np.array([0, 1, 7]), np.array([0, 1, 0]))[:, 1]]
[0.9, 0.3, 0.6]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANK = 12
ADDITIVE_RIDGE, PRODUCT_RIDGE = 3.0, 6.0  # in units of the variance of the confidences
SWEEPS = 8
LARGEST = 2_000_000  # facts of a graph that is factorised; in a larger one groups say enough
TABLES = ("head by tail and relation", "head and relation by tail", "entity by entity")
FIGURES = ("additive", "with product", "error of row", "error of column")
FACTOR_NAMES = tuple(f"factors: {table}: {figure}" for table in TABLES for figure in FIGURES)


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Effects and vectors of n rows and m columns; `rows` and `columns` are the sorted keys that have facts."""

    rows: Ints
    columns: Ints
    mean: Floats
    """(2,) the mean confidence, and the mean error of all predictions."""
    of_row: NDArray[np.float32]
    """(n, 2 + RANK): the effect of each row, its mean error, its vector."""
    of_column: NDArray[np.float32]
    """(m, 2 + RANK)"""

    @classmethod
    def fit(
        cls, row: Ints, column: Ints, confidence: Floats, ridge: float = PRODUCT_RIDGE, same: bool = False
    ) -> Factorisation:
        """Fit facts given by the keys of their row and column, (N,) each.

        `same`: rows and columns are the same things, and a fact of i and j is one of j and i.
        """
        from unkgcp.evidence.factor_kernels import solve

        mean, scale = float(confidence.mean()), float(confidence.std()) or 1.0
        centred = (confidence - mean) / scale
        if same:
            row, column, centred = (
                np.concatenate([row, column]),
                np.concatenate([column, row]),
                np.tile(centred, 2),
            )
        (rows, i), (columns, j) = (np.unique(keys, return_inverse=True) for keys in (row, column))
        by_row, by_column = _order(i, len(rows)), _order(j, len(columns))
        rng = np.random.default_rng(0xFAC7)
        of_row, of_column = (np.zeros((len(keys), 1 + RANK)) for keys in (rows, columns))
        of_column[:, 1:] = rng.normal(0, 0.3, (len(columns), RANK))
        if same:
            of_row = of_column
        ridges = np.array([ADDITIVE_RIDGE, ridge])
        for _ in range(SWEEPS):
            solve(by_row[0], j[by_row[1]], centred[by_row[1]], of_column, of_row, ridges)
            if not same:
                solve(by_column[0], i[by_column[1]], centred[by_column[1]], of_row, of_column, ridges)
        predicted = of_row[i, 0] + of_column[j, 0] + np.einsum("nk,nk->n", of_row[i, 1:], of_column[j, 1:])
        error = np.abs(centred - predicted) * scale
        typical = float(error.mean())
        return cls(
            rows,
            columns,
            np.array([mean, typical]),
            _with_error(of_row, i, error, typical, scale),
            _with_error(of_column, j, error, typical, scale, vectors=1.0),
        )

    def features(self, row: Ints, column: Ints) -> NDArray[np.float32]:
        """Columns of `FIGURES` for queries given by the keys of their row and column: (n, 4)."""
        i, j = _places(self.rows, row), _places(self.columns, column)
        unknown = np.zeros(self.of_row.shape[1], np.float32)
        unknown[1] = self.mean[1]
        u = np.where((i < len(self.rows))[:, None], self.of_row.take(i, 0, mode="clip"), unknown)
        v = np.where((j < len(self.columns))[:, None], self.of_column.take(j, 0, mode="clip"), unknown)
        additive = np.float32(self.mean[0]) + u[:, 0] + v[:, 0]
        product = np.einsum("nk,nk->n", u[:, 2:], v[:, 2:])
        return np.stack([additive + product, additive, u[:, 1], v[:, 1]], axis=1)[:, [1, 0, 2, 3]]


class Factors(NamedTuple):
    """The factorisations of a graph, None where they were left out."""

    tables: tuple[Factorisation | None, ...]
    relations: int

    @classmethod
    def of(cls, train: Graph) -> Factors:
        """Factors of the facts of a graph; none of a very large one."""
        relations = train.n_relations
        if len(train) > LARGEST or not len(train):
            return cls((None,) * len(TABLES), relations)
        head, relation, tail = (np.asarray(ids, np.int64) for ids in (train.head, train.relation, train.tail))
        keys = _keys(head, relation, tail, relations)
        one_relation = len(np.unique(train.relation)) == 1  # the first two tables are then the same
        return cls(
            tuple(
                None
                if place == 1 and one_relation
                else Factorisation.fit(*key, train.confidence, same=place == 2)
                for place, key in enumerate(keys)
            ),
            relations,
        )

    def features(self, head: Ints, relation: Ints, tail: Ints) -> NDArray[np.float32]:
        """Columns of `FACTOR_NAMES` for queries (n,): (n, 12); NaN where a table was left out."""
        keys = _keys(head, relation, tail, self.relations)
        blank = np.full((len(head), len(FIGURES)), np.nan, np.float32)
        return np.concatenate(
            [
                blank if table is None else table.features(*key)
                for table, key in zip(self.tables, keys, strict=True)
            ],
            axis=1,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{place}.{field.name}": getattr(table, field.name)
            for place, table in enumerate(self.tables)
            if table is not None
            for field in fields(table)
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], relations: int) -> Factors:
        """The factors that `arrays` stored; ValueError if they do not fit together."""
        tables: list[Factorisation | None] = []
        for place in range(len(TABLES)):
            names = [field.name for field in fields(Factorisation)]
            stored = {name: arrays.get(f"{place}.{name}") for name in names}
            if all(array is None for array in stored.values()):
                tables.append(None)
                continue
            table = Factorisation(**stored)  # type: ignore[arg-type]
            good = all(array is not None and array.dtype.kind in "if" for array in stored.values()) and (
                table.mean.shape == (2,)
                and table.of_row.shape == (len(table.rows), 2 + RANK)
                and table.of_column.shape == (len(table.columns), 2 + RANK)
                and all(
                    bool(np.isfinite(array).all()) for array in (table.mean, table.of_row, table.of_column)
                )
                and all(_ascending(keys) for keys in (table.rows, table.columns))
            )
            if not good:
                raise ValueError("the factors of the evidence do not fit together")
            tables.append(table)
        return cls(tuple(tables), relations)


def _keys(head: Ints, relation: Ints, tail: Ints, relations: int) -> list[tuple[Ints, Ints]]:
    """The keys of row and column in each of `TABLES`; unknown ids are negative and have no row or column."""
    known = (relation >= 0) & (relation < relations)
    with_tail = np.where(known & (tail >= 0), tail * relations + relation, -1)
    with_head = np.where(known & (head >= 0), head * relations + relation, -1)
    return [(head, with_tail), (with_head, tail), (head, tail)]


def _order(keys: NDArray[np.intp], size: int) -> tuple[Ints, Ints]:
    """Where the facts of each key begin (size + 1,), and the facts in the order of their keys (N,)."""
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=starts[1:])
    return starts, np.argsort(keys, kind="stable")


def _places(known: Ints, wanted: Ints) -> Ints:
    """The place of each wanted key among the known ones, the place after the last where it is missing: (n,)."""
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, len(known))


def _with_error(
    effects: Floats,
    place: NDArray[np.intp],
    error: Floats,
    typical: float,
    scale: float,
    vectors: float | None = None,
) -> NDArray[np.float32]:
    """Effect, mean error and vector of each row or column, in units of confidence: (n, 2 + RANK).

    The scale of the products stands in the vectors of the rows.
    """
    total = np.bincount(place, error, len(effects))
    count = np.bincount(place, minlength=len(effects))
    mean_error = (total + ADDITIVE_RIDGE * typical) / (count + ADDITIVE_RIDGE)
    columns = [
        effects[:, :1] * scale,
        mean_error[:, None],
        effects[:, 1:] * (scale if vectors is None else vectors),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _ascending(keys: NDArray[Any]) -> bool:
    return keys.dtype == np.int64 and bool((np.diff(keys) > 0).all())
