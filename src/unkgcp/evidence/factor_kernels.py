"""The compiled loop of `unkgcp.evidence.factors`: ridge regressions of rows on the columns they have facts with."""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit


@njit(alone=True, nogil=True)
def solve(starts, other, target, theirs, mine, ridges):
    """Solves for the effect and the vector of each row, mine (n, 1 + rank), given theirs (m, 1 + rank).

    The facts of row i are starts[i] to starts[i + 1]; `other` and `target` (N,) are the column and the confidence of
    each, in that order. ridges: for effects and for vectors. Rows are solved one after the other, so that `mine` may be
    the same table as `theirs`.
    """
    width = mine.shape[1]
    system, right = np.empty((width, width)), np.empty(width)
    for row in range(len(starts) - 1):
        system[:] = 0.0
        right[:] = 0.0
        for fact in range(starts[row], starts[row + 1]):
            column = theirs[other[fact]]
            rest = target[fact] - column[0]
            system[0, 0] += 1.0
            right[0] += rest
            for i in range(1, width):
                system[i, 0] += column[i]
                right[i] += rest * column[i]
                for j in range(1, i + 1):
                    system[i, j] += column[i] * column[j]
        system[0, 0] += ridges[0]
        for i in range(1, width):
            system[i, i] += ridges[1]
        # Cholesky, then forward and backward substitution
        for i in range(width):
            for j in range(i + 1):
                entry = system[i, j]
                for k in range(j):
                    entry -= system[i, k] * system[j, k]
                system[i, j] = np.sqrt(entry) if i == j else entry / system[j, j]
        for i in range(width):
            for k in range(i):
                right[i] -= system[i, k] * right[k]
            right[i] /= system[i, i]
        for i in range(width - 1, -1, -1):
            for k in range(i + 1, width):
                right[i] -= system[k, i] * right[k]
            right[i] /= system[i, i]
        mine[row] = right
