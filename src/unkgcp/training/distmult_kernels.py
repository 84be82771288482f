"""Compiled loops of the DistMult family on the CPU: an epoch of training.

One call trains a whole epoch. The facts of a batch are divided among shards, each with a gradient table of its own;
shards run in parallel and are summed in a fixed order, so the result depends on the number of shards but never on
timing.

With q = h o r, s = q . t, p = f(w s + b) and g = dLoss/ds / w: dLoss/dt = g w q, dLoss/dq = g w t, and from
there dLoss/dh = dLoss/dq o r, dLoss/dr = dLoss/dq o h. A corrupted tail shares q with its fact, a corrupted
head shares r o t, so a negative costs one dot product and two scaled additions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from unkgcp.loops import njit
from unkgcp.training.compiled_common import (
    F,
    U,
    adam,
    adam_rows,
    below,
    count_facts,
    draw,
    draw_all,
    epoch_rates,
    exact,
    fact_error,
    fast,
    fetch,
    fetch_row,
    quick,
)
from unkgcp.training.lazy_steps import (
    ALONE,
    FREE,
    finish_rows,
    later,
    missed,
    read_rows,
    step_rows,
    together,
    touch_batch,
)

# positions in the vector of real settings and in that of whole settings, which the kernels share
W_NEGATIVE, W_REGULAR, W_SOFT, SHARE, QUANTILE = range(5)
NEGATIVES, RECTIFIED, INSERTS, FILTERED = range(4)
# positions in the vector of stream bases
S_NEGATIVE, S_SOFT, S_CHOICE, S_DRAW = range(4)

# fmt: off


@njit(**fast)
def dot(a: Any, i: Any, b: Any, j: Any) -> Any:
    total = F(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b[j, k]
    return total


@njit(**fast)
def dot_row(a: Any, b: Any, j: Any) -> Any:
    total = F(0)
    for k in range(len(a)):
        total += a[k] * b[j, k]
    return total


@njit(**fast)
def activate(linear: Any, rectified: Any) -> Any:
    """(p, dp/dlinear)."""
    if rectified:
        return linear, F(1)
    p = F(1) / (F(1) + math.exp(-linear))
    return p, p * (F(1) - p)


@njit(**fast)
def score_free(h_row, r_row, t_row, mapped):
    """The sum over the dimensions of h r t for one free triple; r o t goes to `mapped` (d,)."""
    total = F(0)
    for k in range(len(mapped)):
        mapped[k] = r_row[k] * t_row[k]
        total += h_row[k] * mapped[k]
    return total


@njit(**fast)
def step_free(h_row, r_row, t_row, mapped, slope, g_head, g_relation, g_tail):
    """Add the gradient of one free triple, dLoss/dscore = slope, to its three rows, after `score_free`."""
    for k in range(len(mapped)):
        g_head[k] += slope * mapped[k]
    for k in range(len(mapped)):
        part = slope * h_row[k]
        g_relation[k] += part * t_row[k]
        g_tail[k] += part * r_row[k]


@njit(**fast)
def step_corruption(slope, row, q, dq, g_row):
    """Add the gradient of a corruption, dLoss/dscore = slope, to that of q and to that of its row."""
    for k in range(len(q)):
        dq[k] += slope * row[k]
        g_row[k] += slope * q[k]


# An entity that only one corruption of the batch reads (ALONE in `lazy_steps`) makes its steps while its row is in the
# cache: the steps it has missed before it is scored, the step of the batch as soon as its gradient is known.


@njit(forceinline=True, **quick)
def score_alone(tables, row, missing, q, out):
    """Score of a corruption with its row after the steps that are `missing`; `out` (d,) becomes that row."""
    parameter, first, second, _ = tables
    total = F(0)
    for k in range(len(q)):
        out[k] = later(parameter, first, second, row, k, missing[0], missing[1])
        total += out[k] * q[k]
    return total


@njit(forceinline=True, **exact)
def step_alone(tables, row, missing, now, slope, q, dq, lr, eps):
    """`step_corruption` and the step of Adam on the row, which is `now`."""
    parameter, first, second, _ = tables
    for k in range(len(q)):
        dq[k] += slope * now[k]
        adam(parameter, first, second, row, k, now[k], missing[2], missing[3], slope * q[k], lr, eps)


@njit(**fast)
def shard_gradient(
    rows, first, last, weight, facts, values, relation, model, g_entity, g_relation, g_model, places, real, whole,
    drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh, fresh_score, tables, done, rates, at_once, now,
):
    """Gradient of the loss of facts rows[first:last], added to the shard's tables; returns their loss.

    Entity e is row places[e] of values, and of g_entity its gradient. If it is ALONE it is in `tables`: parameters,
    moments and memory, which have made `done` (n,) steps of the epoch.
    """
    head, relation_of, tail, confidence = facts
    n, d = len(places), values.shape[1]
    w, b = model[0], model[1]
    negatives, rectified, inserts = whole[NEGATIVES], whole[RECTIFIED] != 0, whole[INSERTS] != 0
    quantile, regular = F(real[QUANTILE]), F(real[W_REGULAR])
    slots = 2 * negatives
    w_negative = F(real[W_NEGATIVE] / slots) * weight if slots > 0 else F(0)
    qt, qh = np.empty(d, F), np.empty(d, F)
    dqt, dqh, mapped = np.empty(d, F), np.empty(d, F), np.empty(d, F)
    # of each corruption: dLoss/dscore, and if it is ALONE its row and what that has missed
    slopes, alone, missing = np.zeros(slots, F), np.empty((slots, d), F), np.empty((slots, 4), F)
    scores, lazy = pool_score.reshape(1, len(pool_score)), len(g_entity) < n
    place_lines, done_lines = places.reshape(1, n), done.reshape(1, n)
    loss = 0.0
    for i in range(first, last):
        fact = rows[i]
        if fact < 0:
            continue
        r, c = relation_of[fact], confidence[fact]
        h, t = places[head[fact]], places[tail[fact]]
        for k in range(d):
            qt[k] = values[h, k] * relation[r, k]
            qh[k] = relation[r, k] * values[t, k]
        s = dot_row(qt, values, t)
        p, slope = activate(w * s + b, rectified)
        error, g = fact_error(p, c, quantile)
        loss += weight * error
        g = g * slope * weight
        g_model[0] += g * s
        g_model[1] += g
        g = g * w
        for k in range(d):
            dqt[k] = g * values[t, k]
            dqh[k] = F(0)
        for k in range(d):
            g_entity[t, k] += g * qt[k]
        ahead, further = i + 1 < last and rows[i + 1] >= 0, i + 2 < last and rows[i + 2] >= 0
        for j in range(slots):
            at_head = j < negatives
            # pool samples lie anywhere in memory, and in a large graph so do entities: prefetch those of the next fact
            if ahead and drawn[i + 1, j] >= n:
                place = drawn[i + 1, j] - n
                for side in range(0, 3, 2):
                    fetch_row(values, places[pool[place, side]])
                    fetch_row(g_entity, places[pool[place, side]])
            elif ahead and lazy and drawn[i + 1, j] >= 0:
                other = drawn[i + 1, j]
                if places[other] == ALONE:
                    fetch_row(tables[0], other)
                    fetch_row(tables[1], other)
                    fetch_row(tables[2], other)
                else:
                    fetch_row(values, places[other])
                    fetch_row(g_entity, places[other])
            if further and drawn[i + 2, j] >= n:
                fetch(pool, drawn[i + 2, j] - n, 0)
                fetch(scores, 0, drawn[i + 2, j] - n)
            elif further and lazy and drawn[i + 2, j] >= 0:
                fetch(place_lines, 0, drawn[i + 2, j])
                fetch(done_lines, 0, drawn[i + 2, j])
            if drawn[i, j] >= n:
                fresh[i, j] = -1
                place = drawn[i, j] - n
                ph, pr, pt = places[pool[place, 0]], np.int64(pool[place, 1]), places[pool[place, 2]]
                s = score_free(values[ph], relation[pr], values[pt], mapped)
                p, slope = activate(w * s + b, rectified)
                error = p - pool_score[place]
                loss += w_negative * error * error
                g = F(2) * error * slope * w_negative
                g_model[0] += g * s
                g_model[1] += g
                step_free(
                    values[ph], relation[pr], values[pt], mapped, g * w, g_entity[ph], g_relation[pr], g_entity[pt]
                )
                continue
            usable = drawn[i, j] >= 0
            other = drawn[i, j] if usable else -1 - drawn[i, j]
            at = places[other]
            if at == ALONE:
                missing[j, 0], missing[j, 1], missing[j, 2], missing[j, 3] = missed(
                    tables[0], tables[1], tables[2], tables[3], F(0), rates, at_once, other, done[other], now
                )
                if at_head:
                    s = score_alone(tables, other, missing[j], qh, alone[j])
                else:
                    s = score_alone(tables, other, missing[j], qt, alone[j])
            else:
                s = dot_row(qh, values, at) if at_head else dot_row(qt, values, at)
            p, slope = activate(w * s + b, rectified)
            if inserts:
                fresh[i, j] = other
                fresh_score[i, j] = min(max(p, F(0)), F(1))
            if usable:
                loss += w_negative * p * p
                g = F(2) * p * slope * w_negative
                g_model[0] += g * s
                g_model[1] += g
                slopes[j] = g * w
        for j in range(slots):
            other = drawn[i, j]
            if other < 0 or other >= n:
                continue
            at, g, lr, eps = places[other], slopes[j], rates[0, now], rates[1, now]
            if at == ALONE:
                done[other], places[other] = now + 1, FREE
                if j < negatives:
                    step_alone(tables, other, missing[j], alone[j], g, qh, dqh, lr, eps)
                else:
                    step_alone(tables, other, missing[j], alone[j], g, qt, dqt, lr, eps)
            elif j < negatives:
                step_corruption(g, values[at], qh, dqh, g_entity[at])
            else:
                step_corruption(g, values[at], qt, dqt, g_entity[at])
        for k in range(d):
            g_relation[r, k] += dqt[k] * values[h, k] + dqh[k] * values[t, k]
        for k in range(d):
            g_entity[h, k] += dqt[k] * relation[r, k]
        for k in range(d):
            g_entity[t, k] += dqh[k] * relation[r, k]
        if regular > F(0):
            scale = regular * weight
            norm = dot(values, h, values, h) + dot(relation, r, relation, r) + dot(values, t, values, t)
            loss += F(0.5) * scale * norm
            for k in range(d):
                g_entity[h, k] += scale * values[h, k]
                g_relation[r, k] += scale * relation[r, k]
            for k in range(d):
                g_entity[t, k] += scale * values[t, k]
    if first == 0 and soft_chosen >= 0:
        h, r, t = places[soft[soft_chosen, 0]], soft[soft_chosen, 1], places[soft[soft_chosen, 2]]
        s = score_free(values[h], relation[r], values[t], mapped)
        p, slope = activate(w * s + b, rectified)
        short = soft_target[soft_chosen] - p
        if short > F(0):
            loss += real[W_SOFT] * short * short
            g = F(-2.0 * real[W_SOFT]) * short * slope
            g_model[0] += g * s
            g_model[1] += g
            step_free(values[h], relation[r], values[t], mapped, g * w, g_entity[h], g_relation[r], g_entity[t])
    return loss


@njit(**fast)
def insert(rows, position, head, relation_of, tail, fresh, fresh_score, pool, pool_score):
    """Put the corruptions of a batch into the pool after the batch, so that its draws do not depend on timing."""
    slots = fresh.shape[1]
    for i in range(len(rows)):
        fact = rows[i]
        if fact < 0:
            continue
        for j in range(slots):
            other = fresh[i, j]
            if other < 0:
                continue
            at_head = 2 * j < slots
            place = ((position + i) * slots + j) % len(pool_score)
            pool[place, 0] = other if at_head else head[fact]
            pool[place, 1] = relation_of[fact]
            pool[place, 2] = tail[fact] if at_head else other
            pool_score[place] = fresh_score[i, j]


@njit(parallel=True, **exact)
def gradient_all(
    rows, facts, values, relation, model, gradients, places, real, whole, drawn, soft, soft_target, soft_chosen, pool,
    pool_score, fresh, fresh_score, tables, done, rates, at_once, now,
):
    """`shard_gradient` for all facts of a batch; their loss."""
    g_entity, g_relation, g_model = gradients
    shards = g_entity.shape[0]
    weight, part = F(1.0 / count_facts(rows)), np.zeros(shards)
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        part[shard] = shard_gradient(
            rows, begin, end, weight, facts, values, relation, model[0], g_entity[shard], g_relation[shard],
            g_model[shard, 0], places, real, whole, drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh,
            fresh_score, tables, done, rates, at_once, now,
        )
    return part.sum()


@njit(**exact)
def run_epoch(
    order, step, start, learning_rate, momentum, lazy, facts, tables, first, second, memory, gradients, values, real,
    whole, bases, sizes, known, soft, soft_target, pool, pool_score, losses,
):
    """Train on every batch of `order` (steps, batch), -1 where the last batch is short; losses (steps,).

    `start` is the number of facts seen before: random numbers follow the position of a fact in the run. Tables, their
    moments, memories and gradients come as entity, relation and model. `lazy`: steps are those of `lazy_steps`, which
    reads entities into `values`; otherwise these are the entities themselves.
    """
    head, relation_of, tail, _ = facts
    entity, relation, model = tables
    of_entities = entity, first[0], second[0], memory[0]
    shards, (steps, batch_size), n = gradients[0].shape[0], order.shape, entity.shape[0]
    blocks, negatives = 2 * shards, whole[NEGATIVES]
    drawn = np.empty((batch_size, 2 * negatives), np.int64)
    slots = 2 * negatives if whole[INSERTS] else 0
    fresh, fresh_score = np.empty((batch_size, slots), np.int64), np.empty((batch_size, slots), F)
    members = known if whole[FILTERED] else known[:0]
    # the row of each entity in `values`, the entity of each row, and how many steps of the epoch each has made
    places, touched, done = np.arange(n).astype(np.int32), np.empty(len(values), np.int64), np.zeros(n, np.int32)
    if lazy:
        places[:] = FREE
    count, shrunk = 0, np.empty((len(values), 2), F)
    rates = epoch_rates(learning_rate, step, steps)
    at_once = together(rates, 0)
    for i in range(steps):
        rows = order[i]
        draw_all(
            rows, start, facts, negatives, F(real[SHARE]), bases[S_CHOICE], bases[S_DRAW], bases[S_NEGATIVE], sizes,
            members, len(pool_score), drawn, shards,
        )
        soft_chosen = -1
        if len(soft_target) > 0 and real[W_SOFT] > 0:
            soft_chosen = below(draw(bases[S_SOFT], U(step)), len(soft_target))
        if lazy:
            alone = momentum == F(0)
            count = touch_batch(rows, head, tail, drawn, soft, soft_chosen, pool, places, touched, alone)
            at_once = together(rates, i)
            read_rows(
                entity, first[0], second[0], memory[0], momentum, rates, at_once, touched[:count], done, i, values,
                shrunk, blocks,
            )
        losses[i] = gradient_all(
            rows, facts, values, relation, model, gradients, places, real, whole, drawn, soft, soft_target, soft_chosen,
            pool, pool_score, fresh, fresh_score, of_entities, done, rates, at_once, i,
        )
        if whole[INSERTS]:
            insert(rows, start, head, relation_of, tail, fresh, fresh_score, pool, pool_score)
        step += 1
        start += batch_size
        lr, eps = rates[0, i], rates[1, i]
        step_rows(
            lazy, entity, first[0], second[0], memory[0], gradients[0], momentum, rates, touched[:count], places, done,
            i, values, shrunk, blocks,
        )
        adam_rows(relation, first[1], second[1], memory[1], gradients[1], momentum, lr, eps, 0, relation.shape[0])
        adam_rows(model, first[2], second[2], memory[2], gradients[2], momentum, lr, eps, 0, 1)
    if lazy:
        finish_rows(entity, first[0], second[0], memory[0], momentum, rates, done, blocks)
