"""Compiled loops of `unkgcp.evidence.fact_groups`: sorting facts, finding a group, and counting in it.

They work on integers only, so that nothing depends on how a processor rounds. The module is imported only where it is
used, because numba takes a second to load.
"""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit

SHORT = 96  # up to so many keys are sorted by insertion; more are sorted byte by byte (radix sort)


@njit(alone=True, nogil=True)
def count_ids(ids, counts):
    """Adds the number of times each id occurs to counts[id + 1]."""
    for row in range(len(ids)):
        counts[ids[row] + 1] += 1


@njit(alone=True, nogil=True)
def place_keys(ids, keys, place, out):
    """Writes each key to the next free place of its id in out, and moves place[id] on."""
    for row in range(len(ids)):
        at = ids[row]
        out[place[at]] = keys[row]
        place[at] += 1


@njit(alone=True, nogil=True)
def sort_keys(first, keys, spare, width):
    """Sorts the keys of each id, from first[id] to first[id + 1]. No key is negative or has more bits than `width`.

    spare: work space, as long as the most keys of one id. The time is proportional to the number of keys.
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
        if (width + 7) // 8 % 2:  # after an odd number of passes the sorted keys are in the spare
            for row in range(size):
                there[row] = here[row]


@njit(alone=True, nogil=True)
def count_runs(first, keys, low):
    """The number of runs of keys of one id that differ only in their last `low` bits."""
    count = 0
    for each in range(len(first) - 1):
        for row in range(first[each], first[each + 1]):
            if row == first[each] or keys[row] >> low != keys[row - 1] >> low:
                count += 1
    return count


@njit(alone=True, nogil=True)
def find_runs(first, keys, low, firsts, starts):
    """Writes where the runs of each id begin into firsts (ids + 1,), where their keys begin into starts (runs + 1,)."""
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
    """The first place from begin on whose id is not below the wanted one; ids[begin:end] are ascending."""
    while begin < end:
        middle = (begin + end) // 2
        if ids[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(alone=True, nogil=True)
def find(first, minor, major, wanted, out):
    """Writes the place of each `wanted` in minor[first[major] : first[major + 1]] into out, -1 where it is missing."""
    for row in range(len(major)):
        out[row] = -1
        if 0 <= major[row] < len(first) - 1:
            end = first[major[row] + 1]
            at = lower_bound(minor, first[major[row]], end, wanted[row])
            if at < end and minor[at] == wanted[row]:
                out[row] = at


@njit(alone=True, nogil=True)
def find_range(first, minor, major, wanted, single, out):
    """Writes where the facts of each group begin and end into out[row, 0] and out[row, 1]; both 0 without such a group.

    The group has the id `major` in the first column and, unless that is the `single` column, the number `wanted` in
    minor, which is ascending within an id.
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
    """Writes where groups of more than `many` facts begin and end into out (groups, 2), as many as there is room for.

    Returns the number of such groups.
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
    """Adds the sums of powers (values, 3) over all facts of each group to out (groups, 3)."""
    for each in range(len(ranges)):
        for at in range(ranges[each, 0], ranges[each, 1]):
            for power in range(3):
                out[each, power] += powers[codes[at], power]


@njit(alone=True, nogil=True)
def look(codes, powers, large, sums, many, ranges, frequent, out, counts):
    """Statistics of one group for each row.

    Into out (n, 7): the number of facts, the sums of powers, and the lowest, middle and highest value as codes. Into
    counts (n, frequent values): the number of facts with each. The sums of groups of more than `many` facts are stored;
    `large` has the places where these groups begin.
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
        n = end - begin
        out[row, 0] = n
        out[row, 4], out[row, 5], out[row, 6] = codes[begin], codes[begin + (n - 1) // 2], codes[end - 1]
        for which in range(len(frequent)):
            low = lower_bound(codes, begin, end, frequent[which])
            counts[row, which] = lower_bound(codes, low, end, frequent[which] + 1) - low


@njit(alone=True, nogil=True)
def count_values(codes, ranges, wanted, out):
    """Writes how many facts of each group have each wanted value (n, m) into out."""
    for row in range(len(ranges)):
        begin, end = ranges[row]
        for slot in range(wanted.shape[1]):
            code = wanted[row, slot]
            out[row, slot] = 0
            if begin < end and code >= 0:
                low = lower_bound(codes, begin, end, code)
                out[row, slot] = lower_bound(codes, low, end, code + 1) - low
