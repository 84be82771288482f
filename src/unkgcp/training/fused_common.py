"""What the fused GPU kernels share: random numbers, filtered negatives, the error of a fact, and Adam's steps.

Adam's steps are lazy: a step moves the rows that its batch reads, and no others. `taken` counts the steps of the epoch
that a row of the entity table has made, and the row's gradient belongs to the next one. Before a batch reads a row,
`settle` lets it make the steps it has missed: the first with its gradient, the others without. At the end of an epoch
`settle_all` does so for every row. The result is that of dense steps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training import randomness

GOLDEN = tl.constexpr(randomness.GOLDEN)
FIRST = tl.constexpr(randomness.FIRST)
SECOND = tl.constexpr(randomness.SECOND)
BETA1 = tl.constexpr(0.9)
BETA2 = tl.constexpr(0.999)
ROOT_BETA2 = tl.constexpr(0.999**0.5)
LOG2_BETA1 = tl.constexpr(-0.15200309344504997)
LOG2_BETA2 = tl.constexpr(-0.0014434168696687186)
EPSILON = tl.constexpr(1e-8)
AT_ONCE = tl.constexpr(16)  # steps between two checks whether they still move anything

# sizes are never compiled in: one compilation serves every graph and number of members
SIZES = ["n_facts", "n_known", "rounds", "n_soft", "places", "members", "batch", "n_entities", "n_relations"]

# fmt: off


@triton.jit
def draw(base, counter):
    """64 random bits; the twin of `randomness.draw`."""
    value = base + counter * GOLDEN
    value = (value ^ (value >> 30)) * FIRST
    value = (value ^ (value >> 27)) * SECOND
    return value ^ (value >> 31)


@triton.jit
def below(bits, limit):
    return (((bits >> 32) * limit.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def unit(bits):
    return (bits >> 40).to(tl.float32) * (2.0**-24)


@triton.jit
def is_known(keys, known, n_known, rounds):
    """Binary search of the keys (k,) among the sorted known ones."""
    low = tl.zeros_like(keys)
    high = low + n_known
    for _ in range(rounds):
        middle = (low + high) // 2
        smaller = tl.load(known + tl.minimum(middle, n_known - 1)) < keys
        low = tl.where((low < high) & smaller, middle + 1, low)
        high = tl.where((low < high) & (smaller == 0), middle, high)
    return tl.load(known + tl.minimum(low, n_known - 1)) == keys


@triton.jit
def corrupt(
    bases, member, counter, h, r, t, n_entities, n_relations, known, n_known, rounds,
    AT_HEAD: tl.constexpr, RETRIES: tl.constexpr,
):
    """Entities for one side of a fact (k,), and whether each may be used; see `losses.Corruptions`."""
    base = tl.load(bases + member).to(tl.uint64, bitcast=True)
    drawn = below(draw(base, counter), n_entities)
    taken = drawn < 0
    if rounds > 0:
        retry = 0
        taken = drawn >= 0
        while retry < RETRIES:
            if retry > 0:
                again = below(draw(base + retry, counter), n_entities)
                drawn = tl.where(taken, again, drawn)
            if AT_HEAD:  # noqa: SIM108 (settled when the kernel is compiled)
                keys = (drawn * n_relations + r) * n_entities + t
            else:
                keys = (h * n_relations + r) * n_entities + drawn
            taken = is_known(keys, known, n_known, rounds)
            retry += 1
            if tl.max(taken.to(tl.int32)) == 0:
                retry = RETRIES
    return drawn, taken == 0


@triton.jit
def fact_error(value, target, tau, QUANTILE: tl.constexpr):
    """(error, dError/dvalue) of a fact: squared, or the pinball loss."""
    if QUANTILE:
        under = target > value
        error = tl.where(under, tau * (target - value), (1 - tau) * (value - target))
        slope = tl.where(under, -tau, 1 - tau)
    else:
        error = (value - target) * (value - target)
        slope = 2 * (value - target)
    return error, slope


@triton.jit
def adam(value, first, second, gradient, size, root):
    """One step; `size` is the learning rate over the correction of the first moment, `root` corrects the second."""
    first = BETA1 * first + (1 - BETA1) * gradient
    second = BETA2 * second + (1 - BETA2) * gradient * gradient
    return value - size * first / (tl.sqrt(second) * root + EPSILON), first, second


@triton.jit
def catch_up(
    parameter, gradient, first_at, second_at, sizes, roots, row, begin, end,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Steps begin to end - 1 of a row, the first of them with its gradient, which is cleared."""
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    at = row * WIDTH + column
    value = tl.load(parameter + at, mask=inside, other=0.0)
    first = tl.load(first_at + at, mask=inside, other=0.0)
    second = tl.load(second_at + at, mask=inside, other=0.0)
    slope = tl.load(gradient + at, mask=inside, other=0.0)
    value, first, second = adam(value, first, second, slope, tl.load(sizes + begin), tl.load(roots + begin))
    deviation = tl.sqrt(second)
    step = begin + 1
    while step < end:
        last = tl.minimum(step + AT_ONCE, end)
        before = value
        while step < last:
            first *= BETA1
            deviation *= ROOT_BETA2
            second *= BETA2
            before = value
            value -= tl.load(sizes + step) * first / (deviation * tl.load(roots + step) + EPSILON)
            step += 1
        # steps without a gradient only get smaller: once the last one was lost in rounding, the rest are too
        if tl.max((value != before).to(tl.int32)) == 0:
            rest = (end - step).to(tl.float32)
            first *= tl.exp2(rest * LOG2_BETA1)
            second *= tl.exp2(rest * LOG2_BETA2)
            step = end
    tl.store(parameter + at, value, mask=inside)
    tl.store(first_at + at, first, mask=inside)
    tl.store(second_at + at, second, mask=inside)
    tl.store(gradient + at, tl.zeros_like(slope), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def settle(
    order, place_at, start_at, n_facts, heads, relations, tails,
    entity, gradient, first, second, taken, sizes, roots,
    bases, known, n_known, rounds, soft, n_soft, soft_bases, step_at,
    triples, places, share_at, choice_bases, draw_bases, members, batch, n_entities, n_relations,
    COUNT: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, RETRIES: tl.constexpr,
    SOFT: tl.constexpr, PHASE: tl.constexpr,
):
    """Bring one row that the batch will read up to date: each program has one slot of a fact.

    The slots of a fact are its head, its tail, and each negative or the two ends of a pool sample. The last two
    programs of a member are for its soft-logic fact.
    """
    program = tl.program_id(0).to(tl.int64)
    each = batch * SLOTS + 2
    member, own = program // each, program % each
    place = tl.load(place_at)
    row = tl.full((), -1, tl.int64)
    if own >= batch * SLOTS:
        if SOFT:
            base = tl.load(soft_bases + member).to(tl.uint64, bitcast=True)
            chosen = below(draw(base, tl.load(step_at).to(tl.uint64)), n_soft)
            row = tl.load(soft + chosen * 3 + 2 * (own - batch * SLOTS))
    else:
        i, slot = own // SLOTS, own % SLOTS
        fact = tl.load(order + (place * members + member) * batch + i)
        if fact >= 0:
            h, r, t = tl.load(heads + fact), tl.load(relations + fact), tl.load(tails + fact)
            if slot == 0:
                row = h
            elif slot == 1:
                row = t
            else:
                # with a pool there are two slots for each sample, one for each of its ends
                side_of = (slot - 2) // (2 * COUNT) if COUNT > 0 else slot
                lane = (slot - 2) % (2 * COUNT) if COUNT > 0 else slot
                counter = ((tl.load(start_at) + place * batch + i) * (2 * COUNT) + lane).to(tl.uint64)
                pooled = counter < 0
                if PHASE == 2:
                    base = tl.load(choice_bases + member).to(tl.uint64, bitcast=True)
                    pooled = unit(draw(base, counter)) < tl.load(share_at)
                if pooled:
                    base = tl.load(draw_bases + member).to(tl.uint64, bitcast=True)
                    at = member * places + below(draw(base, counter), places)
                    row = tl.load(triples + at * 3 + 2 * side_of).to(tl.int64)
                elif side_of == 0:
                    one = tl.arange(0, 1)
                    counters = counter + one.to(tl.uint64)
                    if lane < COUNT:
                        others, _ = corrupt(
                            bases, member, counters, h, r, t, n_entities, n_relations, known, n_known, rounds,
                            True, RETRIES,
                        )
                        row = tl.sum(others)
                    else:
                        others, _ = corrupt(
                            bases, member, counters, h, r, t, n_entities, n_relations, known, n_known, rounds,
                            False, RETRIES,
                        )
                        row = tl.sum(others)
    if row >= 0:
        row += member * n_entities
        begin = tl.atomic_xchg(taken + row, place.to(tl.int32), sem="relaxed")
        if begin < place:
            catch_up(entity, gradient, first, second, sizes, roots, row, begin, place.to(tl.int32), WIDTH, COLUMNS)


@triton.jit(do_not_specialize=["steps"])
def settle_all(
    entity, gradient, first, second, taken, sizes, roots, steps, WIDTH: tl.constexpr, COLUMNS: tl.constexpr
):
    """Every row makes the steps that are left of an epoch."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(taken + row)
    if begin < steps:
        catch_up(entity, gradient, first, second, sizes, roots, row, begin, steps, WIDTH, COLUMNS)
    tl.store(taken + row, 0)


@triton.jit(do_not_specialize=["count"])
def step_rest(
    parameter, gradient, first_at, second_at, sizes, roots, place_at, momentum, count, BLOCK: tl.constexpr
):
    """The dense step of a flat piece of the tables; gradients are multiplied by `momentum` afterwards."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    place = tl.load(place_at)
    value = tl.load(parameter + at, mask=inside, other=0.0)
    first = tl.load(first_at + at, mask=inside, other=0.0)
    second = tl.load(second_at + at, mask=inside, other=0.0)
    slope = tl.load(gradient + at, mask=inside, other=0.0)
    value, first, second = adam(value, first, second, slope, tl.load(sizes + place), tl.load(roots + place))
    tl.store(parameter + at, value, mask=inside)
    tl.store(first_at + at, first, mask=inside)
    tl.store(second_at + at, second, mask=inside)
    tl.store(gradient + at, slope * momentum, mask=inside)


@triton.jit(do_not_specialize=["members"])
def count_step(loss_at, total_at, bad_at, step_at, place_at, members, LANES: tl.constexpr):
    """Ends a step: adds its loss to the epoch's, notes the first step whose loss is no number, and counts the step."""
    lane = tl.arange(0, LANES)
    own = lane < members
    loss = tl.load(loss_at + lane, mask=own, other=0.0)
    tl.store(total_at + lane, tl.load(total_at + lane, mask=own, other=0.0) + loss, mask=own)
    tl.store(loss_at + lane, tl.zeros_like(loss), mask=own)
    step, bad = tl.load(step_at), tl.load(bad_at)
    wrong = tl.max((loss - loss != 0).to(tl.int32))  # an infinite number less itself is not 0
    tl.store(bad_at, tl.where((bad < 0) & (wrong > 0), step, bad))
    tl.store(step_at, step + 1)
    tl.store(place_at, tl.load(place_at) + 1)
