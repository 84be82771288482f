"""A batch of BEUrRE in one kernel: facts, negatives and norms with hand-derived gradients.

The Gumbel intersection takes a soft maximum of the lower corners and a soft minimum of the upper corners. In both the
weights of the two boxes are logistic functions of the distance of their corners; gradients are shared out by them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training.fused_common import SIZES, SLOTS, corrupt, fact_error

BETA = tl.constexpr(0.01)
OFFSET = tl.constexpr(2 * 0.5772156649015329 * 0.01)
TINY = tl.constexpr(1.1754943508222875e-38)
LARGEST_LOG_SIDE = tl.constexpr(40.0)

# fmt: off


@triton.jit
def soft_step(x):
    """(log(1 + exp(-|x|)), 1 / (1 + exp(-x)), 1 / (1 + exp(x))), the first also exact where 1 + exp rounds to 1."""
    e = tl.exp(-tl.abs(x))
    large = 1 / (1 + e)
    small = e * large
    more = tl.where(e < 1e-4, e * (1 - 0.5 * e), tl.log(1 + e))
    return more, tl.where(x >= 0, large, small), tl.where(x >= 0, small, large)


@triton.jit
def log_side(x, inside):
    """(log softplus(x), its derivative), 0 outside the box's dimensions."""
    more, up, _ = soft_step(x)
    size = tl.maximum(x, 0.0) + more
    valid = inside & (size > TINY)
    return tl.where(inside, tl.log(tl.maximum(size, TINY)), 0.0), tl.where(valid, up / size, 0.0)


@triton.jit
def box_pair(low1, side1, low2, side2, whole, whole_slope, inside):
    """Share p of box 2 covered by box 1, rows (k, d), and dlog p / d(low1, side1, low2, side2).

    `whole` (k,) is the log volume of box 2, `whole_slope` its derivative by side2.
    """
    more, from_low1, from_low2 = soft_step((low1 - low2) * (1 / BETA))
    low = tl.maximum(low1, low2) + BETA * more
    high1, high2 = low1 + side1, low2 + side2
    more, from_high2, from_high1 = soft_step((high1 - high2) * (1 / BETA))
    high = tl.minimum(high1, high2) - BETA * more
    logs, slope = log_side(high - low - OFFSET, inside)
    ratio = tl.sum(logs, 1) - whole
    p = tl.exp(tl.minimum(ratio, 0.0))
    live = tl.where(ratio <= 0, 1.0, 0.0)[:, None]
    slope, whole_slope = slope * live, whole_slope * live
    d_side1, d_side2 = slope * from_high1, slope * from_high2
    return p, d_side1 - slope * from_low1, d_side1, d_side2 - slope * from_low2, d_side2 - whole_slope


@triton.jit
def add_with_norm(g_table, at, row, gradient, weight, inside):
    """Add a gradient, and that of weight |row|, to a row of gradients; weight |row|."""
    size = tl.sqrt(tl.sum(row * row))
    more = tl.where(size > 0, weight * row / tl.where(size > 0, size, 1.0), 0.0)
    tl.atomic_add(g_table + at, gradient + more, mask=inside, sem="relaxed")
    return weight * size


@triton.jit
def add_side(g_log_side, at, log_side_row, side, scale, gradient, weight, inside):
    """The same for the logarithms of sides, by the gradient of the scaled side and that of weight |side|."""
    size = tl.sqrt(tl.sum(side * side))
    more = tl.where(size > 0, weight * side / tl.where(size > 0, size, 1.0), 0.0)
    down = (gradient * tl.maximum(scale, 0.0) + more) * side
    tl.atomic_add(g_log_side + at, down, mask=inside & (log_side_row < LARGEST_LOG_SIDE), sem="relaxed")
    return weight * size


@triton.jit
def box_side(
    low, log_side_at, g_low, g_log_side, bases, fact_keys, n_keys, rounds, position, member, h, r, t,
    n_entities, n_relations, column, inside, fixed_low, fixed_side, whole, whole_slope, shift, scale_row, weight,
    COUNT: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, RETRIES: tl.constexpr,
    AT_HEAD: tl.constexpr,
):
    """One side's negatives, LANES at a time: loss, gradients (d,) of the fixed box and of this side's shift and scale.

    `whole` and `whole_slope` are those of the fixed box, which the head's negatives are to cover.
    """
    losses = tl.zeros((LANES,), tl.float32)
    d_shift, d_scale = tl.zeros((LANES, COLUMNS), tl.float32), tl.zeros((LANES, COLUMNS), tl.float32)
    d_fixed_low, d_fixed_side = tl.zeros((LANES, COLUMNS), tl.float32), tl.zeros((LANES, COLUMNS), tl.float32)
    stretch = tl.maximum(scale_row, 0.0)
    for begin in range(0, COUNT, LANES):
        lane = begin + tl.arange(0, LANES)
        rows = lane < COUNT
        others, usable = corrupt(
            bases, member, (position + lane).to(tl.uint64), h, r, t, n_entities, n_relations,
            fact_keys, n_keys, rounds, AT_HEAD, RETRIES,
        )
        mask = rows[:, None] & inside[None, :]
        place = others[:, None] * WIDTH + column[None, :]
        lows = tl.load(low + place, mask=mask, other=0.0)
        logs = tl.load(log_side_at + place, mask=mask, other=0.0)
        sides = tl.exp(tl.minimum(logs, LARGEST_LOG_SIDE))
        moved_low, moved_side = lows + shift[None, :], sides * stretch[None, :]
        still_low, still_side = fixed_low[None, :] + lows * 0, fixed_side[None, :] + lows * 0
        if AT_HEAD:
            p, d_low, d_side, x, y = box_pair(
                moved_low, moved_side, still_low, still_side, whole, whole_slope[None, :] + lows * 0, mask
            )
        else:
            logs_moved, slope_moved = log_side(moved_side - OFFSET, mask)
            p, x, y, d_low, d_side = box_pair(
                still_low, still_side, moved_low, moved_side, tl.sum(logs_moved, 1), slope_moved, mask
            )
        active = tl.where(rows & usable, weight, 0.0)
        g = (2 * p * p * active)[:, None]
        d_low, d_side = g * d_low, g * d_side
        d_log = tl.where(logs < LARGEST_LOG_SIDE, d_side * moved_side, 0.0)
        tl.atomic_add(g_low + place, d_low, mask=mask & usable[:, None], sem="relaxed")
        tl.atomic_add(g_log_side + place, d_log, mask=mask & usable[:, None], sem="relaxed")
        losses += active * p * p
        d_fixed_low += g * x
        d_fixed_side += g * y
        d_shift += d_low
        d_scale += d_side * sides
    return (
        tl.sum(losses), tl.sum(d_fixed_low, 0), tl.sum(d_fixed_side, 0), tl.sum(d_shift, 0),
        tl.where(scale_row > 0, tl.sum(d_scale, 0), 0.0),
    )


@triton.jit(do_not_specialize=SIZES)
def box_batch(
    order, place_at, start_at, n_facts, heads, relations, tails, targets, taus,
    low, log_side_at, h_shift, h_scale, t_shift, t_scale,
    g_low, g_log_side, g_h_shift, g_h_scale, g_t_shift, g_t_scale,
    bases, fact_keys, n_keys, rounds, sums, members, batch, n_entities, n_relations, w_negative, w_side, w_other,
    COUNT: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    RETRIES: tl.constexpr, QUANTILE: tl.constexpr,
):
    """Loss and gradient of one fact with its negatives and its norms, but without rules."""
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
        logs, whole_slope = log_side(wide_t - OFFSET, inside)
        whole = tl.sum(logs)
        p, a, b, c, d = box_pair(
            box_h[None, :], wide_h[None, :], box_t[None, :], wide_t[None, :],
            whole, whole_slope[None, :], inside[None, :],
        )
        value = tl.sum(p)
        a, b, c, d = tl.sum(a, 0), tl.sum(b, 0), tl.sum(c, 0), tl.sum(d, 0)
        error, slope = fact_error(value, tl.load(targets + fact), tl.load(taus + member), QUANTILE)
        g = slope * value * weight
        loss = weight * error
        # gradients of the two transformed boxes, and of the shifts and scales through negatives on their own side
        g_box_h, g_wide_h, g_box_t, g_wide_t = g * a, g * b, g * c, g * d
        own_h_shift, own_h_scale = tl.zeros_like(low_h), tl.zeros_like(low_h)
        own_t_shift, own_t_scale = tl.zeros_like(low_h), tl.zeros_like(low_h)
        if COUNT > 0:
            scale = w_negative * weight / (2 * COUNT)
            position = (tl.load(start_at) + place * batch + i) * (2 * COUNT)
            part, x, y, own_h_shift, own_h_scale = box_side(
                low, log_side_at, g_low, g_log_side, bases, fact_keys, n_keys, rounds, position, member, h, r, t,
                n_entities, n_relations, column, inside, box_t, wide_t, whole, whole_slope, shift_h, scale_h, scale,
                COUNT, LANES, WIDTH, COLUMNS, RETRIES, True,
            )
            loss += part
            g_box_t += x
            g_wide_t += y
            part, x, y, own_t_shift, own_t_scale = box_side(
                low, log_side_at, g_low, g_log_side, bases, fact_keys, n_keys, rounds, position + COUNT, member,
                h, r, t, n_entities, n_relations, column, inside, box_h, wide_h, whole, whole_slope, shift_t, scale_t,
                scale, COUNT, LANES, WIDTH, COLUMNS, RETRIES, False,
            )
            loss += part
            g_box_h += x
            g_wide_h += y
        w_side, w_other = w_side * weight, w_other * weight
        loss += add_side(g_log_side, at_h, log_h, side_h, scale_h, g_wide_h, w_side, inside)
        loss += add_side(g_log_side, at_t, log_t, side_t, scale_t, g_wide_t, w_side, inside)
        loss += add_with_norm(g_low, at_h, low_h, g_box_h, w_other, inside)
        loss += add_with_norm(g_low, at_t, low_t, g_box_t, w_other, inside)
        d_scale_h = tl.where(scale_h > 0, g_wide_h * side_h, 0.0) + own_h_scale
        d_scale_t = tl.where(scale_t > 0, g_wide_t * side_t, 0.0) + own_t_scale
        loss += add_with_norm(g_h_shift, at_r, shift_h, g_box_h + own_h_shift, w_other, inside)
        loss += add_with_norm(g_h_scale, at_r, scale_h, d_scale_h, w_other, inside)
        loss += add_with_norm(g_t_shift, at_r, shift_t, g_box_t + own_t_shift, w_other, inside)
        loss += add_with_norm(g_t_scale, at_r, scale_t, d_scale_t, w_other, inside)
        tl.atomic_add(sums + (member * SLOTS + i % SLOTS) * 8, loss, sem="relaxed")
