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
    ask_samples,
    below,
    count_facts,
    draw,
    draw_all,
    draw_batch,
    epoch_rates,
    exact,
    fact_error,
    fast,
    insert,
    quick,
)
from unkgcp.training.lazy_steps import (
    ALONE,
    FREE,
    ask_entity,
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

# Loops take a table and the number of a row, not the row: numba counts the references to every row that is cut out.


@njit(**fast)
def dot(a: Any, i: Any, b: Any, j: Any) -> Any:
    total = F(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b[j, k]
    return total


@njit(forceinline=True, **fast)
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
def score_free(values, h, relation, r, t, mapped):
    """The sum over the dimensions of h r t for one free triple; r o t goes to `mapped` (d,)."""
    total = F(0)
    for k in range(len(mapped)):
        mapped[k] = relation[r, k] * values[t, k]
        total += values[h, k] * mapped[k]
    return total


@njit(**fast)
def step_free(values, h, relation, r, t, mapped, slope, g_entity, g_relation):
    """Add the gradient of one free triple, dLoss/dscore = slope, to its three rows, after `score_free`."""
    for k in range(len(mapped)):
        g_entity[h, k] += slope * mapped[k]
    for k in range(len(mapped)):
        part = slope * values[h, k]
        g_relation[r, k] += part * values[t, k]
        g_entity[t, k] += part * relation[r, k]


@njit(forceinline=True, **fast)
def step_corruption(slope, values, at, q, dq, g_entity):
    """Add the gradient of a corruption, dLoss/dscore = slope, to that of q and to that of row `at`."""
    for k in range(len(q)):
        dq[k] += slope * values[at, k]
        g_entity[at, k] += slope * q[k]


# An entity that only one corruption of the batch reads (ALONE in `lazy_steps`) makes its steps while its row is in the
# cache: the steps it has missed before it is scored, the step of the batch as soon as its gradient is known.


@njit(forceinline=True, **quick)
def score_alone(tables, row, missing, q, alone, j):
    """Score of corruption j with its row after the steps that are `missing`; alone[j] becomes that row."""
    parameter, first, second, _ = tables
    total, size, eps = F(0), missing[j, 0], missing[j, 1]
    for k in range(len(q)):
        alone[j, k] = later(parameter, first, second, row, k, size, eps)
        total += alone[j, k] * q[k]
    return total


@njit(forceinline=True, **exact)
def step_alone(tables, row, missing, slope, q, dq, alone, j, lr, eps):
    """`step_corruption` and the step of Adam on the row of corruption j, which is alone[j]."""
    parameter, first, second, _ = tables
    by_first, by_second = missing[j, 2], missing[j, 3]
    for k in range(len(q)):
        dq[k] += slope * alone[j, k]
        adam(parameter, first, second, row, k, alone[j, k], by_first, by_second, slope * q[k], lr, eps)


@njit(**fast)
def sample_gradient(
    drawn, weight, rectified, values, relation, model, places, pool, pool_score, mapped, fresh, g_entity, g_relation,
    g_model,
):
    """Add the gradient of the pool samples among the corruptions `drawn` (slots,) of a fact; their loss."""
    loss, n = 0.0, len(places)
    for j in range(len(drawn)):
        if drawn[j] < n:
            continue
        fresh[j] = -1
        place = drawn[j] - n
        h, r, t = places[pool[place, 0]], np.int64(pool[place, 1]), places[pool[place, 2]]
        s = score_free(values, h, relation, r, t, mapped)
        p, slope = activate(model[0] * s + model[1], rectified)
        error = p - pool_score[place]
        loss += weight * error * error
        g = F(2) * error * slope * weight
        g_model[0] += g * s
        g_model[1] += g
        step_free(values, h, relation, r, t, mapped, g * model[0], g_entity, g_relation)
    return loss


@njit(**fast)
def shard_gradient(
    rows, first, last, weight, facts, values, relation, model, g_entity, g_relation, g_model, places, real, whole,
    drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh, fresh_score, tables, done, rates, at_once, now,
):
    """Gradient of the loss of facts rows[first:last], added to the shard's tables; returns their loss.

    Entity e is row places[e] of values, and of g_entity its gradient. If it is ALONE it is in `tables`: parameters,
    moments and memory, which have made `done` (n,) steps of the epoch. Where steps are not lazy `tables` is None, and
    the compiler leaves out what is for entities that are ALONE: the loop then takes a tenth less.
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
    loss, lines = 0.0, (places.reshape(1, n), done.reshape(1, n))
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
        if real[SHARE] > 0:
            ask_samples(i, last, rows, drawn, values, g_entity, places, pool, pool_score)
            loss += sample_gradient(
                drawn[i], w_negative, rectified, values, relation, model, places, pool, pool_score, mapped, fresh[i],
                g_entity, g_relation, g_model,
            )
        ahead, further = i + 1 < last and rows[i + 1] >= 0, i + 2 < last and rows[i + 2] >= 0
        for j in range(slots):
            at_head = j < negatives
            if tables is not None:
                ask_entity(i, j, ahead, further, drawn, values, g_entity, places, tables, lines)
            if drawn[i, j] >= n:
                continue
            usable = drawn[i, j] >= 0
            other = drawn[i, j] if usable else -1 - drawn[i, j]
            at = other if tables is None else np.int64(places[other])
            if tables is not None and at == ALONE:
                missing[j, 0], missing[j, 1], missing[j, 2], missing[j, 3] = missed(
                    tables[0], tables[1], tables[2], tables[3], F(0), rates, at_once, other, done[other], now
                )
                if at_head:
                    s = score_alone(tables, other, missing, qh, alone, j)
                else:
                    s = score_alone(tables, other, missing, qt, alone, j)
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
            other, g = drawn[i, j], slopes[j]
            if other < 0 or other >= n:
                continue
            at = other if tables is None else np.int64(places[other])
            if tables is not None and at == ALONE:
                done[other], places[other] = now + 1, FREE
                if j < negatives:
                    step_alone(tables, other, missing, g, qh, dqh, alone, j, rates[0, now], rates[1, now])
                else:
                    step_alone(tables, other, missing, g, qt, dqt, alone, j, rates[0, now], rates[1, now])
            elif j < negatives:
                step_corruption(g, values, at, qh, dqh, g_entity)
            else:
                step_corruption(g, values, at, qt, dqt, g_entity)
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
        s = score_free(values, h, relation, r, t, mapped)
        p, slope = activate(w * s + b, rectified)
        short = soft_target[soft_chosen] - p
        if short > F(0):
            loss += real[W_SOFT] * short * short
            g = F(-2.0 * real[W_SOFT]) * short * slope
            g_model[0] += g * s
            g_model[1] += g
            step_free(values, h, relation, r, t, mapped, g * w, g_entity, g_relation)
    return loss


@njit(parallel=True, **exact)
def gradient_all(
    tables, done, rates, at_once, now, rows, facts, values, relation, model, gradients, places, real, whole, drawing,
    drawn, soft, soft_target, soft_chosen, pool, pool_score, fresh, fresh_score,
):
    """`shard_gradient` for all facts of a batch; their loss. Lazy steps need the corruptions before, others do not."""
    g_entity, g_relation, g_model = gradients
    shards = g_entity.shape[0]
    weight, part = F(1.0 / count_facts(rows)), np.zeros(shards)
    for shard in prange(shards):
        begin, end = shard * len(rows) // shards, (shard + 1) * len(rows) // shards
        if tables is None:
            draw_batch(rows, begin, end, facts, drawing, drawn)
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
    moments, memories and gradients come as entity, relation and model. `lazy` is True if steps are those of
    `lazy_steps`, which reads entities into `values`, or None: then these are the entities themselves.
    """
    head, relation_of, tail, _ = facts
    entity, relation, model = tables
    shards, (steps, batch_size), n = gradients[0].shape[0], order.shape, entity.shape[0]
    blocks, negatives = 2 * shards, whole[NEGATIVES]
    drawn = np.empty((batch_size, 2 * negatives), np.int64)
    slots = 2 * negatives if whole[INSERTS] else 0
    fresh, fresh_score = np.empty((batch_size, slots), np.int64), np.empty((batch_size, slots), F)
    members = known if whole[FILTERED] else known[:0]
    # the row of each entity in `values`, the entity of each row, and how many steps of the epoch each has made
    places, touched, done = np.arange(n).astype(np.int32), np.empty(len(values), np.int64), np.zeros(n, np.int32)
    if lazy is not None:
        places[:] = FREE
    count, shrunk = 0, np.empty((len(values), 2), F)
    rates = epoch_rates(learning_rate, step, steps)
    for i in range(steps):
        rows = order[i]
        drawing = (
            start, negatives, bases[S_NEGATIVE], sizes[0], sizes[1], members, F(real[SHARE]), bases[S_CHOICE],
            bases[S_DRAW], len(pool_score),
        )
        soft_chosen = -1
        if len(soft_target) > 0 and real[W_SOFT] > 0:
            soft_chosen = below(draw(bases[S_SOFT], U(step)), len(soft_target))
        batch = (
            rows, facts, values, relation, model, gradients, places, real, whole, drawing, drawn, soft, soft_target,
            soft_chosen, pool, pool_score, fresh, fresh_score,
        )
        if lazy is None:
            losses[i] = gradient_all(None, done, rates, rates, i, *batch)
        else:
            draw_all(rows, facts, drawing, drawn, shards)
            alone = momentum == F(0)
            count = touch_batch(rows, head, tail, drawn, soft, soft_chosen, pool, places, touched, alone)
            at_once = together(rates, i)
            read_rows(
                entity, first[0], second[0], memory[0], momentum, rates, at_once, touched[:count], done, i, values,
                shrunk, blocks,
            )
            of_entities = entity, first[0], second[0], memory[0]
            losses[i] = gradient_all(of_entities, done, rates, at_once, i, *batch)
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
    if lazy is not None:
        finish_rows(entity, first[0], second[0], memory[0], momentum, rates, done, blocks)
