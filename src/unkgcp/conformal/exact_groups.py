"""Coverage at the level, and not only above it, in many groups that overlap.

With a threshold for every group and the largest of them for a query (`ranking`) each group is covered at least at the
level, most of them above it. Here one function g(x) = sum of b_j over the groups j of x is fitted to the calibration
scores and the query's own, unknown one by quantile regression, and the query's set holds the scores that lie below the
fit with themselves included (Gibbs, Cherian and Candès, "Conformal prediction with conditional guarantees", Journal of
the Royal Statistical Society B, 2025).

Theorem (their theorem 2). For exchangeable points, P(label in the set | the query is in group j) >= level for every
group j with positive probability, and at most (number of groups) / (l + 1) / P(group j) above it if scores have no
ties. Why: at the optimum the dual variables eta of the quantile regression, between -(1 - level) for a point below the
fit and level for one above it, sum to zero in every group. Points are exchangeable, so the query's eta has mean zero
in every group, and P(above the fit | group) <= 1 - level follows.

The set needs no search over the unknown score s: the query's eta grows with s, and reaches `level` where s exceeds the
slope of W at level, W(e) being the largest sum of eta_i s_i over calibration points if the query's eta is e. That slope
is a multiplier of one linear programme. It is taken at level - EDGE, so that rounding in the solver decides nothing:
the share of labels missed in a group is at most (1 - level) / (1 - EDGE). Nothing is random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.arrays import Floats, check, column
from unkgcp.conformal.ranks import Confidence, exact

EDGE = 1e-6
"""How far before the level the slope is taken."""
OUTWARDS = 1e-9
"""How much larger than the solver says a threshold is, in units of the largest score: more than the solver's error."""
NEAR = 1000
"""Points near the fit with which a programme is solved first; the others stay above or below it."""


def exact_group_thresholds(
    scores: ArrayLike, membership: ArrayLike, query_membership: ArrayLike, confidence: Confidence
) -> Floats:
    """The threshold of each query, inf for the whole range: (n,).

    scores: (l,) of the calibration points. membership: (l, g), whether each of them is in each group. query_membership:
    (n, g); queries in the same groups share a threshold, and one linear programme is solved for each combination. A
    query in no group, or in a group with too few calibration points, gets the whole range. Thresholds of two levels may
    cross; a caller who needs nested sets takes the larger one at the higher level, which only adds labels.

    >>> exact_group_thresholds(np.arange(1, 10), np.ones((9, 1)), [[1]], 0.9).round(6).tolist()
    [9.0]
    """
    values = column("scores", scores)
    check("scores", values)
    groups, queries = (np.asarray(each).astype(np.int64) for each in (membership, query_membership))
    if groups.ndim != 2 or queries.ndim != 2 or groups.shape != (len(values), queries.shape[1]):
        raise ValueError(
            f"membership has shape {groups.shape} and query_membership {queries.shape}, "
            f"expected ({len(values)}, g) and (n, g)"
        )
    level = float(exact(confidence))
    if level in (0, 1):
        return np.full(len(queries), -np.inf if level == 0 else np.inf)
    regression = _Regression(values, groups, level)
    combinations, which = np.unique(queries, axis=0, return_inverse=True)
    thresholds = np.array([regression.threshold(combination) for combination in combinations])
    return np.asarray(thresholds[which.reshape(-1)] + OUTWARDS * np.abs(values).max(initial=0))


class _Regression:
    """The quantile regression of calibration scores on groups, to which a query is added."""

    def __init__(self, scores: Floats, groups: NDArray[np.int64], level: float) -> None:
        # points in the same groups with the same score are one variable, as many times as large
        points, counts = np.unique(np.column_stack([scores, groups]), axis=0, return_counts=True)
        self.values, self.groups, self.level = points[:, 0], points[:, 1:], level
        self.limits = np.column_stack([-(1 - level) * counts, level * counts])
        fit = self._fit(np.arange(len(points)), np.zeros(groups.shape[1]))
        residual = self.values - self.groups @ (0.0 if fit is None else fit)
        self.above, self.nearest = residual > 0, np.argsort(np.abs(residual), kind="stable")

    def threshold(self, combination: NDArray[np.int64]) -> float:
        """The largest score that a query in these groups may have."""
        if not combination.any():
            return np.inf
        size = min(NEAR, len(self.values))
        while True:
            near, far = self.nearest[:size], self.nearest[size:]
            eta = np.where(self.above[far], self.limits[far, 1], self.limits[far, 0])
            fit = self._fit(near, -(self.level - EDGE) * combination - eta @ self.groups[far])
            # the fit is that of all points if those that were kept on their side of it are there
            if fit is not None and ((self.values[far] > self.groups[far] @ fit) == self.above[far]).all():
                return float(combination @ fit)
            if size == len(self.values):
                return np.inf  # the query's eta cannot reach the level: no score is too large
            size = len(self.values) if fit is None else min(2 * size, len(self.values))

    def _fit(self, rows: NDArray[np.intp], total: Floats) -> Floats | None:
        """b (g,), so that the best eta of these points sum to `total` in each group; None if no eta do."""
        from scipy.optimize import linprog  # not at import: start-up time
        from scipy.sparse import csr_array

        # Any: the types of SciPy know neither sparse matrices here nor limits in an array
        groups: Any = csr_array(self.groups[rows].T)
        limits: Any = self.limits[rows]
        solution = linprog(-self.values[rows], A_eq=groups, b_eq=total, bounds=limits, method="highs")
        if solution.status not in (0, 2):
            raise RuntimeError(f"the solver of the linear programme gave up: {solution.message}")
        return None if solution.status == 2 else np.asarray(-solution.eqlin.marginals)
