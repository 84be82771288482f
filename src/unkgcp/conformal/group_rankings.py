"""Calibration scores ranked group by group, for one partition into groups or for several at once.

A partition puts every point into one group. With several, a query has a group in each, and is answered by the largest
of the thresholds of its groups. A larger threshold only adds labels to a set, so what each partition promises for its
groups holds in every group of every partition. In terms of p-values: a label has the largest of its p-values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.ranking import Codes, Floats, Ranking, Standing, group_codes, rank_groups, rank_scores

Group = ArrayLike | Mapping[str, ArrayLike]
"""What a caller gives: the groups of one partition, (n,), or those of several by name."""
Columns = Mapping[str, NDArray[Any]]
Places = Sequence[Codes | None]
"""For each partition the segment of each query, (n,), -1 where its group had no calibration point."""

MOST_KEPT = 64
"""Levels whose thresholds are kept: single queries are mostly asked at the same ones."""


class Partition(NamedTuple):
    """The groups that had calibration points and the scores of each."""

    groups: NDArray[Any] | None
    """Their labels, sorted; None where all points are one group."""
    ranking: Ranking


@dataclass(frozen=True)
class GroupRankings:
    """The same scores ranked in the groups of each partition.

    partitions: by name. A single partition that was given without one has the name "", and so have points without
    groups, which are all of one.
    """

    partitions: Mapping[str, Partition]
    _known: dict[Any, list[Floats]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, scores: Floats, columns: Columns | None, weight: NDArray[np.float64] | None = None
    ) -> GroupRankings:
        """Scores (l,), with the group of each in every partition; it takes over the array of scores."""
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
        """The same scores in one group; without weights, which cannot be told from their sums."""
        return GroupRankings({"": Partition(None, self.first.ranking.pooled())})

    def places(self, columns: Columns) -> list[Codes | None]:
        """Where to look for the groups of queries, which have a column for each partition."""
        if not self.grouped:
            return [None]
        return [
            None if part.groups is None else group_codes(part.groups, columns[name])
            for name, part in self.partitions.items()
        ]

    def tables(self, levels: Sequence[Fraction], delta: float | None = None) -> list[Floats]:
        """For each partition the threshold of each segment at each level: (segments, levels)."""
        asked = (tuple(levels), delta)
        found = self._known.get(asked)
        if found is None:
            found = [part.ranking.thresholds(levels, delta) for part in self.partitions.values()]
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[asked] = found
        return found

    def weighted_thresholds(
        self, level: Fraction, weight: NDArray[np.float64], places: Places
    ) -> NDArray[np.floating[Any]]:
        """The largest threshold of each query when it carries the given weight itself: (n,)."""
        rankings = [part.ranking for part in self.partitions.values()]
        found = [
            ranking.weighted_thresholds(level, weight, codes)
            for ranking, codes in zip(rankings, places, strict=True)
        ]
        return reduce(np.maximum, found)

    def p_values(
        self, scores: Floats, places: Places, weight: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The largest p-value of each score among those in the groups of its query: (n,)."""
        rankings = [part.ranking for part in self.partitions.values()]
        found = [
            ranking.p_values(scores, codes, weight) for ranking, codes in zip(rankings, places, strict=True)
        ]
        return reduce(np.maximum, found)

    def standing(self, scores: Floats, places: Places) -> Standing:
        """Where each score stands in the group in which its p-value is largest; that one decides at every level."""
        rankings = [part.ranking for part in self.partitions.values()]
        found = [ranking.standing(scores, codes) for ranking, codes in zip(rankings, places, strict=True)]
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
        # the code -1 of a group without points is the place of the last segment, which is empty
        found = [
            part.ranking.sizes[codes]
            for part, codes in zip(self.partitions.values(), self.places(columns), strict=True)
        ]
        return reduce(np.minimum, found)


def largest(tables: Sequence[Floats], places: Places) -> list[Floats]:
    """For each level the largest threshold of each query, (n,), from what `GroupRankings.tables` gave.

    Without groups it is one number, the threshold of all queries: ().
    """
    rows = [
        [column[-1] if codes is None else np.take(column, codes) for column in table.T]
        for table, codes in zip(tables, places, strict=True)
    ]
    return [reduce(np.maximum, level) for level in zip(*rows, strict=True)]


def labels(values: ArrayLike, size: int | None = None, name: str = "group") -> NDArray[Any]:
    """Group labels as an array of strings or integers: (n,); `name` is what errors call it."""
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
    """The groups of `size` rows in each partition; a ValueError names a column that does not fit."""
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
    """ValueError unless queries have the columns of groups that there were at calibration."""
    if known.keys() != columns.keys():
        had, have = (", ".join(name or "one column" for name in names) for names in (known, columns))
        raise ValueError(f"group has {have}, but at calibration it had {had}")
