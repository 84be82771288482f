"""Compiled loops over groups of facts: sorting them by small numbers, finding a group, looking into it.

They work on whole numbers only, so that nothing depends on how a processor rounds. Imported only where it is used:
numba takes a second to load. What groups are is said in `unkgcp.evidence.group_statistics`.
"""

from __future__ import annotations

import numpy as np

from unkgcp.compiling import njit


@njit(alone=True, nogil=True)
def sort_by(ids, rows, place, out):
    """The rows upwards by their ids, equal ones in the order they have, into out; place: one more than ids, zeros."""
    for row in rows:
        place[ids[row] + 1] += 1
    for each in range(1, len(place)):
        place[each] += place[each - 1]
    for row in rows:
        at = ids[row]
        out[place[at]] = row
        place[at] += 1


@njit(nogil=True)
def lower_bound(ids, begin, end, wanted):
    """The first place from begin on whose id is not below the wanted one; ids[begin:end] go upwards."""
    while begin < end:
        middle = (begin + end) // 2
        if ids[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(alone=True, nogil=True)
def find(first, minor, major, wanted, out):
    """The place of (major, wanted) among minor[first[major] : first[major + 1]], -1 where it is none, into out."""
    for row in range(len(major)):
        out[row] = -1
        if 0 <= major[row] < len(first) - 1:
            end = first[major[row] + 1]
            at = lower_bound(minor, first[major[row]], end, wanted[row])
            if at < end and minor[at] == wanted[row]:
                out[row] = at


@njit(alone=True, nogil=True)
def sum_up(starts, codes, powers, groups, out):
    """The sums of powers (values, 3) over all facts of some groups: (groups, 3)."""
    for each in range(len(groups)):
        for at in range(starts[groups[each]], starts[groups[each] + 1]):
            for power in range(3):
                out[each, power] += powers[codes[at], power]


@njit(alone=True, nogil=True)
def look(starts, codes, powers, large, sums, many, group, own, frequent, out, counts):
    """What groups hold without one fact of the value `own` (-1: with all of them), a row each.

    Into out (n, 7): the number of facts, the sums of powers, and the lowest, middle and highest value as codes. Into
    counts (n, frequent values): the facts of each. Groups of more than `many` facts have their sums stored.
    """
    for row in range(len(group)):
        out[row] = 0
        counts[row] = 0
        if group[row] < 0:
            continue
        begin, end = np.int64(starts[group[row]]), np.int64(starts[group[row] + 1])
        if end - begin > many:
            at = lower_bound(large, 0, len(large), group[row])
            for power in range(3):
                out[row, 1 + power] = sums[at, power]
        else:
            for place in range(begin, end):
                for power in range(3):
                    out[row, 1 + power] += powers[codes[place], power]
        n, gone = end - begin, end
        if own[row] >= 0:
            # of facts with equal values any may be left out
            gone = lower_bound(codes, begin, end, own[row])
            n -= 1
            for power in range(3):
                out[row, 1 + power] -= powers[own[row], power]
        out[row, 0] = n
        if n > 0:
            for which in range(3):
                at = begin + (0 if which == 0 else (n - 1) // 2 if which == 1 else n - 1)
                out[row, 4 + which] = codes[at + 1 if at >= gone else at]
        for which in range(len(frequent)):
            code = frequent[which]
            low = lower_bound(codes, begin, end, code)
            counts[row, which] = lower_bound(codes, low, end, code + 1) - low - (code == own[row])


@njit(alone=True, nogil=True)
def count_values(starts, codes, group, own, wanted, out):
    """How many facts of its group have each wanted value (n, m), without one of the value `own`, into out (n, m)."""
    for row in range(len(group)):
        for slot in range(wanted.shape[1]):
            code = wanted[row, slot]
            out[row, slot] = 0
            if group[row] >= 0 and code >= 0:
                end = np.int64(starts[group[row] + 1])
                low = lower_bound(codes, np.int64(starts[group[row]]), end, code)
                out[row, slot] = lower_bound(codes, low, end, code + 1) - low - (code == own[row])
