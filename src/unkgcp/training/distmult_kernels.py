"""Compiled loops of the DistMult family on the CPU: an epoch of training, and the dot products of scores.

Importing this imports numba, but not torch, which scoring does without.

One call trains a whole epoch. Facts of a batch are dealt to shards, each with a gradient table of its own;
shards run in parallel and are summed in a fixed order, so the result depends on the number of shards but
never on timing.

With q = h o r, s = q . t, p = f(w s + b) and g = dLoss/ds / w: dLoss/dt = g w q, dLoss/dq = g w t, and from
there dLoss/dh = dLoss/dq o r, dLoss/dr = dLoss/dq o h. A corrupted tail shares q with its fact, a corrupted
head shares r o t, so a negative costs one dot product and two scaled additions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from unkgcp.compiling import njit
from unkgcp.training.compiled_common import (
    F,
    U,
    adam_all,
    adam_rates,
    adam_rows,
    below,
    catch_up_all,
    count_facts,
    draw,
    draw_all,
    exact,
    fact_error,
    fast,
    fetch,
    fetch_row,
    release,
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
def shard_gradient(
    rows, first, last, weight, facts, entity, relation, model, g_entity, g_relation, g_model, places, real, whole,
    drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh, fresh_score,
):
    """Gradient of the loss of facts rows[first:last], added to the shard's tables; returns their loss.

    The gradient of entity e is row places[e] of g_entity.
    """
    head, relation_of, tail, confidence = facts
    n = entity.shape[0]
    d = entity.shape[1]
    w, b = model[0], model[1]
    negatives, rectified, inserts = whole[NEGATIVES], whole[RECTIFIED] != 0, whole[INSERTS] != 0
    quantile, regular = F(real[QUANTILE]), F(real[W_REGULAR])
    slots = 2 * negatives
    w_negative = F(real[W_NEGATIVE] / slots) * weight if slots > 0 else F(0)
    qt, qh = np.empty(d, F), np.empty(d, F)
    dqt, dqh, mapped = np.empty(d, F), np.empty(d, F), np.empty(d, F)
    scores, lazy = pool_score.reshape(1, len(pool_score)), len(g_entity) < n
    loss = 0.0
    for i in range(first, last):
        fact = rows[i]
        if fact < 0:
            continue
        h, r, t, c = head[fact], relation_of[fact], tail[fact], confidence[fact]
        at_h, at_t = places[h], places[t]
        for k in range(d):
            qt[k] = entity[h, k] * relation[r, k]
            qh[k] = relation[r, k] * entity[t, k]
        s = dot_row(qt, entity, t)
        p, slope = activate(w * s + b, rectified)
        error, g = fact_error(p, c, quantile)
        loss += weight * error
        g = g * slope * weight
        g_model[0] += g * s
        g_model[1] += g
        g = g * w
        for k in range(d):
            dqt[k] = g * entity[t, k]
            dqh[k] = F(0)
        for k in range(d):
            g_entity[at_t, k] += g * qt[k]
        ahead, further = i + 1 < last and rows[i + 1] >= 0, i + 2 < last and rows[i + 2] >= 0
        for j in range(slots):
            at_head = j < negatives
            # pool samples lie anywhere, and so do all entities in a graph of many: ask for those of the next fact
            if ahead and drawn[i + 1, j] >= n:
                place = drawn[i + 1, j] - n
                for side in range(0, 3, 2):
                    fetch_row(entity, pool[place, side])
                    fetch_row(g_entity, places[pool[place, side]])
            elif ahead and lazy and drawn[i + 1, j] >= 0:
                fetch_row(entity, drawn[i + 1, j])
                fetch_row(g_entity, places[drawn[i + 1, j]])
            if further and drawn[i + 2, j] >= n:
                fetch(pool, drawn[i + 2, j] - n, 0)
                fetch(scores, 0, drawn[i + 2, j] - n)
            if drawn[i, j] >= n:
                fresh[i, j] = -1
                place = drawn[i, j] - n
                ph, pr, pt = np.int64(pool[place, 0]), np.int64(pool[place, 1]), np.int64(pool[place, 2])
                s = score_free(entity[ph], relation[pr], entity[pt], mapped)
                p, slope = activate(w * s + b, rectified)
                error = p - pool_score[place]
                loss += w_negative * error * error
                g = F(2) * error * slope * w_negative
                g_model[0] += g * s
                g_model[1] += g
                step_free(
                    entity[ph], relation[pr], entity[pt], mapped, g * w, g_entity[places[ph]], g_relation[pr],
                    g_entity[places[pt]],
                )
                continue
            usable = drawn[i, j] >= 0
            other = drawn[i, j] if usable else -1 - drawn[i, j]
            s = dot_row(qh, entity, other) if at_head else dot_row(qt, entity, other)
            p, slope = activate(w * s + b, rectified)
            if inserts:
                fresh[i, j] = other
                fresh_score[i, j] = min(max(p, F(0)), F(1))
            if not usable:
                continue
            loss += w_negative * p * p
            g = F(2) * p * slope * w_negative
            g_model[0] += g * s
            g_model[1] += g
            g = g * w
            at = places[other]
            if at_head:
                for k in range(d):
                    dqh[k] += g * entity[other, k]
                    g_entity[at, k] += g * qh[k]
            else:
                for k in range(d):
                    dqt[k] += g * entity[other, k]
                    g_entity[at, k] += g * qt[k]
        for k in range(d):
            g_relation[r, k] += dqt[k] * entity[h, k] + dqh[k] * entity[t, k]
        for k in range(d):
            g_entity[at_h, k] += dqt[k] * relation[r, k]
        for k in range(d):
            g_entity[at_t, k] += dqh[k] * relation[r, k]
        if regular > F(0):
            scale = regular * weight
            norm = dot(entity, h, entity, h) + dot(relation, r, relation, r) + dot(entity, t, entity, t)
            loss += F(0.5) * scale * norm
            for k in range(d):
                g_entity[at_h, k] += scale * entity[h, k]
                g_relation[r, k] += scale * relation[r, k]
            for k in range(d):
                g_entity[at_t, k] += scale * entity[t, k]
    if first == 0 and soft_chosen >= 0:
        h, r, t = soft[soft_chosen, 0], soft[soft_chosen, 1], soft[soft_chosen, 2]
        s = score_free(entity[h], relation[r], entity[t], mapped)
        p, slope = activate(w * s + b, rectified)
        short = soft_target[soft_chosen] - p
        if short > F(0):
            loss += real[W_SOFT] * short * short
            g = F(-2.0 * real[W_SOFT]) * short * slope
            g_model[0] += g * s
            g_model[1] += g
            step_free(
                entity[h], relation[r], entity[t], mapped, g * w, g_entity[places[h]], g_relation[r],
                g_entity[places[t]],
            )
    return loss


@njit(**fast)
def insert(rows, position, head, relation_of, tail, fresh, fresh_score, pool, pool_score):
    """Candidates of a batch enter the ring after the batch, so that its draws do not depend on timing."""
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
    rows, facts, tables, gradients, places, real, whole, drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh,
    fresh_score,
):
    """`shard_gradient` for all facts of a batch; their loss."""
    entity, relation, model = tables
    g_entity, g_relation, g_model = gradients
    shards = g_entity.shape[0]
    weight, part = F(1.0 / count_facts(rows)), np.zeros(shards)
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        part[shard] = shard_gradient(
            rows, begin, end, weight, facts, entity, relation, model[0], g_entity[shard], g_relation[shard],
            g_model[shard, 0], places, real, whole, drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh,
            fresh_score,
        )
    return part.sum()


@njit(**exact)
def run_epoch(
    order, step, start, learning_rate, momentum, lazy, facts, tables, first, second, memory, gradients, real, whole,
    bases, sizes, known, soft, soft_target, pool, pool_score, losses,
):
    """Train on every batch of `order` (steps, batch), -1 where the last batch is short; losses (steps,).

    `start` is the number of facts seen before: random numbers follow the position of a fact in the run. Tables, their
    moments, memories and gradients come as entity, relation and model. `lazy`: entities make up steps when next read.
    """
    head, relation_of, tail, _ = facts
    entity, relation, model = tables
    shards, (steps, batch_size), n = gradients[0].shape[0], order.shape, entity.shape[0]
    blocks, negatives = 2 * shards, whole[NEGATIVES]
    drawn = np.empty((batch_size, 2 * negatives), np.int64)
    slots = 2 * negatives if whole[INSERTS] else 0
    fresh, fresh_score = np.empty((batch_size, slots), np.int64), np.empty((batch_size, slots), F)
    members = known if whole[FILTERED] else known[:0]
    # where the gradient of an entity is, which entities have one, and how many steps of the epoch each has made
    places, touched, done = np.arange(n), np.arange(gradients[0].shape[1]), np.zeros(n, np.int64)
    if lazy:
        places[:] = -1
    rates = np.empty((2, steps), F)
    for i in range(steps):
        rates[0, i], rates[1, i] = adam_rates(learning_rate, step + i + 1)
    for i in range(steps):
        rows = order[i]
        draw_all(
            rows, start, facts, negatives, F(real[SHARE]), bases[S_CHOICE], bases[S_DRAW], bases[S_NEGATIVE], sizes,
            members, len(pool_score), drawn, shards,
        )
        soft_chosen = -1
        if len(soft_target) > 0 and real[W_SOFT] > 0:
            soft_chosen = below(draw(bases[S_SOFT], U(step)), len(soft_target))
        changed = touched
        if lazy:
            changed = touched[: touch_batch(rows, head, tail, drawn, soft, soft_chosen, pool, places, touched)]
            catch_up_all(entity, first[0], second[0], memory[0], momentum, rates, changed, done, i, blocks)
        losses[i] = gradient_all(
            rows, facts, tables, gradients, places, real, whole, drawn, soft, soft_target, soft_chosen, pool,
            pool_score, fresh, fresh_score,
        )
        if whole[INSERTS]:
            insert(rows, start, head, relation_of, tail, fresh, fresh_score, pool, pool_score)
        step += 1
        start += batch_size
        lr, eps = rates[0, i], rates[1, i]
        adam_all(entity, first[0], second[0], memory[0], gradients[0], momentum, lr, eps, changed, blocks)
        adam_rows(relation, first[1], second[1], memory[1], gradients[1], momentum, lr, eps, 0, relation.shape[0])
        adam_rows(model, first[2], second[2], memory[2], gradients[2], momentum, lr, eps, 0, 1)
        if lazy:
            release(changed, places, done, i + 1)
    if lazy:
        catch_up_all(entity, first[0], second[0], memory[0], momentum, rates, np.arange(n), done, steps, blocks)


# What follows serves `unkgcp.training.model`. The order of a sum is left to the compiler, so that it can add
# several numbers at once; nothing else is.
quick: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "nsz"}}

AHEAD = 16  # triples: rows come in time, and the second cache still holds them


@njit(alone=True, **quick)
def products(entity: Any, relation: Any, head: Any, middle: Any, tail: Any, out: Any) -> None:
    """Fill `out` (n,) with the sum over the dimensions of h r t; ids must be within the tables."""
    n, width = len(out), entity.shape[1]
    for i in range(n):
        later = min(i + AHEAD, n - 1)
        for row in (head[later], tail[later]):
            fetch_row(entity, row)
            # a row that begins within a line of the cache ends in one that nobody has asked for yet
            fetch(entity, np.int64(row), np.int64(width - 1))
        h, r, t = head[i], middle[i], tail[i]
        total = np.float32(0)
        for k in range(width):
            total += entity[h, k] * relation[r, k] * entity[t, k]
        out[i] = total
