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
        _solve(system, right)
        mine[row] = right


@njit(alone=True, nogil=True)
def solve_entities(starts, order, head, relation, tail, target, of_entity, of_relation, ridges):
    """Solves for the effect and the vector of each entity, of_entity (n, 1 + rank), from the facts of either end.

    order (2 N,): the facts of entity i are at starts[i] to starts[i + 1]; those beyond N have it as their tail.
    of_relation (m, 3 + rank): base, weights of the effects of head and tail, weights of the vectors' numbers.
    """
    width, n = of_entity.shape[1], len(head)
    system, right, known = np.empty((width, width)), np.empty(width), np.empty(width)
    for entity in range(len(starts) - 1):
        system[:] = 0.0
        right[:] = 0.0
        for place in range(starts[entity], starts[entity + 1]):
            fact, is_tail = order[place] % n, order[place] // n
            weights = of_relation[relation[fact]]
            other = of_entity[head[fact] if is_tail else tail[fact]]
            known[0] = weights[1 + is_tail]
            for i in range(1, width):
                known[i] = weights[2 + i] * other[i]
            rest = target[fact] - weights[0] - weights[2 - is_tail] * other[0]
            _add(system, right, known, rest)
        system[0, 0] += ridges[0]
        for i in range(1, width):
            system[i, i] += ridges[1]
        _solve(system, right)
        of_entity[entity] = right


@njit(alone=True, nogil=True)
def solve_relations(starts, order, head, relation, tail, target, of_entity, of_relation, usual, ridge):
    """Solves for the weights of each relation, of_relation (m, 3 + rank), drawn towards the usual ones (3 + rank,)."""
    width = len(usual)
    system, right, known = np.empty((width, width)), np.empty(width), np.empty(width)
    for which in range(len(starts) - 1):
        system[:] = 0.0
        right[:] = ridge * usual
        for i in range(width):
            system[i, i] = ridge
        for place in range(starts[which], starts[which + 1]):
            fact = order[place]
            first, second = of_entity[head[fact]], of_entity[tail[fact]]
            known[0], known[1], known[2] = 1.0, first[0], second[0]
            for i in range(3, width):
                known[i] = first[i - 2] * second[i - 2]
            _add(system, right, known, target[fact])
        _solve(system, right)
        of_relation[which] = right


@njit(alone=True, nogil=True, inline="always")
def _add(system, right, known, target):
    """Adds an equation, known . x = target, to the lower half of the normal equations."""
    for i in range(len(known)):
        right[i] += target * known[i]
        for j in range(i + 1):
            system[i, j] += known[i] * known[j]


@njit(alone=True, nogil=True)
def _solve(system, right):
    """Puts the solution into `right`, and the Cholesky factor into the lower half of `system`."""
    width = len(right)
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
