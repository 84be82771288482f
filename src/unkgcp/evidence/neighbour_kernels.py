"""Compiled loops that go from entity to entity: what lies between two of them, and what leads from one to an answer.

They work row by row, so that a query gets the same bits alone as among others, and without the interpreter's lock. The
module is imported only where it is used, because numba takes a second to load. First come the loops of
`unkgcp.evidence.features.Neighbours`, then those of `unkgcp.evidence.candidate_ranking`.
"""

from __future__ import annotations

import numpy as np

from unkgcp.evidence.group_kernels import lower_bound
from unkgcp.loops import njit

MOST = 64  # partners of an entity and relation that are compared, spread evenly over all of them
BUDGET = 5000  # steps that the comparison of two lists of neighbours may take
# The number of neighbours that are compared instead if it would take more steps. They are taken from the shorter list,
# spread evenly over it.
SAMPLED = 128
ENTITIES_A_ROW = (
    16  # more entities than so many for each query are not marked: clearing the marks would take longer
)


@njit(nogil=True)
def _onward(ids, begin, end, wanted, search):
    """The same as `lower_bound`, by bisection or step by step."""
    if search:
        return lower_bound(ids, begin, end, wanted)
    while begin < end and ids[begin] < wanted:
        begin += 1
    return begin


@njit(nogil=True)
def _searched(fewer, more):
    """Whether it is faster to look up each id of the shorter list in the longer one than to walk along both lists."""
    return fewer * (np.log2(more + 1.0) + 1.0) < fewer + more


@njit(nogil=True)
def _alike(first, other, weight, one, two, apart):
    """The summed weights of the neighbours that two entities share, without `apart`; estimated if lists are long."""
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
    """The same for long lists: it looks up the ids of the shorter list, all of them or a sample."""
    sizes = np.empty(2, np.int64)
    places = np.empty(2, np.int64)
    for side in range(2):
        entity = one if side == 0 else two
        begin, end = first[entity], first[entity + 1]
        places[side] = lower_bound(other, begin, end, apart)
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
        j = lower_bound(other, j, j_end, x)
        if j >= j_end:
            break
        if other[j] == x:
            total += weight[x]
    return total * (count / taken)


@njit(nogil=True)
def _marked(first, other, mark, one, two):
    """The same as `_alike` where `mark` has the weights of the neighbours of `two`; below 0 if that takes longer."""
    mine, its = first[one + 1] - first[one], first[two + 1] - first[two]
    if len(mark) == 0 or mine + its > BUDGET or (its < mine and _searched(its, mine)):
        return -1.0
    total = 0.0
    for i in range(first[one], first[one + 1]):
        total += mark[other[i]]
    return total


@njit(nogil=True)
def _partners(
    first, other, kind, begin, end, partner, value_code, values, weight, wanted, me, beside, mark, row
):
    """Four numbers into row, from the facts of the kind `wanted` among those of an entity, from begin to end.

    A fact is weighted by how much its other entity is like `me`. Facts of `me` itself are left out. `beside`, the
    entity whose facts these are, does not count as a shared neighbour. mark: (entities,) work space, 0 before and
    after, or empty.
    """
    begin = lower_bound(kind, begin, end, wanted)
    end = lower_bound(kind, begin, end, wanted + 1)
    mine = lower_bound(partner, begin, end, me)
    to_itself = lower_bound(partner, mine, end, me + 1) - mine
    count = end - begin - to_itself
    taken = min(count, MOST)
    total, mean, most_alike, value, likeness, last = 0.0, 0.0, 0.0, np.nan, 0.0, -1
    use_marks = len(mark) > 0 and taken > 0
    if use_marks:
        for i in range(first[me], first[me + 1]):
            mark[other[i]] = weight[other[i]]
        mark[beside] = 0.0
    for i in range(taken):
        at = begin + i * count // taken
        if at >= mine:
            at += to_itself
        if partner[at] != last:
            last = partner[at]
            likeness = _marked(first, other, mark, last, me)
            if likeness < 0:
                likeness = _alike(first, other, weight, me, last, beside)
            likeness /= np.sqrt(1.0 + (first[last + 1] - first[last]))
        total += likeness
        mean += likeness * values[value_code[at]]
        if likeness > most_alike:
            most_alike, value = likeness, values[value_code[at]]
    if use_marks:
        for i in range(first[me], first[me + 1]):
            mark[other[i]] = 0.0
    row[0] = mean / total if total > 0 else np.nan
    row[1], row[2], row[3] = total, most_alike, value


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
    value_code,
    values,
    weight,
    head,
    relation,
    tail,
    out,
):
    """Writes the columns of `features.NEIGHBOUR_NAMES` for queries (head, relation, tail), (n,) each, into out."""
    entities = len(first) - 1
    # for the facts of the query's relation at the head and at the tail: count, sum, largest, weight, weighted sum
    same = np.empty((2, 5))
    mark = np.zeros(entities if entities <= ENTITIES_A_ROW * len(head) else 0)
    for row in range(len(head)):
        h, r, t = head[row], relation[row], tail[row]
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
        _partners(
            first,
            other,
            kind,
            begin,
            end,
            partner,
            value_code,
            values,
            weight,
            2 * r,
            h,
            t,
            mark,
            line[22:26],
        )
        begin, end, wanted = starts[h], starts[h + 1], 2 * r + 1
        _partners(
            first,
            other,
            kind,
            begin,
            end,
            partner,
            value_code,
            values,
            weight,
            wanted,
            t,
            h,
            mark,
            line[26:30],
        )


@njit(nogil=True)
def _add(sums, value, weight):
    """Adds one fact to count, sum, largest, weight and weighted sum."""
    sums[0] += 1
    sums[1] += value
    sums[2] = max(sums[2], value)
    sums[3] += weight
    sums[4] += weight * value


# The loops of `unkgcp.evidence.candidate_ranking`: walks of one, two and three steps through the training graph.
#
# All take the arrays of `candidate_ranking.Ways`: `first` (entities + 1,), `kind` and `other` (steps,), sorted by
# entity, kind and end. A step from head to tail of a fact of relation r has the kind 2 r, a step from tail to head
# 2 r + 1, so that a question (a, kind, ?) asks for a tail or for a head. Long lists are walked in strides, always the
# same ones.

MOST_STEPS = 128  # steps of the given entity that are followed
MOST_MEMBERS = 64  # entities that are looked at for sharing a step with it
MOST_ENDS = 64  # steps onward from each of them
UNSEEN = 2.0  # added to the number of such entities, so that rates of few entities are small
FIELDS = 7
COUNT, PAIR, PAIRS, ALIKE, ALIKES, PATH, PATHS = range(FIELDS)


@njit(nogil=True)
def _range(kind, begin, end, wanted):
    """Where the steps of one kind begin and end among those of an entity, from begin to end."""
    start = lower_bound(kind, begin, end, wanted)
    return start, lower_bound(kind, start, end, wanted + 1)


@njit(nogil=True)
def _stride(size, limit):
    """The stride with which about `limit` of `size` elements are visited."""
    return 1 if size <= limit else (size + limit - 1) // limit


@njit(alone=True, nogil=True)
def count_ways(first, kind, other, kinds, anchor, wanted, max_steps, marked, keys, hits):
    """Writes the walks from the anchors of known questions, at most len(keys); returns their number.

    For each question (anchor, wanted), each walk of one step and of two steps is written into `keys`, with 1 in `hits`
    if it ends at an answer and 0 if not. A walk of the kinds k1 and k2 is written as
    wanted * (kinds + 1) ** 2 + (k1 + 1) * (kinds + 1) + k2 + 1, with k1 = -1 for walks of one step.
    """
    base = kinds + 1
    n = 0
    for row in range(len(anchor)):
        a, q = anchor[row], wanted[row]
        begin, end = first[a], first[a + 1]
        start, stop = _range(kind, begin, end, q)
        for place in range(start, stop):
            marked[other[place]] = 1
        step = _stride(end - begin, max_steps)
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
            onward = _stride(first[z + 1] - first[z], max_steps)
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
    """The rate of a way, 0 where it never led to an answer."""
    at = lower_bound(keys, 0, len(keys), wanted)
    return rates[at] if at < len(keys) and keys[at] == wanted else np.float32(0.0)


@njit(nogil=True)
def _fold(table, x, best, total, rate):
    """Takes a rate into the columns of the best rate and of the sum of rates of entity x."""
    if rate > table[x, best]:
        table[x, best] = rate
    table[x, total] += rate


@njit(alone=True, nogil=True)
def gather(first, kind, other, kinds, way_keys, way_rates, a, q, counts, table):
    """Adds the rates of all ways from `a` to each entity as an answer of (a, q, ?) to `table` (entities, FIELDS).

    The table is 0 before. counts: (entities,) work space, 0 before and after. PAIR, ALIKE and PATH hold the best rate,
    the columns after them the sum of rates.
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
        # among the entities that share the step (by, z) with a, the share that has each answer
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
