"""The compiled loop of `unkgcp.evidence.trees`: the leaves that rows of features reach, added up.

It works without the interpreter's lock: `unkgcp.loops` gives each thread some of the rows. The module is imported only
where it is used, because numba takes a second to load.
"""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit

BLOCK = 64  # rows whose features fit into the first-level cache together


@njit(alone=True, nogil=True)
def sum_trees(
    table, first_node, first_leaf, tree_class, feature, threshold, missing_left, left, right, leaf, out
):
    """Adds to out (n, K) the leaf that each row of table (n, F) reaches in every tree.

    A block of rows goes through one tree after the other, all rows one level at a time: the processor works on several
    rows at once and seldom guesses wrong. So a tree stays in the cache, and each row sums its leaves in the order of
    the trees.
    """
    place = np.empty(BLOCK, np.int64)
    for begin in range(0, len(table), BLOCK):
        rows = min(BLOCK, len(table) - begin)
        for tree in range(len(tree_class)):
            base = first_node[tree]
            place[:rows] = 0 if first_node[tree + 1] > base else -1
            walking = True
            while walking:
                walking = False
                for row in range(rows):
                    if place[row] >= 0:
                        at = base + place[row]
                        value = np.float64(table[begin + row, feature[at]])
                        goes_left = (value <= threshold[at]) | (np.isnan(value) & missing_left[at])
                        place[row] = left[at] if goes_left else right[at]
                        walking |= place[row] >= 0
            for row in range(rows):
                out[begin + row, tree_class[tree]] += leaf[first_leaf[tree] + ~place[row]]
