"""What the training graph says about a query triple, as a row of numbers.

What it is: for a query (h, r, t), statistics of the confidences of the training facts around it: those of h, of
t, of r, of (h, r), of (r, t), between h and t in either direction, of the same triple, the values that other facts of
the pair suggest, and what the neighbourhood of h and t says (`neighbours`). A training fact gets the row it would get
as a query if it had not been in the graph (`leave_one_out`), exactly, so that a learner sees training facts and queries
alike. What it is not: a model; nothing is fitted, and calibration or test facts never come in.

>>> evidence = Evidence.of(splits.train)                              # doctest: +SKIP
>>> evidence.leave_one_out().table.shape == (len(splits.train), len(evidence.names))     # doctest: +SKIP
>>> evidence.features(splits.test).table                              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.cells import Values
from unkgcp.evidence.neighbours import NAMES, Neighbours
from unkgcp.evidence.pairs import SLOTS, Candidates, Pairs
from unkgcp.evidence.statistics import STATISTICS, Asked, Groups, Ints, commonest
from unkgcp.graph import Graph

FREQUENT = 6  # values whose share in a group is a feature
CHUNK = 1 << 16


class HasTriples(Protocol):
    """Three id columns of one length."""

    @property
    def head(self) -> NDArray[np.int32]: ...
    @property
    def relation(self) -> NDArray[np.int32]: ...
    @property
    def tail(self) -> NDArray[np.int32]: ...


class Columns(NamedTuple):
    """Triples as 64-bit ids, with which keys are made."""

    head: Ints
    relation: Ints
    tail: Ints


@dataclass(frozen=True)
class View:
    """One group of facts around a query: how facts are keyed, how a query asks, what is told of the group."""

    name: str
    key: Callable[[Columns, int], Ints]
    ask: Callable[[Columns, int], Ints]
    shares: bool = False
    believe: bool = False
    """Whether the share of a suggested value in this group is told."""


def _two(first: Ints, second: Ints, base: int) -> Ints:
    return first * base + second


# key of a fact, key of a query; base is larger than every id
VIEWS = (
    View("relation", lambda x, b: x.relation, lambda x, b: x.relation, True, True),
    View("head", lambda x, b: x.head, lambda x, b: x.head, True, True),
    View("tail", lambda x, b: x.tail, lambda x, b: x.tail, True, True),
    View(
        "head-relation",
        lambda x, b: _two(x.head, x.relation, b),
        lambda x, b: _two(x.head, x.relation, b),
        True,
        True,
    ),
    View(
        "relation-tail",
        lambda x, b: _two(x.tail, x.relation, b),
        lambda x, b: _two(x.tail, x.relation, b),
        True,
        True,
    ),
    View("head-as-tail", lambda x, b: x.tail, lambda x, b: x.head, True),
    View("tail-as-head", lambda x, b: x.head, lambda x, b: x.tail, True),
    View(
        "head-as-tail-relation",
        lambda x, b: _two(x.tail, x.relation, b),
        lambda x, b: _two(x.head, x.relation, b),
    ),
    View(
        "tail-as-head-relation",
        lambda x, b: _two(x.head, x.relation, b),
        lambda x, b: _two(x.tail, x.relation, b),
    ),
    View("pair", lambda x, b: _two(x.head, x.tail, b), lambda x, b: _two(x.head, x.tail, b), True),
    View("reversed", lambda x, b: _two(x.head, x.tail, b), lambda x, b: _two(x.tail, x.head, b), True),
    View(
        "triple",
        lambda x, b: _two(_two(x.head, x.tail, b), x.relation, b),
        lambda x, b: _two(_two(x.head, x.tail, b), x.relation, b),
    ),
    View(
        "reversed-triple",
        lambda x, b: _two(_two(x.head, x.tail, b), x.relation, b),
        lambda x, b: _two(_two(x.tail, x.head, b), x.relation, b),
    ),
)


class Features(NamedTuple):
    """Rows for n queries."""

    table: NDArray[np.float32]
    """(n, F), in the order of `Evidence.names`; NaN where there is nothing to tell."""
    slots: Ints
    """(n, SLOTS) codes of the suggested values, -1 where there is none."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The training facts, grouped in every way a query asks for."""

    train: Graph
    values: Values
    codes: Ints
    """(N,) value of each training fact."""
    groups: tuple[Groups, ...]
    pairs: Pairs
    neighbours: Neighbours
    names: tuple[str, ...]

    @classmethod
    def of(cls, train: Graph, values: Values | None = None, frequent: int | Ints = FREQUENT) -> Evidence:
        """Group the facts of the proper training set.

        `frequent`: how many of the commonest values have their shares told, or the codes of these values. `values`: a
        table of values that has those of the facts, if codes are to mean the same elsewhere.
        """
        values = values or Values.of(train.confidence)
        codes = values.code(train.confidence)
        columns, base = _columns(train), _base(train)
        top = commonest(codes, len(values), frequent) if isinstance(frequent, int) else frequent
        # views that key the facts alike share their groups
        made: dict[bytes, Groups] = {}
        groups = []
        for view in VIEWS:
            keys = view.key(columns, base)
            signature = keys.tobytes()
            if signature not in made:
                made[signature] = Groups.of(keys, codes, values, top)
            groups.append(made[signature])
        pairs = Pairs.of(*columns, codes, train.n_entities, train.n_relations)
        return cls(train, values, codes, tuple(groups), pairs, Neighbours.of(train), tuple(_names(len(top))))

    def over(self, part: Graph) -> Evidence:
        """The same columns over a part of the facts: share i is that of the same value, though others lead there."""
        return Evidence.of(part, self.values, self.groups[0].frequent)

    def features(self, triples: HasTriples) -> Features:
        """Rows of queries; their own confidence is not known and not used."""
        columns = _columns(triples)
        return self._chunks(
            len(columns.head), lambda part: self._rows(Columns(*(c[part] for c in columns)), None)
        )

    def leave_one_out(self, rows: Ints | None = None) -> Features:
        """Rows of the training facts, or of some of them, each as if it were not in the graph."""
        rows = np.arange(len(self.train)) if rows is None else rows
        columns = _columns(self.train[rows])
        return self._chunks(
            len(rows), lambda part: self._rows(Columns(*(c[part] for c in columns)), rows[part])
        )

    def _chunks(self, n: int, work: Callable[[slice], Features]) -> Features:
        table = np.empty((n, len(self.names)), np.float32)
        slots = np.empty((n, SLOTS), np.int64)
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            table[part], slots[part] = work(part)
        return Features(table, slots)

    def _rows(self, columns: Columns, rows: Ints | None) -> Features:
        base = _base(self.train)
        asked = {
            view.name: Asked.of(groups, view.ask(columns, base), rows)
            for view, groups in zip(VIEWS, self.groups, strict=True)
        }
        candidates = self.pairs.candidates(*columns, rows)
        parts = [
            columns.relation[:, None],
            (columns.head == columns.tail)[:, None],
            *self._group_parts(asked),
            *self._candidate_parts(candidates, asked, columns.relation),
            self.neighbours.features(*columns, left_out=rows is not None),
        ]
        return Features(np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe"), candidates.code)

    def _group_parts(self, asked: dict[str, Asked]) -> Iterator[NDArray[np.float32]]:
        for view, groups in zip(VIEWS, self.groups, strict=True):
            yield groups.statistics(asked[view.name])
            if view.shares:
                yield groups.shares(asked[view.name])

    def _candidate_parts(
        self, candidates: Candidates, asked: dict[str, Asked], relation: Ints
    ) -> Iterator[NDArray[np.float32]]:
        code = candidates.code
        yield candidates.distinct[:, None]
        value = np.where(code >= 0, self.values.centre[code], np.nan)
        yield value.astype(np.float32)
        yield from candidates[1:-1]
        for view, groups in zip(VIEWS, self.groups, strict=True):
            if view.believe:
                yield groups.share_of(asked[view.name], code)


def _names(frequent: int) -> Iterator[str]:
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
        if view.believe:
            for slot in range(SLOTS):
                yield f"suggested {slot}: share in {view.name}"
    yield from NAMES


def _columns(triples: HasTriples) -> Columns:
    return Columns(*(np.asarray(c, np.int64) for c in (triples.head, triples.relation, triples.tail)))


def _base(train: Graph) -> int:
    return max(train.n_entities, train.n_relations) + 1
