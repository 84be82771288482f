"""Calibration scores in order, group by group: thresholds by rank, and p-values by counting.

A `Ranking` holds one sorted segment of scores for each group, and a last, empty segment for queries whose group had no
calibration point. Without groups its only segment holds all scores.

A partition puts every point into one group. `GroupRankings` rank the same scores in one partition or in several. With
several, a query has a group in each of them and is answered with the largest of the thresholds of its groups. A larger
threshold only adds labels to a set, so the promise of each partition for its groups holds in every group of every
partition. In terms of p-values: a label gets the largest of its p-values. Nothing here knows of predictions, labels or
intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.ranks import Order, bisected, rank, tail_sums, training_conditional_rank, weighted_ranks
from unkgcp.conformal.scores import Floats

Codes = NDArray[np.intp]
Group = ArrayLike | Mapping[str, ArrayLike]
"""What a caller gives: the groups of one partition, (n,), or those of several partitions by name."""
Columns = Mapping[str, NDArray[Any]]
Places = Sequence[Codes | None]
"""For each partition the segment of each query, (n,); -1 where its group had no calibration point."""

MOST_KEPT = 64
"""How many answers of `GroupRankings.tables` are kept: single queries are mostly asked at the same levels."""


class Standing(NamedTuple):
    """How many scores of its segment lie below each score, how many equal it, and how many there are: (n,) each."""

    below: NDArray[np.int64]
    equal: NDArray[np.int64]
    size: NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """Sorted scores of S segments. The code of a query is its segment; -1, or no code, means the last segment."""

    order: Order
    """The scores (total,), ascending within each segment; a single large segment is sorted only when needed."""
    offsets: NDArray[np.int64]
    """(S + 1,) segment g is scores[offsets[g]:offsets[g + 1]]."""
    tails: NDArray[np.float64] | None = None
    """(total + S,) with weights: for each segment of l scores the l + 1 sums of the weights from a position upwards."""
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", np.diff(self.offsets))

    @property
    def scores(self) -> Floats:
        """The scores of all segments one after the other, ascending within each: (total,)."""
        return self.order.sorted()

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.order.dtype

    def pooled(self) -> Ranking:
        """The same scores in one segment, without weights."""
        if len(self.sizes) == 1:
            return self
        return Ranking(Order(np.sort(self.scores), True), self.offsets[[0, -1]])

    def ranks(self, level: Fraction, delta: float | None) -> list[int]:
        """The rank of every segment: for coverage on average, or for all but a share delta of calibration sets."""
        ranks = {
            size: rank(level, size) if delta is None else training_conditional_rank(level, size, delta)
            for size in np.unique(self.sizes).tolist()
        }
        return [ranks[size] for size in self.sizes.tolist()]

    def thresholds(self, levels: Sequence[Fraction], delta: float | None) -> Floats:
        """The k-th smallest score of every segment at each level: (S, levels); -inf if k = 0, inf if k > l."""
        ranks = np.empty((len(self.sizes), len(levels)), np.int64)
        for index, level in enumerate(levels):
            ranks[:, index] = self.ranks(level, delta)
        if len(self.sizes) == 1:
            found = self.order.smallest(np.clip(ranks[0], 1, self.sizes[0]).tolist())[None, :]
            return self._beyond(found, ranks, self.sizes[0])
        return self.at_rank(np.arange(len(self.sizes))[:, None], ranks)

    def weighted_thresholds(
        self, level: Fraction, weight: NDArray[np.float64], codes: Codes | None
    ) -> Floats:
        """The threshold of each query that has the given weight: (n,)."""
        assert self.tails is not None
        segments = self._segments(codes)
        starts = self.offsets[segments] + segments
        sizes = np.broadcast_to(self.sizes[segments], weight.shape)
        ranks = weighted_ranks(self.tails, np.broadcast_to(starts, weight.shape), sizes, weight, level)
        return self.at_rank(segments, ranks)

    def at_rank(self, segments: NDArray[Any] | np.intp, ranks: NDArray[Any]) -> Floats:
        """The k-th smallest scores of segments; the arrays of segments and ranks broadcast against each other."""
        sizes, starts = self.sizes[segments], self.offsets[segments]
        found = self.scores[starts + np.clip(ranks, 1, sizes) - 1]
        return self._beyond(found, ranks, sizes)

    def _beyond(self, found: Floats, ranks: NDArray[Any], sizes: Any) -> Floats:
        infinity = self.dtype.type(np.inf)
        return np.where(ranks < 1, -infinity, np.where(ranks > sizes, infinity, found))

    def p_values(
        self, scores: Floats, codes: Codes | None, weight: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """(1 + #{s_i >= s}) / (l + 1), or (w + sum of w_i over s_i >= s) / (w + sum of w_i): (n,)."""
        segments = self._segments(codes)
        below = self._count_below(scores, segments)
        if self.tails is None:
            sizes = self.sizes[segments]
            return np.asarray((sizes + 1 - below) / (sizes + 1), np.float64)
        assert weight is not None
        starts = self.offsets[segments] + segments
        total = weight + self.tails[starts]
        share = np.ones(len(scores))  # 1 where neither the query nor any score has weight
        np.divide(weight + self.tails[starts + below], total, out=share, where=total > 0)
        return share

    def standing(self, scores: Floats, codes: Codes | None) -> Standing:
        """Where each score stands in its segment."""
        segments = self._segments(codes)
        below = self._count_below(scores, segments)
        equal = self._count_below(scores, segments, "right") - below
        return Standing(below, equal, np.broadcast_to(self.sizes[segments], below.shape))

    def _segments(self, codes: Codes | None) -> Codes | np.intp:
        last = len(self.sizes) - 1
        return np.intp(last) if codes is None else np.where(codes < 0, last, codes)

    def _count_below(
        self, scores: Floats, segments: Codes | np.intp, side: Literal["left", "right"] = "left"
    ) -> NDArray[np.int64]:
        """#{s_i < s} within each query's segment, or #{s_i <= s} on the right side: (n,)."""
        if isinstance(segments, np.intp):
            # sorted queries are faster: consecutive bisections touch the same part of the array, which is then cached
            order = np.argsort(scores)
            below = np.empty(len(scores), np.int64)
            below[order] = np.searchsorted(self.scores[self.offsets[-2] :], scores[order], side)
            return below
        starts, sizes = self.offsets[segments], self.sizes[segments]
        last = len(self.scores) - 1

        def less(place: NDArray[Any]) -> NDArray[np.bool_]:
            value = self.scores[np.minimum(starts + place, last)]
            return np.asarray(value < scores if side == "left" else value <= scores)

        return bisected(sizes, less)


def group_codes(known: NDArray[Any], group: NDArray[Any]) -> NDArray[np.intp]:
    """The position of each label among the sorted labels `known`, -1 where it is missing: (n,)."""
    if (known.dtype.kind == "U") != (group.dtype.kind == "U"):
        raise ValueError(f"group has dtype {group.dtype}, but the calibration groups were {known.dtype}")
    if not len(known):
        return np.full(len(group), -1, np.intp)
    position = np.minimum(np.searchsorted(known, group), len(known) - 1)
    return np.where(known[position] == group, position, -1)


def rank_scores(scores: Floats, weight: NDArray[np.float64] | None = None) -> Ranking:
    """A ranking of one segment. It takes over the array of scores."""
    offsets = np.array([0, len(scores)], np.int64)
    if weight is None:
        return Ranking(Order(scores), offsets)
    order = np.lexsort(
        (weight, scores)
    )  # ties in order of weight, so that sums do not depend on the order of input
    return Ranking(Order(scores[order], True), offsets, tail_sums(weight[order]))


def rank_groups(
    scores: Floats, codes: Codes, groups: int, weight: NDArray[np.float64] | None = None
) -> Ranking:
    """A ranking with a segment for each of the codes 0 .. groups - 1, and the empty one."""
    order = np.lexsort((scores, codes) if weight is None else (weight, scores, codes))
    offsets = np.append(np.searchsorted(codes[order], np.arange(groups + 1)), len(scores)).astype(np.int64)
    tails = None
    if weight is not None:
        tails = np.concatenate([tail_sums(part) for part in np.split(weight[order], offsets[1:-1])])
    return Ranking(Order(scores[order], True), offsets, tails)


class Partition(NamedTuple):
    """The groups that have calibration points, and the scores of each."""

    groups: NDArray[Any] | None
    """The labels of the groups, sorted; None where there are no groups."""
    ranking: Ranking


@dataclass(frozen=True)
class GroupRankings:
    """The same scores ranked in the groups of each partition.

    partitions: by name. A single partition that was given without a name is called "", and so is the only partition of
    points without groups.
    """

    partitions: Mapping[str, Partition]
    _known: dict[Any, list[Floats]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, scores: Floats, columns: Columns | None, weight: NDArray[np.float64] | None = None
    ) -> GroupRankings:
        """Rankings of scores (l,) with their groups in every partition. They take over the array of scores."""
        if columns is None:
            return cls({"": Partition(None, rank_scores(scores, weight))})
        found = {}
        for name, column in columns.items():
            known = np.unique(column)
            ranking = rank_groups(scores, group_codes(known, column), len(known), weight)
            found[name] = Partition(known, ranking)
        return cls(found)

    @property
    def grouped(self) -> bool:
        return self.first.groups is not None

    @property
    def first(self) -> Partition:
        """The first partition; all of them hold the same scores."""
        return next(iter(self.partitions.values()))

    def pooled(self) -> GroupRankings:
        """The same scores in one group, without weights: only sums of weights are stored, not the weights."""
        return GroupRankings({"": Partition(None, self.first.ranking.pooled())})

    def places(self, columns: Columns) -> list[Codes | None]:
        """For each partition the segments of queries, from their columns of groups; None without groups."""
        return [
            None if part.groups is None else group_codes(part.groups, columns[name])
            for name, part in self.partitions.items()
        ]

    def tables(self, levels: Sequence[Fraction], delta: float | None = None) -> list[Floats]:
        """For each partition the threshold of each segment at each level: (segments, levels)."""
        asked = (tuple(levels), delta)
        if (found := self._known.get(asked)) is None:
            found = [part.ranking.thresholds(levels, delta) for part in self.partitions.values()]
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[asked] = found
        return found

    def weighted_thresholds(
        self, level: Fraction, weight: NDArray[np.float64], places: Places
    ) -> NDArray[np.floating[Any]]:
        """The largest threshold of each query that has the given weight: (n,)."""
        found = [ranking.weighted_thresholds(level, weight, codes) for ranking, codes in self._with(places)]
        return reduce(np.maximum, found)

    def p_values(
        self, scores: Floats, places: Places, weight: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The largest of the p-values that each score has in the groups of its query: (n,)."""
        return reduce(
            np.maximum, [part.p_values(scores, codes, weight) for part, codes in self._with(places)]
        )

    def standing(self, scores: Floats, places: Places) -> Standing:
        """Where each score stands in the group in which its p-value is largest; that group decides at every level."""
        found = [ranking.standing(scores, codes) for ranking, codes in self._with(places)]
        if len(found) == 1:
            return found[0]
        p_values = [(each.size + 1 - each.below) / (each.size + 1) for each in found]
        best = np.argmax(p_values, axis=0)[None]
        columns = (np.stack(counts) for counts in zip(*found, strict=True))
        return Standing(*(np.take_along_axis(column, best, axis=0)[0] for column in columns))

    def group_sizes(self) -> dict[str, dict[Any, int]]:
        """For each partition the number of calibration points of each group that has any."""
        found = {}
        for name, part in self.partitions.items():
            labels = [] if part.groups is None else part.groups.tolist()
            found[name] = dict(zip(labels, part.ranking.sizes.tolist(), strict=False))
        return found

    def sizes(self, columns: Columns) -> NDArray[np.int64]:
        """How many calibration points the smallest group of each query has: (n,)."""
        # code -1, a group without points, picks the last segment, which is empty
        return reduce(np.minimum, [part.sizes[codes] for part, codes in self._with(self.places(columns))])

    def _with(self, places: Places) -> Iterator[tuple[Ranking, Codes | None]]:
        """The ranking of each partition and the segments of the queries in it."""
        return zip((part.ranking for part in self.partitions.values()), places, strict=True)


def largest(tables: Sequence[Floats], places: Places) -> list[Floats]:
    """For each level the largest threshold of each query, (n,), from the answer of `GroupRankings.tables`.

    Without groups it is one number for all queries: ().
    """
    rows = [
        [column[-1] if codes is None else np.take(column, codes) for column in table.T]
        for table, codes in zip(tables, places, strict=True)
    ]
    return [reduce(np.maximum, level) for level in zip(*rows, strict=True)]


def labels(values: ArrayLike, size: int | None = None, name: str = "group") -> NDArray[Any]:
    """Group labels of `size` rows as an array of strings or integers: (n,); errors call the array `name`."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected (n,)")
    if size is not None and len(array) != size:
        raise ValueError(f"{name} has {len(array)} rows, but prediction has {size}")
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    if array.dtype.kind in "OT":
        strings = np.fromiter((isinstance(label, str) for label in array), np.bool_, len(array))
        if not strings.all():
            index = int(np.argmin(strings))
            raise ValueError(f"{name}[{index}] is {array[index]!r}, expected strings or integers throughout")
        return array.astype(np.str_)
    if array.dtype.kind != "U":
        raise ValueError(f"{name} has dtype {array.dtype}, expected strings or integers")
    return array


def group_columns(group: Group | None, size: int | None = None) -> dict[str, NDArray[Any]] | None:
    """The groups of `size` rows in each partition; a ValueError names a column that cannot be used."""
    if group is None:
        return None
    if isinstance(group, Mapping):
        if not group:
            raise ValueError("group is an empty dict; give a column of groups, several by name, or None")
        return {
            str(name): labels(column, size, f"group[{name!r}]" if name else "group")
            for name, column in group.items()
        }
    if np.ndim(np.asarray(group)) > 1:
        raise ValueError(
            f"group has shape {np.shape(np.asarray(group))}, expected (n,), or several columns as a dict, "
            'for example {"relation": ..., "source": ...}'
        )
    return {"": labels(group, size)}


def check_names(known: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    """ValueError unless queries have the same columns of groups as the calibration points had."""
    if known.keys() != columns.keys():
        had, have = (", ".join(name or "one column" for name in names) for names in (known, columns))
        raise ValueError(f"group has {have}, but at calibration it had {had}")
