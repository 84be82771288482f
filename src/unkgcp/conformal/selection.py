"""Conformal selection: choose candidates so that only a bounded share of the chosen ones is wrong, on average.

A candidate is wrong if its label, which is unknown, does not pass some condition. Known are l calibration points with
their labels, and for calibration points and candidates a score that is larger where passing is likelier (Jin and
Candès, 2023). The p-value of a candidate is

    p = (1 + #{calibration points that do not pass and score at least as high}) / (l + 1)

and Benjamini and Hochberg's rule chooses among the p-values of all candidates together. Then the expected share of
wrong candidates among the chosen ones is at most `fdr` (the share is 0 where none is chosen). The expectation is over
calibration points and candidates together, scores may tie, and each candidate must be exchangeable with the calibration
points given the other candidates. There may be several kinds of wrong candidates, each with its own calibration points;
the p-value is then the largest of those of the kinds. The proofs are in docs/proofs/choosing.md. Nothing is promised
for a single candidate, or for a part of the chosen ones.

Only the place of a candidate's score among the calibration scores that do not pass matters, so a histogram of places is
enough to choose among any number of candidates.

>>> found = select([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1], [0.05, 0.85, 0.95], fdr=0.5)
>>> found.p_value.round(3).tolist(), found.selected.tolist()
([0.5, 0.167, 0.167], [True, True, True])
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.query_chunks import check_finite, column
from unkgcp.conformal.ranks import Confidence, exact
from unkgcp.errors import InputError

Floats = NDArray[np.float64]
Places = NDArray[np.int32]
Counts = NDArray[np.int64]
UNKNOWN = -1
"""The place of a candidate without a score: it is never chosen, but it counts as a candidate."""


class Wrong(NamedTuple):
    """Calibration points of one kind: the scores (w,) of those that do not pass, and the number of all points."""

    scores: Floats
    size: int


class Selection(NamedTuple):
    """p_value: (n,). selected: (n,) for one share of wrong ones, (n, shares) for several."""

    p_value: Floats
    selected: NDArray[np.bool_]


class Cuts(NamedTuple):
    """The first place that is chosen, and the first place if all counts were one lower or one higher.

    looser <= chosen <= stricter. `Reference.alike` finds with the outer two which calibration points would have been
    chosen instead of a candidate.
    """

    looser: int
    chosen: int
    stricter: int


@dataclass(frozen=True, eq=False)
class Reference:
    """The calibration scores that do not pass, of all kinds together, in ascending order: (w,).

    The place of a score is the number of these scores below it, from 0 to w. at_least: (kinds, w + 1), for each kind
    and place the number of scores of that kind that are not below it. sizes: the calibration points of each kind.
    """

    scores: Floats
    at_least: Counts
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, kinds: Sequence[Wrong]) -> Reference:
        scores = np.sort(np.concatenate([kind.scores for kind in kinds]))
        below = [np.searchsorted(np.sort(kind.scores), scores) for kind in kinds]
        left = [
            len(kind.scores) - np.append(under, len(kind.scores))
            for kind, under in zip(kinds, below, strict=True)
        ]
        return cls(scores, np.stack(left).astype(np.int64), tuple(kind.size for kind in kinds))

    @property
    def bins(self) -> int:
        """The length of a histogram of places: one count for unknown candidates, then one for each place."""
        return len(self.scores) + 2

    def places(self, score: NDArray[np.floating]) -> Places:
        """The place of each score, `UNKNOWN` where it is NaN: (n,)."""
        found = np.searchsorted(self.scores, score).astype(np.int32)
        return np.where(np.isnan(score), np.int32(UNKNOWN), found)

    def count(self, places: Places) -> Counts:
        """The histogram of places: (bins,). Histograms of several batches can be added."""
        return np.bincount(places - UNKNOWN, minlength=self.bins).astype(np.int64)

    def p_values(self, places: Places) -> Floats:
        """The p-value at each place, 1 for unknown candidates: (n,)."""
        sizes = np.array(self.sizes, np.int64)[:, None]
        table = ((self.at_least + 1) / (sizes + 1)).max(axis=0)
        return np.append(table, 1.0)[places]  # place -1, of unknown candidates, picks the last

    def cut(self, counts: Counts, fdr: Fraction, shift: int = 0) -> int:
        """The first place that Benjamini and Hochberg's rule chooses; w + 1, behind the last, if it chooses nothing.

        The rule chooses the largest number r of the m candidates whose p-values are all at most fdr r / m, compared
        exactly, as integers. `shift` is added to every count of calibration points.
        """
        m = int(counts.sum())
        largest = (max(self.sizes) + 2) * max(m, 1) * fdr.denominator
        kind = np.int64 if largest < 1 << 62 else object  # Python's integers, where products may overflow
        chosen = counts[:0:-1].cumsum()[::-1].astype(kind)  # candidates from each place on
        good = np.ones(len(chosen), bool)
        for at_least, size in zip(self.at_least, self.sizes, strict=True):
            count = (at_least + 1 + shift).astype(kind)
            good &= count * (m * fdr.denominator) <= chosen * (fdr.numerator * (size + 1))
        return int(np.argmax(good)) if good.any() else len(chosen)

    def cuts(self, counts: Counts, fdr: Fraction) -> Cuts:
        """The cut with counts one lower, as they are, and one higher."""
        return Cuts(*(self.cut(counts, fdr, shift) for shift in (-1, 0, 1)))

    def alike(
        self, cuts: Cuts, score: NDArray[np.floating], passes: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which calibration points would have been chosen had they changed places with a chosen candidate: (l,) each.

        The first array is for a candidate that passes, the second for one that does not: such a swap changes the counts
        and with them the cut. The second array is valid for candidates from the place `cuts.stricter` on only. There
        must be one kind of calibration points, and all of them are given here.
        """
        if len(self.sizes) != 1:
            raise ValueError("several kinds of calibration points have no common reference")
        place = self.places(score)
        if_passing = place >= np.where(passes, cuts.chosen, cuts.looser)
        if_not = place >= np.where(passes, cuts.stricter, cuts.chosen)
        return if_passing, if_not


def select(
    calibration_score: ArrayLike,
    calibration_passes: ArrayLike,
    score: ArrayLike,
    fdr: Confidence | Iterable[Confidence] = 0.1,
) -> Selection:
    """Choose candidates so that the expected share of wrong ones among the chosen is at most `fdr`.

    calibration_score: (l,), larger where passing is likelier. calibration_passes: (l,), whether it passes. score: (n,)
    of the candidates, by the same function; one that is NaN is never chosen. Several shares are answered at once.
    """
    known = column("calibration_score", calibration_score)
    check_finite("calibration_score", known, 0)
    passes = np.asarray(calibration_passes)
    if passes.shape != known.shape:
        raise ValueError(f"calibration_passes has shape {passes.shape}, calibration_score {known.shape}")
    if not np.isin(passes, (0, 1)).all():
        raise ValueError("calibration_passes must be true or false throughout")
    shares, single = check_shares(fdr)
    failed = known[~passes.astype(bool)].astype(np.float64)
    reference = Reference.of([Wrong(failed, len(known))])
    places = reference.places(column("score", score).astype(np.float64))
    counts = reference.count(places)
    selected = np.stack([places >= reference.cut(counts, share) for share in shares], axis=1)
    return Selection(reference.p_values(places), selected[:, 0] if single else selected)


def check_shares(fdr: Confidence | Iterable[Confidence]) -> tuple[list[Fraction], bool]:
    """Allowed shares of wrong ones as rationals, and whether a single one was given; InputError if they are invalid."""
    single = isinstance(fdr, str | Fraction) or not isinstance(fdr, Iterable)
    given: list[Confidence] = [fdr] if single else list(fdr)  # type: ignore[list-item, arg-type]
    shares = []
    for share in given:
        try:
            found = exact(share)
        except ValueError:
            found = Fraction(0)
        if not 0 < found < 1:
            raise InputError(f"the allowed share of wrong ones is {share} but must lie between 0 and 1")
        shares.append(found)
    if not shares or len(set(shares)) < len(shares):
        raise InputError("name each allowed share of wrong ones once, 0.1 or 0.05,0.1 for instance")
    return shares, single


# The condition on a confidence.

LONGEST = 200
NAME = "confidence"
UNIT = 1e9  # confidences that agree in nine decimals count as equal, as in `unkgcp.evidence`
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


class Range(NamedTuple):
    """The confidences from `low` to `high`, with or without the ends: what `--select` asks for.

    >>> Range.parse("confidence >= 0.7").holds(np.array([0.69, 0.7])).tolist()
    [False, True]
    >>> Range.parse("0.3 < confidence <= 0.7")
    Range(low=0.3, high=0.7, low_open=True, high_open=False)
    """

    low: float = 0.0
    high: float = 1.0
    low_open: bool = False
    high_open: bool = False

    @classmethod
    def parse(cls, text: str) -> Range:
        """The condition in `text`: comparisons of the confidence with numbers, which `and` may join.

        Python's parser reads the text, and nothing of it is executed; an InputError says what is not understood.
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
        """The confidences that are in both ranges."""
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
        """The share of each stretch from low to high that passes, 0 or 1 where it is a single value: (n,)."""
        width = high - low
        single = width * UNIT < 1
        inside = np.clip(high, self.low, self.high) - np.clip(low, self.low, self.high)
        middle = self.holds((low + high) / 2).astype(np.float64)
        return np.where(single, middle, inside / np.where(single, 1.0, width))

    def distance(self, score: Floats) -> Floats:
        """How far inside the range each predicted confidence lies; negative outside of it: (n,)."""
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
    """The ranges of the parts of one comparison, which may be chained; InputError if it is anything else."""
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
