"""Compiled loops of BEUrRE on the CPU: the gradient of a batch, derived by hand.

Shards and the order of sums are those of `distmult_kernels`, boxes those of `box_geometry`. A row of an entity holds
its lower corner and the logarithms of its sides, one after the other; a row of a relation holds head_shift, head_scale,
tail_shift and tail_scale. The terms are those of `losses`, without soft logic, `regularization` and rules.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from unkgcp.loops import njit
from unkgcp.training.box_geometry import (
    LARGEST_LOG_SIDE,
    LOG_TINY,
    add,
    exponential,
    intersect,
    measure,
    new_box,
    new_work,
    norm,
    place,
    product,
    pull,
    push,
    share,
    stage,
    widen,
)
from unkgcp.training.compiled_common import F, U, exact, fact_error, fast

GROUP = 5  # corruptions computed side by side, in arrays GROUP times as long, which still fit into the first cache

# fmt: off


@njit(**fast)
def corrupted(at_head, count, others, fixed, of_other, whole_tail, weight, scratch, g_entity, sums):
    """Loss of `count` corruptions of one side of a fact, and its derivative by the logarithm of the tail's volume.

    Gradients are added to those of the entities and to `sums`: by the shift and the scale of the map, and by the side
    of the box that stays. `others` has their rows in g_entity.
    """
    d, n = len(sums[0]), count * len(sums[0])
    loss, by_whole = 0.0, F(0)
    work, factor, shared, powers, slopes = scratch
    if at_head:
        intersect(of_other[0], of_other[1], fixed[0], fixed[1], n, work)
    else:
        intersect(fixed[0], fixed[1], of_other[0], of_other[1], n, work)
    for j in range(count):
        shared[j], powers[j] = product(work[5], j * d, (j + 1) * d)
    if not at_head:
        measure(of_other, n, work)
    for j in range(count):
        whole = whole_tail if at_head else product(work[5], j * d, (j + 1) * d)
        p, by_share = share((shared[j], powers[j]), whole)
        loss += weight * p * p
        slopes[j] = g = F(2) * p * by_share * weight
        by_whole += g
        factor[j * d : (j + 1) * d] = g
    if by_whole == F(0):
        return loss, by_whole
    pull(factor, n, work)
    if not at_head:
        slope, rate = work[0], work[6]
        for k in range(n):
            slope[k] -= factor[k] * rate[k]
    slope_own, opposite = (work[2], work[0]) if at_head else (work[0], work[2])
    by_corner, by_log, by_scale = work[1], of_other[3], of_other[4]
    for k in range(n):
        by_log[k] *= slope_own[k]
        by_scale[k] *= slope_own[k]
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
def shard_gradient(batch, first, last, facts, places, tables, gradients, weights):
    """Gradient of the batch's facts first..last, added to the shard's tables; returns their loss.

    tables: the rows of entities by their places and those of relations; gradients: theirs.
    """
    (values, relation), (g_entity, g_relation), drawn = tables, gradients, batch.drawn
    head, relation_of, tail, confidence = facts
    d, slots = values.shape[1] // 2, drawn.shape[1]
    weight, quantile, negatives = batch.weight, F(weights.quantile), slots // 2
    w_negative = F(weights.negative / slots) * weight if slots > 0 else F(0)
    w_side, w_other = F(weights.side) * weight, F(weights.box) * weight
    of_head, of_tail, of_other = new_box(d), new_box(d), new_box(GROUP * d)
    fixed, others = (np.empty(GROUP * d, F), np.empty(GROUP * d, F)), np.empty(GROUP, np.int64)
    work, factor = new_work(GROUP * d), np.empty(GROUP * d, F)
    scratch = work, factor, np.empty(GROUP), np.empty(GROUP, np.int64), np.empty(GROUP, F)
    sums = np.empty(d, F), np.empty(d, F), np.empty(d, F)
    # gradients by corner and by side of the two boxes of a fact
    by_head, by_tail = (np.empty(d, F), np.empty(d, F)), (np.empty(d, F), np.empty(d, F))
    rate, ones, plain, inner = np.empty(d, F), np.ones(d, F), np.empty(d, F), np.empty(d, F)
    loss = 0.0
    for i in range(first, last):
        fact = batch.rows[i]
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
        factor[:d] = by_whole
        pull(factor, d, work)
        for k in range(d):
            by_head[0][k], by_head[1][k] = work[1][k], work[2][k]
            by_tail[0][k], by_tail[1][k] = -work[1][k], work[0][k]
            rate[k] = work[6][k]
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
                    stage(values[others[count]], maps[at], maps[at + 1], of_other, count * d)
                    count += 1
                if count == GROUP or (j == negatives - 1 and count > 0):
                    widen(of_other, count * d)
                    more, by_more = corrupted(
                        at_head, count, others, fixed, of_other, whole_tail, w_negative, scratch, g_entity, sums
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
        push(g_h, g_maps[0], g_maps[1], of_head, by_head)
        push(g_t, g_maps[2], g_maps[3], of_tail, by_tail)
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
    return loss


@njit(parallel=True, **exact)
def gradient_all(batch, facts, entities, relation, g_entity, weights):
    """`shard_gradient` for all facts of a batch; their loss."""
    shards, n = len(g_entity), len(batch.rows)
    loss = np.zeros(shards)
    for shard in prange(shards):
        tables, gradients = (entities.values, relation.parameter), (g_entity[shard], relation.gradients[shard])
        loss[shard] = shard_gradient(
            batch, shard * n // shards, (shard + 1) * n // shards, facts, entities.places, tables, gradients, weights
        )
    return loss.sum()
