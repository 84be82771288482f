"""How far two computations of one number may be apart by rounding alone, on any processor and with any library.

A sum of n numbers, added in any order and with or without fused multiply-adds, is off by at most n u times the sum
of the magnitudes, where u is half the distance from 1 to the next number (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2). Roundings go up and down alike, so that it is also off by at most 6 sqrt(n) u
times that sum, with a chance of 3 in 100 million for the contrary (Higham and Mary, 2019, theorem 2.4, lambda = 6).
Two computations are apart by twice as much. A tolerance in a test is such a bound, not what one machine showed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXP_ULPS = 4  # what vector libraries promise of exp and log: at most four units in the last place


def apart(roundings: int, magnitude: Any, kind: Any = np.float32) -> Any:
    """Bound for two computations that round so often on the way to a sum whose terms have this sum of magnitudes."""
    unit = float(np.finfo(kind).eps) / 2
    return 2 * min(roundings, 6 * roundings**0.5) * unit * magnitude


def logistic_apart(argument: Any, kind: Any = np.float32) -> Any:
    """The same for logistic functions of arguments that are apart by `argument`: the slope is at most 1/4."""
    unit = float(np.finfo(kind).eps) / 2
    return argument / 4 + 2 * (2 * EXP_ULPS * unit / 4 + 2 * unit)


def scores_apart(
    name: str, tables: Mapping[str, Any], head: Any, relation: Any, tail: Any
) -> NDArray[np.float64]:
    """The same for scores f(w (h o r) . t + b) of the DistMult family, for triples given by ids (n,): (n,)."""
    entity, middle, w, b = (
        np.abs(np.asarray(tables[key], float)) for key in ("entity", "relation", "w", "b")
    )
    width = entity.shape[1]
    magnitude = w[0, 0] * np.einsum("nd,nd,nd->n", entity[head], middle[relation], entity[tail]) + b[0, 0]
    # a product of three, the sum over the dimensions, times w, plus b
    linear = apart(2 + width + 2, magnitude)
    return linear if name == "ukge-rect" else logistic_apart(linear)


def training_apart(learning_rate: float) -> float:
    """How far parameters may be apart after some epochs of Adam whose sums ran in another order.

    Adam divides by the size of the gradient, so that no bound of this kind follows from lengths of sums. A start whose
    every number is moved by one rounding moves the result by up to 1/4000 of a step (measured for ukge, ukge-rect,
    passleaf and beurre); another gradient or another random number moves it by whole steps. A hundredth lies between.
    """
    return learning_rate / 100


def assert_within(found: Any, expected: Any, bound: Any) -> None:
    """Every number within its own bound."""
    gap = np.abs(np.asarray(found, float) - np.asarray(expected, float))
    bound = np.broadcast_to(bound, gap.shape)
    worst = np.unravel_index(np.argmax(gap - bound), gap.shape)
    assert (gap <= bound).all(), (
        f"at {worst}: apart by {gap[worst]:.3g}, rounding explains {bound[worst]:.3g}"
    )
