"""What a graph of facts says about a query triple, as a row of numbers.

For a query (h, r, t) the row has statistics of the confidences of facts in groups around it (`VIEWS`), the values that
other facts of the pair h, t suggest (`pairs`), what the neighbourhood of h and t says (`Neighbours`), and what low-rank
factors of the graph predict (`factors`). Nothing but the factors is fitted here, and calibration or test facts are
never used. Rows to learn from are made by asking some facts of the graph without them (`folds`).

>>> evidence = Evidence.of(splits.train)                              # doctest: +SKIP
>>> evidence.features(splits.test).table                              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import (
    STATISTICS,
    AnyInts,
    FactGroups,
    FactOrder,
    GroupFigures,
    Ints,
    Values,
    commonest,
    position_type,
    smallest,
)
from unkgcp.evidence.factors import FACTOR_NAMES, Factors
from unkgcp.evidence.pairs import SLOTS, Candidates, Pairs
from unkgcp.graph.facts import Graph, HasTriples
from unkgcp.graph.known_facts import distinct, places_among
from unkgcp.loops import in_threads

FREQUENT = 6  # the number of common values whose shares in a group are features
CHUNK = 1 << 14  # queries whose rows are made together


class Columns(NamedTuple):
    """Triples as ids."""

    head: NDArray[Any]
    relation: NDArray[Any]
    tail: NDArray[Any]


HEAD, RELATION, TAIL, EITHER = range(4)
"""Columns that facts are grouped by; a fact stands in the groups of both of its ends under EITHER."""


@dataclass(frozen=True)
class View:
    """One group of training facts around a query: the facts whose columns `key` equal the query's columns `ask`."""

    name: str
    key: tuple[int, ...]
    ask: tuple[int, ...]
    shares: bool = False
    """Whether the shares of frequent values in this group are features."""
    suggested: bool = False
    """Whether the shares of the suggested values in this group are features."""


VIEWS = (
    View("relation", (RELATION,), (RELATION,), shares=True, suggested=True),
    View("head", (HEAD,), (HEAD,), shares=True, suggested=True),
    View("tail", (TAIL,), (TAIL,), shares=True, suggested=True),
    View("head-relation", (HEAD, RELATION), (HEAD, RELATION), shares=True, suggested=True),
    View("relation-tail", (TAIL, RELATION), (TAIL, RELATION), shares=True, suggested=True),
    View("head-as-tail", (TAIL,), (HEAD,), shares=True),
    View("tail-as-head", (HEAD,), (TAIL,), shares=True),
    View("head-as-tail-relation", (TAIL, RELATION), (HEAD, RELATION)),
    View("tail-as-head-relation", (HEAD, RELATION), (TAIL, RELATION)),
    View("pair", (HEAD, TAIL), (HEAD, TAIL), shares=True),
    View("reversed", (HEAD, TAIL), (TAIL, HEAD), shares=True),
    View("triple", (HEAD, TAIL, RELATION), (HEAD, TAIL, RELATION)),
    View("reversed-triple", (HEAD, TAIL, RELATION), (TAIL, HEAD, RELATION)),
    View("head-anywhere-relation", (EITHER, RELATION), (HEAD, RELATION)),
    View("tail-anywhere-relation", (EITHER, RELATION), (TAIL, RELATION)),
)


class Features(NamedTuple):
    """The features of n queries."""

    table: NDArray[np.float32]
    """(n, F), in the order of `Evidence.names`; NaN where the graph says nothing."""
    slots: Ints
    """(n, SLOTS) codes of the suggested values, -1 where there is none."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A graph of facts, with indexes that are made when the first query asks."""

    train: Graph
    values: Values
    codes: AnyInts
    """(N,) code of the value of each fact."""
    top: Ints
    """(A,) codes of the values whose shares in groups are features."""
    factors: Factors
    """Low-rank factors of these facts."""

    @classmethod
    def of(
        cls,
        train: Graph,
        values: Values | None = None,
        frequent: int | Ints = FREQUENT,
        factors: Factors | None = None,
    ) -> Evidence:
        """Evidence from facts.

        `frequent`: the number of common values whose shares are features, or the codes of these values. `values`: a
        table with the values of all facts, if codes have to mean the same as elsewhere. `factors`: those of these very
        facts, if they have been fitted already.
        """
        values = values or Values.of(train.confidence)
        codes = values.code(train.confidence)
        top = commonest(codes, len(values), frequent) if isinstance(frequent, int) else frequent
        if factors is None:
            facts = _both_ways(train)
            factors = Factors.of(facts, values.code(facts.confidence))
        return cls(train, values, codes, top, factors)

    @cached_property
    def both_ways(self) -> Graph:
        """The facts, those of symmetric relations in both directions: what statistics are made of."""
        return _both_ways(self.train)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(_names(len(self.top)))

    @cached_property
    def typical(self) -> float:
        """The mean confidence of all facts."""
        return float(self.train.confidence.mean())

    @cached_property
    def groups(self) -> tuple[FactGroups, ...]:
        """The groups of each of `VIEWS`; views with the same key share them."""
        train, made = self.both_ways, dict[tuple[int, ...], FactGroups]()
        all_codes = self.codes if train is self.train else self.values.code(train.confidence)
        columns = {HEAD: train.head, RELATION: train.relation, TAIL: train.tail}
        limits = _limits(train)
        for view in VIEWS:
            if view.key in made:
                continue
            if EITHER in view.key:
                by = [np.concatenate([train.head, train.tail]), np.tile(train.relation, 2)]
                codes = np.tile(all_codes, 2)
            else:
                by, codes = [columns[each] for each in view.key], all_codes
            made[view.key] = FactGroups.of(
                by, [limits[each] for each in view.key], codes, self.values, self.top
            )
        return tuple(made[view.key] for view in VIEWS)

    @cached_property
    def pairs(self) -> Pairs:
        train = self.train
        return Pairs.of(
            train.head, train.relation, train.tail, self.codes, train.n_entities, train.n_relations
        )

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours.of(self.both_ways)

    def over(self, part: Graph) -> Evidence:
        """The same features from a part of the facts; the shares are those of the same values."""
        return Evidence.of(part, self.values, self.top)

    @property
    def frequent(self) -> NDArray[np.float64]:
        """The values whose shares are features, as confidences: (A,)."""
        return self.values.low[self.top]

    def grown(self, train: Graph) -> Evidence:
        """The same features from a graph with more facts or other confidences, whose values get new codes."""
        values = Values.of(np.concatenate([train.confidence, self.frequent]))
        return Evidence.of(train, values, values.code(self.frequent).astype(np.int64))

    def features(self, triples: HasTriples) -> Features:
        """The features of queries."""
        columns, n = _columns(triples), len(triples.head)
        table = np.empty((n, len(self.names)), np.float32)
        slots = np.empty((n, SLOTS), np.int64)
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            table[part], slots[part] = self._rows(Columns(*(column[part] for column in columns)))
        return Features(table, slots)

    def _rows(self, columns: Columns) -> Features:
        # first the parts that take the most memory while they are made
        candidates = self.pairs.candidates(*columns)
        around = self.neighbours.features(*columns)
        looked_up = []
        for view, groups in zip(VIEWS, self.groups, strict=True):
            looked_up.append((view, groups, GroupFigures.of(groups, [columns[each] for each in view.ask])))
        code = candidates.code
        value = np.where(code >= 0, self.values.centre[code], np.nan).astype(np.float32)
        blocks = [columns.relation[:, None], (columns.head == columns.tail)[:, None]]
        for view, groups, figures in looked_up:
            blocks.append(groups.statistics(figures, self.typical))
            if view.shares:
                blocks.append(groups.shares(figures))
        blocks += [candidates.distinct[:, None], value, *candidates[1:-1]]
        blocks += [groups.share_of(figures, code) for view, groups, figures in looked_up if view.suggested]
        blocks += [around, self.factors.features(*columns, self.train.n_relations)]
        return Features(np.concatenate(blocks, axis=1, dtype=np.float32, casting="unsafe"), code)


def _both_ways(train: Graph) -> Graph:
    mirrored = train.vocabulary.symmetric[train.relation] & (train.head != train.tail)
    if not mirrored.any():
        return train
    facts = train[mirrored]
    head, tail = np.concatenate([train.head, facts.tail]), np.concatenate([train.tail, facts.head])
    relation = np.concatenate([train.relation, facts.relation])
    confidence = np.concatenate([train.confidence, facts.confidence])
    vocabulary = replace(train.vocabulary, symmetric=np.zeros(train.n_relations, np.bool_))
    return Graph(head, relation, tail, confidence, vocabulary)


def _limits(train: Graph) -> dict[int, int]:
    """How many ids there are in each column that facts are grouped by."""
    entities = train.n_entities
    return {HEAD: entities, RELATION: train.n_relations, TAIL: entities, EITHER: entities}


def _names(frequent: int) -> Iterator[str]:
    """The names of the columns in the order in which `Evidence._rows` puts them together."""
    yield "relation"
    yield "loop"
    for view in VIEWS:
        for statistic in STATISTICS:
            yield f"{view.name}: {statistic}"
        if view.shares:
            for place in range(frequent):
                yield f"{view.name}: share of value {place}"
    yield "suggested: distinct"
    for column in ("value", *Candidates._fields[1:-1]):
        for slot in range(SLOTS):
            yield f"suggested {slot}: {column}"
    for view in VIEWS:
        if view.suggested:
            for slot in range(SLOTS):
                yield f"suggested {slot}: share in {view.name}"
    yield from NEIGHBOUR_NAMES
    yield from FACTOR_NAMES


def _columns(triples: HasTriples) -> Columns:
    return Columns(*(np.asarray(c, np.int64) for c in (triples.head, triples.relation, triples.tail)))


# The neighbourhood of two entities h and t has three kinds of numbers for a query (h, r, t). How closely h and t are
# joined: the neighbours of both are counted, and summed with weights that are larger for neighbours with few neighbours
# (Adamic and Adar). Which confidences the facts on these paths from h over z to t have. And the confidences of facts
# (z, r, t) whose z is like h, and of facts (h, r, z) whose z is like t; entities are alike if they share neighbours.

NEIGHBOUR_NAMES = (
    "neighbours: shared",
    "neighbours: shared, rare ones more",
    "neighbours: shared, of all",
    "neighbours: shared, of the fewer",
    "neighbours: head to tail",
    "neighbours: tail to head",
    "neighbours: from both",
    "neighbours: to both",
    "neighbours: of the head",
    "neighbours: of the tail",
    "between: head's side",
    "between: tail's side",
    "between: product",
    "between: surest way",
    *(
        f"{side}: {what}"
        for side in ("tails beside the tail", "heads beside the head")
        for what in ("count", "mean", "largest", "mean, rare ones more")
    ),
    *(
        f"{side}: {what}"
        for side in ("heads like the head", "tails like the tail")
        for what in ("mean", "likeness", "most alike", "of the most alike")
    ),
)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The facts of each entity, sorted by neighbour and sorted by relation; a fact belongs to both of its entities.

    Loops are left out. `ARRAYS` is the order in which the compiled loops take the arrays.
    """

    ARRAYS: ClassVar = (
        "first", "other", "facts", "sort", "confidence", "starts", "kind", "partner", "value_code", "values", "weight",
    )  # fmt: skip

    first: AnyInts
    """(entities + 1,) where the entries of each entity begin; an entry is an entity and one of its neighbours."""
    other: AnyInts
    """(P,) the neighbour of each entry, ascending within an entity."""
    facts: AnyInts
    """(P + 1,) where the facts of each entry begin."""
    sort: AnyInts
    """(2 N,) twice the relation, and 1 more where the entity is the head, sorted by entry."""
    confidence: AnyInts
    """(2 N,) the place of the confidence among the values, sorted by entry."""
    starts: AnyInts
    """(entities + 1,) where the facts of each entity begin."""
    kind: AnyInts
    """(2 N,) the same numbers as in `sort`, ascending within an entity."""
    partner: AnyInts
    """(2 N,) the other entity, ascending within a kind."""
    value_code: AnyInts
    """(2 N,) the place of the confidence among the values, sorted by kind and partner."""
    values: NDArray[np.float64]
    """(V,) all different confidences, ascending."""
    weight: NDArray[np.float64]
    """(entities,) the weight of each entity as a shared neighbour; smaller if it has more neighbours itself."""

    @classmethod
    def of(cls, train: Graph) -> Neighbours:
        values = distinct(train.confidence)
        value_code = places_among(values, train.confidence, smallest(len(values)))
        head, relation, tail = train.head, train.relation, train.tail
        if train.self_loops:
            apart = head != tail
            head, relation, tail, value_code = head[apart], relation[apart], tail[apart], value_code[apart]
        n, relations = train.n_entities, train.n_relations
        # every fact stands at its head and at its tail
        order = FactOrder.of(
            [(head, tail, relation, 1, value_code), (tail, head, relation, 0, value_code)],
            [n, n, relations, 2, len(values)],
        )
        first, facts = order.runs(1)
        other = order.at(first, facts[:-1]).column(1)
        sort, confidence = order.column(2, 3), order.column(4)
        starts = order.first.astype(position_type(len(order)))
        del order
        order = FactOrder.of(
            [(head, relation, 1, tail, value_code), (tail, relation, 0, head, value_code)],
            [n, relations, 2, n, len(values)],
        )
        by_relation = (order.column(1, 2), order.column(3), order.column(4))
        weight = 1 / np.log1p(np.maximum(np.diff(first), 1))
        return cls(first, other, facts, sort, confidence, starts, *by_relation, values, weight)

    def features(self, head: Ints, relation: Ints, tail: Ints) -> NDArray[np.float32]:
        """Columns of `NEIGHBOUR_NAMES` (n, 30), NaN where the graph says nothing."""
        from unkgcp.evidence import neighbour_kernels as kernels

        table = np.empty((len(head), len(NEIGHBOUR_NAMES)), np.float32)
        queries = [np.ascontiguousarray(ids, np.int64) for ids in (head, relation, tail)]
        index = [getattr(self, name) for name in self.ARRAYS]
        compiled: Any = kernels.neighbours

        def work(rows: slice) -> None:
            compiled(*index, *(ids[rows] for ids in queries), table[rows])

        in_threads(len(table), work, 256)  # rows that are worth a thread
        return table
