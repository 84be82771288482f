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

    A block of rows goes through one tree after the other. So a tree stays in the cache, and each row sums its leaves in
    the order of the trees.
    """
    for begin in range(0, len(table), BLOCK):
        end = min(begin + BLOCK, len(table))
        for tree in range(len(tree_class)):
            base = first_node[tree]
            root = 0 if first_node[tree + 1] > base else -1
            for row in range(begin, end):
                node = root
                while node >= 0:
                    at = base + node
                    value = np.float64(table[row, feature[at]])
                    if np.isnan(value):
                        node = left[at] if missing_left[at] else right[at]
                    else:
                        node = left[at] if value <= threshold[at] else right[at]
                out[row, tree_class[tree]] += leaf[first_leaf[tree] + ~node]
