"""The compiled loop of `unkgcp.evidence.trees`: the leaves that rows of features reach, added up.

It works without the interpreter's lock: `unkgcp.loops` gives each thread some of the rows. The module is imported only
where it is used, because numba takes a second to load.
"""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit

BLOCK = 64  # rows that go through a tree together; their features fit into the second-level cache
ALL = np.uint32(0xFFFFFFFF)
# a power of two times this number has another top five bits for each power, see `PLACE`
SPREAD, TOP = np.uint32(0x077CB531), np.uint32(27)
PLACE = np.zeros(32, np.uint8)
"""From these five bits to the exponent."""
PLACE[(int(SPREAD) << np.arange(32) & int(ALL)) >> int(TOP)] = np.arange(32)


@njit(alone=True, nogil=True)
def sum_trees(table, first_node, tree_class, feature, threshold, missing_left, if_left, if_right, leaf, out):
    """Adds to out (n, K) the leaf that each row of table (n, F) reaches in every tree.

    Nobody walks: all nodes of a tree are tried with all rows of a block, several rows in one instruction. Each node
    leaves as many bits as there are leaves on the side that a row goes to or elsewhere; what is left by all nodes is
    the leaf. The lowest bit counts, so that no array, whatever is in it, leads outside of a tree's leaves.
    """
    block = np.empty((table.shape[1], BLOCK), np.float32)
    reached = np.empty(BLOCK, np.uint32)
    for begin in range(0, len(table), BLOCK):
        rows = min(BLOCK, len(table) - begin)
        for row in range(rows):
            block[:, row] = table[begin + row]
        for tree in range(len(tree_class)):
            reached[:rows] = ALL
            for node in range(first_node[tree], first_node[tree + 1]):
                column, limit, missing = feature[node], threshold[node], missing_left[node]
                left, right = if_left[node], if_right[node]
                for row in range(rows):
                    value = block[column, row]
                    goes_left = (value <= limit) | (np.isnan(value) & missing)
                    reached[row] &= left if goes_left else right
            for row in range(rows):
                lowest = np.uint32(reached[row] & (~reached[row] + np.uint32(1)))
                place = PLACE[np.uint32(lowest * SPREAD) >> TOP]
                out[begin + row, tree_class[tree]] += leaf[len(PLACE) * tree + place]
