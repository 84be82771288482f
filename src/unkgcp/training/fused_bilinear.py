"""A batch of the DistMult family in one kernel; formulas and names as in `unkgcp.training.distmult_kernels`."""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training.fused_common import SIZES, SLOTS, below, corrupt, draw, fact_error, unit

# fmt: off


@triton.jit
def activate(linear, RECTIFIED: tl.constexpr):
    """(p, dp/dlinear)."""
    if RECTIFIED:
        return linear, linear * 0 + 1
    value = 1 / (1 + tl.exp(-linear))
    return value, value * (1 - value)


@triton.jit
def fresh_side(
    entity, g_entity, query, candidates, usable, rows, column, inside, w, b, scale,
    WIDTH: tl.constexpr, RECTIFIED: tl.constexpr,
):
    """Negatives of one side: adds the gradients of their rows.

    (their losses (k,), gradients of the query (k, d), of w and of b (k,), values (k,)).
    """
    mask = rows[:, None] & inside[None, :]
    place = candidates[:, None] * WIDTH + column[None, :]
    other = tl.load(entity + place, mask=mask, other=0.0)
    raw = tl.sum(other * query[None, :], 1)
    value, slope = activate(w * raw + b, RECTIFIED)
    active = tl.where(rows & usable, scale, 0.0)
    g = 2 * value * slope * active
    push = (g * w)[:, None]
    tl.atomic_add(g_entity + place, push * query[None, :], mask=mask & usable[:, None], sem="relaxed")
    return active * value * value, push * other, g * raw, g, value


@triton.jit
def free_triples(
    entity, g_entity, relation, g_relation, h, r, t, target, active, column, inside, w, b,
    WIDTH: tl.constexpr, RECTIFIED: tl.constexpr, BOUND: tl.constexpr,
):
    """Triples (k,) that share no row with a fact, pool samples or a soft-logic fact: adds the gradients of their rows.

    (losses, gradients of w and b), (k,) each: active (p - target)^2, or 0 where the target is a BOUND that p keeps.
    """
    mask = (active > 0)[:, None] & inside[None, :]
    at_h, at_r = h[:, None] * WIDTH + column[None, :], r[:, None] * WIDTH + column[None, :]
    at_t = t[:, None] * WIDTH + column[None, :]
    hv = tl.load(entity + at_h, mask=mask, other=0.0)
    rv = tl.load(relation + at_r, mask=mask, other=0.0)
    tv = tl.load(entity + at_t, mask=mask, other=0.0)
    raw = tl.sum(hv * rv * tv, 1)
    value, slope = activate(w * raw + b, RECTIFIED)
    error = tl.minimum(value - target, 0.0) if BOUND else value - target
    g = 2 * error * slope * active
    push = (g * w)[:, None]
    tl.atomic_add(g_entity + at_h, push * rv * tv, mask=mask, sem="relaxed")
    tl.atomic_add(g_entity + at_t, push * rv * hv, mask=mask, sem="relaxed")
    tl.atomic_add(g_relation + at_r, push * hv * tv, mask=mask, sem="relaxed")
    return active * error * error, g * raw, g


@triton.jit
def pool_samples(triples, scores, member, places, chosen, draw_bases, counter):
    """The samples of the chosen lanes: head, relation, tail and old score, (k,) each."""
    base = tl.load(draw_bases + member).to(tl.uint64, bitcast=True)
    at = member * places + below(draw(base, counter), places)
    h = tl.load(triples + at * 3, mask=chosen, other=0).to(tl.int64)
    r = tl.load(triples + at * 3 + 1, mask=chosen, other=0).to(tl.int64)
    t = tl.load(triples + at * 3 + 2, mask=chosen, other=0).to(tl.int64)
    return h, r, t, tl.load(scores + at, mask=chosen, other=0.0)


@triton.jit(do_not_specialize=SIZES)
def bilinear_batch(
    order, place_at, start_at, n_facts, heads, relations, tails, targets, taus,
    entity, relation, w_at, b_at, g_entity, g_relation, g_w, g_b,
    bases, fact_keys, n_keys, rounds,
    soft, soft_targets, n_soft, soft_bases, step_at,
    triples, scores, places, share_at, choice_bases, draw_bases, fresh, fresh_values,
    sums, members, batch, n_entities, n_relations, w_negative, regular, w_soft,
    COUNT: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, RETRIES: tl.constexpr,
    RECTIFIED: tl.constexpr, QUANTILE: tl.constexpr, SOFT: tl.constexpr, PHASE: tl.constexpr,
):
    """Loss and gradient of one fact with its negatives and, in PASSLEAF's phase 2, its pool samples.

    From phase 1 on the corruptions drawn and their values are left in `fresh` and `fresh_values`.
    """
    program = tl.program_id(0).to(tl.int64)
    member, i = program // batch, program % batch
    place = tl.load(place_at)
    fact = tl.load(order + (place * members + member) * batch + i)
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    entity += member * n_entities * WIDTH
    g_entity += member * n_entities * WIDTH
    relation += member * n_relations * WIDTH
    g_relation += member * n_relations * WIDTH
    w, b = tl.load(w_at + member), tl.load(b_at + member)
    sums += (member * SLOTS + i % SLOTS) * 8
    loss = 0.0
    if fact >= 0:
        weight = 1.0 / tl.minimum(batch, n_facts - place * batch).to(tl.float32)
        h, r, t = tl.load(heads + fact), tl.load(relations + fact), tl.load(tails + fact)
        hv = tl.load(entity + h * WIDTH + column, mask=inside, other=0.0)
        rv = tl.load(relation + r * WIDTH + column, mask=inside, other=0.0)
        tv = tl.load(entity + t * WIDTH + column, mask=inside, other=0.0)
        qt, qh = hv * rv, rv * tv
        raw = tl.sum(qt * tv)
        value, inner = activate(w * raw + b, RECTIFIED)
        error, slope = fact_error(value, tl.load(targets + fact), tl.load(taus + member), QUANTILE)
        g = slope * inner * weight
        loss += weight * error
        d_w, d_b = g * raw, g
        d_qt, d_qh, d_t = g * w * tv, tl.zeros_like(tv), g * w * qt
        if COUNT > 0:
            scale = w_negative * weight / (2 * COUNT)
            position = (tl.load(start_at) + place * batch + i) * (2 * COUNT)
            losses = tl.zeros((LANES,), tl.float32)
            all_w, all_b = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
            for side in tl.static_range(2):
                query = qh if side == 0 else qt
                grown = tl.zeros((LANES, COLUMNS), tl.float32)
                for begin in range(0, COUNT, LANES):
                    lane = begin + tl.arange(0, LANES)
                    rows = lane < COUNT
                    slot = lane + side * COUNT
                    counter = (position + slot).to(tl.uint64)
                    others, usable = corrupt(
                        bases, member, counter, h, r, t, n_entities, n_relations, fact_keys, n_keys, rounds,
                        side == 0, RETRIES,
                    )
                    kept = others
                    if PHASE == 2:
                        base = tl.load(choice_bases + member).to(tl.uint64, bitcast=True)
                        chosen = rows & (unit(draw(base, counter)) < tl.load(share_at))
                        x, y, z, old = pool_samples(triples, scores, member, places, chosen, draw_bases, counter)
                        part, more_w, more_b = free_triples(
                            entity, g_entity, relation, g_relation, x, y, z, old, tl.where(chosen, scale, 0.0),
                            column, inside, w, b, WIDTH, RECTIFIED, False,
                        )
                        losses += part
                        all_w += more_w
                        all_b += more_b
                        usable = usable & (chosen == 0)
                        kept = tl.where(chosen, -1, others)
                    part, grow, more_w, more_b, values = fresh_side(
                        entity, g_entity, query, others, usable, rows, column, inside, w, b, scale, WIDTH, RECTIFIED
                    )
                    losses += part
                    grown += grow
                    all_w += more_w
                    all_b += more_b
                    if PHASE > 0:
                        at = program * (2 * COUNT) + slot
                        tl.store(fresh + at, kept.to(tl.int32), mask=rows)
                        tl.store(fresh_values + at, tl.minimum(tl.maximum(values, 0.0), 1.0), mask=rows)
                if side == 0:
                    d_qh += tl.sum(grown, 0)
                else:
                    d_qt += tl.sum(grown, 0)
            loss += tl.sum(losses)
            d_w += tl.sum(all_w)
            d_b += tl.sum(all_b)
        norm = regular * weight
        loss += 0.5 * norm * (tl.sum(hv * hv) + tl.sum(rv * rv) + tl.sum(tv * tv))
        tl.atomic_add(g_entity + h * WIDTH + column, d_qt * rv + norm * hv, mask=inside, sem="relaxed")
        tl.atomic_add(g_entity + t * WIDTH + column, d_qh * rv + d_t + norm * tv, mask=inside, sem="relaxed")
        d_r = d_qt * hv + d_qh * tv + norm * rv
        tl.atomic_add(g_relation + r * WIDTH + column, d_r, mask=inside, sem="relaxed")
        tl.atomic_add(sums + 1, d_w, sem="relaxed")
        tl.atomic_add(sums + 2, d_b, sem="relaxed")
    if SOFT:  # noqa: SIM102 (one condition is settled when the kernel is compiled, the other when it runs)
        if i == 0:
            base = tl.load(soft_bases + member).to(tl.uint64, bitcast=True)
            chosen = below(draw(base, tl.load(step_at).to(tl.uint64)), n_soft)
            chosen += tl.arange(0, 1)
            h, r, t = tl.load(soft + chosen * 3), tl.load(soft + chosen * 3 + 1), tl.load(soft + chosen * 3 + 2)
            part, more_w, more_b = free_triples(
                entity, g_entity, relation, g_relation, h, r, t, tl.load(soft_targets + chosen),
                tl.zeros((1,), tl.float32) + w_soft, column, inside, w, b, WIDTH, RECTIFIED, True,
            )
            loss += tl.sum(part)
            tl.atomic_add(sums + 1, tl.sum(more_w), sem="relaxed")
            tl.atomic_add(sums + 2, tl.sum(more_b), sem="relaxed")
    tl.atomic_add(sums, loss, sem="relaxed")


@triton.jit(do_not_specialize=["places", "members", "batch"])
def pool_insert(
    order, place_at, start_at, heads, relations, tails, triples, scores, places, fresh, fresh_values,
    members, batch, COUNT: tl.constexpr, LANES: tl.constexpr,
):
    """Puts a batch's corruptions into the pool after the batch, so that no draw sees half a batch."""
    program = tl.program_id(0).to(tl.int64)
    member, i = program // batch, program % batch
    place = tl.load(place_at)
    fact = tl.load(order + (place * members + member) * batch + i)
    if fact >= 0:
        h, r, t = tl.load(heads + fact), tl.load(relations + fact), tl.load(tails + fact)
        slot = tl.arange(0, LANES)
        rows = slot < 2 * COUNT
        other = tl.load(fresh + program * (2 * COUNT) + slot, mask=rows, other=-1)
        rows = rows & (other >= 0)
        position = (tl.load(start_at) + place * batch + i) * (2 * COUNT)
        at = member * places + (position + slot) % places
        at_head = slot < COUNT
        tl.store(triples + at * 3, tl.where(at_head, other, h.to(tl.int32)), mask=rows)
        tl.store(triples + at * 3 + 1, tl.zeros_like(other) + r.to(tl.int32), mask=rows)
        tl.store(triples + at * 3 + 2, tl.where(at_head, t.to(tl.int32), other), mask=rows)
        value = tl.load(fresh_values + program * (2 * COUNT) + slot, mask=rows, other=0.0)
        tl.store(scores + at, value, mask=rows)
