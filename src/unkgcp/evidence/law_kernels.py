"""Compiled loops of `unkgcp.evidence.distribution`: the cells of a query, and its central intervals.

They work row by row and without the interpreter's lock. The module is imported only where it is used, because numba
takes a second to load. All take the same arrays first, `Distribution.columns`: low, high (S,), kind (S,) and share (S,)
of the pieces, shape (groups, J) of the law between atoms; and of each query the mass of its classes, its location,
scale and group, and the values and masses of its slots.
"""

from __future__ import annotations

import numpy as np

from unkgcp.loops import njit

STATIC = 0.01  # share of the mass between atoms that is spread like the training facts, whatever the law says
SLACK = 1e-12  # of a mass, for rounding; it moves ends outwards


@njit(nogil=True)
def _below(quantiles, z, begin):
    """The share of a law below z, from its quantiles at (0.5, 1.5, ...) / J, even in between; and the last one below z.

    The search starts at the quantile `begin`, which is not above z.
    """
    last = len(quantiles) - 1
    if z <= quantiles[0]:
        return 0.0, 0
    if z >= quantiles[last]:
        return 1.0, last
    while quantiles[begin + 1] <= z:
        begin += 1
    part = (z - quantiles[begin]) / (quantiles[begin + 1] - quantiles[begin])
    return (begin + 0.5 + part) / (last + 1), begin


@njit(nogil=True)
def _piece_masses(low, high, kind, share, quantiles, masses, location, scale, out):
    """Divides the mass of each class over its pieces: those between atoms as the law of the query says.

    A piece without a share lies beyond all confidences and gets nothing.
    """
    total = np.zeros(len(masses))
    lower, place = 0.0, 0
    if len(quantiles) > 1:
        lower, place = _below(quantiles, (low[0] - location) / scale, 0)
    for piece in range(len(low)):
        weight = share[piece]
        if low[piece] < high[piece] and len(quantiles) > 1:
            upper, place = _below(quantiles, (high[piece] - location) / scale, place)
            if weight > 0:
                weight = upper - lower + STATIC * share[piece]
            lower = upper
        out[piece] = weight
        total[kind[piece]] += weight
    for piece in range(len(low)):
        of_class = total[kind[piece]]
        out[piece] *= masses[kind[piece]] / of_class if of_class > 0 else 0.0


@njit(nogil=True)
def _cells(low, high, piece_mass, slot_value, slot_mass):
    """Ends and mass of one query's cells in ascending order.

    Piece i, from low[i] to high[i], has piece_mass[i]. The mass of a slot (a suggested value of this query) is added to
    the atom that it equals; otherwise the slot becomes a cell of width 0 that cuts a piece in two. Pieces are cut
    between values or at atoms, so a slot that stands where a piece ends is the atom that follows.
    """
    count = 0
    slots = len(slot_mass)
    room = len(low) + 2 * slots + 1
    lo, hi, mass = np.empty(room), np.empty(room), np.empty(room)
    used = np.zeros(slots, np.bool_)
    last = len(low) - 1
    for piece in range(len(low)):
        a, b, m = low[piece], high[piece], piece_mass[piece]
        whole, extra = b - a, 0.0
        while True:
            best = -1
            for slot in range(slots):
                if used[slot] or slot_mass[slot] <= 0.0:
                    continue
                here = slot_value[slot] <= b and (slot_value[slot] < b or piece == last or a == b)
                if here and (best < 0 or slot_value[slot] < slot_value[best]):
                    best = slot
            if best < 0:
                break
            used[best] = True
            v = max(slot_value[best], a)
            if low[piece] == b:
                extra += slot_mass[best]
                continue
            if v > a:
                part = piece_mass[piece] * ((v - a) / whole)
                lo[count], hi[count], mass[count] = a, v, part
                count += 1
                m -= part
            lo[count], hi[count], mass[count] = v, v, slot_mass[best]
            count += 1
            a = v
        lo[count], hi[count], mass[count] = a, b, max(m, 0.0) + extra
        count += 1
    return lo[:count], hi[:count], mass[:count]


@njit(nogil=True)
def _query(low, high, kind, share, shape, masses, location, scale, group, slot_value, slot_mass):
    """Ends and mass of one query's cells."""
    piece_mass = np.empty(len(low))
    _piece_masses(low, high, kind, share, shape[group], masses, location, scale, piece_mass)
    return _cells(low, high, piece_mass, slot_value, slot_mass)


@njit(nogil=True)
def _total(mass):
    """The sum of masses; numba's own would load SciPy, see `unkgcp.loops.njit`."""
    total = 0.0
    for cell in range(len(mass)):
        total += mass[cell]
    return total


@njit(nogil=True)
def _score(lo, hi, mass, y):
    """The central mass that just excludes y: max(0, 1 - 2 F(y), 2 F(y-) - 1)."""
    total, before, until = 0.0, 0.0, 0.0
    for cell in range(len(mass)):
        total += mass[cell]
        if hi[cell] < y:
            before += mass[cell]
            until += mass[cell]
        elif lo[cell] < y:
            part = mass[cell] * (y - lo[cell]) / (hi[cell] - lo[cell])
            before += part
            until += part
        elif lo[cell] == hi[cell] == y:
            until += mass[cell]
    return max(0.0, 1.0 - 2.0 * until / total, 2.0 * before / total - 1.0)


@njit(nogil=True)
def _lower(lo, hi, mass, wanted):
    """The smallest y with F(y) of at least the wanted mass."""
    below = 0.0
    for cell in range(len(mass)):
        if below + mass[cell] >= wanted:
            part = (wanted - below) / mass[cell] if mass[cell] > 0 else 0.0
            return lo[cell] + max(part, 0.0) * (hi[cell] - lo[cell])
        below += mass[cell]
    return hi[len(mass) - 1]


@njit(nogil=True)
def _upper(lo, hi, mass, wanted):
    """The largest y beyond which there is at least the wanted mass, y itself counted."""
    above = 0.0
    for cell in range(len(mass) - 1, -1, -1):
        if above + mass[cell] >= wanted:
            part = (wanted - above) / mass[cell] if mass[cell] > 0 else 0.0
            return hi[cell] - max(part, 0.0) * (hi[cell] - lo[cell])
        above += mass[cell]
    return lo[0]


@njit(alone=True, nogil=True)
def scores(low, high, kind, share, shape, masses, location, scale, group, slot_value, slot_mass, y, out):
    """Writes the nonconformity of labels y (n,) into out (n,)."""
    for row in range(len(y)):
        lo, hi, mass = _query(
            low, high, kind, share, shape, masses[row], location[row], scale[row], group[row], slot_value[row],
            slot_mass[row],
        )  # fmt: skip
        out[row] = _score(lo, hi, mass, y[row])


@njit(alone=True, nogil=True)
def bounds(
    low, high, kind, share, shape, masses, location, scale, group, slot_value, slot_mass, thresholds, ends
):
    """Writes smallest and largest label whose score is at most each threshold into ends (n, 2, levels)."""
    for row in range(len(thresholds)):
        lo, hi, mass = _query(
            low, high, kind, share, shape, masses[row], location[row], scale[row], group[row], slot_value[row],
            slot_mass[row],
        )  # fmt: skip
        total = _total(mass)
        for level in range(thresholds.shape[1]):
            tail = (0.5 * (1.0 - thresholds[row, level]) - SLACK) * total
            ends[row, 0, level] = _lower(lo, hi, mass, tail)
            ends[row, 1, level] = _upper(lo, hi, mass, tail)


@njit(alone=True, nogil=True)
def summary(low, high, kind, share, shape, masses, location, scale, group, slot_value, slot_mass, out):
    """Writes mean, median, the median's mass if it is an atom, and the heaviest other atom and its mass: (n, 5)."""
    for row in range(len(out)):
        lo, hi, mass = _query(
            low, high, kind, share, shape, masses[row], location[row], scale[row], group[row], slot_value[row],
            slot_mass[row],
        )  # fmt: skip
        total = _total(mass)
        median = _lower(lo, hi, mass, 0.5 * total)
        mean = 0.0
        out[row, 2:] = np.nan
        for cell in range(len(mass)):
            mean += mass[cell] * 0.5 * (lo[cell] + hi[cell])
            if lo[cell] == hi[cell]:
                if lo[cell] == median:
                    out[row, 2] = mass[cell] / total
                elif not out[row, 4] >= mass[cell] / total:
                    out[row, 3], out[row, 4] = lo[cell], mass[cell] / total
        out[row, 0], out[row, 1] = mean / total, median


@njit(alone=True, nogil=True)
def pieces(low, high, kind, share, shape, masses, location, scale, group, out):
    """Writes the mass of every piece, without the slots, into out (n, S)."""
    for row in range(len(out)):
        _piece_masses(
            low, high, kind, share, shape[group[row]], masses[row], location[row], scale[row], out[row]
        )


@njit(alone=True, nogil=True)
def classes(low, high, kind, share, shape, masses, location, scale, group, out, class_of_piece):
    """Writes the mass of all pieces of each class, other classes than those whose mass is divided, into out (n, K).

    Each row is added up in the order of the pieces, so that a query alone gets the bits that it gets among others.
    """
    piece_mass = np.empty(len(low))
    for row in range(len(out)):
        _piece_masses(
            low, high, kind, share, shape[group[row]], masses[row], location[row], scale[row], piece_mass
        )
        out[row] = 0.0
        for piece in range(len(low)):
            out[row, class_of_piece[piece]] += piece_mass[piece]
