"""Units: rows that arrive together, such as a triple with its repeats, are ranked as one.

Conformal prediction needs calibration points and query that are exchangeable. Where whole units are held out, units are
exchangeable, but rows are not: ten rows of one triple with the same label look like ten calibration points and count as
one. A group of 80 rows may be four units, and the largest score of four covers a fifth one in 80 % of cases only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def one_row_per_unit(unit: ArrayLike, seed: int = 0) -> NDArray[np.intp]:
    """One row of each unit, every row of it equally likely, in ascending order: (units,).

    unit: (n,) labels, or (n, columns) of numbers; rows with the same label are one unit. Only the labels and the seed
    decide, no score and no confidence.

    Theorem: rank the drawn rows alone, in groups or not. If the units of calibration and the unit of the query are
    exchangeable and the query is a row of its unit drawn in the same way, the query's label is inside its interval
    with probability at least the level, in every group. For the drawn rows of all units are then exchangeable points:
    permuting units permutes them, since draws inside units are independent of one another and alike. (Dunn, Wasserman
    and Ramdas, "Distribution-free prediction sets for two-layer hierarchical models", 2023, call it subsampling.)

    >>> one_row_per_unit(["a", "b", "a", "c", "b"]).tolist()
    [2, 3, 4]
    """
    labels = np.asarray(unit)
    order = np.random.default_rng(seed).permutation(len(labels))
    # the first row of a unit in a random order is any of its rows
    first = np.unique(labels[order], return_index=True, axis=0 if labels.ndim > 1 else None)[1]
    return np.sort(order[first])
