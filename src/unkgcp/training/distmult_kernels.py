"""Compiled loops of the DistMult family on the CPU: the gradient of a batch.

The facts of a batch are divided among shards, each with a gradient table of its own; shards run in parallel and are
summed in a fixed order, so the result depends on the number of shards but never on timing.

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
from unkgcp.training.compiled_adam import ALONE, read_alone, write_alone
from unkgcp.training.compiled_common import F, exact, fact_error, fast, fetch_row, prefetch

SMALL = 10_000  # rows of a table that stay in the cache

# fmt: off

# Loops take a table and the number of a row, not the row: numba counts the references to every row that is cut out.


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
def free_triple(h, r, t, target, weight, bound, rectified, tables, gradients):
    """Loss of a triple that shares no row with a fact, a sample or a soft-logic fact; its gradient is added.

    weight (p - target)^2, or 0 if the target is a lower `bound` that p keeps.
    """
    (values, relation, model), (g_entity, g_relation, g_model) = tables, gradients
    s, d = F(0), values.shape[1]
    for k in range(d):
        s += values[h, k] * relation[r, k] * values[t, k]
    p, slope = activate(model[0, 0] * s + model[0, 1], rectified)
    error = p - target
    if bound and error >= F(0):
        return F(0)
    g = F(2) * error * slope * weight
    g_model[0, 0] += g * s
    g_model[0, 1] += g
    g *= model[0, 0]
    for k in range(d):
        part = g * relation[r, k]
        g_entity[h, k] += part * values[t, k]
        g_relation[r, k] += g * values[h, k] * values[t, k]
    for k in range(d):
        g_entity[t, k] += g * relation[r, k] * values[h, k]
    return weight * error * error


@njit(**exact)
def fetch_ahead(drawn, i, places, values, g_entity, pool):
    """Have the processor fetch the rows of the corruptions of fact i + 1, and the samples of fact i + 2."""
    n, scores = len(places), pool.scores.reshape(1, len(pool.scores))
    for value in drawn[min(i + 1, len(drawn) - 1)]:
        if value >= n:
            for side in range(0, 3, 2):
                fetch_row(values, places[pool.triples[value - n, side]])
                fetch_row(g_entity, places[pool.triples[value - n, side]])
        elif value >= 0 and n > SMALL and places[value] >= 0:
            fetch_row(values, places[value])
            fetch_row(g_entity, places[value])
    for value in drawn[min(i + 2, len(drawn) - 1)]:
        if value >= n:
            prefetch(pool.triples, value - n, 0)
            prefetch(scores, 0, value - n)


@njit(forceinline=True, **fast)
def step_corruption(slope, values, at, q, dq, g_entity):
    """Add the gradient of a corruption, dLoss/dscore = slope, to that of q and to that of row `at`."""
    for k in range(len(q)):
        dq[k] += slope * values[at, k]
        g_entity[at, k] += slope * q[k]


@njit(**fast)
def shard_gradient(batch, first, last, facts, entity, entities, tables, gradients, weights, soft, pool, rates, now):
    """Gradient of the loss of the batch's facts first..last, added to the shard's tables; returns their loss.

    tables: the rows of entities by their places, of relations and of the model; gradients: theirs. Entities that are
    ALONE have no place: they make step `now` of `rates` in their own table.
    """
    places, lazy = entities.places, len(entities.done) > 0
    (values, relation, model), (g_entity, g_relation, g_model) = tables, gradients
    rows, drawn, fresh, fresh_scores, soft_chosen, weight = batch
    head, relation_of, tail, confidence = facts
    n, d, slots = len(places), values.shape[1], drawn.shape[1]
    w, b, rectified = model[0, 0], model[0, 1], weights.rectified
    quantile, regular = F(weights.quantile), F(weights.norm)
    w_negative = F(weights.negative / slots) * weight if slots > 0 else F(0)
    qt, qh, dqt, dqh = np.empty(d, F), np.empty(d, F), np.empty(d, F), np.empty(d, F)
    slopes, alone, loss = np.zeros(slots, F), np.empty((slots, d), F), 0.0  # dLoss/dscore of each corruption
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
        g_model[0, 0] += g * s
        g_model[0, 1] += g
        g = g * w
        for k in range(d):
            dqt[k] = g * values[t, k]
            dqh[k] = F(0)
        for k in range(d):
            g_entity[t, k] += g * qt[k]
        if pool.open or n > SMALL:
            fetch_ahead(drawn, i, places, values, g_entity, pool)
        if lazy:
            read_alone(drawn[i], drawn[min(i + 1, len(drawn) - 1)], entity, entities, rates, now, alone)
        for j in range(slots):
            value = drawn[i, j]
            if value >= n:
                sample = value - n
                x, y, z = pool.triples[sample, 0], pool.triples[sample, 1], pool.triples[sample, 2]
                loss += free_triple(
                    places[x], y, places[z], pool.scores[sample], w_negative, False, rectified, tables, gradients
                )
                if pool.open:
                    fresh[i, j] = -1
                continue
            other = value if value >= 0 else -1 - value
            at = places[other]
            if at == ALONE:
                s = dot_row(qh, alone, j) if 2 * j < slots else dot_row(qt, alone, j)
            else:
                s = dot_row(qh, values, at) if 2 * j < slots else dot_row(qt, values, at)
            p, slope = activate(w * s + b, rectified)
            if pool.open:
                fresh[i, j] = other
                fresh_scores[i, j] = min(max(p, F(0)), F(1))
            if value >= 0:
                loss += w_negative * p * p
                g = F(2) * p * slope * w_negative
                g_model[0, 0] += g * s
                g_model[0, 1] += g
                slopes[j] = g * w
        if lazy:
            half = slots // 2
            write_alone(drawn[i, :half], entity, entities, rates, now, alone[:half], slopes[:half], qh, dqh)
            write_alone(drawn[i, half:], entity, entities, rates, now, alone[half:], slopes[half:], qt, dqt)
        for j in range(slots):
            other = drawn[i, j]
            if other < 0 or other >= n:
                continue
            at = places[other]
            if at < 0:
                continue
            if 2 * j < slots:
                step_corruption(slopes[j], values, at, qh, dqh, g_entity)
            else:
                step_corruption(slopes[j], values, at, qt, dqt, g_entity)
        for k in range(d):
            g_relation[r, k] += dqt[k] * values[h, k] + dqh[k] * values[t, k]
        for k in range(d):
            g_entity[h, k] += dqt[k] * relation[r, k]
        for k in range(d):
            g_entity[t, k] += dqh[k] * relation[r, k]
        if regular > F(0):
            scale, squares = regular * weight, F(0)
            for k in range(d):
                squares += values[h, k] ** 2 + relation[r, k] ** 2 + values[t, k] ** 2
                g_entity[h, k] += scale * values[h, k]
                g_relation[r, k] += scale * relation[r, k]
            for k in range(d):
                g_entity[t, k] += scale * values[t, k]
            loss += F(0.5) * scale * squares
    if first == 0 and soft_chosen >= 0:
        x, y, z = soft.triples[soft_chosen, 0], soft.triples[soft_chosen, 1], soft.triples[soft_chosen, 2]
        bound, w_soft = soft.bounds[soft_chosen], F(weights.soft)
        loss += free_triple(places[x], y, places[z], bound, w_soft, True, rectified, tables, gradients)
    return loss


@njit(parallel=True, **exact)
def gradient_all(batch, facts, entity, entities, relation, model, weights, soft, pool, rates, now):
    """`shard_gradient` for all facts of a batch; their loss."""
    shards, n = len(entity.gradients), len(batch.rows)
    loss = np.zeros(shards)
    for shard in prange(shards):
        tables = entities.values, relation.parameter, model.parameter
        gradients = entity.gradients[shard], relation.gradients[shard], model.gradients[shard]
        loss[shard] = shard_gradient(
            batch, shard * n // shards, (shard + 1) * n // shards, facts, entity, entities, tables, gradients, weights,
            soft, pool, rates, now,
        )
    return loss.sum()


@njit(**fast)
def insert(batch, start, facts, pool):
    """Put the corruptions of a batch into the pool after the batch, so that its draws do not depend on timing."""
    slots = batch.fresh.shape[1]
    for i in range(len(batch.rows)):
        fact = batch.rows[i]
        if fact < 0:
            continue
        for j in range(slots):
            other = batch.fresh[i, j]
            if other < 0:
                continue
            place = ((start + i) * slots + j) % len(pool.scores)
            pool.triples[place, 0] = other if 2 * j < slots else facts.head[fact]
            pool.triples[place, 1] = facts.relation[fact]
            pool.triples[place, 2] = facts.tail[fact] if 2 * j < slots else other
            pool.scores[place] = batch.fresh_scores[i, j]
