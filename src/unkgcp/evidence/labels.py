"""Confidences as values that can be counted: labels are atoms, and floats that mean one value are one value.

What it is: a table of the distinct confidences of the training facts, each with the smallest and the largest
float that stands for it (a file may hold 0.4374999999999998 and 0.4375, and means one number). What it is not:
a rounding of queries or intervals; those stay what they are.

>>> values = Values.of(np.array([0.25, 0.4375, 0.4374999999999998]))
>>> values.centre.tolist(), values.code(np.array([0.4375, 0.3])).tolist()
([0.25, 0.4375], [1, -1])
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

DECIMALS = 9
UNIT = 10**DECIMALS


@dataclass(frozen=True, eq=False)
class Values:
    """V distinct values in ascending order; `low` and `high` are the floats seen for each: (V,)."""

    units: NDArray[np.int64]
    """The values in billionths: sums of integers do not depend on the order of the summands."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, confidence: NDArray[np.float64]) -> Values:
        units, inverse = np.unique(to_units(confidence), return_inverse=True)
        low, high = np.full(len(units), np.inf), np.full(len(units), -np.inf)
        np.minimum.at(low, inverse, confidence)
        np.maximum.at(high, inverse, confidence)
        return cls(units, low, high)

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """The values as floats: (V,)."""
        return np.asarray(self.units / UNIT)

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """The values in whole thousandths, and their squares: (V, 2), exact."""
        thousandths = np.rint(self.centre * 1000)
        return np.stack([thousandths, thousandths**2], axis=1)

    def code(self, confidence: NDArray[np.float64]) -> NDArray[np.int64]:
        """Position of each confidence among the values, -1 where it is none of them: (n,)."""
        units = to_units(confidence)
        place = np.minimum(np.searchsorted(self.units, units), len(self.units) - 1)
        return np.where(self.units[place] == units, place, -1)


def to_units(confidence: NDArray[np.float64]) -> NDArray[np.int64]:
    """Confidences in billionths: (n,) int64."""
    units: NDArray[np.int64] = np.rint(np.asarray(confidence, np.float64) * UNIT).astype(np.int64)
    return units
