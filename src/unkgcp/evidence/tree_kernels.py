"""Compiled loops over queries: sums of trees, cells of a query, and the interval that grows through them.

They belong to `unkgcp.evidence.trees` and `unkgcp.evidence.distribution`. They work row by row, so that a query gets
the same bits alone as among others, and without the interpreter's lock: `unkgcp.loops` gives each thread some of the
rows. The module is imported only where it is used, because numba takes a second to load.
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


@njit(alone=True, nogil=True)
def softmax(raw, classes, out):
    """Writes exp(raw) / sum exp(raw) of each row of raw (n, K) into the columns `classes` of out."""
    for row in range(len(raw)):
        top = raw[row, 0]
        for k in range(raw.shape[1]):
            top = max(top, raw[row, k])
        total = 0.0
        for k in range(raw.shape[1]):
            out[row, classes[k]] = np.exp(raw[row, k] - top)
            total += out[row, classes[k]]
        for k in range(raw.shape[1]):
            out[row, classes[k]] /= total


@njit(nogil=True)
def _cells(low, high, kind, share, masses, slot_low, slot_high, slot_mass):
    """Ends and mass of one query's cells in ascending order.

    Piece i, from low[i] to high[i], has the share[i] of the mass of class kind[i]. The mass of a slot (a suggested
    value of this query) is added to the atom that it equals; otherwise the slot becomes a cell that cuts a piece in
    two. Pieces are cut between values or at atoms, so a slot that begins where a piece ends is the atom that follows.
    """
    count = 0
    slots = len(slot_mass)
    room = len(low) + 2 * slots + 1
    lo, hi, mass = np.empty(room), np.empty(room), np.empty(room)
    used = np.zeros(slots, np.bool_)
    last = len(low) - 1
    for piece in range(len(low)):
        a, b, m = low[piece], high[piece], masses[kind[piece]] * share[piece]
        whole, extra = b - a, 0.0
        while True:
            best = -1
            for slot in range(slots):
                if used[slot] or slot_mass[slot] <= 0.0:
                    continue
                here = slot_high[slot] <= b and (slot_low[slot] < b or piece == last or a == b)
                if here and (best < 0 or slot_low[slot] < slot_low[best]):
                    best = slot
            if best < 0:
                break
            used[best] = True
            v, w = max(slot_low[best], a), slot_high[best]
            if v <= low[piece] and w >= b:
                extra += slot_mass[best]
                continue
            if v > a:
                part = masses[kind[piece]] * share[piece] * ((v - a) / whole)
                lo[count], hi[count], mass[count] = a, v, part
                count += 1
                m -= part
            lo[count], hi[count], mass[count] = v, w, slot_mass[best]
            count += 1
            a = w
        lo[count], hi[count], mass[count] = a, b, max(m, 0.0) + extra
        count += 1
    return lo[:count], hi[:count], mass[:count]


@njit(nogil=True)
def _hull(lo, hi, mass, start, step, block_mass, block_width, block_end):
    """Joins the cells from `start` outwards, in one direction, to blocks of falling mass per width; returns how many.

    A cell of little mass joins the cells behind it as long as the whole block is denser than its first part. The blocks
    are the upper concave hull of mass over width.
    """
    blocks = 0
    cell = start + step
    while 0 <= cell < len(mass):
        m, w, end = mass[cell], hi[cell] - lo[cell], cell
        while blocks > 0 and m * block_width[blocks - 1] >= block_mass[blocks - 1] * w:
            blocks -= 1
            m += block_mass[blocks]
            w += block_width[blocks]
        block_mass[blocks], block_width[blocks], block_end[blocks] = m, w, end
        blocks += 1
        cell += step
    return blocks


@njit(nogil=True)
def _first(lo, hi, mass):
    """The heaviest cell of the shortest run of cells that holds half of the mass."""
    count = len(mass)
    half = 0.0
    for cell in range(count):
        half += mass[cell]
    half *= 0.5
    begin, end, shortest = 0, count, np.inf
    stop, held = 0, 0.0
    for cell in range(count):
        while stop < count and held < half:
            held += mass[stop]
            stop += 1
        if held < half:
            break
        if hi[stop - 1] - lo[cell] < shortest:
            begin, end, shortest = cell, stop, hi[stop - 1] - lo[cell]
        held -= mass[cell]
    start = begin
    for cell in range(begin, end):
        if mass[cell] > mass[start]:
            start = cell
    return start


@njit(nogil=True)
def _grow(lo, hi, mass, empty):
    """The first cell, and the score at the inner and the outer end of every cell.

    The score is the mass of the interval as it grows outwards. The interval starts as the first cell, whose score is 0,
    and then takes the block with the most mass per width on either side, again and again. If intervals may be `empty`,
    the score of the first cell is the mass outside of it, and all other scores are 1 larger. Then the queries with an
    interval are, at every threshold, those with the heaviest first cells.
    """
    inner, outer, work = np.empty(len(mass)), np.empty(len(mass)), np.empty((6, len(mass)))
    start = _first(lo, hi, mass)
    up = _hull(lo, hi, mass, start, 1, work[0], work[1], work[2])
    down = _hull(lo, hi, mass, start, -1, work[3], work[4], work[5])
    inner[start] = outer[start] = max(1.0 - mass[start], 0.0) if empty else 0.0
    total = 1.0 + mass[start] if empty else mass[start]
    i = j = 0
    right, left = start, start
    while i < up or j < down:
        if j >= down:
            upwards = True
        elif i >= up:
            upwards = False
        else:
            upwards = work[0, i] * work[4, j] >= work[3, j] * work[1, i]
        if upwards:
            end = int(work[2, i])
            while right < end:
                right += 1
                inner[right] = total
                total += mass[right]
                outer[right] = total
            i += 1
        else:
            end = int(work[5, j])
            while left > end:
                left -= 1
                inner[left] = total
                total += mass[left]
                outer[left] = total
            j += 1
    return start, inner, outer


@njit(nogil=True)
def _at(y, cell, start, lo, hi, inner, outer):
    """The score of a label inside a cell; it rises evenly from the inner to the outer end."""
    if cell == start or lo[cell] == hi[cell]:
        return inner[cell]
    share = (y - lo[cell]) / (hi[cell] - lo[cell])
    if cell < start:
        share = (hi[cell] - y) / (hi[cell] - lo[cell])
    return min(inner[cell] + (outer[cell] - inner[cell]) * share, outer[cell])


@njit(alone=True, nogil=True)
def scores(low, high, kind, share, masses, slot_low, slot_high, slot_mass, y, out, empty):
    """Writes the nonconformity of labels y (n,) into out (n,); `empty` as in `_grow`."""
    for row in range(len(y)):
        lo, hi, mass = _cells(
            low, high, kind, share, masses[row], slot_low[row], slot_high[row], slot_mass[row]
        )
        start, inner, outer = _grow(lo, hi, mass, empty)
        best = np.inf
        for cell in range(len(mass)):
            if lo[cell] <= y[row] <= hi[cell]:
                best = min(best, _at(y[row], cell, start, lo, hi, inner, outer))
        out[row] = best


@njit(nogil=True)
def _end(cell, start, threshold, lo, hi, inner, outer):
    """The outermost label of a cell with a score of at most the threshold; its inner end has such a score."""
    near, far = (lo[cell], hi[cell]) if cell > start else (hi[cell], lo[cell])
    if _at(far, cell, start, lo, hi, inner, outer) <= threshold:
        return far
    # bisection over the floats in between, as integers with the same bits: near is inside, far is outside
    pair = np.array([near, far])
    bits = pair.view(np.int64)
    one = np.empty(1)
    bit = one.view(np.int64)
    a, b = bits[0], bits[1]
    while abs(b - a) > 1:
        bit[0] = a + (b - a) // 2
        if _at(one[0], cell, start, lo, hi, inner, outer) <= threshold:
            a = bit[0]
        else:
            b = bit[0]
    bit[0] = a
    return one[0]


@njit(nogil=True)
def _quantile(lo, hi, mass, tail, step):
    """The label beyond which a tail of this mass lies: the lower tail if step is 1, the upper if it is -1."""
    cell = 0 if step > 0 else len(mass) - 1
    last = len(mass) - 1 - cell
    passed = 0.0
    while cell != last and passed + mass[cell] < tail:
        passed += mass[cell]
        cell += step
    if mass[cell] <= 0.0:
        return lo[cell] if step > 0 else hi[cell]
    share = min(max((tail - passed) / mass[cell], 0.0), 1.0)
    if step > 0:
        return min(lo[cell] + share * (hi[cell] - lo[cell]), hi[cell])
    return max(hi[cell] - share * (hi[cell] - lo[cell]), lo[cell])


@njit(alone=True, nogil=True)
def bounds(low, high, kind, share, masses, slot_low, slot_high, slot_mass, thresholds, ends, empty, tails):
    """Writes the outermost labels within each threshold (n, levels) into ends (n, 2, levels); NaN where there are none.

    Thresholds are >= 0 unless intervals may be `empty`. tails (levels,): the mass that an interval may leave out on
    either side, even if the threshold is low; with 1 it makes no difference.
    """
    for row in range(len(thresholds)):
        lo, hi, mass = _cells(
            low, high, kind, share, masses[row], slot_low[row], slot_high[row], slot_mass[row]
        )
        start, inner, outer = _grow(lo, hi, mass, empty)
        for level in range(thresholds.shape[1]):
            threshold = thresholds[row, level]
            if threshold < inner[start]:
                ends[row, 0, level] = ends[row, 1, level] = np.nan
                continue
            upper, lower = hi[start], lo[start]
            cell = start + 1
            while cell < len(mass) and inner[cell] <= threshold:
                upper = _end(cell, start, threshold, lo, hi, inner, outer)
                if upper < hi[cell]:
                    break
                cell += 1
            cell = start - 1
            while cell >= 0 and inner[cell] <= threshold:
                lower = _end(cell, start, threshold, lo, hi, inner, outer)
                if lower > lo[cell]:
                    break
                cell -= 1
            if tails[level] < 0.5:
                lower = min(lower, _quantile(lo, hi, mass, tails[level], 1))
                upper = max(upper, _quantile(lo, hi, mass, tails[level], -1))
            ends[row, 0, level], ends[row, 1, level] = lower, upper


@njit(nogil=True)
def _value(lo, hi):
    """The middle of a cell, rounded to nine decimals like all values, but not beyond the ends of the cell."""
    return min(max(np.rint(0.5 * (lo + hi) * 1e9) / 1e9, lo), hi)


@njit(alone=True, nogil=True)
def summary(low, high, kind, share, masses, slot_low, slot_high, slot_mass, out):
    """Writes mean, median, value and mass of the first cell, and of the heaviest other cell, into out (n, 6)."""
    for row in range(len(out)):
        lo, hi, mass = _cells(
            low, high, kind, share, masses[row], slot_low[row], slot_high[row], slot_mass[row]
        )
        total, first = 0.0, 0.0
        for cell in range(len(mass)):
            total += mass[cell]
            first += mass[cell] * (0.5 * (lo[cell] + hi[cell]))
        half, below, median = 0.5 * total, 0.0, hi[-1]
        for cell in range(len(mass)):
            if below + mass[cell] >= half:
                part = (half - below) / mass[cell] if mass[cell] > 0 else 0.0
                median = lo[cell] + part * (hi[cell] - lo[cell])
                break
            below += mass[cell]
        start, other = _first(lo, hi, mass), -1
        for cell in range(len(mass)):
            if cell != start and (other < 0 or mass[cell] > mass[other]):
                other = cell
        out[row, 0], out[row, 1] = first / total if total > 0.0 else np.nan, median
        out[row, 2], out[row, 3] = _value(lo[start], hi[start]), mass[start]
        out[row, 4], out[row, 5] = np.nan, 0.0
        if other >= 0:
            out[row, 4], out[row, 5] = _value(lo[other], hi[other]), mass[other]
