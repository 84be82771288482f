"""Ordered scores as plain arrays for a file, and back.

Stored are the scores with their groups and weights, not thresholds: reading ranks them again, so that no file, whoever
wrote it, makes scores in a wrong order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import GroupRankings, Partition, rank_groups, rank_scores
from unkgcp.files import Field, check_fields, joined, under

FIELDS = (
    Field("scores", np.floating, ("scores",), finite=False),
    Field("sizes", np.int64, ("groups",), 1),
    Field("weight", np.float64, ("scores",), 0, optional=True),
)


def to_arrays(rankings: GroupRankings) -> dict[str, NDArray[Any]]:
    """The scores of every partition; the names of the arrays begin with its number."""
    partitions = {}
    for place, (groups, ranking) in enumerate(rankings.partitions.values()):
        sizes = ranking.sizes if groups is None else ranking.sizes[:-1]  # the last segment is empty
        columns = {"scores": ranking.scores, "sizes": sizes, "weight": ranking.weight, "groups": groups}
        partitions[str(place)] = {name: array for name, array in columns.items() if array is not None}
    return joined(partitions)


def from_arrays(names: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> GroupRankings:
    """What `to_arrays` was given, with partitions of these names; ValueError if the arrays do not fit."""
    rankings = GroupRankings(
        {str(name): _partition(under(f"{place}/", arrays)) for place, name in enumerate(names)}
    )
    for part in rankings.partitions.values() if len(names) > 1 else ():
        if not np.array_equal(np.sort(part.ranking.scores), rankings.scores):
            raise ValueError("the columns of groups do not match each other")
    return rankings


def _partition(columns: dict[str, NDArray[Any]]) -> Partition:
    """The partition that these arrays describe."""
    groups = columns.pop("groups", None)
    size = check_fields(columns, FIELDS)["groups"]
    scores, sizes, weight = columns["scores"], columns["sizes"], columns.get("weight")
    if sizes.sum() != len(scores) or np.isnan(scores).any():
        raise ValueError("the scores are broken")
    if groups is None:
        return Partition(None, rank_scores(scores.copy(), weight))
    if groups.shape != (size,) or groups.dtype.kind not in "iuU" or (groups[1:] <= groups[:-1]).any():
        raise ValueError("the group labels are not sorted")
    return Partition(groups, rank_groups(scores, np.repeat(np.arange(size), sizes), size, weight))
