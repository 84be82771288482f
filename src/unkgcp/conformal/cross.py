"""Cross-conformal prediction (CV+): every labelled point both trains and calibrates, for data with few labels.

K models are trained, each without one fold of the points. Each point is scored by the model that did not see it, and an
interval is made of the predictions of all K models for a query.

>>> rng = np.random.default_rng(0)
>>> x, noise = rng.random(60), rng.random(60)
>>> fold = draw_folds(60, 5, seed=0)                     # fold k is left out of model k; here all models predict x
>>> cal = CrossConformal().calibrate(x, np.clip(x + noise - 0.5, 0, 1), fold)
>>> cal.interval(np.stack([x[:2]] * 5, axis=1), confidence=0.9).shape
(2, 2)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.arrays import Floats
from unkgcp.conformal.ranks import Confidence, exact, exact_levels, rank
from unkgcp.conformal.scores import Residual, score_of
from unkgcp.conformal.split import Levels

CELLS = 1 << 20  # ends that are held at once, so that memory does not grow with the number of queries
BOUNDS = (0.0, 1.0)  # of the labels


def draw_folds(size: int, folds: int, seed: int) -> NDArray[np.int32]:
    """A random fold for each of `size` points: (size,); all folds have the same size.

    Points that are left over when `folds` does not divide `size` get -1: they train every model and are not ranked.
    """
    fold = np.full(size, -1, np.int32)
    order = np.random.default_rng(seed).permutation(size)
    each = size // folds
    fold[order[: folds * each]] = np.repeat(np.arange(folds, dtype=np.int32), each)
    return fold


def guaranteed(confidence: Confidence, size: int, folds: int) -> float:
    """The coverage of CV+ in the worst case, with n = `size` ranked points in K = `folds` equal folds.

    1 - 2 a - min(2 (1 - 1/K) / (n/K + 1), (1 - K/n) / (K + 1)) with a = 1 - confidence (Barber, Candes, Ramdas and
    Tibshirani, 2021, theorem 4); with K = n it is 1 - 2 a. Coverage is usually close to `confidence` itself.
    """
    miss = 1 - exact(confidence)
    n, k = size, folds
    loss = min(2 * (1 - 1 / k) / (n / k + 1), (1 - k / n) / (k + 1))
    return max(0.0, float(1 - 2 * miss) - loss)


class CrossConformal:
    """Intervals from K models, each trained without one fold of the points.

    Guarantee: if the points and the query are exchangeable, folds were drawn without looking at the points, and the
    training of a model treats its points alike, the label of a query is inside with probability at least
    `guaranteed(confidence, n, K)`, which is a little less than 1 - 2 (1 - confidence).

    score: the name of one without scale ("residual", "entropy"). Labels lie in [0, 1]. The arrays that it is given are
    checked by its caller (`unkgcp.methods.cv_plus`).
    """

    def __init__(self, score: str = Residual.name) -> None:
        self.score = score_of(score)
        self.residuals: list[Floats] = []

    def calibrate(self, prediction: Floats, truth: Floats, fold: NDArray[np.integer[Any]]) -> CrossConformal:
        """Sort the scores of n points in each fold; all arguments are (n,).

        prediction[i] comes from the model that did not see point i, fold[i] is the number of that model; points with
        fold -1 are left out.
        """
        score = self.score.score(prediction, truth, self.score.prepare(prediction, None))
        self.residuals = [np.sort(score[fold == k]) for k in range(int(fold.max()) + 1)]
        return self

    @property
    def size(self) -> int:
        """The number n of points that are ranked."""
        return sum(map(len, self.residuals))

    def interval(self, prediction: Floats, confidence: Levels = 0.9) -> Floats:
        """Ends for queries whose K predictions are the rows of `prediction` (m, K): (m, 2), or (m, 2, levels).

        Each point i gives an interval: the labels whose score, with the prediction of the model that did not see i, is
        at most the score of i. With k = ceil(confidence (n + 1)), the upper end is the k-th smallest of the upper ends
        of these intervals and the lower end the k-th largest of their lower ends, so that intervals grow with the
        level. It is the whole range if k > n. It is empty, lower > upper, if k = 0, and may be at low levels where the
        models disagree.
        """
        levels, single = exact_levels(confidence)
        ends = np.empty((len(prediction), 2, len(levels)))
        for rows, lower, upper in self._ordered_ends(prediction):
            for place, level in enumerate(levels):
                k = rank(level, self.size)
                if k < 1:
                    pair: tuple[Any, Any] = (np.inf, -np.inf)
                else:
                    pair = BOUNDS if k > self.size else (lower[:, k - 1], upper[:, k - 1])
                ends[rows, 0, place], ends[rows, 1, place] = pair
        return ends[:, :, 0] if single else ends

    def core(self, prediction: Floats) -> Floats:
        """A point that lies, for each query, inside its intervals of all levels at which they are not empty: (m,).

        At low levels, where an interval may be empty, this point can be the answer instead.
        """
        points = np.empty(len(prediction))
        for rows, lower, upper in self._ordered_ends(prediction):
            first = np.argmax(lower <= upper, axis=1)[:, None]  # the last ends, the outermost, always qualify
            low, high = np.take_along_axis(lower, first, 1), np.take_along_axis(upper, first, 1)
            points[rows] = np.clip((low + high) / 2, low, high)[:, 0]
        return points

    def _ordered_ends(self, guess: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
        """For blocks of queries the ends that all points give, from the innermost to the outermost: (m, n) each."""
        step = max(1, CELLS // self.size)
        for start in range(0, len(guess), step):
            rows = slice(start, start + step)
            lower, upper = self._ends_of_points(guess[rows])
            yield rows, -np.sort(-lower, axis=1), np.sort(upper, axis=1)

    def _ends_of_points(self, guess: Floats) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval that each point gives each query, see `interval`: (m, n) each."""
        rows = len(guess)
        lower, upper = np.empty((rows, self.size)), np.empty((rows, self.size))
        first = 0
        for fold, residual in enumerate(self.residuals):
            centre = np.repeat(guess[:, fold], len(residual))
            scale = self.score.prepare(centre, None)
            low, high = self.score.bounds(centre, np.tile(residual, rows), scale, BOUNDS)
            part = slice(first, first + len(residual))
            lower[:, part], upper[:, part] = low.reshape(rows, -1), high.reshape(rows, -1)
            first = part.stop
        return lower, upper
