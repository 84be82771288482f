"""Partitions: ways to put known triples into groups, in each of which the promise holds.

- `relation`: large relations are a group each, small ones share one with relations like them;
- `doubt`: by how unsure the method itself is of a triple (`IntervalPredictor.doubt`), from nearly sure to clueless;
- `degree`: by how many training facts the head and the tail of a triple stand in, the smaller number of the two.

All groups are made from training facts and the number of calibration facts to come, never from calibration labels:
calibration facts only fill the groups. With several partitions the promise holds in every group of each of them
(`unkgcp.conformal.ranking`). `Partitioned` is the base of methods that promise their level within groups.

>>> partition_names("relation, doubt"), partition_names("none"), partition_names(None, ("doubt",))
(('doubt', 'relation'), (), ('doubt',))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import GroupRankings, group_codes
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.errors import InputError
from unkgcp.graph.facts import HasTriples
from unkgcp.graph.known_facts import degree_of, degrees
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor

NAMES = ("doubt", "relation", "degree")
NONE = "none"

EDGES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Doubts at which groups by doubt end. Groups of equal size would put doubts of 0.3 together with those of nearly sure
facts, which are the most, and cover the former far below the level."""
FIFTHS = 5
"""Groups by degree."""
LEAST = 100
"""The least expected number of calibration facts of a group by doubt or by degree."""
OWN = 35
"""The least expected number of calibration facts of a relation with its own threshold; 19 suffice for 95 %."""
SHARED = 60
"""Calibration facts that a group of small relations should have together."""
_PRIOR = 20  # training facts of the average relation that are added to those of each relation


def partition_names(per: str | None, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The partitions that a text like `doubt,relation` or `none` asks for; `default` if it is None."""
    if per is None:
        return default
    asked = [name.strip() for name in str(per).split(",")]
    if asked == [NONE]:
        return ()
    for name in asked:
        if name not in NAMES:
            raise InputError(
                f"a promise per {name!r} is not on offer; choose {', '.join(NAMES)}, several of them separated by "
                f"commas, or {NONE} alone"
            )
        if asked.count(name) > 1:
            raise InputError(f"a promise per {name} is asked for twice in {per!r}; leave one out")
    return tuple(name for name in NAMES if name in asked)


class Groups(ABC):
    """One partition: the group of every known triple, fixed before calibration."""

    name: ClassVar[str]
    within: ClassVar[str]
    """Where the promise holds, in words."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many groups there are."""

    @abstractmethod
    def codes(self, triples: HasTriples, doubt: Floats | None) -> NDArray[np.int32]:
        """The group of each triple, from 0 to `count` - 1: (n,). `doubt` (n,) is needed by groups of it."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The partition as plain arrays, whose names begin with its own."""


@dataclass(frozen=True, eq=False)
class DoubtGroups(Groups):
    """edges: (groups - 1,), upwards. The number of a triple's group is how many edges its doubt reaches."""

    name = "doubt"
    within = "each group of facts that the method doubts alike"

    edges: Floats

    @property
    def count(self) -> int:
        return len(self.edges) + 1

    def codes(self, triples: HasTriples, doubt: Floats | None) -> NDArray[np.int32]:
        assert doubt is not None
        return np.searchsorted(self.edges, doubt, side="right").astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"doubt_edges": self.edges}


def group_doubt(doubt: Floats, calibration: int) -> DoubtGroups:
    """Groups for `calibration` facts, from the doubt (n,) of training facts asked as queries."""
    cells = DoubtGroups(np.array(EDGES))
    found = np.bincount(np.searchsorted(cells.edges, doubt, side="right"), minlength=cells.count)
    return DoubtGroups(_joined(cells.edges, found, calibration))


@dataclass(frozen=True, eq=False)
class DegreeGroups(Groups):
    """facts: (entities,) int64, in how many training facts each entity is. edges: (groups - 1,) int64, upwards."""

    name = "degree"
    within = "each group of facts about entities with about as many training facts"

    facts: NDArray[np.int64]
    edges: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.edges) + 1

    def codes(self, triples: HasTriples, doubt: Floats | None) -> NDArray[np.int32]:
        return np.searchsorted(self.edges, degree_of(triples, self.facts), side="right").astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"degree_facts": self.facts, "degree_edges": self.edges}


def group_degrees(train: HasTriples, entities: int, calibration: int) -> DegreeGroups:
    """Groups for `calibration` facts: fifths of the training facts, each asked as if it were not in the graph."""
    facts = degrees(train, entities)
    degree = np.sort(degree_of(train, facts) - 1)
    places = [len(degree) * fifth // FIFTHS for fifth in range(1, FIFTHS)]
    edges = np.unique(degree[places]) if len(degree) else degree
    found = np.bincount(np.searchsorted(edges, degree, side="right"), minlength=len(edges) + 1)
    return DegreeGroups(facts, _joined(edges, found, calibration).astype(np.int64))


def _joined(edges: NDArray[Any], found: NDArray[np.int64], calibration: int) -> NDArray[Any]:
    """The edges that are left when neighbours are joined until each expects `LEAST` of the calibration facts.

    found: (edges + 1,) training facts of each group.
    """
    left, counts = edges.tolist(), found.tolist()
    needed = max(LEAST * sum(counts) / max(calibration, 1), 1)
    while len(counts) > 1 and min(counts) < needed:
        place = counts.index(min(counts))
        # the smallest group is joined with its smaller neighbour
        before = place > 0 and (place == len(counts) - 1 or counts[place - 1] <= counts[place + 1])
        first = place - 1 if before else place
        counts[first : first + 2] = [counts[first] + counts[first + 1]]
        del left[first]
    return np.array(left, edges.dtype)


@dataclass(frozen=True, eq=False)
class RelationGroups(Groups):
    """code: (relations,) int32, the group of each relation, -1 for one without training facts.

    own: (relations,) bool, whether a relation is alone in its group.
    """

    name = "relation"
    within = "each relation or group of small ones"

    code: NDArray[np.int32]
    own: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return int(self.code.max(initial=-1)) + 1

    def codes(self, triples: HasTriples, doubt: Floats | None) -> NDArray[np.int32]:
        return self.of(triples.relation)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"relation_groups": self.code, "relation_own": self.own}

    def of(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """The group of each relation id: (n,); -1 beyond the known ones."""
        found: NDArray[np.int32] = np.append(self.code, np.int32(-1))[np.clip(relation, -1, len(self.code))]
        return found

    def basis(self, relation: NDArray[np.integer[Any]], size: NDArray[np.int64]) -> NDArray[np.int8]:
        """Position in `BASES` of each query, given how many calibration facts its group has: (n,)."""
        alone = np.append(self.own, False)[np.clip(relation, -1, len(self.own))]
        return np.where(size == 0, 2, np.where(alone, 0, 1)).astype(np.int8)


def group_relations(
    relation: NDArray[np.integer[Any]],
    score: NDArray[np.floating[Any]],
    relations: int,
    calibration: int,
    count: NDArray[np.integer[Any]] | None = None,
) -> RelationGroups:
    """Groups for `calibration` facts, from the relation and the nonconformity of training facts, (n,) each.

    Small relations are put together with others that are as strange to the model. The strangeness of a relation is the
    mean rank of the scores of its training facts; ranks keep a few enormous scores from deciding. `count`: how many
    training facts each relation has, (relations,), where only some of them were scored.
    """
    size, scored = len(relation), np.bincount(relation, minlength=relations)
    count = scored if count is None else count
    expected = count * (calibration / max(int(count.sum()), 1))
    strangeness = np.empty(size)
    strangeness[np.argsort(score, kind="stable")] = (np.arange(size) + 0.5) / max(size, 1)
    total = np.bincount(relation, weights=strangeness, minlength=relations)
    typical = (total + 0.5 * _PRIOR) / (scored + _PRIOR)
    own = expected >= OWN
    code = np.full(relations, -1, np.int32)
    code[own] = np.arange(own.sum())
    small = np.flatnonzero(~own & (count > 0))
    small = small[np.argsort(typical[small], kind="stable")]
    pools = max(1, int(expected[small].sum() // SHARED))
    middle = np.cumsum(expected[small]) - expected[small] / 2
    code[small] = own.sum() + np.minimum(middle * pools // max(expected[small].sum(), 1e-9), pools - 1)
    # a group of one small relation counts as its own
    alone = np.bincount(code[code >= 0], minlength=1) == 1
    return RelationGroups(code, np.append(alone, False)[code])


def each_relation(relations: int) -> RelationGroups:
    """A group for every relation, where there are no training facts by which to compare relations."""
    return RelationGroups(np.arange(relations, dtype=np.int32), np.ones(relations, np.bool_))


def restored(name: str, arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> Groups:
    """The partition of this name from what its `arrays` gave; ValueError if they do not fit."""
    try:
        if name == "relation":
            return _restored_relations(arrays["relation_groups"], arrays["relation_own"], relations)
        if name == "doubt":
            return DoubtGroups(_restored_edges(arrays["doubt_edges"], np.float64))
        facts = arrays["degree_facts"]
        edges = _restored_edges(arrays["degree_edges"], np.int64)
    except KeyError as missing:
        raise ValueError(f"the groups by {name} are missing: there is no {missing}") from None
    if facts.shape != (entities,) or facts.dtype != np.int64:
        raise ValueError("the groups by degree do not match the vocabulary")
    return DegreeGroups(facts, edges)


def _restored_relations(code: NDArray[Any], own: NDArray[Any], relations: int) -> RelationGroups:
    if code.shape != (relations,) or own.shape != (relations,):
        raise ValueError("the groups by relation do not match the vocabulary")
    return RelationGroups(code.astype(np.int32), own.astype(np.bool_))


def _restored_edges(edges: NDArray[Any], kind: type) -> NDArray[Any]:
    if edges.ndim != 1 or edges.dtype != kind or not (edges[1:] > edges[:-1]).all():
        raise ValueError("the edges of the groups are damaged")
    return edges


class Partitioned(IntervalPredictor):
    """An interval method with one threshold for all facts or one for every group of facts.

    `per` names the partitions into groups, separated by commas, or says `none`. A query is answered by the largest
    threshold of its groups, so that the promise holds in each of them; a group that in the end has too few calibration
    facts for a level gets the whole range. Groups come from training facts alone.
    """

    default_per: tuple[str, ...] = ()
    """The partitions if none are named."""
    partitions: tuple[Groups, ...] = ()
    reach: Fraction
    """The highest level for which its calibration facts suffice; above it every interval is the whole range."""

    def __init__(self, per: str | None = None) -> None:
        self.per = partition_names(per, self.default_per)

    @property
    @abstractmethod
    def rankings(self) -> GroupRankings:
        """The calibration scores in order, in the groups of each partition."""

    @abstractmethod
    def _group(self, name: str) -> Groups:
        """The partition of this name, made from training facts and the number of calibration facts."""

    @abstractmethod
    def pooled(self, triples: HasTriples, confidence: Confidence) -> Floats:
        """Ends of known triples at the threshold of all calibration facts, whatever their group: (n, 2)."""

    def options(self) -> dict[str, Any]:
        return {"per": ",".join(self.per) or NONE} if self.per or self.default_per else {}

    @property
    def within(self) -> str:
        return " and ".join(f"within {groups.within}" for groups in self.partitions)

    @property
    def relation_groups(self) -> RelationGroups | None:
        """The groups by relation, if it promises per relation."""
        return next((groups for groups in self.partitions if isinstance(groups, RelationGroups)), None)

    def group_columns(
        self, triples: HasTriples, doubt: Floats | None = None
    ) -> dict[str, NDArray[np.int32]] | None:
        """The group of each known triple, (n,), in every partition; None if there are none.

        doubt: (n,), what `doubt` says of the triples, where that is known already.
        """
        if not self.partitions:
            return None
        if doubt is None and "doubt" in self.per:
            doubt = self.doubt(triples)
        return {groups.name: groups.codes(triples, doubt) for groups in self.partitions}

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> NDArray[np.int64]:
        """The size of the largest group of each triple: the thresholds of the others can only add to coverage."""
        columns = self.group_columns(triples, doubt)
        if columns is None:
            return np.full(len(triples.head), self.size)
        sizes = np.stack([self._sizes(name, codes) for name, codes in columns.items()])
        return np.asarray(sizes.max(axis=0))

    def _sizes(self, name: str, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """How many calibration facts groups of a partition have: (n,)."""
        found = self.rankings.partitions[name]
        assert found.groups is not None
        # a group without facts has the code -1, the place of the last segment, which is empty
        return found.ranking.sizes[group_codes(found.groups, codes)]

    def relation_sizes(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """How many calibration facts the group of each relation has: (n,)."""
        assert self.relation_groups is not None
        return self._sizes("relation", self.relation_groups.of(relation))

    def relation_basis(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
        """Position in `BASES` of each relation: (n,)."""
        assert self.relation_groups is not None
        return self.relation_groups.basis(relation, self.relation_sizes(relation))

    def _basis(self, triples: HasTriples) -> NDArray[np.int8] | None:
        return None if self.relation_groups is None else self.relation_basis(triples.relation)

    def caution(self, confidence: Confidence) -> str | None:
        level = confidence if isinstance(confidence, Fraction) else exact(confidence)
        if level == 1:
            return None
        if level > self.reach:
            return (
                f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
                "every interval is the whole range"
            )
        if not self.partitions:
            return None
        said = [part for groups in self.partitions for part in self._group_cautions(groups, level)]
        return "; ".join(said) or None

    def _group_cautions(self, groups: Groups, level: Fraction) -> Iterator[str]:
        """How many relations share their promise, and how many groups have too few calibration facts for the level."""
        known = np.flatnonzero(self.model.seen_relations)
        if isinstance(groups, RelationGroups):
            if shared := int((self.relation_basis(known) == 1).sum()):
                yield f"{shared:,} of {len(known):,} relations share their promise with relations like them"
            sizes, what = self.relation_sizes(known), "relations"
        else:
            sizes = self._sizes(groups.name, np.arange(groups.count, dtype=np.int32))
            what = f"groups by {groups.name}"
        if wide := sum(rank(level, size) > size for size in sizes.tolist()):
            yield (
                f"{wide:,} of {len(sizes):,} {what} have too few calibration facts for confidence {float(level)}: "
                "their intervals are the whole range"
            )

    def _group_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: array for groups in self.partitions for name, array in groups.arrays().items()}

    def _restored_groups(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Groups, ...]:
        """The partitions from what `_group_arrays` gave; ValueError if they do not fit."""
        shape = len(self.model.seen_entities), len(self.model.seen_relations)
        return tuple(restored(name, arrays, *shape) for name in self.per)
