"""Do wide intervals mark hard queries? Mean width against absolute error (the paper's Figures 2 and 9-13).

As in the paper the error between its smallest and largest value is cut into 30 bins of equal width, and only
intervals that cover are averaged; a bin without any is a gap (None). Beside it stands Spearman's rank
correlation of width and error over the same facts, with its 95 % interval.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation import metrics

Floats = NDArray[np.float64]
BINS = 30


def error_bins(error: Floats, bins: int = BINS) -> tuple[Floats, NDArray[np.intp]]:
    """(edges (bins + 1,), bin of each error (n,)); the last bin contains its upper edge."""
    edges = np.linspace(error.min(), error.max(), bins + 1)
    member = np.clip(np.searchsorted(edges, error, side="right") - 1, 0, bins - 1)
    return edges, member


def width_by_error(
    error: Floats, member: NDArray[np.intp], width: Floats, inside: NDArray[np.bool_]
) -> dict[str, Any]:
    """Mean width of covering intervals a bin, their number, and the rank correlation with the error."""
    covered = np.bincount(member[inside], minlength=BINS)
    total = np.bincount(member[inside], weights=width[inside], minlength=BINS)
    mean = [float(t / c) if c else None for t, c in zip(total, covered, strict=True)]
    rho = metrics.width_error_correlation(error[inside], 0 * error[inside], 0 * width[inside], width[inside])
    low, high = metrics.spearman_interval(rho, int(inside.sum()))
    return {
        "width": mean,
        "covered": covered.tolist(),
        "spearman": none_if_nan(rho),
        "spearman_low": none_if_nan(low),
        "spearman_high": none_if_nan(high),
    }


def none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
