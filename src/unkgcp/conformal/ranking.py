"""Calibration scores in order, group by group: thresholds by rank, and p-values by counting.

With l scores in order the threshold at a level is the k-th smallest, k = ceil(level (l + 1)), and the p-value of a new
score is (1 + #{s_i >= s}) / (l + 1). A `Ranking` does this for every group of one partition: it holds one sorted
segment of scores for each group (Mondrian conformal prediction).

A partition puts every point into one group. `GroupRankings` rank the same scores in one partition or in several. With
several, a query has a group in each of them and is answered with the largest of the thresholds of its groups. A larger
threshold only adds labels to a set, so the promise of each partition for its groups holds in every group of every
partition. In terms of p-values: a label gets the largest of its p-values.

A group with too few points for a level, or with none, has an infinite threshold: the whole range. A threshold borrowed
from other groups would break the promise: large groups use their own thresholds, so nothing would make up for the
labels that small groups miss. Nothing here knows of predictions, labels or intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.arrays import Columns, Floats
from unkgcp.conformal.ranks import rank, training_conditional_rank
from unkgcp.loops import places_in

Codes = NDArray[np.intp]
Segments = Sequence[Codes | None]
"""For each partition the segment of each query, (n,); -1 where its group had no calibration point."""

MAX_KEPT_TABLES = 64
"""How many answers of `GroupRankings.tables` are kept: single queries are mostly asked at the same levels."""
TIE = 1 + 1e-12
"""Weights on the two sides of a rank that agree up to this factor count as equal, whatever rounding did to them."""


class Standing(NamedTuple):
    """How many scores of its segment lie below each score, how many equal it, and how many there are: (n,) each."""

    below: NDArray[np.int64]
    equal: NDArray[np.int64]
    size: NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """Sorted scores of S segments. The code of a query is its segment; -1, or no code, means the last segment.

    With groups the last segment is empty: it is for queries whose group had no calibration point. Without groups the
    only segment holds all scores.
    """

    scores: Floats
    """(total,) one segment after the other, ascending within each."""
    sizes: NDArray[np.int64]
    """(S,) the length of each segment."""
    weight: Floats | None = None
    """(total,) the weight of each score, where queries come from another distribution."""

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def tails(self) -> Floats:
        """For each segment of l scores the l + 1 sums of the weights from a position upwards: (total + S,)."""
        assert self.weight is not None
        return np.concatenate([tail_sums(part) for part in np.split(self.weight, self.starts[1:])])

    def thresholds(self, levels: Sequence[Fraction], delta: float | None = None) -> Floats:
        """The k-th smallest score of every segment at each level: (S, levels); -inf if k = 0, inf if k > l.

        With a delta the rank is that of the promise for all but a share delta of calibration sets.
        """
        sizes, which = np.unique(self.sizes, return_inverse=True)
        ranks = [
            [
                rank(level, size) if delta is None else training_conditional_rank(level, size, delta)
                for level in levels
            ]
            for size in sizes.tolist()
        ]
        return self.at_rank(np.arange(len(self.sizes))[:, None], np.array(ranks, np.int64)[which])

    def weighted_thresholds(self, level: Fraction, weight: Floats, codes: Codes | None) -> Floats:
        """The threshold of each query, which has the given weight w: (n,) (Tibshirani et al., 2019).

        Its rank is the number of j in 0 .. l with w + tail_j > (1 - level) (w + tail_0): a label whose score exceeds j
        calibration scores is in the set exactly when j is below the rank. Equal weights give k = ceil(level (l + 1)).
        """
        segments = np.broadcast_to(self._segments(codes), weight.shape)
        starts, sizes = self.starts[segments] + segments, self.sizes[segments]
        total = weight + self.tails[starts]
        cutoff = TIE * float(1 - level) * total
        ranks = bisected(
            sizes + 1, lambda place: weight + self.tails[starts + np.minimum(place, sizes)] > cutoff
        )
        # without any weight nothing is known: every level above 0 gives the whole range
        return self.at_rank(segments, np.where((total == 0) & (level > 0), sizes + 1, ranks))

    def at_rank(self, segments: NDArray[Any], ranks: NDArray[Any]) -> Floats:
        """The k-th smallest scores of segments; the arrays of segments and ranks broadcast against each other."""
        sizes = self.sizes[segments]
        positions = self.starts[segments] + np.clip(ranks, 1, sizes) - 1
        return np.where(
            ranks < 1, -np.inf, np.where(ranks > sizes, np.inf, self.scores.take(positions, mode="clip"))
        )

    def p_values(self, scores: Floats, codes: Codes | None, weight: Floats | None = None) -> Floats:
        """(1 + #{s_i >= s}) / (l + 1), or (w + sum of w_i over s_i >= s) / (w + sum of w_i): (n,)."""
        segments, below = self._segments(codes), self._count(scores, codes, "left")
        if weight is None:
            size = self.sizes[segments]
            return np.asarray((size + 1 - below) / (size + 1), np.float64)
        starts = self.starts[segments] + segments
        total = weight + self.tails[starts]
        shares = np.ones(len(scores))  # 1 where neither the query nor any score has weight
        np.divide(weight + self.tails[starts + below], total, out=shares, where=total > 0)
        return shares

    def standing(self, scores: Floats, codes: Codes | None) -> Standing:
        """Where each score stands in its segment."""
        below, upto = (self._count(scores, codes, side) for side in ("left", "right"))
        return Standing(below, upto - below, np.broadcast_to(self.sizes[self._segments(codes)], below.shape))

    def _segments(self, codes: Codes | None) -> Any:
        last = len(self.sizes) - 1
        return np.intp(last) if codes is None else np.where(codes < 0, last, codes)

    def _count(self, scores: Floats, codes: Codes | None, side: Any) -> NDArray[np.int64]:
        """#{s_i < s} within each query's segment, or #{s_i <= s} on the right side: (n,)."""
        segments = self._segments(codes)
        if codes is None:
            return places_in(self.scores[self.starts[-1] :], scores, side)
        starts = self.starts[segments]
        before = np.less if side == "left" else np.less_equal
        return bisected(
            self.sizes[segments],
            lambda place: before(self.scores.take(starts + place, mode="clip"), scores),
        )


def tail_sums(weight: Floats) -> Floats:
    """The sum of the weights from each position to the end, and 0 after the last: (l + 1,)."""
    return np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])


def bisected(
    sizes: NDArray[np.int64], within: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """For each row the number of places below `sizes` for which `within` is true: (n,), by bisection.

    In each row `within` must be true up to some place and false from there on. It is asked about one place of every row
    at a time; what it answers for places beyond the size does not matter.
    """
    low, high = np.zeros_like(sizes), sizes
    for _ in range(int(sizes.max(initial=0)).bit_length()):
        middle = (low + high) // 2
        more = within(middle) & (low < high)
        low, high = np.where(more, middle + 1, low), np.where(more, high, middle)
    return low


def group_codes(labels: NDArray[Any], group: NDArray[Any]) -> Codes:
    """The position of each label among the sorted labels `labels`, -1 where it is missing: (n,)."""
    if (labels.dtype.kind == "U") != (group.dtype.kind == "U"):
        raise ValueError(f"group has dtype {group.dtype}, but the calibration groups were {labels.dtype}")
    if not len(labels):
        return np.full(len(group), -1, np.intp)
    position = np.minimum(np.searchsorted(labels, group), len(labels) - 1)
    return np.where(labels[position] == group, position, -1)


def rank_scores(scores: Floats, weight: Floats | None = None) -> Ranking:
    """A ranking of one segment. It takes over the array of scores."""
    if weight is not None:
        ranking = rank_groups(scores, np.zeros(len(scores), np.intp), 1, weight)
        return Ranking(ranking.scores, ranking.sizes[:1], ranking.weight)
    scores.sort()
    return Ranking(scores, np.array([len(scores)]))


def rank_groups(scores: Floats, codes: Codes, groups: int, weight: Floats | None = None) -> Ranking:
    """A ranking with a segment for each of the codes 0 .. groups - 1, and the empty one."""
    # ties in order of weight, so that sums do not depend on the order of input
    order = np.lexsort((scores, codes) if weight is None else (weight, scores, codes))
    sizes = np.bincount(codes, minlength=groups + 1).astype(np.int64)
    return Ranking(scores[order], sizes, None if weight is None else weight[order])


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

    partitions: dict[str, Partition]
    _tables: dict[Any, list[Floats]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, scores: Floats, columns: Columns | None, weight: Floats | None = None) -> GroupRankings:
        """Rankings of scores (l,) with their groups in every partition. They take over the array of scores."""
        if columns is None:
            return cls({"": Partition(None, rank_scores(scores, weight))})
        partitions = {}
        for name, column in columns.items():
            groups = np.unique(column)
            codes = group_codes(groups, column)
            partitions[name] = Partition(groups, rank_groups(scores, codes, len(groups), weight))
        return cls(partitions)

    @property
    def first(self) -> Partition:
        """The first partition; all of them hold the same scores."""
        return next(iter(self.partitions.values()))

    @property
    def grouped(self) -> bool:
        return self.first.groups is not None

    @property
    def weighted(self) -> bool:
        return self.first.ranking.weight is not None

    @cached_property
    def scores(self) -> Floats:
        """All scores in ascending order: (l,)."""
        return np.sort(self.first.ranking.scores) if self.grouped else self.first.ranking.scores

    def segments(self, columns: Columns) -> list[Codes | None]:
        """For each partition the segments of queries, from their columns of groups; None without groups."""
        return [
            None if part.groups is None else group_codes(part.groups, columns[name])
            for name, part in self.partitions.items()
        ]

    def tables(self, levels: Sequence[Fraction], delta: float | None = None) -> list[Floats]:
        """For each partition the threshold of each segment at each level: (segments, levels)."""
        question = (tuple(levels), delta)
        if (tables := self._tables.get(question)) is None:
            tables = [part.ranking.thresholds(levels, delta) for part in self.partitions.values()]
            if len(self._tables) >= MAX_KEPT_TABLES:
                self._tables.clear()
            self._tables[question] = tables
        return tables

    def thresholds(
        self, levels: Sequence[Fraction], segments: Segments, weight: Floats | None, delta: float | None
    ) -> list[Floats]:
        """For each level the largest of the thresholds of a query's groups: (n,), or () if all queries share it."""
        if weight is None:
            return largest(self.tables(levels, delta), segments)
        return [
            self._largest(lambda ranking, codes: ranking.weighted_thresholds(level, weight, codes), segments)  # noqa: B023
            for level in levels
        ]

    def p_values(self, scores: Floats, segments: Segments, weight: Floats | None = None) -> Floats:
        """The largest of the p-values that each score has in the groups of its query: (n,)."""
        return np.asarray(
            self._largest(lambda ranking, codes: ranking.p_values(scores, codes, weight), segments)
        )

    def standing(self, scores: Floats, segments: Segments) -> Standing:
        """Where each score stands in the group in which its p-value is largest; that group decides at every level."""
        standings = [
            part.ranking.standing(scores, codes)
            for part, codes in zip(self.partitions.values(), segments, strict=True)
        ]
        p_values = [(each.size + 1 - each.below) / (each.size + 1) for each in standings]
        best = np.argmax(p_values, axis=0)[None]
        columns = (np.stack(counts) for counts in zip(*standings, strict=True))
        return Standing(*(np.take_along_axis(column, best, axis=0)[0] for column in columns))

    def group_sizes(self) -> dict[str, dict[Any, int]]:
        """For each partition the number of calibration points of each group that has any."""
        return {
            name: {}
            if part.groups is None
            else dict(zip(part.groups.tolist(), part.ranking.sizes.tolist(), strict=False))
            for name, part in self.partitions.items()
        }

    def sizes(self, columns: Columns) -> NDArray[np.int64]:
        """How many calibration points the smallest group of each query has: (n,)."""
        # code -1, a group without points, picks the last segment, which is empty
        return np.asarray(
            -self._largest(lambda ranking, codes: -ranking.sizes[codes], self.segments(columns))
        )

    def _largest(self, value: Callable[[Ranking, Any], NDArray[Any]], segments: Segments) -> Any:
        partitions = zip(self.partitions.values(), segments, strict=True)
        return reduce(np.maximum, [value(part.ranking, codes) for part, codes in partitions])


def largest(tables: Sequence[NDArray[np.floating[Any]]], segments: Segments) -> list[Floats]:
    """For each level the largest threshold of each query, (n,), from the answer of `GroupRankings.tables`.

    Without groups it is one number for all queries: ().
    """
    rows = [
        [column[-1] if codes is None else np.take(column, codes) for column in table.T]
        for table, codes in zip(tables, segments, strict=True)
    ]
    return [reduce(np.maximum, level) for level in zip(*rows, strict=True)]
