"""Compiled loops over queries: what lies between two entities, and what entities like them say.

Row by row, so that a query gets the same bits alone as among others, and without the interpreter's lock. Imported only
where it is used: numba takes a second to load. The columns are those of `unkgcp.evidence.neighbours`.
"""

from __future__ import annotations

import numpy as np

from unkgcp.compiling import njit

MOST = 64  # partners of an entity and relation that are compared, spread over all of them
BUDGET = 5000  # steps that the comparison of two lists of neighbours may take
SAMPLED = (
    128  # neighbours of the one with fewer that are looked up if it would take more, spread over all of them
)


@njit(nogil=True)
def _place(ids, begin, end, wanted):
    """The first place from begin on whose id is not below the wanted one; ids[begin:end] go upwards."""
    while begin < end:
        middle = (begin + end) // 2
        if ids[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(nogil=True)
def _onward(ids, begin, end, wanted, search):
    """The same place, by a search or by walking there."""
    if search:
        return _place(ids, begin, end, wanted)
    while begin < end and ids[begin] < wanted:
        begin += 1
    return begin


@njit(nogil=True)
def _searched(fewer, more):
    """Whether looking up each of the fewer ids among the others takes less than walking along both lists."""
    return fewer * (np.log2(more + 1.0) + 1.0) < fewer + more


@njit(nogil=True)
def _alike(first, other, weight, one, two, apart):
    """The summed weights of the neighbours that two entities share, but for `apart`; a sample's if they have too many.

    Whether it is a sample, and which, does not depend on whether `apart` is among them: a fact that is left out is the
    same as one that is not there.
    """
    if first[one + 1] - first[one] > first[two + 1] - first[two]:
        one, two = two, one
    i, i_end, j, j_end = first[one], first[one + 1], first[two], first[two + 1]
    if i_end - i + j_end - j > BUDGET:
        return _sampled(first, other, weight, one, two, apart)
    search = _searched(i_end - i, j_end - j)
    total = 0.0
    while i < i_end and j < j_end:
        x = other[i]
        j = _onward(other, j, j_end, x, search)
        if j < j_end and other[j] == x and x != apart:
            total += weight[x]
        i += 1
    return total


@njit(nogil=True)
def _sampled(first, other, weight, one, two, apart):
    """The same for long lists: all of the shorter one if it is short enough to be looked up, or some of it."""
    sizes = np.empty(2, np.int64)
    places = np.empty(2, np.int64)
    for side in range(2):
        entity = one if side == 0 else two
        begin, end = first[entity], first[entity + 1]
        places[side] = _place(other, begin, end, apart)
        there = places[side] < end and other[places[side]] == apart
        sizes[side] = end - begin - there
        if not there:
            places[side] = end  # nothing to skip
    short, long, side = (two, one, 1) if (sizes[1], two) < (sizes[0], one) else (one, two, 0)
    count = sizes[side]
    if count == 0:
        return 0.0
    steps = count * (np.log2(sizes[1 - side] + 1.0) + 1.0)
    taken = count if min(steps, sizes[0] + sizes[1]) <= BUDGET else min(count, SAMPLED)
    total = 0.0
    j, j_end = first[long], first[long + 1]
    for k in range(taken):
        at = first[short] + k * count // taken
        if at >= places[side]:
            at += 1
        x = other[at]
        j = _place(other, j, j_end, x)
        if j >= j_end:
            break
        if other[j] == x:
            total += weight[x]
    return total * (count / taken)


@njit(nogil=True)
def _partners(first, other, kind, begin, end, partner, said, values, weight, wanted, me, beside, row):
    """Facts of the kind `wanted` among those of an entity, from begin to end: four numbers into row.

    They count by how much their other entity is like `me`. Facts of `me` itself are left out, and so is `beside`, the
    entity whose facts they are, as a neighbour that both have.
    """
    begin = _place(kind, begin, end, wanted)
    end = _place(kind, begin, end, wanted + 1)
    mine = _place(partner, begin, end, me)
    own = _place(partner, mine, end, me + 1) - mine
    count = end - begin - own
    taken = min(count, MOST)
    total, mean, most, value, likeness, last = 0.0, 0.0, 0.0, np.nan, 0.0, -1
    for i in range(taken):
        at = begin + i * count // taken
        if at >= mine:
            at += own
        if partner[at] != last:
            last = partner[at]
            likeness = _alike(first, other, weight, me, last, beside)
            likeness /= np.sqrt(1.0 + (first[last + 1] - first[last]))
        total += likeness
        mean += likeness * values[said[at]]
        if likeness > most:
            most, value = likeness, values[said[at]]
    row[0] = mean / total if total > 0 else np.nan
    row[1], row[2], row[3] = total, most, value


@njit(alone=True, nogil=True)
def neighbours(
    first,
    other,
    facts,
    sort,
    confidence,
    starts,
    kind,
    partner,
    said,
    values,
    weight,
    head,
    asked,
    tail,
    left_out,
    out,
):
    """The columns of `unkgcp.evidence.neighbours.NAMES` of queries (head, asked, tail), (n,) each, into out."""
    entities = len(first) - 1
    # count, sum, largest, weight, weighted sum of the facts of the query's relation on either side
    same = np.empty((2, 5))
    for row in range(len(head)):
        h, r, t = head[row], asked[row], tail[row]
        line = out[row]
        if not (0 <= h < entities and 0 <= t < entities):
            line[:10] = 0.0
            line[10:] = np.nan
            continue
        same[:] = 0.0
        shared = forth = back = from_both = to_both = 0
        rare = head_side = tail_side = product = surest = 0.0
        # walk the shorter list of neighbours and look each up in the longer one
        swapped = first[t + 1] - first[t] < first[h + 1] - first[h]
        one, two = (t, h) if swapped else (h, t)
        j, j_end = first[two], first[two + 1]
        search = _searched(first[one + 1] - first[one], j_end - j)
        for i in range(first[one], first[one + 1]):
            z = other[i]
            j = _onward(other, j, j_end, z, search)
            if j >= j_end:
                break
            if other[j] != z:
                continue
            at_head, at_tail = (j, i) if swapped else (i, j)
            x = y = 0.0
            out_of_head = into_head = out_of_tail = into_tail = False
            for e in range(facts[at_head], facts[at_head + 1]):
                c = values[confidence[e]]
                x += c
                if sort[e] & 1:
                    out_of_head = True
                    if sort[e] >> 1 == r:
                        _add(same[0], c, weight[z])
                else:
                    into_head = True
            for e in range(facts[at_tail], facts[at_tail + 1]):
                c = values[confidence[e]]
                y += c
                if sort[e] & 1:
                    out_of_tail = True
                else:
                    into_tail = True
                    if sort[e] >> 1 == r:
                        _add(same[1], c, weight[z])
            x /= facts[at_head + 1] - facts[at_head]
            y /= facts[at_tail + 1] - facts[at_tail]
            shared += 1
            rare += weight[z]
            forth += out_of_head and into_tail
            back += into_head and out_of_tail
            from_both += out_of_head and out_of_tail
            to_both += into_head and into_tail
            head_side += x
            tail_side += y
            product += x * y
            surest = max(surest, min(x, y))
        of_head, of_tail = first[h + 1] - first[h], first[t + 1] - first[t]
        if left_out:
            # a fact that is the only one between the two made them neighbours
            entry = _place(other, first[h], first[h + 1], t)
            if entry < first[h + 1] and other[entry] == t and facts[entry + 1] - facts[entry] == 1:
                of_head -= 1
                of_tail -= 1
        line[0], line[1] = shared, rare
        line[2] = shared / max(of_head + of_tail - shared, 1)
        line[3] = shared / max(min(of_head, of_tail), 1)
        line[4], line[5], line[6], line[7] = forth, back, from_both, to_both
        line[8], line[9] = of_head, of_tail
        line[10:14] = np.nan
        if shared:
            line[10], line[11], line[12] = head_side / shared, tail_side / shared, product / shared
            line[13] = surest
        for side in range(2):
            count, total, largest, heavy, weighted = same[side]
            place = 14 + 4 * side
            line[place] = count
            line[place + 1 : place + 4] = np.nan
            if count:
                line[place + 1], line[place + 2] = total / count, largest
                line[place + 3] = weighted / heavy
        # facts (z, r, t) among those of t, and facts (h, r, z) among those of h
        begin, end = starts[t], starts[t + 1]
        _partners(first, other, kind, begin, end, partner, said, values, weight, 2 * r, h, t, line[22:26])
        begin, end, wanted = starts[h], starts[h + 1], 2 * r + 1
        _partners(first, other, kind, begin, end, partner, said, values, weight, wanted, t, h, line[26:30])


@njit(nogil=True)
def _add(sums, value, weight):
    """One more fact in count, sum, largest, weight and weighted sum."""
    sums[0] += 1
    sums[1] += value
    sums[2] = max(sums[2], value)
    sums[3] += weight
    sums[4] += weight * value
