"""The monotone map from the scores of a model to confidences, learned on facts that training has not seen.

A backbone learns to give facts high scores and corrupted facts low ones; on a small or odd graph its scores are then
no confidences, although they order the facts well. The map is a rising function of straight pieces between quantiles of
the scores, that with the least squared error on the facts it is learned from. It keeps the order of the scores, needs
neither torch nor numba, and a model keeps it as one more table, `map`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.files import Field

PIECES = 16  # at most
FACTS_A_PIECE = 40  # at least, so that single facts do not bend the map
BEYOND = 10.0  # the map goes on outside the scores that it has seen for so many times their range,
SLOPE = 0.01  # where it gains this share of its own range: scores that differ keep their order

MAP = "map"  # the name of the table
FIELD = Field(MAP, np.floating, (PIECES + 3, 2), rising=True, optional=True)


def learn_map(
    score: NDArray[Any], confidence: NDArray[Any], weight: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """Scores (first column) and their confidences, both rising, between which the map is straight: (PIECES + 3, 2).

    Where there are fewer points the last is repeated.

    score, confidence, weight: (n,), n at least 1; without weights all facts count alike.
    """
    from scipy.optimize import nnls

    pieces = max(1, min(PIECES, len(score) // FACTS_A_PIECE))
    x = np.unique(np.quantile(score.astype(np.float64), np.linspace(0, 1, pieces + 1)))
    if len(x) == 1:
        x = x + np.array([0.0, 1.0])
    # the value at the first point, and what each piece adds to it: none may be negative
    ramps = np.clip((score[:, None] - x[:-1]) / np.diff(x), 0.0, 1.0)
    root = np.sqrt(np.ones(len(score)) if weight is None else weight)
    rises, _ = nnls(np.column_stack([np.ones(len(score)), ramps]) * root[:, None], confidence * root)
    y = np.cumsum(rises)
    least = SLOPE * ((y[-1] - y[0]) or 1.0)
    y += least * np.linspace(-0.5, 0.5, len(y))  # pieces that do not rise keep the order of scores too
    width = BEYOND * (x[-1] - x[0])
    x = np.concatenate([[x[0] - width], x, [x[-1] + width]])
    y = np.concatenate([[y[0] - least], y, [y[-1] + least]])
    points = np.stack([x, np.clip(y, 0.0, 1.0)], axis=1).astype(np.float32)
    return np.pad(points, ((0, PIECES + 3 - len(points)), (0, 0)), "edge")


def apply_map(points: NDArray[np.float32], score: NDArray[Any]) -> NDArray[np.float32]:
    """Confidences for scores (...), in [0, 1]."""
    return np.asarray(np.clip(np.interp(score, points[:, 0], points[:, 1]), 0.0, 1.0), np.float32)
