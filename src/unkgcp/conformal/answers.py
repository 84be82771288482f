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
from unkgcp.conformal.groups import FallbackWarning, group_codes
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
    """Sorted labels of the groups with a threshold of their own; None without groups."""
    heaviest: float | None
    """The largest calibration weight; None without weights."""
    training_conditional: float | None


class Answers:
    """Thresholds and p-values for the queries of one call; counts those that got the pooled threshold."""

    def __init__(self, calibration: Calibration, queries: Queries, levels: Sequence[Fraction]) -> None:
        self.calibration, self.queries, self.levels = calibration, queries, levels
        self.pooled: list[int] = []  # one count a chunk: appending is safe from several threads
        if calibration.heaviest is None:
            table = calibration.ranking.thresholds(levels, calibration.training_conditional)
            self.table = table.astype(queries.dtype, copy=False)

    def thresholds(self, start: int, stop: int) -> list[Any]:
        """For each level one threshold, or an array of one a row."""
        codes, weight = self.codes(start, stop), self._weight(start, stop)
        if weight is not None:
            ranking = self.calibration.ranking
            rows = [ranking.weighted_thresholds(level, weight, codes) for level in self.levels]
            return [row.astype(self.queries.dtype, copy=False) for row in rows]
        if codes is None:
            return list(self.table[-1])
        return [np.take(column, codes) for column in self.table.T]

    def p_values(self, scores: Floats, start: int, stop: int) -> NDArray[np.float64]:
        return self.calibration.ranking.p_values(scores, self.codes(start, stop), self._weight(start, stop))

    def warn(self) -> None:
        """Say how many queries were answered with the pooled threshold."""
        missing = self.calibration.groups is not None and self.queries.group is None
        count = len(self.queries) if missing else sum(self.pooled)
        if count:
            warnings.warn(
                f"{count:,} of {len(self.queries):,} queries are in groups without enough calibration points "
                "and got the pooled threshold, which holds on average over all groups",
                FallbackWarning,
                stacklevel=3,
            )

    def codes(self, start: int, stop: int) -> NDArray[np.intp] | None:
        """The segment of each row, -1 for the pooled one; None if that is all there is."""
        if self.queries.group is None or self.calibration.groups is None:
            return None
        codes = group_codes(self.calibration.groups, self.queries.group[start:stop])
        self.pooled.append(int(np.count_nonzero(codes < 0)))
        return codes

    def _weight(self, start: int, stop: int) -> NDArray[np.float64] | None:
        """The weight of each row; where none is given the largest one of calibration, to be cautious."""
        if self.calibration.heaviest is None:
            return None
        if self.queries.weight is None:
            return np.full(stop - start, self.calibration.heaviest)
        weight = self.queries.weight[start:stop]
        arrays.check_non_negative("weight", weight, start)
        return weight
