"""What the fused GPU kernels share: random numbers, filtered negatives, the error of a fact, and steps of Adam.

Both kernels of a batch take their arguments in groups; all are pointers to tensors but for the numbers of things:

- the batch: `order` (steps, members, batch) of the facts, -1 where the last one is short; `place_at`, its number in the
  epoch; `start_at`, the facts of all earlier epochs; `n_facts`;
- the facts, (n_facts,) each: `heads`, `relations`, `tails`, `targets`; and `taus`, the quantile of each member;
- the tables (members, rows, width) in the order of the backbone, then their gradients (`g_...`) in the same order;
- negatives: `bases` of their random numbers by member; `fact_keys`, the sorted keys of `n_keys` facts, which a search
  finds in so many `rounds`, 0 to leave them in;
- soft logic: `soft` triples (n_soft, 3) with their `soft_targets`, drawn by `soft_bases` and the step in `step_at`;
- PASSLEAF's pool: `triples` (members, places, 3) with `scores`; samples have the share in `share_at`, and are chosen
  and drawn by `choice_bases` and `draw_bases`; `fresh` and `fresh_values` get the corruptions that enter the pool;
- `sums` (members, SLOTS, 8) with the loss in its first column and the gradients of w and b in the next two, the numbers
  of members, facts a batch, entities and relations, and the weights of the terms (`w_negative`, `regular`, `w_soft`,
  `w_side`, `w_other`).

Constants: COUNT negatives a side, LANES of them at once; rows of WIDTH numbers in COLUMNS lanes; RETRIES of a draw;
PHASE of the pool: 0 before corruptions enter it, 1 while they do, 2 when samples are drawn too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from unkgcp.training import randomness

GOLDEN = tl.constexpr(randomness.GOLDEN)
FIRST = tl.constexpr(randomness.FIRST)
SECOND = tl.constexpr(randomness.SECOND)
# what all facts of a member add to has so many places, 32 bytes apart: additions to one place wait for each other, with
# ten members for as long as a batch takes otherwise
SLOTS = tl.constexpr(32)
# sizes are never compiled in: one compilation serves every graph and number of members
SIZES = [
    "n_facts",
    "n_keys",
    "rounds",
    "n_soft",
    "places",
    "members",
    "batch",
    "n_entities",
    "n_relations",
    "steps",
]

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
def is_known(keys, fact_keys, n_keys, rounds):
    """Binary search of the keys (k,) among the sorted known ones."""
    low = tl.zeros(keys.shape, tl.int32)
    high = low + n_keys
    for _ in range(rounds):
        middle = (low + high) // 2
        smaller = tl.load(fact_keys + tl.minimum(middle, n_keys - 1)) < keys
        low = tl.where((low < high) & smaller, middle + 1, low)
        high = tl.where((low < high) & (smaller == 0), middle, high)
    return tl.load(fact_keys + tl.minimum(low, n_keys - 1)) == keys


@triton.jit
def corrupt(
    bases, member, counter, h, r, t, n_entities, n_relations, fact_keys, n_keys, rounds,
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
            taken = is_known(keys, fact_keys, n_keys, rounds)
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
def step_some(at, inside, parameter, gradient, first_at, second_at, lr, eps, momentum):
    # nothing else reads the moments, so they need not stay in the cache
    value = tl.load(parameter + at, mask=inside, other=0.0)
    slope = tl.load(gradient + at, mask=inside, other=0.0)
    first = 0.9 * tl.load(first_at + at, mask=inside, other=0.0, eviction_policy="evict_first") + 0.1 * slope
    second = (
        0.999 * tl.load(second_at + at, mask=inside, other=0.0, eviction_policy="evict_first") + 0.001 * slope * slope
    )
    tl.store(parameter + at, value - lr * first / (tl.sqrt(second) + eps), mask=inside)
    tl.store(first_at + at, first, mask=inside, eviction_policy="evict_first")
    tl.store(second_at + at, second, mask=inside, eviction_policy="evict_first")
    tl.store(gradient + at, slope * momentum, mask=inside)


@triton.jit(do_not_specialize=["count"])
def step_all(parameter, gradient, first_at, second_at, rates, place_at, momentum, count, BLOCK: tl.constexpr):
    """A step of Adam on all tables, after `count_step`; gradients are multiplied by `momentum` afterwards.

    rates: the learning rate and the epsilon of each step of the epoch, one after the other.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(place_at) - 1
    lr, eps = tl.load(rates + 2 * place), tl.load(rates + 2 * place + 1)
    # four numbers are moved at once only where the compiler sees that their mask is the same
    fours = count // 4 * 4
    step_some(at, at < fours, parameter, gradient, first_at, second_at, lr, eps, momentum)
    if tl.program_id(0) == 0:
        rest = fours + tl.arange(0, 4)
        step_some(rest, rest < count, parameter, gradient, first_at, second_at, lr, eps, momentum)


@triton.jit
def sum_up(at, active):
    """The sum of each member's places, which are cleared for the next batch."""
    values = tl.load(at, mask=active[:, None], other=0.0)
    tl.store(at, tl.zeros_like(values), mask=active[:, None])
    return tl.sum(values, 1)


@triton.jit(do_not_specialize=["members"])
def count_step(
    sums, g_w, g_b, loss_at, total_at, bad_at, step_at, place_at, members, LANES: tl.constexpr, WEIGHTS: tl.constexpr,
):
    """Ends a batch: adds its loss to the epoch's, with `loss_at`, and the sums of gradients to those of w and b.

    It notes the first step whose loss is no number, and counts the step.
    """
    lane = tl.arange(0, LANES)
    active = lane < members
    at = sums + (lane[:, None] * SLOTS + tl.arange(0, SLOTS)[None, :]) * 8
    loss = tl.load(loss_at + lane, mask=active, other=0.0) + sum_up(at, active)
    tl.store(total_at + lane, tl.load(total_at + lane, mask=active, other=0.0) + loss, mask=active)
    tl.store(loss_at + lane, tl.zeros_like(loss), mask=active)
    if WEIGHTS:
        tl.store(g_w + lane, tl.load(g_w + lane, mask=active, other=0.0) + sum_up(at + 1, active), mask=active)
        tl.store(g_b + lane, tl.load(g_b + lane, mask=active, other=0.0) + sum_up(at + 2, active), mask=active)
    step, bad = tl.load(step_at), tl.load(bad_at)
    wrong = tl.max((loss - loss != 0).to(tl.int32))  # an infinite number less itself is not 0
    tl.store(bad_at, tl.where((bad < 0) & (wrong > 0), step, bad))
    tl.store(step_at, step + 1)
    tl.store(place_at, tl.load(place_at) + 1)
