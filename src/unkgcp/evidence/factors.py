"""Low-rank factors: what a graph's confidences look like as sums of a few patterns of its entities.

Two tables of confidences are factorised, heads by (tail, relation) and (head, relation) by tails. The confidence of a
row i and a column j is predicted as

    mean + a_i + b_j + u_i . v_j

with vectors of `RANK` numbers. In a third model an entity has one effect and one vector, whether it is head or tail and
whatever the relation, which weighs them: it says more about entities with few facts of each relation.

    mean + b_r + x_r a_h + y_r a_t + sum over k of w_rk u_hk u_tk

A fourth is like the third, but of the facts without a stock value: one that many facts share, like that of all
unchecked ones, says little about how sure two entities make a statement, and hides what the other facts say of it.

All are fitted to the facts alone by ridge regressions in turn (alternating least squares). What is predicted for a
query, with and without the product, and how well the row and the column (the head and the tail) are predicted elsewhere
are features of the query. What has no facts has no effect, and its own error is that of all.

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

from unkgcp.evidence.fact_groups import AnyInts
from unkgcp.graph.facts import Graph
from unkgcp.loops import places_in

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANK = 12
ADDITIVE_RIDGE, PRODUCT_RIDGE = 3.0, 6.0  # in units of the variance of the confidences
SWEEPS = 8
LARGEST = 2_000_000  # facts of a graph that is factorised; in a larger one groups say enough
SHARED_RIDGE, RELATION_RIDGE, SHARED_SWEEPS = 8.0, 3.0, 10
STOCK = 0.1  # the share of facts that makes a value a stock value
TABLES = (
    "head by tail and relation",
    "head and relation by tail",
    "entities in all relations",
    "entities, stock values left out",
)
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
    def fit(cls, row: Ints, column: Ints, confidence: Floats, ridge: float = PRODUCT_RIDGE) -> Factorisation:
        """Fit facts given by the keys of their row and column, (N,) each."""
        from unkgcp.evidence.factor_kernels import solve

        mean, scale = float(confidence.mean()), float(confidence.std()) or 1.0
        centred = (confidence - mean) / scale
        (rows, i), (columns, j) = (np.unique(keys, return_inverse=True) for keys in (row, column))
        by_row, by_column = _order(i, len(rows)), _order(j, len(columns))
        rng = np.random.default_rng(0xFAC7)
        of_row, of_column = (np.zeros((len(keys), 1 + RANK)) for keys in (rows, columns))
        of_column[:, 1:] = rng.normal(0, 0.3, (len(columns), RANK))
        ridges = np.array([ADDITIVE_RIDGE, ridge])
        for _ in range(SWEEPS):
            solve(by_row[0], j[by_row[1]], centred[by_row[1]], of_column, of_row, ridges)
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

    def fits(self, entities: int, relations: int) -> bool:
        """Whether the arrays of a stored table fit together."""
        return (
            self.mean.shape == (2,)
            and self.of_row.shape == (len(self.rows), 2 + RANK)
            and self.of_column.shape == (len(self.columns), 2 + RANK)
            and all(bool(np.isfinite(array).all()) for array in (self.mean, self.of_row, self.of_column))
            and all(_ascending(keys) for keys in (self.rows, self.columns))
        )


@dataclass(frozen=True, eq=False)
class SharedFactors:
    """The effect and the vector of each entity, and how each relation weighs them."""

    mean: Floats
    """(2,) the mean confidence, and the mean error of all predictions."""
    of_entity: NDArray[np.float32]
    """(entities, 2 + RANK): the effect of each entity, its mean error, its vector."""
    of_relation: NDArray[np.float32]
    """(relations + 1, 3 + RANK): base, weights of the effects of head and tail, and of the numbers of the vectors; the
    last row is that of unknown relations."""

    @classmethod
    def fit(
        cls, head: Ints, relation: Ints, tail: Ints, confidence: Floats, sizes: tuple[int, int]
    ) -> SharedFactors:
        """Fit facts given by their ids, (N,) each; `sizes`: the numbers of entities and relations."""
        from unkgcp.evidence.factor_kernels import solve_entities, solve_relations

        mean, scale = float(confidence.mean()), float(confidence.std()) or 1.0
        centred = (confidence - mean) / scale
        ends = np.concatenate([head, tail])
        by_entity, by_relation = _order(ends, sizes[0]), _order(relation, sizes[1])
        of_entity = np.random.default_rng(0xFAC7).normal(0, 0.3, (sizes[0], 1 + RANK))
        of_entity[:, 0] = 0.0
        # a relation is drawn towards effects and vectors that count as they are
        usual = np.concatenate([[0.0], np.ones(2 + RANK)])
        of_relation = np.tile(usual, (sizes[1] + 1, 1))
        facts = (head, relation, tail, centred)
        for _ in range(SHARED_SWEEPS):
            solve_entities(*by_entity, *facts, of_entity, of_relation, np.array([1.0, SHARED_RIDGE]))
            solve_relations(*by_relation, *facts, of_entity, of_relation, usual, RELATION_RIDGE)
        of_relation[:, 0] *= scale
        of_relation[:, 3:] *= scale
        of_entity[:, 0] *= scale
        weights = of_relation[relation]
        additive = (
            mean + weights[:, 0] + weights[:, 1] * of_entity[head, 0] + weights[:, 2] * of_entity[tail, 0]
        )
        product = np.einsum("nk,nk,nk->n", weights[:, 3:], of_entity[head, 1:], of_entity[tail, 1:])
        error = np.abs(confidence - additive - product)
        typical = float(error.mean())
        effects = _with_error(of_entity, ends, np.tile(error, 2), typical, 1.0)
        return cls(np.array([mean, typical]), effects, of_relation.astype(np.float32))

    def features(self, head: Ints, relation: Ints, tail: Ints) -> NDArray[np.float32]:
        """Columns of `FIGURES` for queries (n,): (n, 4)."""
        unknown = np.zeros(self.of_entity.shape[1], np.float32)
        unknown[1] = self.mean[1]
        u, v = (
            np.where((ids >= 0)[:, None], self.of_entity.take(ids, 0, mode="clip"), unknown)
            for ids in (head, tail)
        )
        weights = self.of_relation[np.where(relation >= 0, relation, len(self.of_relation) - 1)]
        additive = (
            np.float32(self.mean[0]) + weights[:, 0] + weights[:, 1] * u[:, 0] + weights[:, 2] * v[:, 0]
        )
        product = np.einsum("nk,nk,nk->n", weights[:, 3:], u[:, 2:], v[:, 2:])
        return np.stack([additive, additive + product, u[:, 1], v[:, 1]], axis=1)

    def fits(self, entities: int, relations: int) -> bool:
        """Whether the arrays of stored factors fit together and to a graph of this size."""
        return (
            self.mean.shape == (2,)
            and self.of_entity.shape == (entities, 2 + RANK)
            and self.of_relation.shape == (relations + 1, 3 + RANK)
            and all(bool(np.isfinite(array).all()) for array in (self.mean, self.of_entity, self.of_relation))
        )


class Factors(NamedTuple):
    """The factorisations of a graph, in the order of `TABLES`, None where one was left out."""

    tables: tuple[Factorisation | SharedFactors | None, ...]

    @classmethod
    def of(cls, train: Graph, codes: AnyInts) -> Factors:
        """Factors of the facts of a graph, whose values have these codes (N,); none of a very large one."""
        if len(train) > LARGEST or not len(train):
            return cls((None,) * len(TABLES))
        head, relation, tail = (np.asarray(ids, np.int64) for ids in (train.head, train.relation, train.tail))
        by_tail, by_head = _keys(head, relation, tail, train.n_relations)
        one_relation = len(np.unique(train.relation)) == 1  # the first two tables are then the same
        first = Factorisation.fit(*by_tail, train.confidence)
        second = None if one_relation else Factorisation.fit(*by_head, train.confidence)
        sizes = (train.n_entities, train.n_relations)
        third = SharedFactors.fit(head, relation, tail, train.confidence, sizes)
        rare = (np.bincount(codes) < STOCK * len(train))[codes]
        fourth = None
        if rare.any() and not rare.all():
            fourth = SharedFactors.fit(head[rare], relation[rare], tail[rare], train.confidence[rare], sizes)
        return cls((first, second, third, fourth))

    def features(self, head: Ints, relation: Ints, tail: Ints, relations: int) -> NDArray[np.float32]:
        """Columns of `FACTOR_NAMES` for queries (n,): (n, 16); NaN where a table was left out."""
        ids = (head, relation, tail)
        keys = (*_keys(*ids, relations), ids, ids)
        blank = np.full((len(head), len(FIGURES)), np.nan, np.float32)
        figures = [
            blank if table is None else table.features(*key)
            for table, key in zip(self.tables, keys, strict=True)
        ]
        return np.concatenate(figures, axis=1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{place}.{field.name}": getattr(table, field.name)
            for place, table in enumerate(self.tables)
            if table is not None
            for field in fields(table)
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> Factors:
        """The factors that `arrays` stored; ValueError if they do not fit together."""
        tables: list[Factorisation | SharedFactors | None] = []
        for place, kind in enumerate((Factorisation, Factorisation, SharedFactors, SharedFactors)):
            names = [field.name for field in fields(kind)]
            stored = {name: arrays.get(f"{place}.{name}") for name in names}
            if all(array is None for array in stored.values()):
                tables.append(None)
                continue
            sound = all(array is not None and array.dtype.kind in "if" for array in stored.values())
            table = kind(**stored) if sound else None
            if table is None or not table.fits(entities, relations):
                raise ValueError("the factors of the evidence do not fit together")
            tables.append(table)
        return cls(tuple(tables))


def _keys(head: Ints, relation: Ints, tail: Ints, relations: int) -> list[tuple[Ints, Ints]]:
    """The keys of row and column in the first two of `TABLES`; unknown ids are negative and have no row or column."""
    known = (relation >= 0) & (relation < relations)
    with_tail = np.where(known & (tail >= 0), tail * relations + relation, -1)
    with_head = np.where(known & (head >= 0), head * relations + relation, -1)
    return [(head, with_tail), (with_head, tail)]


def _order(keys: NDArray[np.intp], size: int) -> tuple[Ints, Ints]:
    """Where the facts of each key begin (size + 1,), and the facts in the order of their keys (N,)."""
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=starts[1:])
    return starts, np.argsort(keys, kind="stable")


def _places(known: Ints, wanted: Ints) -> Ints:
    """The place of each wanted key among the known ones, the place after the last where it is missing: (n,)."""
    place = np.minimum(places_in(known, wanted), len(known) - 1)
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
