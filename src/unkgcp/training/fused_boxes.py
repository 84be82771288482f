"""A batch of BEUrRE in one kernel: facts, negatives and norms with hand-derived gradients.

With A = dlog p / dside of the intersection, and the Gumbel intersection's soft maximum of lower corners and soft
minimum of upper corners, the weights of the two boxes in each corner are logistic functions of their distance.
"""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training.fused_common import corrupt, fact_error

BETA = tl.constexpr(0.01)
OFFSET = tl.constexpr(2 * 0.5772156649015329 * 0.01)
TINY = tl.constexpr(1.1754943508222875e-38)
LARGEST_LOG_SIDE = tl.constexpr(40.0)

# sizes are never compiled in: one compilation serves every graph and number of members
SIZES = ["n_facts", "n_known", "rounds", "members", "batch", "n_entities", "n_relations"]

# fmt: off


@triton.jit
def log1p_exp(x):
    """log(1 + e) for e = exp(-|x|), exact also where 1 + e rounds to 1."""
    e = tl.exp(-tl.abs(x))
    return tl.where(e < 1e-4, e * (1 - 0.5 * e), tl.log(1 + e))


@triton.jit
def logistic(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def log_side(x, inside):
    """(log softplus(x), its derivative), 0 outside the box's dimensions."""
    more = log1p_exp(x)
    size = tl.maximum(x, 0.0) + more
    valid = inside & (size > TINY)
    return tl.where(inside, tl.log(tl.maximum(size, TINY)), 0.0), tl.where(valid, logistic(x) / size, 0.0)


@triton.jit
def box_pair(low1, side1, low2, side2, inside):
    """Share p of box 2 covered by box 1, rows (k, d), and dlog p / d(low1, side1, low2, side2)."""
    apart = (low1 - low2) / BETA
    smooth = log1p_exp(apart)
    low = tl.maximum(low1, low2) + BETA * smooth
    high1, high2 = low1 + side1, low2 + side2
    beyond = (high1 - high2) / BETA
    smooth = log1p_exp(beyond)
    high = tl.minimum(high1, high2) - BETA * smooth
    logs, slope = log_side(high - low - OFFSET, inside)
    whole, whole_slope = log_side(side2 - OFFSET, inside)
    ratio = tl.sum(logs, 1) - tl.sum(whole, 1)
    p = tl.exp(tl.minimum(ratio, 0.0))
    live = tl.where(ratio <= 0, 1.0, 0.0)[:, None]
    slope, whole_slope = slope * live, whole_slope * live
    from_low1, from_high1 = logistic(apart), logistic(-beyond)
    d_side1 = slope * from_high1
    d_low1 = d_side1 - slope * from_low1
    d_high2 = slope * (1 - from_high1)
    d_low2 = d_high2 - slope * (1 - from_low1)
    return p, d_low1, d_side1, d_low2, d_high2 - whole_slope


@triton.jit
def norm_gradient(row, weight):
    """(weight |row|, its gradient)."""
    size = tl.sqrt(tl.sum(row * row))
    return weight * size, tl.where(size > 0, weight * row / tl.where(size > 0, size, 1.0), 0.0)


@triton.jit
def box_side(
    low, log_side_at, g_low, g_log_side, others, usable, rows, column, inside,
    fixed_low, fixed_side, shift, scale_row, weight,
    WIDTH: tl.constexpr, AT_HEAD: tl.constexpr,
):
    """One side's negatives: loss, gradients of the fixed box (d,) and of this side's shift and scale (d,)."""
    mask = rows[:, None] & inside[None, :]
    place = others[:, None] * WIDTH + column[None, :]
    lows = tl.load(low + place, mask=mask, other=0.0)
    logs = tl.load(log_side_at + place, mask=mask, other=0.0)
    sides = tl.exp(tl.minimum(logs, LARGEST_LOG_SIDE))
    stretch = tl.maximum(scale_row, 0.0)
    moved_low, moved_side = lows + shift[None, :], sides * stretch[None, :]
    still_low, still_side = fixed_low[None, :] + lows * 0, fixed_side[None, :] + lows * 0
    if AT_HEAD:
        p, d_low, d_side, d_fixed_low, d_fixed_side = box_pair(moved_low, moved_side, still_low, still_side, mask)
    else:
        p, d_fixed_low, d_fixed_side, d_low, d_side = box_pair(still_low, still_side, moved_low, moved_side, mask)
    active = tl.where(rows & usable, weight, 0.0)
    g = (2 * p * p * active)[:, None]
    d_low, d_side = g * d_low, g * d_side
    d_log = tl.where(logs < LARGEST_LOG_SIDE, d_side * stretch[None, :] * sides, 0.0)
    tl.atomic_add(g_low + place, d_low, mask=mask & usable[:, None], sem="relaxed")
    tl.atomic_add(g_log_side + place, d_log, mask=mask & usable[:, None], sem="relaxed")
    d_scale = tl.where(scale_row > 0, tl.sum(d_side * sides, 0), 0.0)
    loss = tl.sum(active * p * p)
    return loss, tl.sum(g * d_fixed_low, 0), tl.sum(g * d_fixed_side, 0), tl.sum(d_low, 0), d_scale


@triton.jit(do_not_specialize=SIZES)
def box_batch(
    order, place_at, start_at, n_facts, heads, relations, tails, targets, taus,
    low, log_side_at, h_shift, h_scale, t_shift, t_scale,
    g_low, g_log_side, g_h_shift, g_h_scale, g_t_shift, g_t_scale,
    bases, known, n_known, rounds, loss_at, members, batch, n_entities, n_relations,
    w_negative, w_side, w_other,
    COUNT: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    RETRIES: tl.constexpr, QUANTILE: tl.constexpr,
):
    """Loss and gradient of one fact with its negatives and its norms."""
    program = tl.program_id(0).to(tl.int64)
    member, i = program // batch, program % batch
    place = tl.load(place_at)
    fact = tl.load(order + (place * members + member) * batch + i)
    if fact >= 0:
        column = tl.arange(0, COLUMNS)
        inside = column < WIDTH
        at_entity, at_relation = member * n_entities * WIDTH, member * n_relations * WIDTH
        low, g_low = low + at_entity, g_low + at_entity
        log_side_at, g_log_side = log_side_at + at_entity, g_log_side + at_entity
        weight = 1.0 / tl.minimum(batch, n_facts - place * batch).to(tl.float32)
        h, r, t = tl.load(heads + fact), tl.load(relations + fact), tl.load(tails + fact)
        at_h, at_t, at_r = h * WIDTH + column, t * WIDTH + column, at_relation + r * WIDTH + column
        low_h = tl.load(low + at_h, mask=inside, other=0.0)
        low_t = tl.load(low + at_t, mask=inside, other=0.0)
        log_h = tl.load(log_side_at + at_h, mask=inside, other=0.0)
        log_t = tl.load(log_side_at + at_t, mask=inside, other=0.0)
        side_h = tl.where(inside, tl.exp(tl.minimum(log_h, LARGEST_LOG_SIDE)), 0.0)
        side_t = tl.where(inside, tl.exp(tl.minimum(log_t, LARGEST_LOG_SIDE)), 0.0)
        shift_h = tl.load(h_shift + at_r, mask=inside, other=0.0)
        scale_h = tl.load(h_scale + at_r, mask=inside, other=0.0)
        shift_t = tl.load(t_shift + at_r, mask=inside, other=0.0)
        scale_t = tl.load(t_scale + at_r, mask=inside, other=0.0)
        box_h, wide_h = low_h + shift_h, side_h * tl.maximum(scale_h, 0.0)
        box_t, wide_t = low_t + shift_t, side_t * tl.maximum(scale_t, 0.0)
        p, a, b, c, d = box_pair(box_h[None, :], wide_h[None, :], box_t[None, :], wide_t[None, :], inside[None, :])
        value = tl.sum(p)
        error, slope = fact_error(value, tl.load(targets + fact), tl.load(taus + member), QUANTILE)
        g = slope * value * weight
        loss = weight * error
        # gradients of the two transformed boxes, and of the shifts and scales through negatives on their own side
        g_box_h, g_wide_h = g * tl.sum(a, 0), g * tl.sum(b, 0)
        g_box_t, g_wide_t = g * tl.sum(c, 0), g * tl.sum(d, 0)
        own_h_shift, own_h_scale = tl.zeros_like(low_h), tl.zeros_like(low_h)
        own_t_shift, own_t_scale = tl.zeros_like(low_h), tl.zeros_like(low_h)
        if COUNT > 0:
            lane = tl.arange(0, LANES)
            rows = lane < COUNT
            scale = w_negative * weight / (2 * COUNT)
            position = (tl.load(start_at) + place * batch + i) * (2 * COUNT)
            others, usable = corrupt(
                bases, member, (position + lane).to(tl.uint64), h, r, t, n_entities, n_relations,
                known, n_known, rounds, True, RETRIES,
            )
            part, x, y, own_h_shift, own_h_scale = box_side(
                low, log_side_at, g_low, g_log_side, others, usable, rows, column, inside,
                box_t, wide_t, shift_h, scale_h, scale, WIDTH, True,
            )
            loss += part
            g_box_t += x
            g_wide_t += y
            others, usable = corrupt(
                bases, member, (position + lane + COUNT).to(tl.uint64), h, r, t, n_entities, n_relations,
                known, n_known, rounds, False, RETRIES,
            )
            part, x, y, own_t_shift, own_t_scale = box_side(
                low, log_side_at, g_low, g_log_side, others, usable, rows, column, inside,
                box_h, wide_h, shift_t, scale_t, scale, WIDTH, False,
            )
            loss += part
            g_box_h += x
            g_wide_h += y
        more, n_side_h = norm_gradient(side_h, w_side * weight)
        loss += more
        more, n_side_t = norm_gradient(side_t, w_side * weight)
        loss += more
        more, n_low_h = norm_gradient(low_h, w_other * weight)
        loss += more
        more, n_low_t = norm_gradient(low_t, w_other * weight)
        loss += more
        more, n_shift_h = norm_gradient(shift_h, w_other * weight)
        loss += more
        more, n_scale_h = norm_gradient(scale_h, w_other * weight)
        loss += more
        more, n_shift_t = norm_gradient(shift_t, w_other * weight)
        loss += more
        more, n_scale_t = norm_gradient(scale_t, w_other * weight)
        loss += more
        d_log_h = (g_wide_h * tl.maximum(scale_h, 0.0) + n_side_h) * side_h
        d_log_t = (g_wide_t * tl.maximum(scale_t, 0.0) + n_side_t) * side_t
        d_scale_h = tl.where(scale_h > 0, g_wide_h * side_h, 0.0) + own_h_scale + n_scale_h
        d_scale_t = tl.where(scale_t > 0, g_wide_t * side_t, 0.0) + own_t_scale + n_scale_t
        tl.atomic_add(g_low + at_h, g_box_h + n_low_h, mask=inside, sem="relaxed")
        tl.atomic_add(g_low + at_t, g_box_t + n_low_t, mask=inside, sem="relaxed")
        tl.atomic_add(g_log_side + at_h, d_log_h, mask=inside & (log_h < LARGEST_LOG_SIDE), sem="relaxed")
        tl.atomic_add(g_log_side + at_t, d_log_t, mask=inside & (log_t < LARGEST_LOG_SIDE), sem="relaxed")
        tl.atomic_add(g_h_shift + at_r, g_box_h + own_h_shift + n_shift_h, mask=inside, sem="relaxed")
        tl.atomic_add(g_h_scale + at_r, d_scale_h, mask=inside, sem="relaxed")
        tl.atomic_add(g_t_shift + at_r, g_box_t + own_t_shift + n_shift_t, mask=inside, sem="relaxed")
        tl.atomic_add(g_t_scale + at_r, d_scale_t, mask=inside, sem="relaxed")
        tl.atomic_add(loss_at + member, loss, sem="relaxed")
