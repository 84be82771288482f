"""A condition on the confidence of a triple, such as `confidence >= 0.7`: what `--select` asks for.

>>> Range.parse("confidence >= 0.7").holds(np.array([0.69, 0.7])).tolist()
[False, True]
>>> Range.parse("0.3 < confidence <= 0.7")
Range(low=0.3, high=0.7, low_open=True, high_open=False)
"""

from __future__ import annotations

import ast
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.methods.intervals import Floats

LONGEST = 200
NAME = "confidence"
UNIT = 1e9  # confidences that are equal to nine decimals are equal, as evidence has it
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


class Range(NamedTuple):
    """The confidences from `low` to `high`, with or without the ends."""

    low: float = 0.0
    high: float = 1.0
    low_open: bool = False
    high_open: bool = False

    @classmethod
    def parse(cls, text: str) -> Range:
        """The condition that `text` says: comparisons of the confidence with numbers, perhaps joined by `and`.

        Python's own parser reads it, and nothing of it is executed; an InputError says what is not understood.
        """
        try:
            node = ast.parse(text.strip(), mode="eval").body if len(text) <= LONGEST else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            node = None
        parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
        found = reduce(cls._both, [each for part in parts for each in _comparisons(text, part)])
        if not found._units[0] <= found._units[1]:
            raise InputError(f"no confidence from 0 to 1 fulfils {text!r}; give a range that has some")
        if found._units == (0, int(UNIT)):
            raise InputError(f"every confidence from 0 to 1 fulfils {text!r}; there is nothing to choose")
        return found

    def _both(self, other: Range) -> Range:
        low, high = max(self.low, other.low), min(self.high, other.high)
        low_open = any(each.low_open and each.low == low for each in (self, other))
        return Range(low, high, low_open, any(each.high_open and each.high == high for each in (self, other)))

    @property
    def _units(self) -> tuple[int, int]:
        """The smallest and the largest confidence that passes, in billionths."""
        return round(self.low * UNIT) + self.low_open, round(self.high * UNIT) - self.high_open

    def holds(self, confidence: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each confidence passes: (n,)."""
        low, high = self._units
        units = np.rint(np.asarray(confidence, np.float64) * UNIT)
        return np.asarray((units >= low) & (units <= high))

    def part(self, low: Floats, high: Floats) -> Floats:
        """The part of each stretch from low to high that passes, all or nothing where it is a single value: (n,)."""
        width = high - low
        single = width * UNIT < 1
        inside = np.clip(high, self.low, self.high) - np.clip(low, self.low, self.high)
        middle = self.holds((low + high) / 2).astype(np.float64)
        return np.where(single, middle, inside / np.where(single, 1.0, width))

    def distance(self, score: Floats) -> Floats:
        """How far inside the range a predicted confidence lies, negative outside: (n,)."""
        above = score - self.low if self.low > 0 or self.low_open else np.full_like(score, np.inf)
        below = self.high - score if self.high < 1 or self.high_open else np.full_like(score, np.inf)
        return np.minimum(above, below)

    def __str__(self) -> str:
        above = f"{NAME} {'>' if self.low_open else '>='} {self.low:g}"
        below = f"{NAME} {'<' if self.high_open else '<='} {self.high:g}"
        if self._units[1] == int(UNIT):
            return above
        if self._units[0] == 0:
            return below
        return f"{self.low:g} {'<' if self.low_open else '<='} {below}"


def _comparisons(text: str, node: ast.expr | None) -> list[Range]:
    """The ranges of one comparison, chained or not; InputError if it is anything else."""
    if isinstance(node, ast.Compare):
        places = [node.left, *node.comparators]
        found = []
        for left, operator, right in zip(places, node.ops, places[1:], strict=False):
            for name, number, kind in (
                (left, right, type(operator)),
                (right, left, _TURNED.get(type(operator))),
            ):
                if isinstance(name, ast.Name) and name.id == NAME and isinstance(number, ast.Constant):
                    bound = number.value
                    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 <= bound <= 1:
                        raise InputError(f"{text!r}: a confidence is compared with a number from 0 to 1")
                    if kind in (ast.Gt, ast.GtE):
                        found.append(Range(low=float(bound), low_open=kind is ast.Gt))
                    elif kind in (ast.Lt, ast.LtE):
                        found.append(Range(high=float(bound), high_open=kind is ast.Lt))
        if len(found) == len(node.ops):
            return found
    raise InputError(
        f"the condition {text[:LONGEST]!r} is not understood: say what is asked of the confidence alone, "
        "'confidence >= 0.7' or '0.3 <= confidence < 0.7' for instance"
    )
