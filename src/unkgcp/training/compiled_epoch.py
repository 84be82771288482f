"""An epoch of training in one compiled call: drawing, lazy or dense steps, and the gradient of either kernel."""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit
from unkgcp.training import box_kernels, distmult_kernels
from unkgcp.training.compiled_adam import (
    FREE,
    finish_rows,
    read_rows,
    step_all,
    touch_batch,
    write_rows,
)
from unkgcp.training.compiled_common import DrawnBatch, F, U, below, draw, draw_all, exact

# fmt: off


@njit(**exact)
def run_epoch(
    order, step, start, rates, momentum, facts, tables, entities, lazy, drawing, weights, soft, pool, boxes, losses
):
    """Train on every batch of `order` (steps, batch), -1 where the last batch is short; fills losses (steps,).

    step, start: steps and facts of all earlier epochs, by which random numbers are drawn. `rates` are those of
    `adam_rates`. tables: those of entities, relations and the model. `lazy` is True if `entities` are read and written
    by `compiled_adam`. `boxes` is None for the DistMult family, so that only the loops of one kernel are compiled. The
    other arguments are the groups of `compiled_common`.
    """
    (entity, relation, model), (steps, size) = tables, order.shape
    shards, count = len(entity.gradients), 0
    blocks, slots = 2 * shards, 2 * drawing.negatives
    drawn, kept = np.full((size, slots), -1), slots if pool.open else 0
    fresh, fresh_scores = np.empty((size, kept), np.int64), np.empty((size, kept), F)
    if lazy:
        entities.places[:] = FREE
    for now in range(steps):
        rows, chosen = order[now], -1
        draw_all(rows, start, facts, drawing, len(pool.scores), drawn, shards)
        if len(soft.bounds) > 0:
            chosen = below(draw(soft.base, U(step)), len(soft.bounds))
        batch = DrawnBatch(rows, drawn, fresh, fresh_scores, chosen, F(1.0 / np.count_nonzero(rows >= 0)))
        if lazy:
            count = touch_batch(batch, facts, soft, pool, entities, boxes is None)
            read_rows(entity, entities, rates, now, count, blocks)
        if boxes is None:
            losses[now] = distmult_kernels.gradient_all(
                batch, facts, entity, entities, relation, model, weights, soft, pool, rates, now
            )
            if pool.open:
                distmult_kernels.insert(batch, start, facts, pool)
        else:
            losses[now] = box_kernels.gradient_all(batch, facts, entities, relation, entity.gradients, weights)
        if lazy:
            write_rows(entity, entities, rates, now, count, blocks)
        else:
            step_all(entity, momentum, rates, now, blocks)
        step_all(relation, momentum, rates, now, 1)
        step_all(model, momentum, rates, now, 1)
        step += 1
        start += size
    if lazy:
        finish_rows(entity, entities.done, rates, blocks)
