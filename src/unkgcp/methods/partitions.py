"""Partitions: ways to put triples into groups, in each of which the promise holds.

The kind of a query (`unkgcp.graph.kinds`: known pair, new pair, new entity, new relation) always counts: a query is
compared with calibration facts of its own kind alone. Within each kind there may be groups:

- `relation`: large relations are a group each, small ones share one with relations like them;
- `doubt`: by how unsure the method itself is of a triple (`IntervalPredictor.doubt`);
- `degree`: by how many training facts the head and the tail of a triple stand in, the smaller number of the two.

All groups are made from training facts and the number of calibration facts of each kind, never from calibration labels:
calibration facts only fill the groups. With several partitions the promise holds in every group of each of them
(`unkgcp.conformal.ranking`). `Partitioned` is the base of methods that promise their level within groups.

>>> partition_names("relation, doubt"), partition_names("none"), partition_names(None, ("doubt",))
(('doubt', 'relation'), (), ('doubt',))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import GroupRankings, group_codes, largest
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.conformal.storage import from_arrays
from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import HasTriples
from unkgcp.graph.kinds import KINDS, joined_by_and
from unkgcp.graph.known_facts import degree_of, degrees
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor

NAMES = ("doubt", "relation", "degree")
NONE, KIND = "none", "kind"
Codes = NDArray[np.int32]

LEAST = 150
"""The least expected number of calibration facts of a group by doubt or degree; fewer would make thresholds noise."""
PARTS = 12
"""The facts of a kind are divided into about so many groups by doubt or degree, if there are enough of them."""
OWN = 100
"""The least expected number of calibration facts of a relation with its own threshold."""
SHARED = 150
"""Calibration facts that a group of small relations should have together."""
PRIOR = 20  # training facts of the average relation that are added to those of each relation


def partition_names(per: str | None, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The partitions that a text like `doubt,relation` or `none` asks for; `default` if it is None."""
    if per is None:
        return default
    names = [name.strip() for name in str(per).split(",")]
    if names == [NONE]:
        return ()
    for name in names:
        if name not in NAMES:
            raise InputError(
                f"a promise per {name!r} is not on offer; choose {', '.join(NAMES)}, several of them separated by "
                f"commas, or {NONE} alone"
            )
        if names.count(name) > 1:
            raise InputError(f"a promise per {name} is asked for twice in {per!r}; leave one out")
    return tuple(name for name in NAMES if name in names)


class Groups(ABC):
    """One partition: the group of every triple, fixed before calibration. No group has triples of two kinds."""

    name: ClassVar[str]
    within: ClassVar[str]
    """Where the promise holds, in words."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many groups there are."""

    @abstractmethod
    def codes(self, triples: HasTriples, kind: NDArray[np.int8], doubt: Floats | None) -> Codes:
        """The group of each triple, from 0 to `count` - 1, or -1: (n,). `doubt` (n,) is needed by groups of it."""

    @abstractmethod
    def of_kinds(self, kinds: NDArray[np.intp]) -> Codes:
        """All groups of some kinds: (g,)."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The partition as plain arrays, whose names begin with its own."""


class KindGroups(Groups):
    """Every kind is one group."""

    name = KIND
    within = "each kind of question"
    count = len(KINDS)

    def codes(self, triples: HasTriples, kind: NDArray[np.int8], doubt: Floats | None) -> Codes:
        return kind.astype(np.int32)

    def of_kinds(self, kinds: NDArray[np.intp]) -> Codes:
        return kinds.astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}


@dataclass(frozen=True, eq=False)
class EdgeGroups(Groups):
    """Groups of facts with about the same figure, by which a subclass says what counts.

    edges: (kinds, E), upwards, filled up with infinity. A triple's group is how many edges of its kind its figure
    reaches.
    """

    edges: Floats

    @property
    def count(self) -> int:
        return self.edges.size + len(self.edges)

    def of_kinds(self, kinds: NDArray[np.intp]) -> Codes:
        first = kinds * (self.edges.shape[1] + 1)
        reachable = np.isfinite(self.edges[kinds]).sum(axis=1) + 1
        groups = [start + np.arange(size) for start, size in zip(first, reachable, strict=True)]
        return np.concatenate(groups).astype(np.int32)

    def _reached(self, kind: NDArray[np.int8], figure: Floats) -> Codes:
        """The group of each triple, from its kind and its figure: (n,)."""
        code: Codes = kind.astype(np.int32) * (self.edges.shape[1] + 1)
        for column in self.edges.T:
            code += figure >= column[kind]
        return code


class DoubtGroups(EdgeGroups):
    """By how unsure the method is of each triple."""

    name = "doubt"
    within = "each group of facts that the method doubts alike"

    def codes(self, triples: HasTriples, kind: NDArray[np.int8], doubt: Floats | None) -> Codes:
        assert doubt is not None
        return self._reached(kind, doubt)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"doubt_edges": self.edges}


@dataclass(frozen=True, eq=False)
class DegreeGroups(EdgeGroups):
    """By how many training facts there are about the entities of each triple; facts: (entities,) int64, of each."""

    name = "degree"
    within = "each group of facts about entities with about as many training facts"

    facts: NDArray[np.int64]

    def codes(self, triples: HasTriples, kind: NDArray[np.int8], doubt: Floats | None) -> Codes:
        return self._reached(kind, degree_of(triples, self.facts).astype(np.float64))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"degree_facts": self.facts, "degree_edges": self.edges}


def group_doubt(doubt: Floats, kind: NDArray[np.int8], calibration: NDArray[np.int64]) -> DoubtGroups:
    """Groups for so many calibration facts of each kind, from doubt and kind of training facts asked as queries."""
    return DoubtGroups(_edges(doubt, kind, calibration))


def group_degrees(
    train: HasTriples, entities: int, kind: NDArray[np.int8], calibration: NDArray[np.int64]
) -> DegreeGroups:
    """Groups for so many calibration facts of each kind. kind: (N,) those of the training facts, asked as queries."""
    facts = degrees(train, entities)
    return DegreeGroups(_edges((degree_of(train, facts) - 1).astype(np.float64), kind, calibration), facts)


def _edges(figure: Floats, kind: NDArray[np.int8], calibration: NDArray[np.int64]) -> Floats:
    """Figures at which groups end, so that each expects its share of the calibration facts of its kind: (kinds, E)."""
    by_kind = []
    for code, expected in enumerate(calibration.tolist()):
        figures = np.sort(figure[kind == code])
        if not len(figures):  # no training fact was asked like that: those of all kinds show what to expect
            figures = np.sort(figure)
        by_kind.append(_edges_of_kind(figures, expected) if len(figures) else [])
    longest = max(map(len, by_kind), default=0)
    edges = np.full((len(by_kind), longest), np.inf)
    for row, own_edges in zip(edges, by_kind, strict=True):
        row[: len(own_edges)] = own_edges
    return edges


def _edges_of_kind(figure: Floats, expected: int) -> list[float]:
    """The edges of one kind, from sorted figures (n,).

    The figures that many facts share (single values, whose width is 0) do not count when the size of groups is chosen,
    and a group ends between different figures.
    """
    n = len(figure)
    value, first, count = np.unique(figure, return_index=True, return_counts=True)
    loose = int(count[count < n / PARTS].sum())
    size = max(LEAST * n / max(expected, 1), loose / PARTS, 1.0)
    edges: list[float] = []
    end = n
    for place in range(len(value) - 1, 0, -1):  # from the most doubtful facts on
        start = int(first[place])
        if end - start >= size and start >= size:
            edges.append(float(value[place - 1] + value[place]) / 2)
            end = start
    return edges[::-1]


@dataclass(frozen=True, eq=False)
class RelationGroups(Groups):
    """code: (kinds, relations + 1) int32, the group of each relation in each kind, last that of unknown relations.

    has_own_group: (kinds, relations + 1) bool, whether a relation is alone in its group.
    """

    name = "relation"
    within = "each relation or group of small ones"

    code: Codes
    has_own_group: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return int(self.code.max(initial=-1)) + 1

    def codes(self, triples: HasTriples, kind: NDArray[np.int8], doubt: Floats | None) -> Codes:
        return np.asarray(self.code[kind, self.place(triples.relation)])

    def of(self, relation: NDArray[np.integer[Any]]) -> Codes:
        """The group of each relation id among queries of the first kind: (n,)."""
        return np.asarray(self.code[0, self.place(relation)])

    def basis(
        self, relation: NDArray[np.integer[Any]], size: NDArray[np.int64], kind: NDArray[np.int8] | int = 0
    ) -> NDArray[np.int8]:
        """Position in `BASES` of each query, given how many calibration facts its group has: (n,)."""
        alone = self.has_own_group[kind, self.place(relation)]
        return np.where(size == 0, 2, np.where(alone, 0, 1)).astype(np.int8)

    def of_kinds(self, kinds: NDArray[np.intp]) -> Codes:
        groups: Codes = np.unique(self.code[kinds])
        return groups[groups >= 0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"relation_groups": self.code, "relation_own": self.has_own_group}

    def place(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """The column of each relation id: (n,)."""
        unknown = self.code.shape[1] - 1
        return np.where((relation >= 0) & (relation < unknown), relation, unknown)


def group_relations(
    relation: NDArray[np.integer[Any]],
    score: NDArray[np.floating[Any]],
    relations: int,
    calibration: NDArray[np.int64],
    count: NDArray[np.integer[Any]] | None = None,
) -> RelationGroups:
    """Groups for so many calibration facts of each kind, from relation and nonconformity of training facts, (n,) each.

    Small relations are put together with others that are as strange to the model. The strangeness of a relation is the
    mean rank of the scores of its training facts; ranks keep a few enormous scores from deciding. `count`: how many
    training facts each relation has, (relations,), where only some of them were scored.
    """
    size, scored = len(relation), np.bincount(relation, minlength=relations)
    count = scored if count is None else count
    strangeness = np.empty(size)
    strangeness[np.argsort(score, kind="stable")] = (np.arange(size) + 0.5) / max(size, 1)
    total = np.bincount(relation, weights=strangeness, minlength=relations)
    typical = (total + 0.5 * PRIOR) / (scored + PRIOR)
    codes, alone, offset = [], [], 0
    for expected in calibration.tolist():
        code = _grouped(count * (expected / max(int(count.sum()), 1)), count > 0, typical)
        last, seen = int(code.max(initial=0)), code >= 0
        single = np.bincount(code[seen], minlength=last + 1) == 1
        alone.append(np.append(single[code] & seen, False))
        codes.append(np.append(np.where(seen, code, last), last) + offset)
        offset += last + 1
    return RelationGroups(np.stack(codes).astype(np.int32), np.stack(alone))


def _grouped(expected: Floats, seen: NDArray[np.bool_], typical: Floats) -> NDArray[np.int64]:
    """The group of each relation in one kind, given how many of its calibration facts to expect; -1 if not seen."""
    large = expected >= OWN
    code = np.full(len(expected), -1, np.int64)
    code[large] = np.arange(large.sum())
    small = np.flatnonzero(~large & seen)
    small = small[np.argsort(typical[small], kind="stable")]
    pools = max(1, int(expected[small].sum() // SHARED))
    middle = np.cumsum(expected[small]) - expected[small] / 2
    code[small] = large.sum() + np.minimum(middle * pools // max(expected[small].sum(), 1e-9), pools - 1)
    return code


def each_relation(relations: int) -> RelationGroups:
    """A group for every relation, where there are no training facts by which to compare relations."""
    code = np.tile(np.append(np.arange(relations, dtype=np.int32), np.int32(-1)), (len(KINDS), 1))
    return RelationGroups(code, code >= 0)


FIELDS = {
    "relation": (
        Field("relation_groups", np.int32, ("kinds", "relations+1")),
        Field("relation_own", np.bool_, ("kinds", "relations+1")),
    ),
    "doubt": (Field("doubt_edges", np.float64, ("kinds", "edges"), finite=False),),
    "degree": (
        Field("degree_edges", np.float64, ("kinds", "edges"), finite=False),
        Field("degree_facts", np.int64, ("entities",)),
    ),
}
"""What each partition stores."""


def restored(name: str, arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> Groups:
    """The partition of this name from what its `arrays` gave; ValueError if they do not fit."""
    if name == KIND:
        return KindGroups()
    stored = {field.name: arrays[field.name] for field in FIELDS[name] if field.name in arrays}
    check_fields(stored, FIELDS[name], kinds=len(KINDS), entities=entities, relations=relations)
    if name == "relation":
        return RelationGroups(*stored.values())
    edges, *facts = stored.values()
    if np.isnan(edges).any() or not (edges[:, 1:] >= edges[:, :-1]).all():
        raise ValueError(f"the edges of the groups by {name} are damaged")
    return DegreeGroups(edges, *facts) if facts else DoubtGroups(edges)


class Partitioned(IntervalPredictor):
    """An interval method with thresholds for each kind of question and for every group of facts within it.

    `per` names the partitions into groups, separated by commas, or says `none`. A query is answered by the largest
    threshold of its groups, so that the promise holds in each of them; a group that in the end has too few calibration
    facts for a level gets the whole range. Groups come from training facts alone. Without `by_kind`, as the paper does
    it, queries about known entities and relations are one kind, and others are not answered.
    """

    takes_groups: bool = True
    default_per: tuple[str, ...] = ()
    """The partitions if none are named."""
    partitions: tuple[Groups, ...] = ()
    rankings: GroupRankings
    """The calibration scores in order, in the groups of each partition."""

    def __init__(self, per: str | None = None, by_kind: bool = True) -> None:
        self.per = partition_names(per, self.default_per)
        self.by_kind = bool(by_kind)

    @abstractmethod
    def _group(self, name: str) -> Groups:
        """The partition of this name, made from training facts and the number of calibration facts."""

    def _partition_names(self) -> tuple[str, ...]:
        """What calibration facts are grouped by: by their kind alone if no groups within kinds were asked for."""
        return self.per or ((KIND,) if self.tells_kinds else ())

    def options(self) -> dict[str, Any]:
        per = {"per": ",".join(self.per) or NONE} if self.per or self.default_per else {}
        return per if self.by_kind else {**per, "by_kind": False}

    @property
    def within(self) -> str:
        kinds = [KindGroups.within] if self.tells_kinds else []
        others = [groups.within for groups in self.partitions if groups.name != KIND]
        return " and ".join(f"within {where}" for where in kinds + others)

    @property
    def relation_groups(self) -> RelationGroups | None:
        """The groups by relation, if it promises per relation."""
        return next((groups for groups in self.partitions if isinstance(groups, RelationGroups)), None)

    def group_columns(
        self, triples: HasTriples, doubt: Floats | None = None
    ) -> dict[str, NDArray[np.int32]] | None:
        """The group of each triple, (n,), in every partition; None if there are none.

        doubt: (n,), what `doubt` says of the triples, where that is known already.
        """
        if not self.partitions:
            return None
        if doubt is None and "doubt" in self.per:
            doubt = self.doubt(triples)
        kind = self.kinds(triples)
        return {groups.name: groups.codes(triples, kind, doubt) for groups in self.partitions}

    def _thresholds(self, tables: Sequence[Floats], triples: HasTriples, doubt: Floats | None) -> Floats:
        """The largest threshold of each triple's groups at each level: (n, levels).

        tables: for each partition the thresholds of its groups, as `GroupRankings.tables` gives them.
        """
        columns = self.group_columns(triples, doubt) or {}
        rows = largest(tables, self.rankings.segments(columns))
        return np.stack([np.broadcast_to(row, len(triples.head)) for row in rows], axis=1)

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> NDArray[np.int64] | None:
        """The size of the largest group of each triple: the thresholds of the others can only add to coverage."""
        columns = self.group_columns(triples, doubt)
        if columns is None:
            return np.full(len(triples.head), self.size)
        sizes = np.stack([self._sizes(name, codes) for name, codes in columns.items()])
        return np.asarray(sizes.max(axis=0))

    def _sizes(self, name: str, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """How many calibration facts groups of a partition have: (n,)."""
        partition = self.rankings.partitions[name]
        assert partition.groups is not None
        # a group without facts has the code -1, the place of the last segment, which is empty
        return partition.ranking.sizes[group_codes(partition.groups, codes)]

    def _basis(self, triples: HasTriples) -> NDArray[np.int8] | None:
        """Position in `BASES` of each triple: (n,); None unless it promises per relation."""
        groups = self.relation_groups
        if groups is None:
            return None
        kind = self.kinds(triples)
        return groups.basis(
            triples.relation, self._sizes("relation", groups.codes(triples, kind, None)), kind
        )

    def ranked_level(self, level: Fraction) -> Fraction:
        """The level at which scores are ranked so that intervals hold at this one."""
        return level

    def _too_few(self, count: int, level: Fraction) -> bool:
        """Whether so many calibration facts give the whole range at this level."""
        return rank(self.ranked_level(level), count) > count

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1:
            return None
        if self._too_few(self.size, level):
            return (
                f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
                "every interval is the whole range"
            )
        cautions = list(self._kind_cautions(level)) if self.tells_kinds else []
        for groups in self.partitions:
            cautions += self._group_cautions(groups, level)
        return "; ".join(cautions) or None

    def _kind_cautions(self, level: Fraction) -> Iterator[str]:
        """Which kinds of questions have too few calibration facts for the level."""
        few = [
            f"{count:,} about a {name}"
            for name, count in zip(KINDS, self.kind_counts.tolist(), strict=True)
            if count and self._too_few(count, level)
        ]
        if few:
            yield (
                f"calibration facts: {joined_by_and(few)}, too few for confidence {float(level)}: "
                "such questions get the whole range"
            )

    def _group_cautions(self, groups: Groups, level: Fraction) -> Iterator[str]:
        """How many groups have too few calibration facts for the level, though their kind has enough."""
        if groups.name == KIND:
            return
        sizes = self._sizes(groups.name, groups.of_kinds(np.flatnonzero(self.kind_counts)))
        if wide := sum(self._too_few(size, level) for size in sizes.tolist()):
            yield (
                f"{wide:,} of {len(sizes):,} groups by {groups.name} have too few calibration facts for confidence "
                f"{float(level)}: their intervals are the whole range"
            )

    def _group_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: array for groups in self.partitions for name, array in groups.arrays().items()}

    def _restored_groups(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Groups, ...]:
        """The partitions from what `_group_arrays` gave; ValueError if they do not fit."""
        shape = len(self.model.seen_entities), len(self.model.seen_relations)
        return tuple(restored(name, arrays, *shape) for name in self._partition_names())

    def _restored_rankings(self, arrays: Mapping[str, NDArray[Any]]) -> GroupRankings:
        """What `storage.to_arrays` made of rankings of its calibration facts; ValueError if they are not in order."""
        return self._checked(from_arrays(self._partition_names() or ("",), arrays))

    def _checked(self, rankings: GroupRankings) -> GroupRankings:
        """ValueError unless all its calibration facts are ranked in the groups of its partitions."""
        codes = {name: part.groups for name, part in rankings.partitions.items()}
        count = {groups.name: groups.count for groups in self.partitions}
        if len(rankings.scores) != self.size or rankings.weighted:
            raise ValueError("the scores belong to other facts or make another promise than the method")
        if codes.keys() != (count.keys() or {""}) or any(
            (groups is None) == bool(count) for groups in codes.values()
        ):
            raise ValueError("the calibration facts are in other groups than those of the method")
        for name, groups in codes.items():
            if groups is not None and (
                groups.dtype != np.int32 or not ((groups >= 0) & (groups < count[name])).all()
            ):
                raise ValueError(f"the groups by {name} of the calibration facts are damaged")
        return rankings
