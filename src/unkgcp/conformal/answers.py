"""What calibration leaves behind, and how it answers the queries of one call, chunk by chunk."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal import arrays
from unkgcp.conformal.groups import SmallGroupWarning, group_codes
from unkgcp.conformal.queries import Queries
from unkgcp.conformal.ranking import Ranking
from unkgcp.conformal.scores import Score

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Calibration:
    """The calibration scores in order, how they were made, and for which groups."""

    score: Score
    ranking: Ranking
    groups: NDArray[Any] | None
    """Sorted labels of all groups there were; None without groups."""
    training_conditional: float | None
    heaviest: float | None = None
    """The largest weight of a calibration point; None without weights."""

    @property
    def weighted(self) -> bool:
        return self.heaviest is not None


class MissingWeightWarning(UserWarning):
    """Queries without a weight are asked of a calibration with weights."""


class Answers:
    """Thresholds and p-values for the queries of one call; counts those whose group is too small."""

    def __init__(self, calibration: Calibration, queries: Queries, levels: Sequence[Fraction]) -> None:
        if calibration.groups is not None and queries.group is None:
            raise ValueError(
                "group is missing: there were groups at calibration, so every query needs its own"
            )
        if calibration.weighted and queries.weight is None:
            warnings.warn(
                "the queries have no weight; each counts as the heaviest calibration point, and the promise holds "
                "for queries that are no heavier",
                MissingWeightWarning,
                stacklevel=4,
            )
        self.calibration, self.queries, self.levels = calibration, queries, levels
        self.wide: list[int] = []  # one count a chunk: appending is safe from several threads
        below = [level for level in levels if level < 1]
        self.highest = levels.index(max(below)) if below else None
        if not calibration.weighted:
            table = calibration.ranking.thresholds(levels, calibration.training_conditional)
            self.table = table.astype(queries.dtype, copy=False)

    def thresholds(self, start: int, stop: int) -> list[Any]:
        """For each level one threshold, or an array of one a row."""
        codes, weight = self.codes(start, stop), self._weight(start, stop)
        if weight is not None:
            ranking = self.calibration.ranking
            rows = [ranking.weighted_thresholds(level, weight, codes) for level in self.levels]
            rows = [row.astype(self.queries.dtype, copy=False) for row in rows]
        elif codes is not None:
            rows = [np.take(column, codes) for column in self.table.T]
        else:
            return list(self.table[-1])
        if codes is not None and self.highest is not None:
            self.wide.append(int(np.count_nonzero(rows[self.highest] == np.inf)))
        return rows

    def p_values(self, scores: Floats, start: int, stop: int) -> NDArray[np.float64]:
        codes = self.codes(start, stop)
        if codes is not None:
            self.wide.append(int(np.count_nonzero(codes < 0)))
        return self.calibration.ranking.p_values(scores, codes, self._weight(start, stop))

    def warn(self) -> None:
        """Say how many queries got the whole range, or the p-value 1, because of their group."""
        count = sum(self.wide)
        if not count:
            return
        said = "without calibration points: their p-value is 1"
        if self.highest is not None:
            level = float(self.levels[self.highest])
            few = (
                "too little weight at calibration"
                if self.calibration.weighted
                else "too few calibration points"
            )
            said = f"with {few} for confidence {level:g}: their set is the whole range"
        warnings.warn(
            f"{count:,} of {len(self.queries):,} queries are in groups {said}",
            SmallGroupWarning,
            stacklevel=3,
        )

    def codes(self, start: int, stop: int) -> NDArray[np.intp] | None:
        """The segment of each row, -1 if its group had no calibration point; None without groups."""
        if self.queries.group is None or self.calibration.groups is None:
            return None
        return group_codes(self.calibration.groups, self.queries.group[start:stop])

    def _weight(self, start: int, stop: int) -> NDArray[np.float64] | None:
        if self.calibration.heaviest is None:
            return None
        if self.queries.weight is None:
            return np.full(stop - start, self.calibration.heaviest)
        weight = self.queries.weight[start:stop]
        arrays.check_non_negative("weight", weight, start)
        return weight
