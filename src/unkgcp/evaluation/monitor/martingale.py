"""From scores to evidence: p-values by rank, and a capital that grows if they are not uniform.

What it is: a conformal test martingale (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World"). `Bag`
ranks each score among all before it, which gives p-values; `Martingale` bets on them. Each p-value multiplies the
capital by f(p) for a density f that was chosen before p was seen; for independent uniform p-values the expected
factor is 1, so the capital is a martingale that starts at 1, and by Ville's inequality the probability that it *ever*
reaches 1 / rate is at most `rate`. So it may be looked at after every fact. That holds for one capital: a new capital
of 1 for every batch of facts is a new test each time, and the chances of false alarms add up; `state` and `resume`
carry one capital from batch to batch. What it is not: a p-value for one look at the end.

The capital is an equal mixture of gamblers (a mean of martingales is one):

- a jumper holds a portfolio of densities, which bet on small, large, extreme or moderate p-values, or on too many or
  too few of the outermost ones, which the interval misses. Before the n-th bet it moves a share 1 / (n + 10) of the
  portfolio evenly to all of them, so that it notices a change that comes late. One of the densities is the uniform
  one, which never loses, so that by chance alone its capital falls no faster than 1 / n;
- two learners bet on the histogram of the p-values so far, as Krichevsky and Trofimov estimate it: one in ten bins,
  one in the two outermost bins and the rest. They find any other shape, only slower.

>>> martingale = Martingale(confidence=0.9)
>>> path = martingale.update(np.full(40, 0.01))          # forty strange facts in a row
>>> bool(martingale.log_capital > np.log(100))
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SETTLING = 10
"""The jumper moves 1 / (n + SETTLING) of its portfolio before the n-th bet."""
POWERS = (0.25, 0.5, 2.0, 4.0)
MISSES = (0.25, 2.0, 4.0)
"""How many times as many misses as promised the densities for coverage bet on."""
BINS = 10
CHUNK = 1 << 14
WORTH_COMPILING = 5000
_EDGE = 1e-12


class Martingale:
    """Bets on one p-value after the other, also on misses of the intervals at the level `confidence`."""

    def __init__(self, confidence: float = 0.9) -> None:
        self.miss = min(max(1.0 - confidence, 1e-3), 1 - 1e-3)
        count = self._densities(np.array([0.5])).shape[1]
        self._portfolio = np.full(count, 1.0 / count)
        self._jumper = 0.0
        self._learners = [
            Histogram(np.linspace(0, 1, BINS + 1)),
            Histogram(np.array([0.0, self.miss / 2, 1 - self.miss / 2, 1.0])),
        ]
        self.log_capital, self.log_largest = 0.0, 0.0
        self.size, self.largest_at = 0, 0

    def update(self, p_values: Floats) -> Floats:
        """The logarithm of the capital after each p-value: (m,)."""
        path = np.empty(len(p_values))
        for start in range(0, len(path), CHUNK):
            part = slice(start, start + CHUNK)
            path[part] = self._bet(np.clip(p_values[part], _EDGE, 1 - _EDGE), self.size + start)
        self._note(path)
        return path

    def _bet(self, p: Floats, before: int) -> Floats:
        jump = 1.0 / (before + SETTLING + 1 + np.arange(len(p)))
        factors = np.empty(len(p))
        _jump_function(len(p))(self._densities(p), self._portfolio, jump, factors)
        jumper = self._jumper + np.cumsum(np.log(factors))
        self._jumper = float(jumper[-1])
        logs = np.stack([jumper, *(learner.update(p) for learner in self._learners)])
        return _log_mean(logs)

    def _note(self, path: Floats) -> None:
        if not len(path):
            return
        at = int(path.argmax())
        if path[at] > self.log_largest:
            self.log_largest, self.largest_at = float(path[at]), self.size + at + 1
        self.log_capital = float(path[-1])
        self.size += len(path)

    def state(self) -> dict[str, Any]:
        """Everything that the next bet depends on, as plain values."""
        return {
            "size": self.size,
            "log_capital": self.log_capital,
            "log_largest": self.log_largest,
            "largest_at": self.largest_at,
            "portfolio": self._portfolio.tolist(),
            "jumper": self._jumper,
            "learners": [
                {"counts": learner.counts.astype(int).tolist(), "log_capital": learner.log_capital}
                for learner in self._learners
            ],
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another martingale of this level; ValueError if no martingale has this state."""
        size, learners = state["size"], state["learners"]
        portfolio = np.array(state["portfolio"], np.float64)
        counts = [np.array(learner["counts"], np.float64) for learner in learners]
        capitals = np.array([state["jumper"], *(learner["log_capital"] for learner in learners)], np.float64)
        if portfolio.shape != self._portfolio.shape or not (portfolio >= 0).all():
            raise ValueError("the portfolio is not one of these densities")
        if abs(portfolio.sum() - 1) > 1e-9:
            raise ValueError("the shares of the portfolio do not sum to 1")
        if [c.shape for c in counts] != [learner.counts.shape for learner in self._learners] or any(
            (c < 0).any() or c.sum() != size for c in counts
        ):
            raise ValueError("the histograms do not count the facts")
        if abs(_log_mean(capitals[:, None])[0] - state["log_capital"]) > 1e-6 * (1 + abs(capitals).max()):
            raise ValueError("the capital is not that of the gamblers")
        if not max(0.0, state["log_capital"]) <= state["log_largest"] or not 0 <= state["largest_at"] <= size:
            raise ValueError("the largest capital is smaller than another")
        self.size, self.largest_at = int(size), int(state["largest_at"])
        self.log_capital, self.log_largest = float(state["log_capital"]), float(state["log_largest"])
        self._portfolio, self._jumper = portfolio, float(capitals[0])
        for learner, count, capital in zip(self._learners, counts, capitals[1:].tolist(), strict=True):
            learner.counts, learner.log_capital = count, capital

    @property
    def p_value(self) -> float:
        """1 / the largest capital so far: a p-value that holds whenever one looks."""
        return math.exp(-self.log_largest)

    def _densities(self, p: Floats) -> Floats:
        """The factor by which each density of the portfolio multiplies its capital: (m, densities)."""
        columns = [np.ones(len(p))]
        columns += [power * p ** (power - 1) for power in POWERS]
        columns += [power * (1 - p) ** (power - 1) for power in POWERS]
        columns += [1 / (math.pi * np.sqrt(p * (1 - p))), 6 * p * (1 - p)]
        missed = np.abs(p - 0.5) >= 0.5 - self.miss / 2
        for times in MISSES:
            share = min(times * self.miss, (1 + self.miss) / 2)
            columns.append(np.where(missed, share / self.miss, (1 - share) / (1 - self.miss)))
        return np.stack(columns, axis=1)


def _log_mean(logs: Floats) -> Floats:
    """The logarithm of the mean of capitals (gamblers, m) that are given as logarithms: (m,)."""
    top = logs.max(axis=0)
    mean: Floats = top + np.log(np.exp(logs - top).mean(axis=0))
    return mean


class Histogram:
    """Bets on the shares of the bins so far; half a point is added to each count, so that no share is zero."""

    def __init__(self, edges: Floats) -> None:
        self.edges, self.counts, self.log_capital = edges, np.zeros(len(edges) - 1), 0.0

    def update(self, p: Floats) -> Floats:
        """The logarithm of the capital after each p-value: (m,)."""
        if not len(p):
            return np.empty(0)
        bins = np.searchsorted(self.edges[1:-1], p, side="left")
        hits = np.zeros((len(p), len(self.counts)))
        hits[np.arange(len(p)), bins] = 1
        after = self.counts + np.cumsum(hits, axis=0)
        own = after[np.arange(len(p)), bins] - 1
        total = self.counts.sum() + np.arange(len(p))
        share = (own + 0.5) / (total + 0.5 * len(self.counts))
        path: Floats = self.log_capital + np.cumsum(np.log(share / np.diff(self.edges)[bins]))
        self.counts, self.log_capital = after[-1], float(path[-1])
        return path


def jump_through(densities: Any, portfolio: Any, jump: Any, factors: Any) -> None:
    """For each bet move a share of the portfolio evenly to all densities, bet, and store the factor of the capital.

    densities: (m, k); portfolio: (k,) shares that sum to 1, updated in place; jump: (m,) the shares that are moved;
    factors: (m,), filled.
    """
    count = len(portfolio)
    for row in range(len(factors)):
        total = 0.0
        for column in range(count):
            share = (1.0 - jump[row]) * portfolio[column] + jump[row] / count
            portfolio[column] = share * densities[row, column]
            total += portfolio[column]
        for column in range(count):
            portfolio[column] /= total
        factors[row] = total


def _jump_by_rows(densities: Floats, portfolio: Floats, jump: Floats, factors: Floats) -> None:
    """As `jump_through`, all densities of a row at once."""
    stay, even = (1.0 - jump).tolist(), (jump / len(portfolio)).tolist()
    for row, density in enumerate(densities):
        portfolio *= stay[row]
        portfolio += even[row]
        portfolio *= density
        factors[row] = total = portfolio.sum()
        portfolio /= total


def _jump_function(rows: int) -> Any:
    """The compiled loop for many rows if numba is there, else NumPy's; they differ in the last digits at most."""
    compiled = _compiled() if rows >= WORTH_COMPILING else None
    return _jump_by_rows if compiled is None else compiled


@cache
def _compiled() -> Any:
    from unkgcp.loops import njit

    try:
        return njit(alone=True)(jump_through)
    except ImportError:
        return None


_Floats = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]

BAG_CHUNK = 1 << 16
"""Scores ranked among each other at once: their blocks are then numbered by 16 bits, which sort fastest."""


class Bag:
    """All scores so far, in which each new one is ranked: a smoothed conformal p-value.

    It starts with the calibration scores (l,), in any order, and takes in every score it is asked about.
    """

    def __init__(self, scores: _Floats) -> None:
        self._runs = [np.sort(scores)] if len(scores) else []
        self.size = len(scores)

    def p_values(self, scores: _Floats, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """(#{larger} + u (#{equal} + 1)) / (n + 1) of each score among the n before it: (m,), in (0, 1).

        uniform: (m,) numbers u in [0, 1) that break ties, the score's tie with itself included.
        """
        found = np.empty(len(scores))
        for start in range(0, len(scores), BAG_CHUNK):
            part = slice(start, start + BAG_CHUNK)
            found[part] = self._chunk(scores[part], uniform[part])
        return found

    def _chunk(self, scores: _Floats, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        larger, equal = _earlier(scores)
        for run in self._runs:
            below = np.searchsorted(run, scores, side="left")
            not_above = np.searchsorted(run, scores, side="right")
            equal += not_above - below
            larger += len(run) - not_above
        before = self.size + np.arange(len(scores))
        self.take(scores)
        p_values: NDArray[np.float64] = (larger + uniform * (equal + 1)) / (before + 1)
        return p_values

    def take(self, scores: _Floats) -> None:
        """Put scores into the bag without ranking them."""
        if not len(scores):
            return
        self.size += len(scores)
        self._runs.append(np.sort(scores))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, other = self._runs.pop(), self._runs.pop()
            # "stable" finds the two runs in order and merges them
            self._runs.append(np.sort(np.concatenate([other, last]), kind="stable"))


def _earlier(values: _Floats) -> tuple[Counts, Counts]:
    """How many earlier values of the array are larger, and how many equal, for each: (m,) and (m,).

    The values are cut into pairs of neighbouring blocks of 1, 2, 4, ... values, and the values of each right block are
    ranked among those of its left block. Every value meets each earlier one exactly once.
    """
    m = len(values)
    if m < 2:
        return np.zeros(m, np.int64), np.zeros(m, np.int64)
    time = np.arange(m)
    ordered = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], values[ordered][1:] != values[ordered][:-1]]))
    equal = np.empty(m, np.int64)
    equal[ordered] = time - np.repeat(starts, np.diff(np.append(starts, m)))
    not_larger = np.zeros(m, np.int64)
    for bit in range((m - 1).bit_length()):
        block = (ordered >> (bit + 1)).astype(np.uint16)
        rows = ordered[np.argsort(block, kind="stable")]
        right = (rows >> bit) & 1 == 1
        # all blocks before this one are full, and half of each is a left one
        lefts = np.cumsum(~right) - (rows >> (bit + 1) << bit)
        not_larger[rows[right]] += lefts[right]
    return time - not_larger, equal
