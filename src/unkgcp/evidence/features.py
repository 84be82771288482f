"""What the training graph says about a query triple, as a row of numbers.

For a query (h, r, t) these are statistics of the confidences of the training facts around it: those of h, of
t, of r, of (h, r), of (r, t), between h and t in either direction, of the same triple, the values that other facts of
the pair suggest, and what the neighbourhood of h and t says (`neighbours`). A training fact gets the row it would get
as a query if it had not been in the graph (`leave_one_out`), exactly, so that a learner sees training facts and queries
alike. Nothing is fitted here, and calibration or test facts never come in.

>>> evidence = Evidence.of(splits.train)                              # doctest: +SKIP
>>> evidence.leave_one_out().table.shape == (len(splits.train), len(evidence.names))     # doctest: +SKIP
>>> evidence.features(splits.test).table                              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.fact_groups import STATISTICS, AnyInts, Asked, Groups, Ints, Values, commonest
from unkgcp.evidence.neighbours import NAMES, Neighbours
from unkgcp.evidence.pairs import SLOTS, Candidates, Pairs
from unkgcp.graph.facts import Graph, HasTriples
from unkgcp.progress import Progress

FREQUENT = 6  # values whose share in a group is a feature
CHUNK = 1 << 14


class Columns(NamedTuple):
    """Triples as ids."""

    head: NDArray[Any]
    relation: NDArray[Any]
    tail: NDArray[Any]


HEAD, RELATION, TAIL = range(3)


@dataclass(frozen=True)
class View:
    """One group of facts around a query: how facts are keyed, how a query asks, what is told of the group."""

    name: str
    key: tuple[int, ...]
    """The columns that facts are grouped by."""
    ask: tuple[int, ...]
    """The columns of a query that must equal them."""
    shares: bool = False
    """Whether the shares of frequent values in this group are told."""
    suggested: bool = False
    """Whether the shares of the suggested values in this group are told."""

    @property
    def grouped(self) -> str:
        """A name of the way in which facts are keyed, which views may share."""
        return "groups-" + "-".join(map(str, self.key))


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
)


class Features(NamedTuple):
    """Rows for n queries."""

    table: NDArray[np.float32]
    """(n, F), in the order of `Evidence.names`; NaN where there is nothing to tell."""
    slots: Ints
    """(n, SLOTS) codes of the suggested values, -1 where there is none."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The training facts, grouped in every way a query asks for when the first one asks."""

    train: Graph
    values: Values
    codes: AnyInts
    """(N,) value of each training fact."""
    top: Ints
    """(A,) codes of the values whose shares are told."""

    @classmethod
    def of(cls, train: Graph, values: Values | None = None, frequent: int | Ints = FREQUENT) -> Evidence:
        """Group the facts of the proper training set.

        `frequent`: how many of the commonest values have their shares told, or the codes of these values. `values`: a
        table of values that has those of the facts, if codes are to mean the same elsewhere.
        """
        values = values or Values.of(train.confidence)
        codes = values.code(train.confidence)
        top = commonest(codes, len(values), frequent) if isinstance(frequent, int) else frequent
        return cls(train, values, codes, top)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the columns of features tell."""
        return tuple(_names(len(self.top)))

    @cached_property
    def groups(self) -> tuple[Groups, ...]:
        """The facts in the groups of each of `VIEWS`; views that key the facts alike share their groups."""
        train, made = self.train, dict[tuple[int, ...], Groups]()
        columns, limits = self._own(), (train.n_entities, train.n_relations, train.n_entities)
        for view in VIEWS:
            if view.key not in made:
                by, sizes = [columns[each] for each in view.key], [limits[each] for each in view.key]
                made[view.key] = Groups.of(by, sizes, self.codes, self.values, self.top)
        return tuple(made[view.key] for view in VIEWS)

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs.of(*self._own(), self.codes, self.train.n_entities, self.train.n_relations)

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours.of(self.train)

    def _own(self) -> Columns:
        """The training facts in the types they are held in, which take less memory than those of queries."""
        return Columns(self.train.head, self.train.relation, self.train.tail)

    def index(self) -> dict[str, NDArray[Any]]:
        """Pairs, neighbours and groups as plain arrays, which other processes can use as theirs (`use_index`)."""
        found = {f"pairs.{name}": getattr(self.pairs, name) for name in Pairs.ARRAYS}
        found |= {f"neighbours.{name}": getattr(self.neighbours, name) for name in Neighbours.ARRAYS}
        for view, groups in zip(VIEWS, self.groups, strict=True):
            found |= {f"{view.grouped}.{name}": getattr(groups, name) for name in Groups.ARRAYS}
        return found

    def use_index(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take what `index` gave of the same facts, instead of making it again; arrays may be mapped from files."""

        def under(name: str, kind: type[Pairs | Neighbours | Groups]) -> dict[str, Any]:
            return {array: arrays[f"{name}.{array}"] for array in kind.ARRAYS}

        limits = (self.train.n_entities, self.train.n_relations, self.train.n_entities)
        made = {
            view.key: Groups(
                self.values,
                self.top,
                tuple(limits[each] for each in view.key),
                **under(view.grouped, Groups),
            )
            for view in VIEWS
        }
        vars(self).update(
            pairs=Pairs(self.train.n_relations, **under("pairs", Pairs)),
            neighbours=Neighbours(**under("neighbours", Neighbours)),
            groups=tuple(made[view.key] for view in VIEWS),
        )

    def over(self, part: Graph) -> Evidence:
        """The same columns over a part of the facts: share i stays that of the same value."""
        return Evidence.of(part, self.values, self.top)

    @property
    def frequent(self) -> NDArray[np.float64]:
        """The values whose shares are told, each as a confidence of the facts: (A,)."""
        return self.values.low[self.top]

    def grown(self, train: Graph) -> Evidence:
        """The same columns over a graph with more facts or other confidences; the values of both are known there."""
        values = Values.of(np.concatenate([train.confidence, self.frequent]))
        return Evidence.of(train, values, values.code(self.frequent).astype(np.int64))

    def features(self, triples: HasTriples) -> Features:
        """Rows of queries; their own confidence is not known and not used."""
        return self._features(triples, None)

    def leave_one_out(self, rows: Ints | None = None, progress: Progress | None = None) -> Features:
        """Rows of the training facts, or of some of them, each as if it were not in the graph."""
        rows = np.arange(len(self.train)) if rows is None else rows
        return self._features(self.train[rows], rows, progress)

    def _features(self, triples: HasTriples, rows: Ints | None, progress: Progress | None = None) -> Features:
        columns, n = _columns(triples), len(triples.head)
        table = np.empty((n, len(self.names)), np.float32)
        slots = np.empty((n, SLOTS), np.int64)
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            own = None if rows is None else rows[part]
            table[part], slots[part] = self._rows(Columns(*(column[part] for column in columns)), own)
            if progress is not None:
                progress.update(part.stop, f"{part.stop:,} facts asked")
        return Features(table, slots)

    def _rows(self, columns: Columns, rows: Ints | None) -> Features:
        own = None if rows is None else self.codes[rows].astype(np.int64)
        # first what takes the most memory while it is made
        candidates = self.pairs.candidates(*columns, own)
        beside = self.neighbours.features(*columns, left_out=rows is not None)
        asked = {}
        for view, groups in zip(VIEWS, self.groups, strict=True):
            wanted = [columns[each] for each in view.ask]
            asked[view.name] = Asked.of(groups, wanted, _left_out(view, columns, own))
        parts = [
            columns.relation[:, None],
            (columns.head == columns.tail)[:, None],
            *self._group_parts(asked),
            *self._candidate_parts(candidates, asked, columns.relation),
            beside,
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
            if view.suggested:
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
        if view.suggested:
            for slot in range(SLOTS):
                yield f"suggested {slot}: share in {view.name}"
    yield from NAMES


def _columns(triples: HasTriples) -> Columns:
    return Columns(*(np.asarray(c, np.int64) for c in (triples.head, triples.relation, triples.tail)))


def _left_out(view: View, columns: Columns, own: Ints | None) -> Ints | None:
    """The value of each fact that asks, where it is itself in the group that it asks for, and -1 elsewhere: (n,).

    A fact may ask for other ids than those under which it is grouped: the facts whose tail is its head contain the
    fact itself only if it is a loop.
    """
    if own is None:
        return None
    inside = np.ones(len(own), bool)
    for grouped, asked in zip(view.key, view.ask, strict=True):
        inside &= columns[grouped] == columns[asked]
    return np.where(inside, own, -1)
