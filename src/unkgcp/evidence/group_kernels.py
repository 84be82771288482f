"""Compiled loops over groups of facts: putting them in order, finding a group, looking into it.

They work on whole numbers only, so that nothing depends on how a processor rounds. Imported only where it is used:
numba takes a second to load. What groups are is said in `unkgcp.evidence.fact_groups`.
"""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit

SHORT = 96  # keys that are sorted by putting each into its place; more are sorted byte by byte


@njit(alone=True, nogil=True)
def count_ids(ids, counts):
    """How often each id occurs, added to the place behind it."""
    for row in range(len(ids)):
        counts[ids[row] + 1] += 1


@njit(alone=True, nogil=True)
def place_keys(ids, keys, place, out):
    """Each key to the next place of its id, into out; place (ids,) goes on."""
    for row in range(len(ids)):
        at = ids[row]
        out[place[at]] = keys[row]
        place[at] += 1


@njit(alone=True, nogil=True)
def sort_keys(first, keys, spare, width):
    """The keys of each id, from first[id] to first[id + 1], upwards. None is negative or has more bits than `width`.

    spare: as long as an id has keys. Time is that of the keys and their bytes, however many one id has.
    """
    counts = np.empty(257, np.int64)
    for each in range(len(first) - 1):
        begin, end = first[each], first[each + 1]
        size = end - begin
        if size <= SHORT:
            for row in range(begin + 1, end):
                key, at = keys[row], row
                while at > begin and keys[at - 1] > key:
                    keys[at] = keys[at - 1]
                    at -= 1
                keys[at] = key
            continue
        here, there = keys[begin:end], spare[:size]
        low = 0
        while low < width:
            counts[:] = 0
            for row in range(size):
                counts[((here[row] >> low) & 255) + 1] += 1
            for digit in range(256):
                counts[digit + 1] += counts[digit]
            for row in range(size):
                digit = (here[row] >> low) & 255
                there[counts[digit]] = here[row]
                counts[digit] += 1
            here, there = there, here
            low += 8
        if (width + 7) // 8 % 2:  # the last ones were put into the spare
            for row in range(size):
                there[row] = here[row]


@njit(alone=True, nogil=True)
def count_runs(first, keys, low):
    """How many runs of keys there are that differ only in their last `low` bits, within an id."""
    count = 0
    for each in range(len(first) - 1):
        for row in range(first[each], first[each + 1]):
            if row == first[each] or keys[row] >> low != keys[row - 1] >> low:
                count += 1
    return count


@njit(alone=True, nogil=True)
def find_runs(first, keys, low, firsts, starts):
    """Where the runs of each id begin, into firsts (ids + 1,), and where the keys of each, into starts (runs + 1,)."""
    count = 0
    for each in range(len(first) - 1):
        firsts[each] = count
        for row in range(first[each], first[each + 1]):
            if row == first[each] or keys[row] >> low != keys[row - 1] >> low:
                starts[count] = row
                count += 1
    firsts[len(first) - 1] = count
    starts[count] = len(keys)


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
def find_range(first, minor, major, wanted, single, out):
    """The rows of a group, from out[row, 0] to out[row, 1]; none where there is no such group.

    It has the id `major` and, unless that is its `single` one, the number `wanted` in minor, which goes upwards within
    the rows of an id.
    """
    for row in range(len(major)):
        out[row] = 0
        if 0 <= major[row] < len(first) - 1:
            begin, end = np.int64(first[major[row]]), np.int64(first[major[row] + 1])
            if not single:
                begin = lower_bound(minor, begin, end, wanted[row])
                end = lower_bound(minor, begin, end, wanted[row] + 1)
            out[row, 0], out[row, 1] = begin, end


@njit(alone=True, nogil=True)
def large_groups(first, minor, single, many, out):
    """Where groups of more than `many` facts begin and end, into out (groups, 2), as many as there is room for.

    Returns how many there are.
    """
    count = 0
    for each in range(len(first) - 1):
        begin, last = np.int64(first[each]), np.int64(first[each + 1])
        while begin < last:
            end = last if single else lower_bound(minor, begin, last, np.int64(minor[begin]) + 1)
            if end - begin > many:
                if count < len(out):
                    out[count, 0], out[count, 1] = begin, end
                count += 1
            begin = end
    return count


@njit(alone=True, nogil=True)
def sum_up(ranges, codes, powers, out):
    """The sums of powers (values, 3) over all facts of some groups: (groups, 3)."""
    for each in range(len(ranges)):
        for at in range(ranges[each, 0], ranges[each, 1]):
            for power in range(3):
                out[each, power] += powers[codes[at], power]


@njit(alone=True, nogil=True)
def look(codes, powers, large, sums, many, ranges, own, frequent, out, counts):
    """What groups hold without one fact of the value `own` (-1: with all of them), a row each.

    Into out (n, 7): the number of facts, the sums of powers, and the lowest, middle and highest value as codes. Into
    counts (n, frequent values): the facts of each. Groups of more than `many` facts have their sums stored, under the
    places where they begin.
    """
    for row in range(len(ranges)):
        out[row] = 0
        counts[row] = 0
        begin, end = ranges[row]
        if begin == end:
            continue
        if end - begin > many:
            at = lower_bound(large, 0, len(large), begin)
            for power in range(3):
                out[row, 1 + power] = sums[at, power]
        else:
            for place in range(begin, end):
                for power in range(3):
                    out[row, 1 + power] += powers[codes[place], power]
        n, gone = end - begin, end
        if own[row] >= 0:
            # facts with equal values are alike: leave out the first of them
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
def count_values(codes, ranges, own, wanted, out):
    """How many facts of its group have each wanted value (n, m), without one of the value `own`, into out (n, m)."""
    for row in range(len(ranges)):
        begin, end = ranges[row]
        for slot in range(wanted.shape[1]):
            code = wanted[row, slot]
            out[row, slot] = 0
            if begin < end and code >= 0:
                low = lower_bound(codes, begin, end, code)
                out[row, slot] = lower_bound(codes, low, end, code + 1) - low - (code == own[row])
