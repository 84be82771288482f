"""From scores to evidence: p-values by rank, and a capital that grows if they are not uniform.

What it is: a conformal test martingale (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World"). `Bag`
ranks each score among all before it, which gives p-values; `Martingale` bets on them; `Stream` joins the two. Each
p-value multiplies the capital by f(p) for a density f that was chosen before p was seen; for independent uniform
p-values the expected factor is 1, so the capital is a martingale that starts at 1, and by Ville's inequality the
probability that it *ever* reaches 1 / rate is at most `rate`. So it may be looked at after every fact. What it is not:
a p-value for one look at the end.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

SETTLING = 10
"""The jumper moves 1 / (n + SETTLING) of its portfolio before the n-th bet."""
POWERS = (0.25, 0.5, 2.0, 4.0)
MISSES = (0.25, 2.0, 4.0)
"""How many times as many misses as promised the densities for coverage bet on."""
BINS = 10
BLOCK = 256
"""Scores that are ranked among each other at once."""
EDGE = 1e-12


class Bag:
    """All scores so far, in which each new one is ranked: a smoothed conformal p-value.

    It starts with the calibration scores (l,), in any order, and takes in every score it is asked about.
    """

    def __init__(self, scores: Floats) -> None:
        self.scores = np.sort(scores)

    def p_values(self, scores: Floats, uniform: Floats) -> Floats:
        """(#{larger} + u (#{equal} + 1)) / (n + 1) of each score among the n before it: (m,), in (0, 1).

        uniform: (m,) numbers u in [0, 1) that break ties, the score's tie with itself included.
        """
        p_values = np.empty(len(scores))
        for start in range(0, len(scores), BLOCK):
            block = scores[start : start + BLOCK]
            earlier = np.tri(len(block), k=-1, dtype=np.bool_)
            above = np.searchsorted(self.scores, block, side="right")
            equal = above - np.searchsorted(self.scores, block, side="left")
            equal += ((block[None] == block[:, None]) & earlier).sum(axis=1)
            larger = len(self.scores) - above + ((block[None] > block[:, None]) & earlier).sum(axis=1)
            before = len(self.scores) + np.arange(len(block))
            p_values[start : start + BLOCK] = (larger + uniform[start : start + BLOCK] * (equal + 1)) / (
                before + 1
            )
            self.scores = np.sort(np.concatenate([self.scores, block]), kind="stable")
        return p_values


class Martingale:
    """Bets on one p-value after the other, also on misses of the intervals at the level `confidence`."""

    def __init__(self, confidence: float = 0.9) -> None:
        self.miss = min(max(1.0 - confidence, 1e-3), 1 - 1e-3)
        count = self._densities(np.array([0.5])).shape[1]
        self.portfolio = np.full(count, 1.0 / count)
        self.jumper = 0.0
        outermost = np.array([0.0, self.miss / 2, 1 - self.miss / 2, 1.0])
        self.learners = [Histogram(np.linspace(0, 1, BINS + 1)), Histogram(outermost)]
        self.log_capital, self.log_largest = 0.0, 0.0
        self.size = 0

    def update(self, p_values: Floats) -> Floats:
        """The logarithm of the capital after each p-value: (m,)."""
        if not len(p_values):
            return np.empty(0)
        p = np.clip(p_values, EDGE, 1 - EDGE)
        jumper = self.jumper + np.cumsum(np.log(self._jump(self._densities(p))))
        self.jumper = float(jumper[-1])
        logs = np.stack([jumper, *(learner.update(p) for learner in self.learners)])
        path: Floats = logsumexp(logs, axis=0) - math.log(len(logs))
        self.log_capital, self.log_largest = float(path[-1]), max(self.log_largest, float(path.max()))
        self.size += len(path)
        return path

    def _jump(self, densities: Floats) -> Floats:
        """The factor of the jumper's capital at each bet; before it, a share of the portfolio moves evenly to all."""
        factors = np.empty(len(densities))
        for row, density in enumerate(densities):
            moved = 1.0 / (self.size + row + SETTLING + 1)
            self.portfolio = ((1.0 - moved) * self.portfolio + moved / len(self.portfolio)) * density
            factors[row] = self.portfolio.sum()
            self.portfolio /= factors[row]
        return factors

    def state(self) -> dict[str, Any]:
        """Everything that the next bet depends on, as plain values."""
        names = ("size", "log_capital", "log_largest", "jumper")
        return {
            **{name: getattr(self, name) for name in names},
            "portfolio": self.portfolio.tolist(),
            "learners": [[learner.counts.tolist(), learner.log_capital] for learner in self.learners],
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another martingale of this level."""
        plain = dict(state)
        self.portfolio = np.array(plain.pop("portfolio"), np.float64)
        for learner, (counts, log_capital) in zip(self.learners, plain.pop("learners"), strict=True):
            learner.counts, learner.log_capital = np.array(counts, np.float64), float(log_capital)
        for name, value in plain.items():
            setattr(self, name, value)

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


class Histogram:
    """Bets on the shares of the bins so far; half a point is added to each count, so that no share is zero."""

    def __init__(self, edges: Floats) -> None:
        self.edges, self.counts, self.log_capital = edges, np.zeros(len(edges) - 1), 0.0

    def update(self, p: Floats) -> Floats:
        """The logarithm of the capital after each p-value: (m,)."""
        bins = np.searchsorted(self.edges[1:-1], p, side="left")
        hits = np.zeros((len(p), len(self.counts)))
        hits[np.arange(len(p)), bins] = 1
        after = self.counts + np.cumsum(hits, axis=0)
        before = after[np.arange(len(p)), bins] - 1
        total = self.counts.sum() + np.arange(len(p))
        share = (before + 0.5) / (total + 0.5 * len(self.counts))
        path: Floats = self.log_capital + np.cumsum(np.log(share / np.diff(self.edges)[bins]))
        self.counts, self.log_capital = after[-1], float(path[-1])
        return path


class Stream:
    """Facts one after the other: a bag for each kind, in which scores are ranked, and a martingale that bets on ranks.

    A score is ranked among those of its own kind, so that it is no evidence if some kinds come more often than before.
    """

    def __init__(self, scores: Floats, kinds: NDArray[Any], confidence: float, log_alarm: float) -> None:
        self.bags = {int(kind): Bag(scores[kinds == kind]) for kind in np.unique(kinds)}
        self.martingale, self.path = Martingale(confidence), np.empty(0)
        self.log_alarm = log_alarm
        """The logarithm of the capital at which the alarm goes off."""
        self.alarm_at: int | None = None
        """The fact, counted from 1, at which the alarm first went off."""

    def update(self, scores: Floats, kinds: NDArray[Any], uniform: Floats) -> None:
        """Take in facts of kinds that have a bag; scores, kinds, uniform: (m,) each."""
        p_values = np.empty(len(scores))
        for kind in np.unique(kinds):
            rows = kinds == kind
            p_values[rows] = self.bags[int(kind)].p_values(scores[rows], uniform[rows])
        path = self.martingale.update(p_values)
        over = path >= self.log_alarm
        if self.alarm_at is None and over.any():
            self.alarm_at = len(self.path) + int(over.argmax()) + 1
        self.path = np.concatenate([self.path, path])

    def state(self) -> dict[str, Any]:
        """Plain values to continue from, without the scores in the bags; the path is only drawn and has four digits."""
        return {
            "martingale": self.martingale.state(),
            "alarm_at": self.alarm_at,
            "path": np.round(self.path, 4).tolist(),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another stream; the bags must already hold the scores that it has seen."""
        self.martingale.resume(state["martingale"])
        self.path, self.alarm_at = np.array(state["path"], np.float64), state["alarm_at"]
