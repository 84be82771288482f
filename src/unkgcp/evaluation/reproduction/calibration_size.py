"""How many calibration facts are enough? (The paper's Figures 3 and 14-18.)

Random subsets of 10, 20, 40, ... and finally all calibration facts, ten draws a size; each calibrates, and
coverage and sharpness are taken on all test facts. The draws depend on the seed of the cell alone.

Coverage is exact: a label is covered when its nonconformity score is within the threshold. Widths are those of
the textbook interval cut to [0, 1], which `SplitConformal.interval` corrects in the last place only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal import SplitConformal
from unkgcp.conformal.scores import Score

Floats = NDArray[np.float64]
DRAWS = 10
SMALLEST = 10


def sizes(total: int) -> list[int]:
    """10, 20, 40, ... below `total`, then `total`."""
    found = []
    size = SMALLEST
    while size < total:
        found.append(size)
        size *= 2
    return [*found, total]


def curve(
    score: Score,
    calibration: tuple[Floats, Floats],
    test: tuple[Floats, Floats],
    seed: int,
    confidence: float = 0.9,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """Mean and standard deviation of coverage and sharpness at each size.

    `calibration` and `test` are (prediction, truth); a test row without a prediction (NaN) has the whole range.
    """
    prediction, truth = (column[~np.isnan(calibration[0])] for column in calibration)
    known = ~np.isnan(test[0])
    asked, label = test[0][known], test[1][known]
    unit = score.prepare(asked, None)
    strange = np.sort(score.score(asked, label, unit))
    unknown = int((~known).sum())
    result: dict[str, list[float]] = {
        key: [] for key in ("coverage", "coverage_sd", "sharpness", "sharpness_sd")
    }
    steps = sizes(len(prediction))
    for place, size in enumerate(steps):
        rng = np.random.default_rng([seed, place])
        found = []
        for _ in range(draws if size < len(prediction) else 1):
            chosen = rng.choice(len(prediction), size, replace=False)
            threshold = (
                SplitConformal(score).calibrate(prediction[chosen], truth[chosen]).threshold(confidence)
            )
            hits = int(np.searchsorted(strange, threshold, side="right")) + unknown
            width = _width(asked, threshold, unit) + unknown
            found.append((hits / len(known), width / len(known)))
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1 if len(found) > 1 else 0)
        for key, value in zip(result, (mean[0], spread[0], mean[1], spread[1]), strict=True):
            result[key].append(float(value))
    return {"sizes": steps, **result}


def _width(asked: Floats, threshold: float, unit: NDArray[np.floating[Any]] | None) -> float:
    """Sum of the widths of prediction -+ threshold unit, cut to [0, 1]."""
    if threshold == np.inf:
        return float(len(asked))
    radius = threshold if unit is None else threshold * unit
    width = np.minimum(asked + radius, 1.0) - np.maximum(asked - radius, 0.0)
    return float(np.maximum(width, 0.0).sum())
