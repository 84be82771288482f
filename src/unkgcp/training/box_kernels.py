"""Compiled loops of BEUrRE on the CPU: an epoch of training with hand-derived gradients.

Shards, random numbers and the order of sums are those of `distmult_kernels`, boxes those of `box_geometry`. A row of an
entity holds its lower corner and the logarithms of its sides, one after the other; a row of a relation holds
head_shift, head_scale, tail_shift and tail_scale. The terms are those of `losses`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from unkgcp.loops import njit
from unkgcp.training.box_geometry import (
    LARGEST_LOG_SIDE,
    LOG_TINY,
    add,
    exponential,
    half_square,
    intersect,
    measure,
    new_box,
    new_out,
    new_work,
    norm,
    place,
    product,
    pull,
    pull_all,
    push_map,
    push_row,
    share,
    stage,
    widen,
)
from unkgcp.training.compiled_common import (
    F,
    U,
    adam_rows,
    below,
    count_facts,
    draw,
    draw_all,
    epoch_rates,
    exact,
    fact_error,
    fast,
    fetch_row,
)
from unkgcp.training.lazy_steps import FREE, finish_rows, read_rows, step_rows, together, touch_batch

# positions in the vectors of real settings, of whole settings and of stream bases
W_NEGATIVE, W_REGULAR, W_SOFT, QUANTILE, W_SIDE, W_OTHER, W_LOGIC = range(7)
NEGATIVES, FILTERED = range(2)
S_NEGATIVE, S_SOFT, S_COMPOSITION = range(3)
GROUP = 5  # corruptions computed side by side, in arrays GROUP times as long, which still fit into the first cache
PAIRS = 256  # as in `losses`

# fmt: off


@njit(**fast)
def corrupted(at_head, count, others, fixed, of_other, whole_tail, weight, work, factor, each, g_entity, sums):
    """Loss of `count` corruptions of one side of a fact, and its derivative by the logarithm of the tail's volume.

    Gradients are added to those of the entities and to `sums`: by the shift and the scale of the map, and by the side
    of the box that stays. `others` has their rows in g_entity; `factor` and `each` are scratch arrays.
    """
    d, n = len(sums[0]), count * len(sums[0])
    loss, by_whole = 0.0, F(0)
    parts, powers, slopes = each
    if at_head:
        intersect(of_other[0], of_other[1], fixed[0], fixed[1], n, work)
    else:
        intersect(fixed[0], fixed[1], of_other[0], of_other[1], n, work)
    for j in range(count):
        parts[j], powers[j] = product(work[5], j * d, (j + 1) * d)
    if not at_head:
        measure(of_other, n, work)
    for j in range(count):
        whole = whole_tail if at_head else product(work[5], j * d, (j + 1) * d)
        p, by_share = share((parts[j], powers[j]), whole)
        loss += weight * p * p
        slopes[j] = g = F(2) * p * by_share * weight
        by_whole += g
        factor[j * d : (j + 1) * d] = g
    if by_whole == F(0):
        return loss, by_whole
    pull_all(factor, n, work)
    if not at_head:
        slope, rate = work[0], work[6]
        for k in range(n):
            slope[k] -= factor[k] * rate[k]
    own, opposite = (work[2], work[0]) if at_head else (work[0], work[2])
    by_corner, by_log, by_scale = work[1], of_other[3], of_other[4]
    for k in range(n):
        by_log[k] *= own[k]
        by_scale[k] *= own[k]
    sign = F(1) if at_head else F(-1)
    for j in range(count):
        if slopes[j] == F(0):  # boxes so far apart that nothing is left of the gradient
            continue
        g_other = g_entity[others[j]]
        add(g_other, 0, sign, by_corner, j * d, d)
        add(g_other, d, F(1), by_log, j * d, d)
        add(sums[0], 0, sign, by_corner, j * d, d)
        add(sums[1], 0, F(1), by_scale, j * d, d)
        add(sums[2], 0, F(1), opposite, j * d, d)
    return loss, by_whole if at_head else F(0)


@njit(**fast)
def shard_gradient(
    rows, first, last, weight, facts, values, relation, g_entity, g_relation, g_rule, places, real, whole, drawn, soft,
    soft_target, soft_chosen, transitive,
):
    """Gradient of facts rows[first:last], added to the shard's tables; (loss, square of their transitive norm).

    Entity e is row places[e] of values, and of g_entity its gradient.
    """
    head, relation_of, tail, confidence = facts
    d = values.shape[1] // 2
    negatives, quantile = whole[NEGATIVES], F(real[QUANTILE])
    slots = 2 * negatives
    w_negative = F(real[W_NEGATIVE] / slots) * weight if slots > 0 else F(0)
    w_regular, w_side, w_other = F(real[W_REGULAR]) * weight, F(real[W_SIDE]) * weight, F(real[W_OTHER]) * weight
    of_head, of_tail, of_other = new_box(d), new_box(d), new_box(GROUP * d)
    fixed, others = (np.empty(GROUP * d, F), np.empty(GROUP * d, F)), np.empty(GROUP, np.int64)
    work, out, factor = new_work(GROUP * d), new_out(d), np.empty(GROUP * d, F)
    sums = np.empty(d, F), np.empty(d, F), np.empty(d, F)
    each = np.empty(GROUP), np.empty(GROUP, np.int64), np.empty(GROUP, F)
    # gradients by corner and by side of the two boxes of a fact
    by_head, by_tail = (np.empty(d, F), np.empty(d, F)), (np.empty(d, F), np.empty(d, F))
    rate, ones, plain, inner = np.empty(d, F), np.ones(d, F), np.empty(d, F), np.empty(d, F)
    loss, squares = 0.0, 0.0
    for i in range(first, last):
        fact = rows[i]
        if fact < 0:
            continue
        h, r, t = places[head[fact]], relation_of[fact], places[tail[fact]]
        g_h, g_t = g_entity[h], g_entity[t]
        maps, g_maps = relation[r].reshape(4, d), g_relation[r].reshape(4, d)
        place(values[h], maps[0], maps[1], of_head)
        place(values[t], maps[2], maps[3], of_tail)
        measure(of_tail, d, work)
        whole_tail = product(work[5], 0, d)
        intersect(of_head[0], of_head[1], of_tail[0], of_tail[1], d, work)
        p, by_log = share(product(work[5], 0, d), whole_tail)
        error, g = fact_error(p, confidence[fact], quantile)
        loss += weight * error
        by_whole = g * by_log * weight
        pull(by_whole, work, out)
        for k in range(d):
            by_head[0][k], by_head[1][k] = out[0][k], out[1][k]
            by_tail[0][k], by_tail[1][k] = -out[0][k], out[2][k]
            rate[k] = work[6][k]
        if transitive[r]:
            missing = F(1) - p
            squares += missing * missing
            pull(missing * by_log, work, out)
            add(out[2], 0, -missing * by_log, rate, 0, d)
            g_rules = g_rule[r].reshape(4, d)
            push_map(g_rules[0], g_rules[1], of_head, F(1), out[0], out[1])
            push_map(g_rules[2], g_rules[3], of_tail, F(-1), out[0], out[2])
        for side in range(2):
            at_head, at = side == 0, 2 * side
            stays, still = (of_tail, by_tail) if at_head else (of_head, by_head)
            for j in range(min(GROUP, negatives)):
                fixed[0][j * d : j * d + d] = stays[0]
                fixed[1][j * d : j * d + d] = stays[1]
            for part in sums:
                part[:] = F(0)
            count = 0
            for j in range(negatives):
                other = drawn[i, side * negatives + j]
                if other >= 0:
                    others[count] = places[other]
                    fetch_row(g_entity, others[count])
                    stage(values[others[count]], maps[at], maps[at + 1], of_other, count * d)
                    count += 1
                if count == GROUP or (j == negatives - 1 and count > 0):
                    widen(of_other, count * d)
                    more, by_more = corrupted(
                        at_head, count, others, fixed, of_other, whole_tail, w_negative, work, factor, each, g_entity,
                        sums,
                    )
                    loss += more
                    by_whole += by_more
                    count = 0
            add(g_maps[at], 0, F(1), sums[0], 0, d)
            add(g_maps[at + 1], 0, F(1), sums[1], 0, d)
            # nothing changes when both boxes move together
            add(still[0], 0, F(-1), sums[0], 0, d)
            add(still[1], 0, F(1), sums[2], 0, d)
        # the fact and the corruptions of its head depend on the volume of the tail's box
        add(by_tail[1], 0, -by_whole, rate, 0, d)
        push_row(g_h, of_head, F(1), by_head[0], by_head[1])
        push_map(g_maps[0], g_maps[1], of_head, F(1), by_head[0], by_head[1])
        push_row(g_t, of_tail, F(1), by_tail[0], by_tail[1])
        push_map(g_maps[2], g_maps[3], of_tail, F(1), by_tail[0], by_tail[1])
        for side in range(2):
            e, g_e = (h, g_h) if side == 0 else (t, g_t)
            for k in range(d):
                log_side = values[e, U(d) + U(k)]
                plain[k] = exponential(max(min(log_side, LARGEST_LOG_SIDE), LOG_TINY))
                inner[k] = plain[k] if log_side <= LARGEST_LOG_SIDE else F(0)
            # sides are exponentials of parameters, so the gradient of their norm has the side as a further factor
            loss += norm(plain, w_side, inner, g_e[d:])
            loss += norm(values[e, :d], w_other, ones, g_e[:d])
        for which in range(4):
            loss += norm(maps[which], w_other, ones, g_maps[which])
        if w_regular > F(0):
            loss += half_square(values[h], w_regular, g_h) + half_square(values[t], w_regular, g_t)
            loss += half_square(relation[r], w_regular, g_relation[r])
    if first == 0 and soft_chosen >= 0:
        h, r, t = places[soft[soft_chosen, 0]], soft[soft_chosen, 1], places[soft[soft_chosen, 2]]
        maps, g_maps = relation[r].reshape(4, d), g_relation[r].reshape(4, d)
        place(values[h], maps[0], maps[1], of_head)
        place(values[t], maps[2], maps[3], of_tail)
        measure(of_tail, d, work)
        whole_tail = product(work[5], 0, d)
        intersect(of_head[0], of_head[1], of_tail[0], of_tail[1], d, work)
        p, by_log = share(product(work[5], 0, d), whole_tail)
        short = soft_target[soft_chosen] - p
        if short > F(0):
            loss += real[W_SOFT] * short * short
            g = F(-2.0 * real[W_SOFT]) * short * by_log
            pull(g, work, out)
            add(out[2], 0, -g, work[6], 0, d)
            push_row(g_entity[h], of_head, F(1), out[0], out[1])
            push_map(g_maps[0], g_maps[1], of_head, F(1), out[0], out[1])
            push_row(g_entity[t], of_tail, F(-1), out[0], out[2])
            push_map(g_maps[2], g_maps[3], of_tail, F(-1), out[0], out[2])
    return loss, squares


@njit(**fast)
def add_transitive(squares, weight, g_rule, g_relation, transitive):
    """weight times the norm over the batch; the shards have left its gradient, but for its factor, in g_rule."""
    size = math.sqrt(squares + 1e-12)
    factor = F(-weight / size)
    for r in range(len(transitive)):
        if transitive[r]:
            for shard in range(g_rule.shape[0]):
                for k in range(g_rule.shape[2]):
                    g_relation[r, k] += factor * g_rule[shard, r, k]
                    g_rule[shard, r, k] = F(0)
    return weight * size


@njit(**fast)
def add_composition(step, weight, base, rule, heads, tails, entity, relation, g_relation):
    """Loss and gradient of rule (3,): the map of its first relation, then of its second, should be that of its third.

    It is tried on the boxes of PAIRS heads and as many tails, and moves the maps alone.
    """
    d = entity.shape[1] // 2
    work, out, composed, implied = new_work(d), new_out(d), new_box(d), new_box(d)
    shift, scale = np.empty(d, F), np.empty(d, F)
    loss = 0.0
    for side in range(2):
        ids, at = (heads, 0) if side == 0 else (tails, 2)
        one, two = relation[rule[0]].reshape(4, d)[at:], relation[rule[1]].reshape(4, d)[at:]
        three = relation[rule[2]].reshape(4, d)[at:]
        for k in range(d):
            shift[k] = one[0, k] + two[0, k]
            scale[k] = max(one[1, k], F(0)) * max(two[1, k], F(0))
        g = np.zeros((2, 4, d), F)  # of each norm by shift and scale of the composed map and of the implied one
        squares = np.zeros(2)
        for i in range(PAIRS):
            e = ids[below(draw(base, U(step * 2 * PAIRS + side * PAIRS + i)), len(ids))]
            place(entity[e], shift, scale, composed)
            place(entity[e], three[0], three[1], implied)
            intersect(composed[0], composed[1], implied[0], implied[1], d, work)
            shared = product(work[5], 0, d)
            for covered in range(2):
                measure(composed if covered == 0 else implied, d, work)
                p, by_log = share(shared, product(work[5], 0, d))
                squares[covered] += (F(1) - p) * (F(1) - p)
                by_log *= F(1) - p
                pull(by_log, work, out)
                add(out[1] if covered == 0 else out[2], 0, -by_log, work[6], 0, d)
                push_map(g[covered, 0], g[covered, 1], composed, F(1), out[0], out[1])
                push_map(g[covered, 2], g[covered, 3], implied, F(-1), out[0], out[2])
        g_one, g_two = g_relation[rule[0]].reshape(4, d)[at:], g_relation[rule[1]].reshape(4, d)[at:]
        g_three = g_relation[rule[2]].reshape(4, d)[at:]
        for covered in range(2):
            size = math.sqrt(squares[covered] + 1e-12)
            loss += weight * size
            factor = F(-weight / size)
            for k in range(d):
                g_one[0, k] += factor * g[covered, 0, k]
                g_two[0, k] += factor * g[covered, 0, k]
                g_one[1, k] += factor * g[covered, 1, k] * two[1, k]
                g_two[1, k] += factor * g[covered, 1, k] * one[1, k]
                g_three[0, k] += factor * g[covered, 2, k]
                g_three[1, k] += factor * g[covered, 3, k]
    return loss


@njit(parallel=True, **exact)
def gradient_all(
    rows, facts, values, relation, gradients, g_rule, places, real, whole, drawn, soft, soft_target, soft_chosen,
    transitive,
):
    """`shard_gradient` for all facts of a batch; (their loss, square of their transitive norm)."""
    g_entity, g_relation, _ = gradients
    shards = g_entity.shape[0]
    weight, part, squares = F(1.0 / count_facts(rows)), np.zeros(shards), np.zeros(shards)
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        part[shard], squares[shard] = shard_gradient(
            rows, begin, end, weight, facts, values, relation, g_entity[shard], g_relation[shard], g_rule[shard],
            places, real, whole, drawn, soft, soft_target, soft_chosen, transitive,
        )
    return part.sum(), squares.sum()


@njit(**exact)
def run_epoch(
    order, step, start, learning_rate, momentum, lazy, facts, tables, first, second, memory, gradients, values, real,
    whole, bases, sizes, known, soft, soft_target, transitive, g_rule, rules, heads, head_ends, tails, tail_ends,
    losses,
):
    """As `distmult_kernels.run_epoch`. Rules (c, 3) are the compositions; i is tried on heads up to head_ends[i].

    Compositions read boxes of entities that the batch may not read, so with compositions steps must not be lazy.
    """
    entity, relation, _ = tables
    shards, (steps, batch_size), n = gradients[0].shape[0], order.shape, entity.shape[0]
    blocks, negatives = 2 * shards, whole[NEGATIVES]
    w_logic = real[W_LOGIC] / batch_size
    drawn, pool = np.empty((batch_size, 2 * negatives), np.int64), np.empty((0, 3), np.int32)
    members = known if whole[FILTERED] else known[:0]
    places, touched, done = np.arange(n).astype(np.int32), np.empty(len(values), np.int64), np.zeros(n, np.int32)
    if lazy is not None:
        places[:] = FREE
    count, shrunk = 0, np.empty((len(values), 2), F)
    rates = epoch_rates(learning_rate, step, steps)
    for i in range(steps):
        rows = order[i]
        drawing = start, negatives, bases[S_NEGATIVE], sizes[0], sizes[1], members, F(0), U(0), U(0), 0
        draw_all(rows, facts, drawing, drawn, shards)
        soft_chosen = -1
        if len(soft_target) > 0 and real[W_SOFT] > 0:
            soft_chosen = below(draw(bases[S_SOFT], U(step)), len(soft_target))
        if lazy is not None:
            count = touch_batch(rows, facts[0], facts[2], drawn, soft, soft_chosen, pool, places, touched, False)
            read_rows(
                entity, first[0], second[0], memory[0], momentum, rates, together(rates, i), touched[:count], done, i,
                values, shrunk, blocks,
            )
        losses[i], squares = gradient_all(
            rows, facts, values, relation, gradients, g_rule, places, real, whole, drawn, soft, soft_target,
            soft_chosen, transitive,
        )
        if g_rule.shape[1] > 0:
            losses[i] += add_transitive(squares, w_logic, g_rule, gradients[1][0], transitive)
        for rule in range(len(rules)):
            losses[i] += add_composition(
                step, w_logic, bases[S_COMPOSITION], rules[rule],
                heads[(head_ends[rule - 1] if rule else 0) : head_ends[rule]],
                tails[(tail_ends[rule - 1] if rule else 0) : tail_ends[rule]], entity, relation, gradients[1][0],
            )
        step += 1
        start += batch_size
        lr, eps = rates[0, i], rates[1, i]
        step_rows(
            lazy, entity, first[0], second[0], memory[0], gradients[0], momentum, rates, touched[:count], places, done,
            i, values, shrunk, blocks,
        )
        adam_rows(relation, first[1], second[1], memory[1], gradients[1], momentum, lr, eps, 0, relation.shape[0])
    if lazy is not None:
        finish_rows(entity, first[0], second[0], memory[0], momentum, rates, done, blocks)
