"""Conformal selection: choose candidates so that only a bounded share of the chosen ones is wrong, on average.

A candidate is wrong if its label, which is unknown, does not pass some condition. Known are l calibration points with
their labels, and for calibration points and candidates a score that is larger where passing is likelier (Jin and
Candès, 2023). The p-value of a candidate is

    p = (1 + #{calibration points that do not pass and score at least as high}) / (l + 1)

and Benjamini and Hochberg's rule chooses among the p-values of all candidates together. Then the expected share of
wrong candidates among the chosen ones is at most `fdr` (the share is 0 where none is chosen). The expectation is over
calibration points and candidates together, scores may tie, and each candidate must be exchangeable with the calibration
points given the other candidates. There may be several kinds of wrong candidates, each with its own calibration points;
the p-value is then the largest of those of the kinds. Candidates may be of several strata, each of which is compared
with calibration points of its own alone, and one that cannot be compared leaves the family beforehand. The proofs are
in docs/proofs/choosing.md. Nothing is promised for a single candidate, or for a part of the chosen ones.

Only the place of a candidate's score among the calibration scores that do not pass matters, so a histogram of places is
enough to choose among any number of candidates.

>>> chosen = select([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1], [0.05, 0.85, 0.95], fdr=0.5)
>>> chosen.p_value.round(3).tolist(), chosen.selected.tolist()
([0.5, 0.167, 0.167], [True, True, True])
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.arrays import Floats, check, column
from unkgcp.conformal.ranks import Confidence, ExactLevels, exact_levels
from unkgcp.errors import InputError
from unkgcp.loops import places_in

Places = NDArray[np.int32]
Counts = NDArray[np.int64]
UNKNOWN = -1
"""The place of a candidate that cannot be judged: it is never chosen, and does not count as a candidate."""


class Wrong(NamedTuple):
    """Calibration points of one kind: the scores (w,) of those that do not pass, and the number of all points."""

    scores: Floats
    size: int


class Selection(NamedTuple):
    """p_value: (n,). selected: (n,) for one share of wrong ones, (n, shares) for several."""

    p_value: Floats
    selected: NDArray[np.bool_]


class Cuts(NamedTuple):
    """The first place that is chosen, and the first if all counts of a stratum were one lower or one higher: (strata,).

    looser <= chosen <= stricter. `Reference.alike` finds with the outer two which calibration points would have been
    chosen instead of a candidate.
    """

    looser: Counts
    chosen: int
    stricter: Counts


@dataclass(frozen=True, eq=False)
class Reference:
    """The calibration scores that do not pass, of all kinds together, in ascending order, by stratum: (w,) each.

    Within a stratum the place of a score is the number of these scores below it, from 0 to w. The places of all strata
    together are numbered by their p-values, the largest first: `numbers` has the number of each place of a stratum.
    at_least, sizes: (kinds, places) how many scores of the place's stratum and of this kind are not below it, and how
    many calibration points there are. stratum: (places,).
    """

    scores: tuple[Floats, ...]
    numbers: tuple[Places, ...]
    at_least: Counts
    sizes: Counts
    stratum: NDArray[np.int64]

    @classmethod
    def of(cls, *strata: Sequence[Wrong]) -> Reference:
        """The kinds of wrong calibration points, the same ones for each stratum."""
        scores = tuple(np.sort(np.concatenate([kind.scores for kind in kinds])) for kinds in strata)
        at_least, sizes = [], []
        for kinds, ordered in zip(strata, scores, strict=True):
            below = [
                np.append(np.searchsorted(np.sort(kind.scores), ordered), len(kind.scores)) for kind in kinds
            ]
            at_least.append([len(kind.scores) - under for kind, under in zip(kinds, below, strict=True)])
            sizes.append(np.tile([[kind.size] for kind in kinds], len(ordered) + 1))
        counts, of = np.concatenate(at_least, axis=1).astype(np.int64), np.concatenate(sizes, axis=1)
        order = np.argsort(-((counts + 1) / (of + 1)).max(axis=0), kind="stable")
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order))
        lengths = [len(ordered) + 1 for ordered in scores]
        stratum = np.repeat(np.arange(len(strata)), lengths)[order]
        return cls(
            scores, tuple(np.split(number, np.cumsum(lengths)[:-1])), counts[:, order], of[:, order], stratum
        )

    @property
    def bins(self) -> int:
        """The length of a histogram of places: one count for those not judged, then one for each place."""
        return len(self.stratum) + 1

    def places(self, score: NDArray[np.floating], stratum: NDArray[np.integer] | None = None) -> Places:
        """The number of the place of each score in its stratum, the first if not given: (n,).

        `UNKNOWN` where the score is NaN, or the stratum negative.
        """
        places = np.full(len(score), UNKNOWN, np.int32)
        strata = np.zeros(len(score), np.int8) if stratum is None else stratum
        for index, (scores, numbers) in enumerate(zip(self.scores, self.numbers, strict=True)):
            rows = np.flatnonzero((strata == index) & ~np.isnan(score))
            places[rows] = numbers[places_in(scores, score[rows])]
        return places

    def count(self, places: Places) -> Counts:
        """The histogram of places: (bins,). Histograms of several batches can be added."""
        return np.bincount(places - UNKNOWN, minlength=self.bins).astype(np.int64)

    def p_values(self, places: Places) -> Floats:
        """The p-value at each place, 1 for candidates that are not judged: (n,)."""
        table = ((self.at_least + 1) / (self.sizes + 1)).max(axis=0)
        return np.append(table, 1.0)[places]  # place -1 picks the last

    def cut(self, counts: Counts, fdr: Fraction, shift: int | Counts = 0) -> int:
        """The first place that Benjamini and Hochberg's rule chooses; the number of places if it chooses nothing.

        The rule chooses the largest number r of the m candidates whose p-values are all at most fdr r / m, compared
        exactly, as integers. `shift` is added to every count of calibration points, or to those of each place.
        """
        m = int(counts[1:].sum())
        largest = (int(self.sizes.max()) + 2) * max(m, 1) * fdr.denominator
        kind = np.int64 if largest < 1 << 62 else object  # Python's integers, where products may overflow
        chosen = counts[:0:-1].cumsum()[::-1].astype(kind)  # candidates from each place on
        below, room = (self.at_least + 1 + shift).astype(kind), (self.sizes + 1).astype(kind)
        good = (below * (m * fdr.denominator) <= chosen * (fdr.numerator * room)).all(axis=0)
        return int(np.argmax(good)) if good.any() else len(chosen)

    def cuts(self, counts: Counts, fdr: Fraction) -> Cuts:
        """The cut as it is, and with the counts of each stratum one lower and one higher."""
        members = [(self.stratum == index).astype(np.int64) for index in range(len(self.scores))]
        looser, stricter = (
            np.array([self.cut(counts, fdr, sign * member) for member in members]) for sign in (-1, 1)
        )
        return Cuts(looser, self.cut(counts, fdr), stricter)

    def alike(
        self, cuts: Cuts, places: Places, passes: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which calibration points would have been chosen had they changed places with a chosen candidate of their
        stratum: (l,) each.

        The first array is for a candidate that passes, the second for one that does not: such a swap changes the counts
        and with them the cut. The second array is valid for candidates from the place `cuts.stricter` on only. There
        must be one kind of calibration points, and the places of all of them are given here.
        """
        if len(self.sizes) != 1:
            raise ValueError("several kinds of calibration points have no common reference")
        stratum = self.stratum[places]
        if_passing = places >= np.where(passes, cuts.chosen, cuts.looser[stratum])
        if_not = places >= np.where(passes, cuts.stricter[stratum], cuts.chosen)
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
    calibration = column("calibration_score", calibration_score)
    check("calibration_score", calibration)
    passes = np.asarray(calibration_passes)
    if passes.shape != calibration.shape:
        raise ValueError(
            f"calibration_passes has shape {passes.shape}, calibration_score {calibration.shape}"
        )
    if not np.isin(passes, (0, 1)).all():
        raise ValueError("calibration_passes must be true or false throughout")
    shares, single = check_shares(fdr)
    failed = calibration[~passes.astype(bool)]
    reference = Reference.of([Wrong(failed, len(calibration))])
    places = reference.places(column("score", score))
    counts = reference.count(places)
    selected = np.stack([places >= reference.cut(counts, share) for share in shares], axis=1)
    return Selection(reference.p_values(places), selected[:, 0] if single else selected)


def check_shares(fdr: Confidence | Iterable[Confidence]) -> ExactLevels:
    """Allowed shares of wrong ones as rationals, and whether a single one was given; InputError if they are invalid."""
    try:
        shares = exact_levels(fdr)
    except ValueError:
        shares = ExactLevels([], False)
    each = set(shares.levels)
    if not each or len(each) < len(shares.levels) or not each.isdisjoint((0, 1)):
        raise InputError(
            f"the allowed share of wrong ones is {fdr} but must lie between 0 and 1; of several each is given once"
        )
    return shares


# The condition on a confidence.

LONGEST = 200
NAME = "confidence"
UNIT = 1e9  # confidences that agree in nine decimals count as equal, as in `unkgcp.evidence`
_NUMBER = r"-?[0-9]*\.?[0-9]+(?:e-?[0-9]+)?"
COMPARISON = re.compile(
    rf"\s*(?:(?P<left>{_NUMBER})\s*(?P<before>[<>]=?)\s*)?{NAME}(?:\s*(?P<after>[<>]=?)\s*(?P<right>{_NUMBER}))?\s*"
)
_TURNED = str.maketrans("<>", "><")


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

        An InputError says what is not understood.
        """
        condition = cls()
        for part in re.split(r"\band\b", text):
            match = COMPARISON.fullmatch(part)
            if match is None or not (match["before"] or match["after"]):
                raise InputError(
                    f"the condition {text[:LONGEST]!r} is not understood: say what is asked of the confidence alone, "
                    "'confidence >= 0.7' or '0.3 <= confidence < 0.7' for instance"
                )
            turned = (match["before"] or "").translate(_TURNED)
            for sign, number in ((turned, match["left"]), (match["after"], match["right"])):
                if number is not None:
                    condition = condition._cut(text, sign, float(number))
        low, high = condition._units
        if low > high:
            raise InputError(f"no confidence from 0 to 1 fulfils {text!r}; give a range that has some")
        if (low, high) == (0, int(UNIT)):
            raise InputError(f"every confidence from 0 to 1 fulfils {text!r}; there is nothing to choose")
        return condition

    def _cut(self, text: str, sign: str, bound: float) -> Range:
        """The confidences in this range that also stand on this side of a bound."""
        if not 0 <= bound <= 1:
            raise InputError(f"{text!r}: a confidence is compared with a number from 0 to 1")
        strict = "=" not in sign
        if sign[0] == ">":
            low, open_ = max((self.low, self.low_open), (bound, strict))
            return self._replace(low=low, low_open=open_)
        high, closed = min((self.high, not self.high_open), (bound, not strict))
        return self._replace(high=high, high_open=not closed)

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
