"""The compiled loops of `unkgcp.evidence.completing`: walks of one, two and three steps through the training graph.

Arrays of the graph come in one order: `first` (entities + 1,), `kind` and `other` (steps,), sorted by entity, kind and
other end. A kind is 2 r for a step from head to tail of a fact of relation r, and 2 r + 1 for the way back, so that a
question (a, kind, ?) is one for a tail or for a head. Long lists are walked in strides, the same ones at every asking.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np

from unkgcp.compiling import njit

MOST_STEPS = 128  # steps of the entity that is asked about
MOST_MEMBERS = 64  # entities looked at that share one of its steps
MOST_ENDS = 64  # steps onward from each of them
UNSEEN = 2.0  # entities with other answers, added to those counted
FIELDS = 7
COUNT, PAIR, PAIRS, ALIKE, ALIKES, PATH, PATHS = range(FIELDS)


@njit(nogil=True)
def _range(kind, begin, end, wanted):
    """The steps of one kind among those of an entity, which stand from begin to end."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if kind[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    start = low
    high = end
    while low < high:
        middle = (low + high) // 2
        if kind[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return start, low


@njit(nogil=True)
def _stride(size, most):
    return 1 if size <= most else (size + most - 1) // most


@njit(alone=True, nogil=True)
def count_ways(first, kind, other, kinds, anchor, wanted, most, marked, keys, hits):
    """What walks from the anchors of known facts lead to: the number written, at most len(keys).

    For each question (anchor, wanted) every walk of one step (key wanted, kind) and of two (key wanted, kind, kind) is
    written with 1 if it ends at an answer and 0 if not. `keys` holds wanted * (kinds + 1) ** 2 + (k1 + 1) * (kinds + 1)
    + k2 + 1, with k1 = -1 for walks of one step.
    """
    base = kinds + 1
    n = 0
    for row in range(len(anchor)):
        a, q = anchor[row], wanted[row]
        begin, end = first[a], first[a + 1]
        start, stop = _range(kind, begin, end, q)
        for place in range(start, stop):
            marked[other[place]] = 1
        step = _stride(end - begin, most)
        for place in range(begin, end, step):
            z = other[place]
            if z == a:
                continue
            if kind[place] != q:
                if n >= len(keys):
                    break
                keys[n] = q * base * base + kind[place] + 1
                hits[n] = marked[z]
                n += 1
            onward = _stride(first[z + 1] - first[z], most)
            for further in range(first[z], first[z + 1], onward):
                x = other[further]
                if x == a:
                    continue
                if x == z:  # not `x in (a, z)`: numba knows no tuples of two kinds of integers
                    continue
                if n >= len(keys):
                    break
                keys[n] = q * base * base + (kind[place] + 1) * base + kind[further] + 1
                hits[n] = marked[x]
                n += 1
        for place in range(start, stop):
            marked[other[place]] = 0
    return n


@njit(nogil=True)
def _rate(keys, rates, wanted):
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < len(keys) and keys[low] == wanted:
        return rates[low]
    return np.float32(0.0)


@njit(nogil=True)
def _fold(table, x, best, total, rate):
    if rate > table[x, best]:
        table[x, best] = rate
    table[x, total] += rate


@njit(alone=True, nogil=True)
def gather(first, kind, other, kinds, way_keys, way_rates, a, q, counts, table):
    """What leads from `a` to each entity as an answer of (a, q, ?), added to `table` (entities, FIELDS), all 0 before.

    counts: (entities,) work space, all 0 before and after. PAIR, ALIKE and PATH hold the best rate, the columns after
    them the sum of all.
    """
    base = kinds + 1
    begin, end = first[a], first[a + 1]
    step = _stride(end - begin, MOST_STEPS)
    for place in range(begin, end):
        z, by = other[place], kind[place]
        if z == a:
            continue
        if by != q:
            rate = _rate(way_keys, way_rates, q * base * base + by + 1)
            if rate > 0:
                _fold(table, z, PAIR, PAIRS, rate)
        if (place - begin) % step != 0:
            continue
        # the entities that share the step (by, z) with a: which answers have they, and how many of them
        start, stop = _range(kind, first[z], first[z + 1], by ^ 1)
        skip = _stride(stop - start, MOST_MEMBERS)
        members = 0
        for member in range(start, stop, skip):
            m = other[member]
            if m == a:
                continue
            low, high = _range(kind, first[m], first[m + 1], q)
            if high > low:
                members += 1
            for answer in range(low, high, _stride(high - low, MOST_ENDS)):
                counts[other[answer]] += 1
        if members:
            for member in range(start, stop, skip):
                m = other[member]
                if m == a:
                    continue
                low, high = _range(kind, first[m], first[m + 1], q)
                for answer in range(low, high, _stride(high - low, MOST_ENDS)):
                    x = other[answer]
                    if counts[x]:
                        _fold(table, x, ALIKE, ALIKES, np.float32(counts[x] / (members + UNSEEN)))
                        counts[x] = 0
        # two steps, each pair of kinds with its rate
        further, last = first[z], first[z + 1]
        while further < last:
            on = kind[further]
            until = _range(kind, further, last, on)[1]
            rate = _rate(way_keys, way_rates, q * base * base + (by + 1) * base + on + 1)
            if rate > 0:
                for at in range(further, until, _stride(until - further, MOST_ENDS)):
                    x = other[at]
                    if x != a and x != z:
                        _fold(table, x, PATH, PATHS, rate)
            further = until
