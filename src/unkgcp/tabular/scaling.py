"""From the numbers a file holds to confidences in [0, 1].

A scale is chosen for a file, never guessed from its values: a confidence outside [0, 1] without a scale is an
error. It changes nothing by itself either: with the default scale every confidence stays the number it was.

>>> Scale("log", cap=3.0, floor=0.1, low=0.1)(np.array([0.1, 1.0, 3.0, 22.9])).round(3).tolist()
[0.1, 0.709, 1.0, 1.0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError

Kind = Literal["none", "minmax", "log"]

# A number this close to a bound but beyond it is the bound plus a rounding error.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """How numbers become confidences.

    none    the number divided by `unit` (the number that means certainty), which must lie in [0, 1]
    minmax  linear, from [smallest, largest] to [low, high]
    log     linear in the logarithm, from [smallest, largest] to [low, high]

    `floor` and `cap` replace the smallest and the largest number, and what lies beyond them is cut. With both
    given, the map depends on no data: two files are then scaled alike. The paper's ConceptNet confidences are
    Scale("log", cap=3.0, floor=0.1, low=0.1).
    """

    kind: Kind = "none"
    cap: float | None = None
    floor: float | None = None
    low: float = 0.0
    high: float = 1.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"the confidence scale {self.kind!r} is none of {', '.join(get_args(Kind))}")
        bounds = [bound for bound in (self.floor, self.cap) if bound is not None]
        if self.kind == "none" and bounds:
            raise InputError("a cap or floor needs a confidence scale: choose minmax or log")
        if not 0 <= self.low < self.high <= 1:
            raise InputError(
                f"the range [{self.low:g}, {self.high:g}] of the confidence scale must lie in [0, 1], "
                "the lower end first"
            )
        if not all(map(math.isfinite, bounds)) or (len(bounds) == 2 and bounds[0] >= bounds[1]):
            raise InputError(
                f"the floor {self.floor} of the confidence scale must lie below its cap {self.cap}"
            )
        if self.kind == "log" and any(bound <= 0 for bound in bounds):
            raise InputError("a logarithmic confidence scale needs a cap and a floor above 0")

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Confidences (n,) of the numbers of one file."""
        return self.together([values])[0]

    def accepts(self, values: NDArray[np.float64]) -> bool:
        """Whether `objection` finds nothing against any of these numbers."""
        if not len(values):
            return True
        smallest, largest = values.min(), values.max()  # NaN carries over and fails every comparison
        if self.kind == "none":
            return bool(smallest >= -ROUNDING * self.unit and largest <= self.unit * (1 + ROUNDING))
        return bool(smallest > (0 if self.kind == "log" else -math.inf) and largest < math.inf)

    def objection(self, value: float) -> str | None:
        """What is wrong with a number and what to do about it, as the end of a sentence; None if nothing."""
        if self.accepts(np.array([value])):
            return None
        if not math.isfinite(value):
            return f"has the confidence {value}: correct it or remove the line"
        if self.kind == "log":
            return f"has the confidence {value:g}, which has no logarithm: correct it, or use --confidence-scale minmax"
        return (
            f"has the confidence {value:g}, outside [0, {self.unit:g}]: "
            "correct it, or map the file's range with --confidence-scale minmax or log"
        )

    def together(self, columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Confidences of several files, the smallest and largest number taken over all of them."""
        if self.kind == "none":
            return [_cut(values if self.unit == 1.0 else values / self.unit, 0.0, 1.0) for values in columns]
        filled = [values for values in columns if len(values)]
        if not filled:
            return list(columns)
        smallest = self.floor if self.floor is not None else min(float(values.min()) for values in filled)
        largest = self.cap if self.cap is not None else max(float(values.max()) for values in filled)
        if not smallest < largest:
            raise InputError(
                f"all confidences are {smallest:g} or cut to it, so a {self.kind} scale cannot spread them: "
                "choose another scale, cap or floor"
            )
        return [self._spread(np.clip(values, smallest, largest), smallest, largest) for values in columns]

    def _spread(self, values: NDArray[np.float64], smallest: float, largest: float) -> NDArray[np.float64]:
        if self.kind == "log":
            # one logarithm for both: those of math and NumPy may differ in the last digit, and the largest would miss 1
            share = np.log(values / smallest) / np.log(largest / smallest)
        else:
            share = values / (largest - smallest) - smallest / (largest - smallest)
        return _cut(self.low + (self.high - self.low) * share, self.low, self.high)


def _cut(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """The values themselves where none lies beyond a bound, as is the rule."""
    if len(values) and (values.min() < low or values.max() > high):
        return np.clip(values, low, high)
    return values
